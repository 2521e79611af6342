//! Chunks of every type and codec, and damaged ones.

use super::*;
use crate::types::{array_of, value_at};
use arrow_array::cast::AsArray;
use std::cmp::Ordering;
use strandline_base::{BLOCK_ROWS, BoxCorners, ErrorKind, Interval, Point, rng::Rng};

const IDENTITY: u64 = 0x5eed_0000_0042;

fn numeric(precision: u8) -> SqlType {
    SqlType::Numeric {
        precision,
        scale: 2,
    }
}

fn types() -> Vec<SqlType> {
    vec![
        SqlType::Boolean,
        SqlType::SmallInt,
        SqlType::Integer,
        SqlType::BigInt,
        SqlType::Real,
        SqlType::Double,
        numeric(15),
        numeric(38),
        SqlType::Text,
        SqlType::Varchar(40),
        SqlType::Char(5),
        SqlType::Json,
        SqlType::Bytea,
        SqlType::Date,
        SqlType::Time,
        SqlType::Timestamp,
        SqlType::TimestampTz,
        SqlType::Interval,
        SqlType::Uuid,
        SqlType::Point,
        SqlType::Box,
    ]
}

/// Shapes of data, each for another encoding.
const SHAPES: [&str; 12] = [
    "constant", "few", "narrow", "sorted", "serial", "runs", "outliers", "stepped", "wide", "edge",
    "sparse", "all null",
];

/// The word at `row` of a column of the given shape.
fn word(rng: &mut Rng, shape: &str, row: usize) -> i64 {
    let row = row as i64;
    match shape {
        "constant" => 42,
        "few" => [3, 1_000_003, 77_777_777, -5, 123_456_789_012][rng.below(5) as usize],
        "narrow" => 10_000 + rng.below(1000) as i64,
        "sorted" => row * 1000 + rng.below(1500) as i64,
        "serial" => 7 + row * 3,
        "runs" => (row / 97) * (row / 97 % 7) * 12_345,
        "outliers" if rng.one_in(200) => rng.next_u64() as i64 >> 8,
        "outliers" => rng.below(64) as i64,
        "stepped" => rng.below(1 << 20) as i64 * 86_400_000_000,
        "edge" => [i64::MIN, i64::MAX, 0, -1][rng.below(4) as usize],
        "sparse" => rng.below(1 << 30) as i64,
        _ => rng.next_u64() as i64,
    }
}

fn text(rng: &mut Rng, shape: &str, row: usize) -> String {
    const WORDS: [&str; 12] = [
        "furiously",
        "quick",
        "deposits",
        "above",
        "the",
        "naïve",
        "日本",
        "🦀",
        "requests",
        "nag",
        "carefully",
        "x",
    ];
    match shape {
        "constant" => "always the same".into(),
        "few" => WORDS[rng.below(4) as usize].into(),
        "serial" | "sorted" => format!("Customer#{row:09}"),
        "runs" => format!("run {}", row / 97),
        "edge" if rng.one_in(500) => "long ".repeat(rng.below(4000) as usize),
        "edge" => String::new(),
        "wide" => (0..rng.below(40))
            .map(|_| char::from(33 + rng.below(90) as u8))
            .collect(),
        _ => {
            let words = 1 + rng.below(9);
            let pick = |_| WORDS[rng.below(12) as usize];
            (0..words).map(pick).collect::<Vec<_>>().join(" ")
        }
    }
}

fn value(rng: &mut Rng, t: SqlType, shape: &str, row: usize) -> Value {
    let null = match shape {
        "all null" => true,
        "sparse" => !rng.one_in(50),
        "constant" | "serial" | "wide" => false,
        "sorted" => rng.one_in(300),
        _ => rng.one_in(9),
    };
    if null {
        return Value::Null;
    }
    let float = |v: f64| match shape {
        "edge" => [f64::NAN, -f64::NAN, -0.0, 0.0, f64::INFINITY, 5e-324][(v as usize) % 6],
        "wide" => v.sqrt(),
        _ => v / 100.0,
    };
    let word = word(rng, shape, row);
    match t {
        SqlType::Boolean => Value::Boolean(word % 3 == 0),
        SqlType::SmallInt => Value::SmallInt(word as i16),
        SqlType::Integer => Value::Integer(word as i32),
        SqlType::BigInt => Value::BigInt(word),
        SqlType::Real => Value::Real(float((word & 0xfffff) as f64) as f32),
        SqlType::Double => Value::Double(float((word & 0xff_ffff) as f64)),
        SqlType::Numeric { precision: 38, .. } if shape == "wide" => {
            Value::Numeric(i128::from(word) * 1_000_000_007)
        }
        SqlType::Numeric { .. } => Value::Numeric(i128::from(word)),
        SqlType::Bytea if shape == "wide" => {
            Value::Bytea((0..rng.below(30)).map(|_| rng.next_u64() as u8).collect())
        }
        SqlType::Bytea => Value::Bytea(text(rng, shape, row).into_bytes().into()),
        SqlType::Date => Value::Date(word as i32),
        SqlType::Time => Value::Time(word),
        SqlType::Timestamp => Value::Timestamp(word),
        SqlType::TimestampTz => Value::TimestampTz(word),
        SqlType::Interval => Value::Interval(Interval {
            months: word as i32,
            days: (word >> 32) as i32,
            nanos: word,
        }),
        SqlType::Uuid => Value::Uuid(
            (u128::from(word as u64).wrapping_mul(0x1_0001_0001_0001_0001)).to_be_bytes(),
        ),
        SqlType::Point => Value::Point(Point::from_words([word as u64, !word as u64])),
        SqlType::Box => {
            let low = float((word & 0xfffff) as f64);
            Value::Box(BoxCorners::new([low + 1.0, -low], [low, 5.0]))
        }
        _ => Value::Text(text(rng, shape, row).into()),
    }
}

fn column(seed: u64, t: SqlType, shape: &str, rows: usize) -> ArrayRef {
    let mut rng = Rng::new(seed);
    let values: Vec<Value> = (0..rows)
        .map(|row| value(&mut rng, t, shape, row))
        .collect();
    array_of(t, &values).unwrap()
}

/// Encodes, checks the footer against the values and decodes in every way.
fn check(t: SqlType, array: &ArrayRef, what: &str) -> ChunkFooter {
    let mut bytes = b"before".to_vec();
    let footer = encode_chunk(t, array, IDENTITY, &mut bytes).unwrap();
    let bytes = bytes.strip_prefix(b"before").unwrap();
    let needed = bytes.len() - footer.footer_offset() as usize;
    assert!(needed <= FOOTER_BYTES_MAX, "{what}");
    let reopened = ChunkFooter::decode(t, IDENTITY, &bytes[bytes.len() - needed..]).unwrap();
    assert_eq!(reopened, footer, "{what}");
    assert_eq!(
        ChunkFooter::decode(t, IDENTITY, bytes).unwrap(),
        footer,
        "{what}"
    );
    assert_eq!(footer.rows(), array.len(), "{what}");
    assert_eq!(footer.nulls(), array.null_count(), "{what}");

    let whole = decode_chunk(t, &footer, IDENTITY, bytes).unwrap();
    assert_eq!(&whole, array, "{what}");
    let shared = shared_of(&footer, bytes);
    let checked = CheckedChunk::new(&footer, IDENTITY, bytes.to_vec()).unwrap();
    for first in 0..footer.block_count() {
        let blocks = first..footer.block_count();
        let (decoded, _) = checked.decode(t, &footer, blocks, None).unwrap();
        let expected = array.slice(first * BLOCK_ROWS, array.len() - first * BLOCK_ROWS);
        assert_eq!(&decoded, &expected, "{what} from block {first}");
    }
    for block in 0..footer.block_count() {
        let range = footer.block_range(block);
        let stored = &bytes[range.start as usize..range.end as usize];
        let decoded = decode_block(t, &footer, IDENTITY, block, stored, shared).unwrap();
        let expected = array.slice(block * BLOCK_ROWS, footer.block_rows(block));
        assert_eq!(&decoded, &expected, "{what} block {block}");
        check_bounds(
            t,
            &footer.block(block),
            &expected,
            &format!("{what} block {block}"),
        );
    }
    footer
}

fn shared_of<'a>(footer: &ChunkFooter, bytes: &'a [u8]) -> Option<&'a [u8]> {
    footer
        .shared_range()
        .map(|range| &bytes[range.start as usize..range.end as usize])
}

fn check_bounds(t: SqlType, entry: &BlockEntry, values: &ArrayRef, what: &str) {
    let values: Vec<Value> = (0..values.len())
        .map(|i| value_at(t, values, i))
        .filter(|v| !v.is_null())
        .collect();
    assert_eq!(
        entry.rows as usize - entry.nulls as usize,
        values.len(),
        "{what}"
    );
    for v in &values {
        if let Some(min) = &entry.min {
            assert_ne!(
                min.compare(v),
                Some(Ordering::Greater),
                "{what}: {min:?} > {v:?}"
            );
        }
        if let Some(max) = &entry.max {
            assert_ne!(
                max.compare(v),
                Some(Ordering::Less),
                "{what}: {max:?} < {v:?}"
            );
        }
    }
    if entry.exact && !values.is_empty() && !matches!(t, SqlType::Interval | SqlType::Json) {
        for bound in [&entry.min, &entry.max] {
            let bound = bound.as_ref().expect("exact bounds are known");
            let found = values
                .iter()
                .any(|v| v.compare(bound) == Some(Ordering::Equal));
            assert!(found, "{what}: {bound:?} is no value");
        }
    }
}

#[test]
fn every_type_and_shape_comes_back() {
    for t in types() {
        for shape in SHAPES {
            for rows in [1, 2, 1023, 4096, 4097] {
                let seed = rows as u64;
                let what = format!("{t} {shape} {rows} rows, seed {seed}");
                let footer = check(t, &column(seed, t, shape, rows), &what);
                // The raw codec must not hide the failure of another one.
                let raw = [
                    SqlType::Boolean,
                    SqlType::Interval,
                    SqlType::Uuid,
                    SqlType::Point,
                    SqlType::Box,
                    numeric(38),
                ];
                assert!(footer.codec() != 0 || raw.contains(&t), "{what} is raw");
            }
        }
    }
}

#[test]
fn full_ranges_come_back_through_the_expected_codec() {
    let cases = [
        (SqlType::BigInt, "narrow", 1),
        (SqlType::BigInt, "few", 2),
        (SqlType::BigInt, "wide", 1),
        (numeric(38), "narrow", 1),
        (numeric(38), "wide", 0),
        (SqlType::Double, "narrow", 2),
        (SqlType::Double, "sorted", 1),
        (SqlType::Text, "few", 2),
        (SqlType::Text, "narrow", 3),
        (SqlType::Text, "wide", 3),
        (SqlType::Boolean, "narrow", 0),
        (SqlType::Uuid, "wide", 0),
        (SqlType::Interval, "few", 2),
        (SqlType::Point, "few", 2),
        (SqlType::Point, "wide", 0),
        (SqlType::Box, "few", 2),
        (SqlType::Box, "wide", 0),
    ];
    for (t, shape, codec) in cases {
        let what = format!("{t} {shape}");
        let footer = check(t, &column(5, t, shape, MAX_CHUNK_ROWS), &what);
        assert_eq!(footer.codec(), codec, "{what}");
        assert_eq!(footer.block_count(), 16, "{what}");
    }
}

#[test]
fn decoded_text_leaves_little_room_unused() {
    for shape in ["narrow", "wide"] {
        let (t, mut bytes) = (SqlType::Text, Vec::new());
        let array = column(5, t, shape, MAX_CHUNK_ROWS);
        let footer = encode_chunk(t, &array, IDENTITY, &mut bytes).unwrap();
        let decoded = decode_chunk(t, &footer, IDENTITY, &bytes).unwrap();
        for buffer in decoded.as_string_view().data_buffers() {
            let (room, used) = (buffer.capacity(), buffer.len());
            assert!(room <= used / 8 * 9, "{shape}: {room} bytes for {used}");
        }
    }
}

/// The encoded bytes may leave the buffer after each block.
#[test]
fn a_chunk_encoded_block_by_block_has_the_same_bytes() {
    for (t, shape) in encodings() {
        for rows in [0, 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 900] {
            let (what, array) = (format!("{t} {shape} {rows}"), column(7, t, shape, rows));
            let mut whole = Vec::new();
            let footer = encode_chunk(t, &array, IDENTITY, &mut whole).unwrap();
            let mut encoder = ChunkEncoder::new(t, &array, IDENTITY).unwrap();
            let (mut pieces, mut buffer) = (Vec::new(), Vec::new());
            while encoder.next_block(&mut buffer).unwrap() {
                pieces.append(&mut buffer);
            }
            assert_eq!(encoder.finish(&mut buffer).unwrap(), footer, "{what}");
            pieces.append(&mut buffer);
            assert!(pieces == whole, "{what}");
        }
    }
}

#[test]
fn empty_constant_and_null_chunks_store_no_values() {
    for t in types() {
        assert_eq!(
            check(t, &column(1, t, "narrow", 0), "empty").block_count(),
            0
        );
        let footer = check(t, &column(1, t, "all null", 5000), "all null");
        assert_eq!(
            (footer.footer_offset(), footer.min(), footer.max()),
            (0, None, None)
        );
    }
    for t in [
        SqlType::BigInt,
        SqlType::Text,
        SqlType::Double,
        SqlType::Boolean,
        numeric(38),
    ] {
        let footer = check(t, &column(1, t, "constant", 5000), "constant");
        let stored: u64 = (0..2).map(|b| footer.block(b).len).sum();
        assert!(stored < 40, "{t}: {stored} bytes");
        assert!(footer.exact());
        assert_eq!(footer.min(), footer.max());
    }
}

#[test]
fn long_and_huge_strings_come_back() {
    let huge = "strandline ".repeat(100_000);
    let values = [
        Value::from(huge.as_str()),
        "".into(),
        Value::Null,
        "a".into(),
    ];
    let footer = check(
        SqlType::Text,
        &array_of(SqlType::Text, &values).unwrap(),
        "huge",
    );
    let entry = footer.block(0);
    assert_eq!(entry.min, Some("".into()));
    assert!(!entry.exact);
    let max = entry.max.unwrap();
    assert_eq!(max.compare(&huge.as_str().into()), Some(Ordering::Greater));
    assert!(footer.memory_bytes() < 2000);
}

#[test]
fn bounds_of_cut_text_are_rounded_up() {
    use super::bounds::next_after_prefix;
    let next =
        |s: &str| next_after_prefix(s.as_bytes(), true).map(|b| String::from_utf8(b).unwrap());
    assert_eq!(next("abc").as_deref(), Some("abd"));
    assert_eq!(next("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
    assert_eq!(next("a\u{10ffff}").as_deref(), Some("b"));
    assert_eq!(next("\u{10ffff}\u{10ffff}"), None);
    assert_eq!(next("a\u{7f}").as_deref(), Some("a\u{80}"));
    assert_eq!(next_after_prefix(&[1, 0xff, 0xff], false), Some(vec![2]));
    assert_eq!(next_after_prefix(&[0xff], false), None);

    // The 64th byte is inside a character of four bytes.
    let long: String = std::iter::once('a')
        .chain(std::iter::repeat_n('🦀', 40))
        .collect();
    let array = array_of(SqlType::Text, &[long.as_str().into(), "b".into()]).unwrap();
    let entry = check(SqlType::Text, &array, "crabs").block(0);
    assert_eq!(entry.max, Some("b".into()));
    let Some(Value::Text(min)) = entry.min else {
        panic!("a text bound")
    };
    assert_eq!(min.len(), 61);

    let top = "\u{10ffff}".repeat(30);
    let array = array_of(SqlType::Text, &[top.as_str().into()]).unwrap();
    let entry = check(SqlType::Text, &array, "top").block(0);
    assert_eq!(entry.max, None);
    let bytes = Value::Bytea(vec![0xff; 100].into());
    let footer = check(
        SqlType::Bytea,
        &array_of(SqlType::Bytea, &[bytes]).unwrap(),
        "0xff",
    );
    assert_eq!((footer.block(0).max, footer.max()), (None, None));
}

#[test]
fn nan_and_zero_bounds_hold_in_both_orders() {
    let footer = |values: &[f64]| {
        let values: Vec<Value> = values.iter().map(|&v| v.into()).collect();
        check(
            SqlType::Double,
            &array_of(SqlType::Double, &values).unwrap(),
            "floats",
        )
        .block(0)
    };
    let entry = footer(&[1.0, f64::NAN, -5.0]);
    assert_eq!(entry.min, Some((-5.0).into()));
    assert!(matches!(entry.max, Some(Value::Double(v)) if v.is_nan()));
    let bits = |v: Option<Value>| match v {
        Some(Value::Double(v)) => v.to_bits(),
        other => panic!("{other:?}"),
    };
    for zeros in [&[0.0, -0.0][..], &[0.0], &[-0.0], &[-0.0, -0.0]] {
        let entry = footer(zeros);
        assert_eq!(bits(entry.min), (-0.0f64).to_bits());
        assert_eq!(bits(entry.max), 0.0f64.to_bits());
    }
}

#[test]
fn chunk_totals_skip_null_blocks_and_give_up_on_unknown_bounds() {
    let mut values: Vec<Value> = (0..4096).map(|_| Value::Null).collect();
    values.extend((0..4096).map(|i| Value::from(i as i64 - 10)));
    let footer = check(
        SqlType::BigInt,
        &array_of(SqlType::BigInt, &values).unwrap(),
        "half",
    );
    assert_eq!(footer.min(), Some((-10i64).into()));
    assert_eq!(footer.max(), Some(4085i64.into()));
    assert_eq!(footer.nulls(), 4096);

    let mut values = vec![Value::from("a"); 4096];
    values.push("\u{10ffff}".repeat(30).as_str().into());
    let footer = check(
        SqlType::Text,
        &array_of(SqlType::Text, &values).unwrap(),
        "top",
    );
    assert_eq!(footer.min(), Some("a".into()));
    assert_eq!(footer.max(), None);
}

#[test]
fn wrong_requests_are_refused() {
    let mut out = Vec::new();
    let array = column(1, SqlType::Integer, "narrow", 10);
    let error = encode_chunk(SqlType::BigInt, &array, 0, &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    let array = column(1, SqlType::Boolean, "narrow", MAX_CHUNK_ROWS + 1);
    assert!(encode_chunk(SqlType::Boolean, &array, 0, &mut out).is_err());
    assert!(out.is_empty());

    let array = column(1, SqlType::Integer, "narrow", 10);
    encode_chunk(SqlType::Integer, &array, 7, &mut out).unwrap();
    assert!(
        ChunkFooter::decode(SqlType::Integer, 8, &out).is_err(),
        "another identity"
    );
    assert!(
        ChunkFooter::decode(SqlType::Date, 7, &out).is_err(),
        "another type"
    );
    assert!(
        ChunkFooter::decode(SqlType::Integer, 7, &out[..5]).is_err(),
        "cut off"
    );
    assert!(
        ChunkFooter::decode(SqlType::Integer, 7, &[0; 40]).is_err(),
        "zeros"
    );
    // A block in the place of another one.
    let array = column(1, SqlType::Integer, "wide", 8192);
    out.clear();
    let footer = encode_chunk(SqlType::Integer, &array, 7, &mut out).unwrap();
    let (a, b) = (footer.block_range(0), footer.block_range(1));
    assert_eq!(a.end - a.start, b.end - b.start);
    let other = &out[b.start as usize..b.end as usize];
    let error = decode_block(SqlType::Integer, &footer, 7, 0, other, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(decode_block(SqlType::Integer, &footer, 7, 0, &out[..10], None).is_err());
    assert!(decode_chunk(SqlType::Integer, &footer, 7, &out[..100]).is_err());
}

/// One column per codec and encoding.
fn encodings() -> Vec<(SqlType, &'static str)> {
    let mut cases: Vec<_> = SHAPES.iter().map(|&s| (SqlType::BigInt, s)).collect();
    for shape in ["few", "narrow", "runs", "edge", "sparse", "wide"] {
        cases.push((SqlType::Text, shape));
        cases.push((SqlType::Double, shape));
    }
    cases.extend([
        (SqlType::Boolean, "narrow"),
        (SqlType::SmallInt, "outliers"),
        (SqlType::Integer, "outliers"),
        (SqlType::Real, "narrow"),
        (SqlType::Real, "sorted"),
        (SqlType::Double, "sorted"),
        (SqlType::Double, "outliers"),
        (numeric(38), "wide"),
        (numeric(38), "narrow"),
        (SqlType::Bytea, "wide"),
        (SqlType::Uuid, "wide"),
        (SqlType::Interval, "few"),
        (SqlType::Point, "wide"),
        (SqlType::Box, "few"),
        (SqlType::Box, "wide"),
    ]);
    cases
}

#[test]
fn every_flipped_bit_is_found() {
    for (t, shape) in encodings() {
        let array = column(3, t, shape, 5000);
        let mut bytes = Vec::new();
        let footer = encode_chunk(t, &array, IDENTITY, &mut bytes).unwrap();
        let blocks = footer.footer_offset() as usize;
        let step = (bytes.len() * 8 / 700).max(1);
        for bit in (0..bytes.len() * 8).step_by(step) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let result = if bit / 8 < blocks {
                assert!(CheckedChunk::new(&footer, IDENTITY, bytes.clone()).is_err());
                decode_chunk(t, &footer, IDENTITY, &bytes).map(drop)
            } else {
                ChunkFooter::decode(t, IDENTITY, &bytes).map(drop)
            };
            let error = result.expect_err("a flipped bit");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{t} {shape} bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in (0..blocks).step_by((blocks / 60).max(1)) {
            assert!(decode_chunk(t, &footer, IDENTITY, &bytes[..cut]).is_err());
        }
    }
}

#[test]
fn damage_behind_a_right_checksum_never_panics() {
    for (case, (t, shape)) in encodings().into_iter().enumerate() {
        let seed = case as u64;
        println!("{t} {shape} seed {seed}");
        let mut rng = Rng::new(seed);
        let array = column(3, t, shape, 5000);
        let mut bytes = Vec::new();
        let footer = encode_chunk(t, &array, IDENTITY, &mut bytes).unwrap();
        let shared = shared_of(&footer, &bytes);
        for _ in 0..120 {
            for block in 0..footer.block_count() {
                let range = footer.block_range(block);
                let stored = bytes[range.start as usize..range.end as usize].to_vec();
                decode_damaged(&mut rng, t, &footer, block, stored, shared);
            }
            let mut shared = footer.checked_shared(shared, IDENTITY).unwrap().to_vec();
            damage(&mut rng, &mut shared);
            let damaged = footer.with_shared(shared);
            let _ = decode_chunk(t, &damaged, IDENTITY, &bytes);
        }
    }
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => bytes[at] = rng.next_u64() as u8,
            2 => bytes.insert(at, rng.next_u64() as u8),
            _ => bytes[at] ^= 1 << rng.below(8),
        }
    }
}

/// Damages a block, recomputes its checksum and decodes; the result is an error or an array.
fn decode_damaged(
    rng: &mut Rng,
    t: SqlType,
    footer: &ChunkFooter,
    block: usize,
    mut bytes: Vec<u8>,
    shared: Option<&[u8]>,
) {
    // The most interesting bytes (headers, exceptions) are at the ends of a block.
    if bytes.len() > 600 && rng.one_in(2) {
        let at = if rng.one_in(2) { bytes.len() - 300 } else { 0 };
        let mut part: Vec<u8> = bytes[at..at + 300].to_vec();
        damage(rng, &mut part);
        bytes.splice(at..at + 300, part);
    } else {
        damage(rng, &mut bytes);
    }
    let crc = checksum(&[IDENTITY, block as u64], &bytes);
    let footer = footer.with_block(block, bytes.len() as u64, crc);
    if let Ok(array) = decode_block(t, &footer, IDENTITY, block, &bytes, shared) {
        assert_eq!(array.len(), footer.block_rows(block));
        (0..array.len()).for_each(|row| drop(value_at(t, &array, row)));
    }
}

#[test]
fn a_damaged_footer_behind_a_right_checksum_never_panics() {
    let mut rng = Rng::new(11);
    for (t, shape) in encodings() {
        let mut bytes = Vec::new();
        let footer = encode_chunk(t, &column(3, t, shape, 5000), IDENTITY, &mut bytes).unwrap();
        let encoded = footer.encode(IDENTITY);
        let body = &encoded[..encoded.len() - TRAILER_BYTES];
        for _ in 0..300 {
            let mut damaged = body.to_vec();
            damage(&mut rng, &mut damaged);
            let resealed = ChunkFooter::sealed(damaged, IDENTITY);
            if let Ok(footer) = ChunkFooter::decode(t, IDENTITY, &resealed) {
                (0..footer.block_count()).for_each(|b| drop(footer.block(b)));
                drop((footer.min(), footer.max()));
            }
        }
    }
}

#[test]
fn another_version_is_refused_by_both_versions() {
    let mut bytes = Vec::new();
    let array = column(1, SqlType::Integer, "narrow", 10);
    let footer = encode_chunk(SqlType::Integer, &array, IDENTITY, &mut bytes).unwrap();
    let encoded = footer.encode(IDENTITY);
    for version in [footer::VERSION - 1, footer::VERSION + 1] {
        let mut body = encoded[..encoded.len() - TRAILER_BYTES].to_vec();
        body[0] = version;
        let sealed = ChunkFooter::sealed(body, IDENTITY);
        let error = ChunkFooter::decode(SqlType::Integer, IDENTITY, &sealed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let (found, known) = (
            format!("version {version},"),
            format!("version {} only", footer::VERSION),
        );
        let message = error.message();
        assert!(
            message.contains(&found) && message.contains(&known),
            "{message}"
        );
    }
}

/// 65,536 texts of 70 KB: the offsets of blocks exceed 32 bits.
#[test]
fn a_chunk_of_more_than_4_gib_is_decoded() {
    const HUGE: u64 = 5 << 30;
    let t = SqlType::Text;
    let texts = column(3, t, "wide", BLOCK_ROWS + 900);
    let mut bytes = Vec::new();
    let small = encode_chunk(t, &texts, IDENTITY, &mut bytes).unwrap();
    let first = small.block_range(0);
    let moved = |at: u64| (at + first.end - HUGE) as usize;
    let wide = small.with_block(0, HUGE, 0).encode(IDENTITY);
    let wide = ChunkFooter::decode(t, IDENTITY, &wide).unwrap();
    assert_eq!(wide.block_range(0), 0..HUGE);
    assert_eq!(wide.block(1).offset, HUGE);
    let part = |range: Range<u64>| &bytes[moved(range.start)..moved(range.end)];
    let shared = wide.shared_range().map(part);
    let second = part(wide.block_range(1));
    let decoded = decode_block(t, &wide, IDENTITY, 1, second, shared).unwrap();
    assert_eq!(&decoded, &texts.slice(BLOCK_ROWS, 900));
}
