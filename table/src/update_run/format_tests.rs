//! The bytes of blocks: as docs/format.md has them, as few as they should be, and damaged.

use super::tests::{RUN, codec, files, read, records, types, write};
use super::values::put_values;
use super::*;
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, ErrorKind, Interval, RowId, SqlType, Value, checksum, rng::Rng,
};
use strandline_device::File;
use strandline_storage::file::Tier;
use strandline_storage::run::{HEADER_BYTES, HEADER_IDENTITY, VERSION, header};

const ROW: RowId = RowId(2);

fn record(kind: RunRecordKind, ts: u64, columns: &[(u32, Value)]) -> RunRecord {
    let columns = columns.iter();
    RunRecord {
        row: ROW,
        ts: CommitTs(ts),
        kind,
        columns: columns.map(|(c, v)| (ColumnId(*c), v.clone())).collect(),
    }
}

fn version(ts: u64, columns: &[(u32, Value)]) -> RunRecord {
    record(RunRecordKind::Update, ts, columns)
}

/// The bytes between header and index.
fn blocks(records: &[RunRecord]) -> Vec<u8> {
    let files = files();
    let run = write(&files, records);
    let len = run.index().blocks.iter().map(|b| b.len as usize).sum();
    let mut bytes = vec![0; len];
    let file: Arc<dyn File> = files.device().open("run").unwrap();
    file.read_exact_at(&mut bytes, HEADER_BYTES as u64).unwrap();
    bytes
}

/// Versions of a row that set one column of this type to these values, newest first.
fn column(t: SqlType, values: &[Value]) -> Vec<RunRecord> {
    let id = types().iter().find(|(_, of)| *of == t).unwrap().0;
    let ts = (0..values.len() as u64).rev();
    ts.zip(values)
        .map(|(ts, v)| version(1000 + ts, &[(id.0, v.clone())]))
        .collect()
}

/// Writes and reads; the bytes of the values in one group.
fn values_bytes(t: SqlType, values: &[Value]) -> usize {
    let records = column(t, values);
    let found = read(&write(&files(), &records), 0, 9).unwrap();
    for (found, wanted) in found.iter().zip(&records) {
        // Not by comparison, to which two NaNs differ and two zeros do not.
        assert_eq!(format!("{found:?}"), format!("{wanted:?}"));
    }
    assert_eq!(found.len(), records.len());
    let mut bytes = Vec::new();
    put_values(&mut bytes, &values.iter().collect::<Vec<_>>());
    bytes.len()
}

/// Table 6 of the L-Store paper: b2's versions of A (text, column 3) and C (bytea,
/// column 21).
#[test]
fn a_row_is_one_group_with_its_versions_by_column() {
    let text = |text: &str| Value::from(text);
    let bytea = |text: &str| Value::Bytea(text.as_bytes().into());
    let old = |column, value| record(RunRecordKind::OldValue, 784, &[(column, value)]);
    let records = [
        version(1165, &[(21, bytea("c21"))]),
        version(1164, &[(3, text("a22"))]),
        version(1161, &[(3, text("a21"))]),
        old(21, bytea("c2")),
        old(3, text("a2")),
    ];
    #[rustfmt::skip]
    let expected = [
        &1165u64.to_le_bytes()[..], &784u64.to_le_bytes(), // what times count from
        &[0, 36],             // row 2 − 2, length
        &[4 << 2 | 1],        // five records: an update,
        &[0b10_10_01_01],     // two updates, two old values
        &[0, 1, 5, 0, 0],     // 19:25, − 1, − 3 minutes, 13:04 twice
        &[2],                 // columns
        &[3, 0b10110, 4],     // A of records 1, 2 and 4
        &[0, 0, 3], b"a22", &[2, 0, 1], b"1", &[2, 0, 0],
        &[18, 0b01001, 0],     // C of records 0 and 3, one by one
        &[4, 3], b"c21", &[4, 2], b"c2",
    ]
    .concat();
    assert_eq!(blocks(&records), expected);
    let run = write(&files(), &records);
    assert_eq!(read(&run, 2, 3).unwrap(), records);
}

#[test]
fn values_cost_what_they_change() {
    let n = 64;
    let numbers = |step: i64| -> Vec<Value> {
        (0..n)
            .map(|i| Value::BigInt((1 << 50) - i * step))
            .collect()
    };
    // The form, the first value, a byte for each other.
    assert_eq!(values_bytes(SqlType::BigInt, &numbers(1)), 1 + 8 + 63);
    assert_eq!(values_bytes(SqlType::BigInt, &numbers(0)), 1 + 8 + 63);
    let doubles: Vec<Value> = (0..n).map(|i| Value::Double(1e6 - i as f64)).collect();
    let bytes = values_bytes(SqlType::Double, &doubles);
    assert!(bytes < 64 * 5, "{bytes}");
    let text = "a text that has been the same for a very long time: ";
    let texts: Vec<Value> = (0..n)
        .map(|i| format!("{text}{:02}.", i % 7).into())
        .collect();
    let bytes = values_bytes(SqlType::Text, &texts);
    assert!(bytes < 100 + 64 * 5, "{bytes}");
    let uuid = |i: i64| Value::Uuid((0x1234_5678_9abc_def0_u128 << 64 | i as u128).to_le_bytes());
    let bytes = values_bytes(SqlType::Uuid, &(0..n).map(uuid).collect::<Vec<_>>());
    assert!(bytes < 20 + 64 * 5, "{bytes}");
}

#[test]
fn values_with_nothing_in_common_cost_no_more_than_one_by_one() {
    let mut rng = Rng::new(3);
    for t in [
        SqlType::BigInt,
        SqlType::Double,
        SqlType::Uuid,
        SqlType::Text,
    ] {
        let mut value = || match t {
            SqlType::BigInt => Value::BigInt(rng.next_u64() as i64),
            SqlType::Double => Value::Double(f64::from_bits(rng.next_u64())),
            SqlType::Uuid => Value::Uuid([(); 16].map(|()| rng.next_u64() as u8)),
            _ => format!("{:x}", rng.next_u64()).into(),
        };
        let values: Vec<Value> = (0..200).map(|_| value()).collect();
        let mut single = Vec::new();
        values
            .iter()
            .for_each(|v| strandline_column::types::put_value(&mut single, v));
        let bytes = values_bytes(t, &values);
        assert!(
            bytes <= 1 + single.len(),
            "{t}: {bytes} of {}",
            single.len()
        );
    }
}

#[test]
fn extremes_come_back_bit_for_bit() {
    let null = Value::Null;
    let double = |bits| Value::Double(f64::from_bits(bits));
    let real = |bits| Value::Real(f32::from_bits(bits));
    let wide = SqlType::Numeric {
        precision: 38,
        scale: 2,
    };
    let interval = |months, nanos| {
        Value::Interval(Interval {
            months,
            days: -1,
            nanos,
        })
    };
    let all = [
        (
            SqlType::BigInt,
            [i64::MAX, i64::MIN, 0, -1, i64::MIN]
                .map(Value::BigInt)
                .to_vec(),
        ),
        (
            SqlType::Double,
            [0x7ff8_0000_0000_0001, 1 << 63, 0, u64::MAX, 1]
                .map(double)
                .to_vec(),
        ),
        (
            SqlType::Real,
            [0x7fc0_0001, 1 << 31, 0, u32::MAX, 1].map(real).to_vec(),
        ),
        (
            wide,
            [i128::MAX, i128::MIN, 0, 1 << 64, -1]
                .map(Value::Numeric)
                .to_vec(),
        ),
        (wide, [5, 6, 7, 8, -9].map(Value::Numeric).to_vec()),
        (
            SqlType::Interval,
            [i32::MIN, 1, 2, 3, i32::MAX]
                .map(|m| interval(m, -1))
                .to_vec(),
        ),
        (
            SqlType::Text,
            ["", "ää", "äöä", "öä", ""].map(Value::from).to_vec(),
        ),
        (
            SqlType::Boolean,
            [true, false, false, true, true]
                .map(Value::Boolean)
                .to_vec(),
        ),
    ];
    for (t, values) in all {
        values_bytes(t, &values);
        // With NULLs at every set of places, and nothing but NULLs.
        for set in 0..32 {
            let is_null = |at: usize| set >> at & 1 == 1;
            let place =
                |(at, v): (usize, &Value)| if is_null(at) { null.clone() } else { v.clone() };
            let with_nulls: Vec<Value> = values.iter().enumerate().map(place).collect();
            values_bytes(t, &with_nulls);
        }
    }
}

/// All characters begin and end with the same bytes, so that what two texts share ends within one.
#[test]
fn texts_are_cut_within_characters() {
    let text = |c: char| format!("{c}{c}");
    let values: Vec<Value> = "äåæçäå€℁€".chars().map(|c| text(c).into()).collect();
    values_bytes(SqlType::Text, &values);
}

#[test]
fn large_values_share_what_they_have_in_common_and_are_read_back() {
    let body = "y".repeat(1 << 17);
    let values: Vec<Value> = (0..40).map(|i| format!("{body}{i}{body}").into()).collect();
    let records = column(SqlType::Text, &values);
    assert_eq!(read(&write(&files(), &records), 0, 9).unwrap(), records);
    // Three groups: one begins when there are enough records, however large.
    let bytes = blocks(&records).len();
    assert!(bytes < 7 << 17, "{bytes}");
}

#[test]
fn a_record_with_a_column_twice_is_refused() {
    let files = files();
    let mut writer = RunWriter::create(&files, Tier::Fast, "run", RUN, codec()).unwrap();
    let twice = version(5, &[(0, 1i64.into()), (3, "x".into()), (0, 1i64.into())]);
    writer.push(twice).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn runs_of_other_versions_are_refused_by_name() {
    let files = files();
    write(&files, &[version(5, &[])]);
    let file = files.device().open("run").unwrap();
    for version in [VERSION - 1, VERSION + 1] {
        let mut header = header(RUN);
        header[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = checksum(&[RUN, HEADER_IDENTITY], &header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&header, 0).unwrap();
        let error = Run::open(&files, "run", RUN, codec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let what = format!("run: update run of version {version}, this program reads {VERSION}");
        assert_eq!(error.message(), what);
    }
}

#[test]
fn every_flipped_bit_of_a_small_run_is_an_error() {
    let files = files();
    write(&files, &records(&mut Rng::new(21), 4));
    let file = files.device().open("run").unwrap();
    for at in 0..file.len().unwrap() {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        for bit in 0..8 {
            file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
            let run = Run::open(&files, "run", RUN, codec());
            let error = run.and_then(|run| read(&run, 0, u64::MAX)).unwrap_err();
            let known = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            assert!(known.contains(&error.kind()), "byte {at}: {error:?}");
        }
        file.write_all_at(&byte, at).unwrap();
    }
}

/// Bytes that are no group, behind a right checksum: errors, not panics or other groups.
#[test]
fn groups_that_nobody_writes_are_malformed() {
    let group = |body: &[u8]| {
        let times = group::BlockTimes::near(&[]);
        group::take_records(ROW, body, times, |_| Some(SqlType::Text))
    };
    let one = [1, 0, 1, 0, 4, 1, b'x'];
    assert_eq!(group(&one).unwrap(), [version(0, &[(0, "x".into())])]);
    for cut in 0..one.len() {
        assert_eq!(group(&one[..cut]), None, "cut at {cut}");
    }
    let two = [5, 1, 0, 0, 1, 0, 3, 4, 0, 0, 1, b'x', 1, 0, 0];
    let texts = [
        version(0, &[(0, "x".into())]),
        version(0, &[(0, "x".into())]),
    ];
    assert_eq!(group(&two).unwrap(), texts);
    for (what, at, byte) in [
        ("more records than bytes", 0, 0xfd),
        ("a kind of no record", 1, 0b101),
        ("fewer columns than follow", 4, 0),
        ("more columns than there are", 4, 2),
        ("a bit of no record", 6, 0b111),
        ("a column of no record", 6, 0),
        ("a form of no values", 7, 6),
        ("another type's form", 7, 1),
        ("more shared at the end than there was", 9, 1),
        ("more shared at the beginning than there was", 12, 2),
        ("the same bytes shared twice", 13, 1),
    ] {
        let mut bytes = two;
        bytes[at] = byte;
        assert_eq!(group(&bytes), None, "{what}");
    }
    let longer = [&two[..], &[0]].concat();
    assert_eq!(group(&longer), None, "bytes behind the columns");
    let twice = [1, 0, 2, 0, 4, 0, 0, 4, 0];
    assert_eq!(group(&twice), None, "a column twice");
}
