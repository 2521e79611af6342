//! Runs against a sorted list of records, and damaged ones.

use super::*;
use std::sync::Arc;
use strandline_base::{
    BoxCorners, ColumnId, CommitTs, Error, ErrorKind, Interval, Point, Result, RowId, SqlType,
    Value, checksum, rng::Rng,
};
use strandline_device::MemoryDevice;
use strandline_storage::file::{DataFiles, OPEN_FILES_MAX, Tier};
use strandline_storage::run::{RunIndex, TRAILER_BYTES, run_file_id, run_file_name};

pub(super) const RUN: u64 = 77;

pub(super) fn types() -> Vec<(ColumnId, SqlType)> {
    let numeric = |precision| SqlType::Numeric {
        precision,
        scale: 2,
    };
    let types = [
        SqlType::BigInt,
        SqlType::Text,
        SqlType::Double,
        numeric(15),
        numeric(38),
        SqlType::Uuid,
        SqlType::Boolean,
        SqlType::Bytea,
        SqlType::Real,
        SqlType::Interval,
        SqlType::SmallInt,
        SqlType::Point,
        SqlType::Box,
    ];
    types
        .into_iter()
        .enumerate()
        .map(|(i, t)| (ColumnId(i as u32 * 3), t))
        .collect()
}

fn value(rng: &mut Rng, t: SqlType) -> Value {
    if rng.one_in(6) {
        return Value::Null;
    }
    let shift = rng.below(64);
    let word = rng.next_u64() >> shift;
    match t {
        SqlType::BigInt => Value::BigInt(word as i64),
        SqlType::Text => Value::Text("täxt ".repeat(rng.below(12) as usize).into()),
        SqlType::Double => Value::Double(f64::from_bits(word & !(0x7ff << 52))),
        SqlType::Numeric { precision: 15, .. } => Value::Numeric(i128::from(word as i64)),
        SqlType::Numeric { .. } => Value::Numeric(i128::from(word) << rng.below(60)),
        SqlType::Uuid => Value::Uuid((u128::from(word) << 40).to_le_bytes()),
        SqlType::Boolean => Value::Boolean(word & 1 == 1),
        SqlType::Real => Value::Real(f32::from_bits(word as u32 & !(0xff << 23))),
        SqlType::Interval => Value::Interval(Interval {
            months: word as i32,
            days: 1,
            nanos: -(word as i64),
        }),
        SqlType::SmallInt => Value::SmallInt(word as i16),
        SqlType::Point => Value::Point(Point::from_words([word, word << 9])),
        SqlType::Box => Value::Box(BoxCorners::new([word as f64, -1.5], [0.1, shift as f64])),
        _ => Value::Bytea(vec![word as u8; rng.below(40) as usize].into()),
    }
}

/// A value that has much in common with `before`.
fn like(rng: &mut Rng, before: &Value) -> Value {
    let step = rng.below(3) as i64 - 1;
    match before {
        Value::BigInt(v) => Value::BigInt(v.wrapping_add(step)),
        Value::Numeric(v) => Value::Numeric(v + i128::from(step)),
        Value::Double(v) => Value::Double(v + 0.5),
        Value::Real(v) => Value::Real(v * 2.0),
        Value::Text(v) => match rng.below(3) {
            0 => Value::Text(format!("{v}{step}").into()),
            1 => Value::Text(format!("{step}{v}").into()),
            _ => Value::Text(v.replacen('t', "ë", 1).into()),
        },
        Value::Bytea(v) => Value::Bytea([v, &[step as u8][..]].concat().into()),
        Value::Point(v) => Value::Point(Point::new(v.coordinates().map(|c| c + 0.5))),
        Value::Box(v) => Value::Box(BoxCorners::new(v.high(), v.low().map(|c| c - 1.0))),
        Value::Interval(v) => Value::Interval(Interval {
            nanos: v.nanos.wrapping_add(step),
            ..*v
        }),
        other => other.clone(),
    }
}

/// A number below a random power of two of at most `bits - 1` bits.
fn below_power(rng: &mut Rng, bits: u64) -> u64 {
    let bits = rng.below(bits);
    rng.below(1 << bits)
}

/// Sorted records: rows with gaps, several versions of some.
pub(super) fn records(rng: &mut Rng, rows: usize) -> Vec<RunRecord> {
    let mut out: Vec<RunRecord> = Vec::new();
    let mut row = rng.below(1 << 33);
    for _ in 0..rows {
        row += 1 + below_power(rng, 18);
        let mut ts = 1_700_000_000_000_000 + rng.below(1 << 40);
        for _ in 0..=below_power(rng, 5) {
            ts -= rng.below(1000);
            let kind = match rng.below(8) {
                0 => RunRecordKind::Insert,
                1 => RunRecordKind::Delete,
                _ => RunRecordKind::Update,
            };
            let newer = out.last().cloned();
            let mut record = record(rng, row, ts, kind);
            for (column, value) in &mut record.columns {
                let newer = newer.iter().flat_map(|r| &r.columns);
                let newer = newer.filter(|(c, v)| c == column && !v.is_null());
                for (_, newer) in newer.take(rng.below(4) as usize) {
                    *value = like(rng, newer);
                }
            }
            out.push(record);
        }
        if rng.one_in(3) {
            let start = ts + rng.below(5);
            out.push(record(rng, row, start, RunRecordKind::OldValue));
        }
    }
    out
}

fn record(rng: &mut Rng, row: u64, ts: u64, kind: RunRecordKind) -> RunRecord {
    let columns = match kind {
        RunRecordKind::Delete => Vec::new(),
        _ => types()
            .into_iter()
            .filter_map(|(c, t)| {
                if rng.one_in(2) {
                    Some((c, value(rng, t)))
                } else {
                    None
                }
            })
            .collect(),
    };
    RunRecord {
        row: RowId(row),
        ts: CommitTs(ts),
        kind,
        columns,
    }
}

pub(super) fn codec() -> UpdateCodec {
    UpdateCodec::new(&types())
}

pub(super) fn files() -> Arc<DataFiles> {
    DataFiles::new(Arc::new(MemoryDevice::new()))
}

pub(super) fn write(files: &Arc<DataFiles>, records: &[RunRecord]) -> Run {
    let mut writer = RunWriter::create(files, Tier::Fast, "run", RUN, codec()).unwrap();
    records.iter().for_each(|r| writer.push(r.clone()).unwrap());
    writer.finish().unwrap()
}

pub(super) fn read(run: &Run, from: u64, to: u64) -> Result<Vec<RunRecord>> {
    let mut out = Vec::new();
    run.records(RowId(from), RowId(to), &mut |r| {
        out.push(r);
        Ok(())
    })?;
    Ok(out)
}

#[test]
fn a_run_gives_back_every_range_of_rows() {
    for (seed, rows) in [(1, 1), (2, 2), (3, 40), (4, 1000), (5, 6000)] {
        println!("seed {seed}, {rows} rows");
        let mut rng = Rng::new(seed);
        let expected = records(&mut rng, rows);
        let files = files();
        let device = files.device();
        let written = write(&files, &expected);
        let run = Run::open(&files, "run", RUN, codec()).unwrap();
        for run in [&written, &run] {
            run.verify().unwrap();
            assert_eq!(run.record_count(), expected.len() as u64);
            assert_eq!(run.min_row(), expected[0].row);
            assert_eq!(run.max_row(), expected[expected.len() - 1].row);
            assert_eq!(run.max_ts(), expected.iter().map(|r| r.ts).max().unwrap());
            assert_eq!(run.min_ts(), expected.iter().map(|r| r.ts).min().unwrap());
            assert_eq!(run.id(), RUN);
            assert_eq!(run.bytes(), device.open("run").unwrap().len().unwrap());
            assert_eq!(run.file_name(), "run");
            assert_eq!(read(run, 0, u64::MAX).unwrap(), expected);
            let mut cursor = run.cursor(RowId(0)..RowId(u64::MAX), 0);
            let found: Vec<_> = std::iter::from_fn(|| cursor.next_record().unwrap()).collect();
            assert_eq!(found, expected);
        }
        let (low, high) = (run.min_row().0, run.max_row().0);
        for _ in 0..60 {
            let from = low.saturating_sub(3) + rng.below(high - low + 6);
            let to = from + below_power(&mut rng, 40);
            let inside = |r: &&RunRecord| (from..to).contains(&r.row.0);
            let wanted: Vec<_> = expected.iter().filter(inside).cloned().collect();
            assert_eq!(read(&run, from, to).unwrap(), wanted, "rows {from}..{to}");
        }
        for _ in 0..40 {
            let row = expected[rng.below(expected.len() as u64) as usize].row;
            let wanted: Vec<_> = expected.iter().filter(|r| r.row == row).cloned().collect();
            assert_eq!(read(&run, row.0, row.0 + 1).unwrap(), wanted);
        }
    }
}

#[test]
fn a_row_with_more_versions_than_a_block_holds_is_found_whole() {
    let mut rng = Rng::new(12);
    let mut version = |row, ts| RunRecord {
        row: RowId(row),
        ts: CommitTs(ts),
        kind: RunRecordKind::Update,
        columns: vec![(ColumnId(3), format!("{:0100x}", rng.next_u64()).into())],
    };
    let mut expected: Vec<_> = (0..50).map(|row| version(row, 9)).collect();
    expected.extend((0..20_000).rev().map(|ts| version(50, 100 + ts)));
    expected.push(version(51, 1));
    let run = write(&files(), &expected);
    assert!(run.index().blocks.len() > 5);
    assert_eq!(read(&run, 50, 51).unwrap(), expected[50..20_050]);
    assert_eq!(read(&run, 49, 52).unwrap(), expected[49..]);
    assert_eq!(read(&run, 52, u64::MAX).unwrap(), []);
}

#[test]
fn huge_values_and_dropped_columns() {
    let big: Value = "y".repeat(3 << 20).as_str().into();
    let columns = vec![
        (ColumnId(0), 5i64.into()),
        (ColumnId(3), big.clone()),
        (ColumnId(6), Value::Null),
    ];
    let expected = RunRecord {
        row: RowId(u64::MAX - 1),
        ts: CommitTs(4),
        kind: RunRecordKind::Insert,
        columns,
    };
    let files = files();
    let run = write(&files, std::slice::from_ref(&expected));
    assert_eq!(read(&run, 0, u64::MAX).unwrap(), [expected]);
    let left = [
        (ColumnId(6), SqlType::Double),
        (ColumnId(99), SqlType::Date),
    ];
    let run = Run::open(&files, "run", RUN, UpdateCodec::new(&left)).unwrap();
    let columns = vec![(ColumnId(6), Value::Null)];
    assert_eq!(read(&run, 0, u64::MAX).unwrap()[0].columns, columns);
    run.verify().unwrap();
}

#[test]
fn a_replaced_run_is_removed_with_its_last_reference() {
    let files = files();
    let device = files.device();
    let run = Arc::new(write(&files, &records(&mut Rng::new(2), 10)));
    let reader = Arc::clone(&run);
    run.remove_when_unused();
    drop(run);
    assert_eq!(device.list().unwrap(), ["run"]);
    reader.verify().unwrap();
    drop(reader);
    assert!(device.list().unwrap().is_empty());
}

#[test]
fn few_runs_are_open_and_closed_ones_are_still_read() {
    let files = files();
    let runs: Vec<(Run, Vec<RunRecord>)> = (0..OPEN_FILES_MAX as u64 + 50)
        .map(|id| {
            let records = records(&mut Rng::new(id), 3);
            let name = run_file_name(id);
            let mut writer = RunWriter::create(&files, Tier::Fast, &name, id, codec()).unwrap();
            records.iter().for_each(|r| writer.push(r.clone()).unwrap());
            (writer.finish().unwrap(), records)
        })
        .collect();
    for (run, records) in &runs {
        assert_eq!(&read(run, 0, u64::MAX).unwrap(), records);
        assert!(files.open_files() <= OPEN_FILES_MAX);
    }
}

#[test]
fn file_names_and_ids_correspond() {
    assert_eq!(run_file_name(255), "run-00000000000000ff");
    assert_eq!(run_file_id("run-00000000000000ff"), Some(255));
    for other in [
        "run-ff",
        "run-00000000000000FF",
        "run-",
        "chunks-00000000000000ff",
        "run",
    ] {
        assert_eq!(run_file_id(other), None, "{other}");
    }
}

#[test]
fn order_is_checked_and_empty_runs_are_refused() {
    let files = files();
    let of = |row, ts, kind| RunRecord {
        row: RowId(row),
        ts: CommitTs(ts),
        kind,
        columns: vec![],
    };
    let mut writer = RunWriter::create(&files, Tier::Fast, "run", RUN, codec()).unwrap();
    for record in [
        of(5, 10, RunRecordKind::Update),
        of(5, 10, RunRecordKind::Update),
        of(5, 9, RunRecordKind::Insert),
        of(5, 20, RunRecordKind::OldValue),
        of(5, 2, RunRecordKind::OldValue),
    ] {
        writer.push(record).unwrap();
    }
    for record in [
        of(5, 1, RunRecordKind::Update),
        of(5, 3, RunRecordKind::OldValue),
        of(4, 1, RunRecordKind::Update),
    ] {
        let error = writer.push(record.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{record:?}");
    }
    writer.push(of(6, 7, RunRecordKind::OldValue)).unwrap();
    let run = writer.finish().unwrap();
    assert_eq!(run.min_ts(), CommitTs(2));
    assert_eq!(
        run.oldest_version(),
        CommitTs(9),
        "old values are no versions"
    );
    assert!(
        RunWriter::create(&files, Tier::Fast, "run", RUN, codec()).is_err(),
        "the file exists"
    );
    let writer = RunWriter::create(&files, Tier::Fast, "none", RUN, codec()).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Internal);
}

#[test]
fn a_visitors_error_ends_the_visit() {
    let run = write(&files(), &records(&mut Rng::new(8), 100));
    let mut seen = 0;
    let error = run.records(RowId(0), RowId(u64::MAX), &mut |_| {
        seen += 1;
        if seen == 3 {
            Err(Error::internal("enough"))
        } else {
            Ok(())
        }
    });
    assert_eq!((error.unwrap_err().message(), seen), ("enough", 3));
}

#[test]
fn every_damaged_byte_is_found() {
    let files = files();
    let device = files.device();
    let mut rng = Rng::new(9);
    write(&files, &records(&mut rng, 400));
    let file = device.open("run").unwrap();
    let len = file.len().unwrap();
    for at in (0..len).filter(|&at| at < 200 || at + 300 > len || at % 301 == 0) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        let flipped = [byte[0] ^ (1 << rng.below(8))];
        file.write_all_at(&flipped, at).unwrap();
        let result = Run::open(&files, "run", RUN, codec()).and_then(|run| run.verify());
        let error = result.expect_err("a damaged byte");
        let expected = [ErrorKind::Corrupt, ErrorKind::Unsupported];
        assert!(expected.contains(&error.kind()), "byte {at}: {error:?}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(
        Run::open(&files, "run", RUN + 1, codec()).is_err(),
        "another run"
    );
    for cut in [0, 10, 19, 20, 31, 32, len / 2, len - 1] {
        file.set_len(cut).unwrap();
        assert!(
            Run::open(&files, "run", RUN, codec()).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn damage_behind_right_checksums_never_panics() {
    let files = files();
    let device = files.device();
    let mut rng = Rng::new(10);
    let run = write(&files, &records(&mut rng, 300));
    let file = device.open("run").unwrap();
    for _ in 0..1000 {
        let mut index = run.index().clone();
        let at = rng.below(index.blocks.len() as u64) as usize;
        let block = &mut index.blocks[at];
        let mut bytes = vec![0; block.len as usize];
        file.read_exact_at(&mut bytes, block.offset).unwrap();
        let original = bytes.clone();
        for _ in 0..=rng.below(3) {
            let byte = rng.below(bytes.len() as u64) as usize;
            bytes[byte] = rng.next_u64() as u8;
        }
        block.crc = checksum(&[RUN, block.offset], &bytes);
        let offset = block.offset;
        file.write_all_at(&bytes, offset).unwrap();
        let damaged = Run::file(&files, "run", RUN);
        let damaged = Run::new(damaged, codec(), index, run.bytes());
        let _ = damaged.verify();
        file.write_all_at(&original, offset).unwrap();
    }
    let encoded = run.index().encode(RUN).unwrap();
    for _ in 0..5000 {
        let mut bytes = encoded[..encoded.len() - TRAILER_BYTES].to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = rng.next_u64() as u8;
        let _ = RunIndex::decode(&bytes, run.bytes());
    }
}
