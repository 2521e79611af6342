//! The bytes of keys are ordered like their values, in every direction and order of NULLs.

use super::*;
use std::cmp::Ordering;
use strandline_base::rng::Rng;
use strandline_base::{Interval, SqlType};

const ORDERS: [PartOrder; 4] = [
    order(false, false),
    order(false, true),
    order(true, false),
    order(true, true),
];

const fn order(descending: bool, nulls_first: bool) -> PartOrder {
    PartOrder {
        descending,
        nulls_first,
    }
}

fn interval(months: i32, days: i32, nanos: i64) -> Value {
    Value::Interval(Interval {
        months,
        days,
        nanos,
    })
}

fn floats() -> Vec<f64> {
    let mut all = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
    ];
    all.extend([f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY]);
    all.extend([f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)]);
    all
}

fn strings() -> Vec<String> {
    let mut all: Vec<String> = [
        "", "a", "ab", "b", "\0", "\0\0", "\u{1}", "\u{2}", "a\0", "a\0b",
    ]
    .into_iter()
    .chain([
        "a\u{1}",
        "a\u{2}",
        "a\u{1}\u{1}",
        "\u{7f}",
        "\u{80}",
        "\u{10ffff}",
        "z\u{e4}",
    ])
    .map(String::from)
    .collect();
    all.push("a".repeat(300));
    all
}

/// Values of one type each, with the values at the type's boundaries.
fn columns() -> Vec<Vec<Value>> {
    let ints = [i64::MIN, i64::MIN + 1, -256, -1, 0, 1, 255, 256, i64::MAX];
    let i64s = |make: fn(i64) -> Value| ints.map(make).to_vec();
    let narrow = |v: &i64| {
        v.clamp(&i64::from(i32::MIN), &i64::from(i32::MAX))
            .to_owned() as i32
    };
    let shorts = [i16::MIN, -1, 0, 1, 255, 256, i16::MAX];
    let numerics = [i128::MIN, -(1 << 70), -1, 0, 1, 1 << 64, 1 << 70, i128::MAX];
    let mut uuids = vec![Value::Uuid([0; 16]), Value::Uuid([255; 16])];
    uuids.push(Value::Uuid(std::array::from_fn(|at| at as u8)));
    let bytes = strings().into_iter().map(String::into_bytes);
    let bytes = bytes.chain([vec![255], vec![255, 255], vec![255, 0], vec![1, 1, 0, 2]]);
    vec![
        vec![Value::Boolean(false), Value::Boolean(true)],
        shorts.map(Value::SmallInt).to_vec(),
        ints.iter().map(|v| Value::Integer(narrow(v))).collect(),
        i64s(Value::BigInt),
        i64s(Value::Time),
        i64s(Value::Timestamp),
        i64s(Value::TimestampTz),
        ints.iter().map(|v| Value::Date(narrow(v))).collect(),
        floats()
            .into_iter()
            .map(|v| Value::Real(v as f32))
            .collect(),
        floats().into_iter().map(Value::Double).collect(),
        numerics.map(Value::Numeric).to_vec(),
        strings().into_iter().map(Value::from).collect(),
        bytes.map(|v| Value::from(v.as_slice())).collect(),
        vec![
            interval(0, 0, 0),
            interval(1, 0, 0),
            interval(0, 30, 0),
            interval(0, 29, 86_400_000_000_000),
            interval(-1, 30, -1),
            interval(i32::MIN, i32::MIN, i64::MIN),
            interval(i32::MAX, i32::MAX, i64::MAX),
        ],
        uuids,
    ]
}

/// The order of two values in a part, by its definition.
fn compare(order: PartOrder, a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if order.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) => compare(order, b, a).reverse(),
        (false, false) => {
            let by_value = a.compare(b).expect("values of one type");
            if order.descending {
                by_value.reverse()
            } else {
                by_value
            }
        }
    }
}

fn compare_keys(orders: &[PartOrder], a: &[Value], b: &[Value]) -> Ordering {
    let parts = orders.iter().zip(a.iter().zip(b));
    parts.fold(Ordering::Equal, |so_far, (order, (a, b))| {
        so_far.then_with(|| compare(*order, a, b))
    })
}

#[test]
fn one_part_is_ordered_as_its_values() {
    for order in ORDERS {
        let keys = OrderedKeys::new([order]);
        for mut column in columns() {
            column.push(Value::Null);
            for a in &column {
                for b in &column {
                    let (a, b) = (std::slice::from_ref(a), std::slice::from_ref(b));
                    let by_bytes = keys.encode(a).cmp(&keys.encode(b));
                    assert_eq!(
                        by_bytes,
                        compare_keys(&[order], a, b),
                        "{order:?} {a:?} {b:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn equal_numbers_of_different_width_have_equal_bytes() {
    let keys = OrderedKeys::new([PartOrder::default()]);
    for v in [i16::MIN, -1, 0, 7, i16::MAX] {
        let wide = keys.encode(&[Value::BigInt(i64::from(v))]);
        assert_eq!(keys.encode(&[Value::SmallInt(v)]), wide);
        assert_eq!(keys.encode(&[Value::Integer(i32::from(v))]), wide);
    }
    let real = keys.encode(&[Value::Real(1.5)]);
    assert_eq!(real, keys.encode(&[Value::Double(1.5)]));
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}

fn random_value(rng: &mut Rng, column: &[Value]) -> Value {
    match rng.below(8) {
        0 => Value::Null,
        1 if matches!(column[0], Value::BigInt(_)) => Value::BigInt(rng.next_u64() as i64),
        2 if matches!(column[0], Value::Double(_)) => Value::Double(f64::from_bits(rng.next_u64())),
        _ => pick(rng, column),
    }
}

#[test]
fn several_parts_are_ordered_one_after_the_other() {
    let columns = columns();
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let types: Vec<_> = (0..=rng.below(3))
            .map(|_| pick(&mut rng, &columns))
            .collect();
        let orders: Vec<_> = types.iter().map(|_| pick(&mut rng, &ORDERS)).collect();
        let keys = OrderedKeys::new(orders.as_slice());
        let rows: Vec<Vec<Value>> = (0..30)
            .map(|_| {
                types
                    .iter()
                    .map(|column| random_value(&mut rng, column))
                    .collect()
            })
            .collect();
        for a in &rows {
            for b in &rows {
                let (x, y) = (keys.encode(a), keys.encode(b));
                assert!(!x.is_cut() && !x.is_unordered_with(&y));
                assert_eq!(
                    x.cmp(&y),
                    compare_keys(&orders, a, b),
                    "seed {seed}: {a:?} {b:?}"
                );
                let begins = y.as_slice().starts_with(x.as_slice());
                assert!(!begins || x == y, "seed {seed}: {a:?} begins {b:?}");
            }
        }
    }
}

/// A random bound, and whether a value that compares so with the bound's value lies within it.
fn random_bound<'a>(rng: &mut Rng, value: &'a Value) -> Bound<&'a Value> {
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(value),
        _ => Bound::Excluded(value),
    }
}

fn is_within(range: &KeyRange, key: &KeyBytes) -> bool {
    range.from.as_ref().is_none_or(|from| key >= from)
        && range.before.as_ref().is_none_or(|before| key < before)
}

#[test]
fn a_range_has_the_keys_within_its_bounds() {
    let columns = columns();
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let types: Vec<_> = (0..=rng.below(2))
            .map(|_| pick(&mut rng, &columns))
            .collect();
        let orders: Vec<_> = types.iter().map(|_| pick(&mut rng, &ORDERS)).collect();
        let keys = OrderedKeys::new(orders.as_slice());
        let leading = rng.below(types.len() as u64 + 1) as usize;
        let equal: Vec<_> = types[..leading].iter().map(|c| pick(&mut rng, c)).collect();
        let next = types.get(leading);
        let bounds = [0, 1].map(|_| next.map_or(Value::Null, |c| random_value(&mut rng, c)));
        let (lower, upper) = (
            random_bound(&mut rng, &bounds[0]),
            random_bound(&mut rng, &bounds[1]),
        );
        let (range, prefix) = (keys.range(&equal, lower, upper), keys.prefix(&equal));
        for _ in 0..60 {
            let mut key: Vec<_> = types.iter().map(|c| random_value(&mut rng, c)).collect();
            if !rng.one_in(4) {
                key[..leading].clone_from_slice(&equal);
            }
            let bytes = keys.encode(&key);
            let begins = compare_keys(&orders[..leading], &key[..leading], &equal).is_eq();
            assert_eq!(
                is_within(&prefix, &bytes),
                begins,
                "seed {seed}: {equal:?} {key:?}"
            );
            let next_is_within = orders.get(leading).is_none_or(|order| {
                let by = |bound: &Value| compare(*order, &key[leading], bound);
                let has_null = |bound: &Bound<&Value>| match bound {
                    Bound::Unbounded => !key[leading].is_null(),
                    Bound::Included(_) | Bound::Excluded(_) => true,
                };
                let above = match lower {
                    Bound::Unbounded => has_null(&lower) || !order.nulls_first,
                    Bound::Included(bound) => by(bound).is_ge(),
                    Bound::Excluded(bound) => by(bound).is_gt(),
                };
                let below = match upper {
                    Bound::Unbounded => has_null(&upper) || order.nulls_first,
                    Bound::Included(bound) => by(bound).is_le(),
                    Bound::Excluded(bound) => by(bound).is_lt(),
                };
                above && below
            });
            let expected = begins && next_is_within;
            assert_eq!(
                is_within(&range, &bytes),
                expected,
                "seed {seed}: {orders:?} {equal:?} {lower:?} {upper:?} {key:?}"
            );
        }
    }
}

#[test]
fn long_keys_are_cut_and_ranges_have_them_all() {
    for order in ORDERS {
        let keys = OrderedKeys::new([order, PartOrder::default()]);
        let stem = "x".repeat(1010);
        let texts: Vec<Value> = [
            "",
            "a",
            "b",
            "aaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaab",
            "bbbbbbbbbbbbbbbb",
            "y",
        ]
        .into_iter()
        .map(|end| Value::from(format!("{stem}{end}")))
        .chain([Value::from("w"), Value::from("x"), Value::from("y")])
        .collect();
        let mut cut = 0;
        for a in &texts {
            let key = |text: &Value| keys.encode(&[text.clone(), Value::BigInt(7)]);
            cut += usize::from(key(a).is_cut());
            assert!(key(a).as_slice().len() <= KeyBytes::CUT_BYTES);
            for b in &texts {
                let (x, y) = (key(a), key(b));
                assert_eq!(x == y, a == b);
                if !x.is_unordered_with(&y) {
                    assert_eq!(x.cmp(&y), compare(order, a, b), "{a:?} {b:?}");
                }
                let bounds = [
                    (
                        Bound::Included(a),
                        Bound::Unbounded,
                        compare(order, b, a).is_ge(),
                    ),
                    (
                        Bound::Excluded(a),
                        Bound::Unbounded,
                        compare(order, b, a).is_gt(),
                    ),
                    (
                        Bound::Unbounded,
                        Bound::Included(a),
                        compare(order, b, a).is_le(),
                    ),
                    (
                        Bound::Unbounded,
                        Bound::Excluded(a),
                        compare(order, b, a).is_lt(),
                    ),
                ];
                for (lower, upper, is_in) in bounds {
                    let range = keys.range(&[], lower, upper);
                    assert!(!is_in || is_within(&range, &y), "{lower:?} {upper:?} {b:?}");
                }
                let equal = keys.range(
                    &[a.clone(), Value::BigInt(7)],
                    Bound::Unbounded,
                    Bound::Unbounded,
                );
                assert_eq!(is_within(&equal, &y), a == b);
                let begins = keys.prefix(std::slice::from_ref(a));
                assert!(a != b || is_within(&begins, &y));
            }
        }
        assert!(cut > 3, "{cut} cut");
    }
}

/// The types of [`columns`], in the same order.
const TYPES: [SqlType; 15] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Date,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric {
        precision: 38,
        scale: 3,
    },
    SqlType::Text,
    SqlType::Bytea,
    SqlType::Interval,
    SqlType::Uuid,
];

#[test]
fn a_key_gives_back_the_values_that_it_keeps() {
    let columns: Vec<_> = TYPES.into_iter().zip(columns()).collect();
    let mut kept = 0;
    for seed in 0..2_000 {
        let mut rng = Rng::new(seed);
        let parts: Vec<_> = (0..=rng.below(3))
            .map(|_| pick(&mut rng, &columns))
            .collect();
        let types: Vec<SqlType> = parts.iter().map(|(sql_type, _)| *sql_type).collect();
        let orders: Vec<_> = parts.iter().map(|_| pick(&mut rng, &ORDERS)).collect();
        let keys = OrderedKeys::new(orders.as_slice());
        let key: Vec<Value> = parts
            .iter()
            .map(|(_, column)| random_value(&mut rng, column))
            .collect();
        // Any of the parts, into any places.
        let mut places: Vec<Option<usize>> = (0..types.len()).map(Some).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for (place, sql_type) in places.iter_mut().zip(&types) {
            if !OrderedKeys::keeps(*sql_type) || rng.one_in(4) {
                *place = None;
            }
        }
        let mut out = vec![Value::Boolean(true); types.len()];
        let encoded = keys.encode(&key);
        assert!(
            keys.decode(&encoded, &types, &places, &mut out),
            "seed {seed}: {types:?} {key:?}"
        );
        for (value, place) in key.iter().zip(&places) {
            if let Some(place) = place {
                assert_eq!(&out[*place], value, "seed {seed}: {types:?} {orders:?}");
                kept += 1;
            }
        }
    }
    assert!(kept > 1_000, "{kept}");
}

#[test]
fn what_equal_keys_do_not_tell_apart_is_not_kept() {
    let keys = OrderedKeys::new([PartOrder::default()]);
    for (sql_type, column) in TYPES.into_iter().zip(columns()) {
        let is_told_apart = column.iter().all(|a| {
            let mut same = column.iter().filter(|b| {
                keys.encode(std::slice::from_ref(a)) == keys.encode(std::slice::from_ref(*b))
            });
            same.all(|b| format!("{a:?}") == format!("{b:?}"))
        });
        assert_eq!(OrderedKeys::keeps(sql_type), is_told_apart, "{sql_type:?}");
    }
}

#[test]
fn a_damaged_or_cut_key_gives_nothing() {
    let keys = OrderedKeys::new([order(true, false), PartOrder::default()]);
    let (types, places) = ([SqlType::Text, SqlType::Integer], [Some(0), Some(1)]);
    let mut out = [Value::Null, Value::Null];
    let key = keys.encode(&[Value::from("a\0b\u{1}"), Value::Integer(-7)]);
    assert!(keys.decode(&key, &types, &places, &mut out));
    assert_eq!(out, [Value::from("a\0b\u{1}"), Value::Integer(-7)]);
    for len in 0..key.as_slice().len() {
        let part = KeyBytes::encoded(&key.as_slice()[..len]);
        assert!(
            !keys.decode(&part, &types, &places, &mut out),
            "{len} bytes"
        );
    }
    // The first part is whole.
    let first = KeyBytes::encoded(&key.as_slice()[..key.as_slice().len() - 1]);
    assert!(keys.decode(&first, &types, &[Some(0), None], &mut out));
    let wide = keys.encode(&[Value::from("a"), Value::BigInt(1 << 40)]);
    assert!(!keys.decode(&wide, &types, &places, &mut out));
    let long = keys.encode(&[Value::from("x".repeat(2_000)), Value::Integer(1)]);
    assert!(long.is_cut() && !keys.decode(&long, &types, &[Some(0), None], &mut out));
}
