//! Equal values have equal hashes, and different values spread evenly.

use super::*;
use std::collections::HashSet;
use strandline_base::rng::Rng;

fn one(value: Value) -> u64 {
    hash_key(&[value])
}

#[test]
fn equal_values_hash_alike() {
    assert_eq!(one(Value::Double(0.0)), one(Value::Double(-0.0)));
    assert_eq!(one(Value::Real(-0.0)), one(Value::Double(0.0)));
    assert_eq!(one(Value::Real(1.5)), one(Value::Double(1.5)));
    let odd_nan = f64::from_bits(f64::NAN.to_bits() ^ (1 << 63) | 5);
    assert!(odd_nan.is_nan());
    assert_eq!(one(Value::Double(odd_nan)), one(Value::Double(f64::NAN)));
    assert_eq!(one(Value::Real(f32::NAN)), one(Value::Double(f64::NAN)));
    for v in [0_i16, 1, -1, i16::MIN, i16::MAX] {
        assert_eq!(one(v.into()), one(i32::from(v).into()));
        assert_eq!(one(v.into()), one(i64::from(v).into()));
        assert_eq!(one(v.into()), hash_integer(i64::from(v)));
        let pair = |first: Value| hash_key(&[first, "x".into()]);
        assert_eq!(pair(v.into()), pair(i64::from(v).into()));
    }
    let month = Value::Interval(Interval {
        months: 1,
        days: 0,
        nanos: 0,
    });
    let days = Value::Interval(Interval {
        months: 0,
        days: 29,
        nanos: 86_400_000_000_000,
    });
    assert_eq!(one(month), one(days));
}

#[test]
fn bytes_of_every_length_and_position_matter() {
    let mut seen = HashSet::new();
    for length in 0..70 {
        assert!(
            seen.insert(one(Value::from(&vec![0_u8; length][..]))),
            "zeros of length {length}"
        );
        for at in 0..length {
            let mut bytes = vec![0_u8; length];
            bytes[at] = 1;
            assert!(
                seen.insert(one(Value::from(&bytes[..]))),
                "length {length}, byte {at}"
            );
        }
    }
}

#[test]
fn the_split_between_columns_and_their_order_matter() {
    let key = |parts: &[&str]| hash_key(&parts.iter().map(|&p| p.into()).collect::<Vec<_>>());
    let keys: [&[&str]; 7] = [
        &["ab", "c"],
        &["a", "bc"],
        &["abc"],
        &["c", "ab"],
        &["abc", ""],
        &["", "abc"],
        &[],
    ];
    assert_eq!(
        keys.iter().map(|k| key(k)).collect::<HashSet<_>>().len(),
        keys.len()
    );
    let numbers = |a: i64, b: i64| hash_key(&[a.into(), b.into()]);
    assert_ne!(numbers(1, 2), numbers(2, 1));
    let nulls = [
        hash_key(&[Value::Null, 0_i64.into()]),
        hash_key(&[0_i64.into(), Value::Null]),
    ];
    assert_ne!(nulls[0], nulls[1]);
    assert!(!nulls.contains(&numbers(0, 0)));
}

/// Counts the hashes in 1,024 cells, which some ten of their bits choose. A chi-square far above
/// the expected 1,023 means that keys cluster.
fn spread(name: &str, hashes: impl Iterator<Item = u64> + Clone) {
    for shift in [0, 20, 51, 54] {
        let mut cells = vec![0_u64; 1024];
        let mut n = 0;
        for hash in hashes.clone() {
            cells[(hash >> shift) as usize % 1024] += 1;
            n += 1;
        }
        let mean = n as f64 / 1024.0;
        let chi: f64 = cells
            .iter()
            .map(|&c| (c as f64 - mean).powi(2) / mean)
            .sum();
        // Bijective hashes of sequences may be more even than random ones.
        assert!(
            chi < 1023.0 + 6.0 * (2.0 * 1023.0_f64).sqrt(),
            "{name}, bit {shift}: {chi}"
        );
    }
}

#[test]
fn patterned_keys_spread_evenly() {
    let n = 100_000_i64;
    spread("sequence", (0..n).map(hash_integer));
    spread("negative sequence", (0..n).map(|i| hash_integer(-i)));
    spread("multiples of 2^32", (0..n).map(|i| hash_integer(i << 32)));
    spread(
        "pairs",
        (0..n).map(|i| hash_key(&[(i % 300).into(), (i / 300).into()])),
    );
    spread(
        "pairs of i32",
        (0..n).map(|i| hash_key(&[7_i32.into(), (i as i32).into()])),
    );
    spread(
        "text",
        (0..n).map(|i| one(format!("Customer#{i:09}").into())),
    );
    spread("short text", (0..n).map(|i| one(i.to_string().into())));
    spread(
        "numeric",
        (0..n).map(|i| one(Value::Numeric(i128::from(i) * 100))),
    );
    spread("double", (0..n).map(|i| one(Value::Double(i as f64))));
    spread("date", (0..n).map(|i| one(Value::Date(i as i32))));
}

#[test]
fn single_bits_change_half_of_the_hash() {
    println!("seed 1");
    let mut rng = Rng::new(1);
    let keys: [fn(u64) -> u64; 3] = [
        |v| hash_integer(v as i64),
        |v| hash_key(&[(v as i64).into(), Value::Null]),
        |v| hash_key(&[Value::from(&v.to_le_bytes()[..])]),
    ];
    for (which, key) in keys.iter().enumerate() {
        for bit in 0..64 {
            let mut changed = 0;
            for _ in 0..256 {
                let v = rng.next_u64();
                changed += (key(v) ^ key(v ^ (1 << bit))).count_ones();
            }
            let mean = f64::from(changed) / 256.0;
            assert!(
                (29.0..35.0).contains(&mean),
                "key {which}, bit {bit}: {mean} bits change"
            );
        }
    }
}

#[test]
fn keys_that_are_the_same_hash_alike() {
    let values = [
        Value::Double(f64::NAN),
        Value::Double(-f64::NAN),
        Value::Double(0.0),
        Value::Double(-0.0),
        Value::Interval(Interval {
            months: 1,
            days: 0,
            nanos: 0,
        }),
        Value::Interval(Interval {
            months: 0,
            days: 30,
            nanos: 0,
        }),
        Value::Null,
        Value::from("a"),
        Value::from("b"),
    ];
    let same = |a: usize, b: usize| a == b || (a < 6 && b < 6 && a / 2 == b / 2);
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            let (a, b) = ([a.clone()], [b.clone()]);
            let expected = same(i, j) && !a[0].is_null();
            assert_eq!(is_same_key(&a, &b), expected, "{a:?} {b:?}");
            if expected {
                assert_eq!(hash_key(&a), hash_key(&b));
            }
        }
    }
    assert!(!is_same_key(&values[..1], &values[..2]));
}
