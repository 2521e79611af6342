//! Floats of every kind, compared with a literal reading of docs/format.md, and invalid bytes.

use super::*;
use strandline_base::rng::Rng;

/// A float type's way from an `f64`, for values that both types are tested with.
trait Narrowed: Float {
    fn of(value: f64) -> Self;
}

impl Narrowed for f32 {
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Narrowed for f64 {
    fn of(value: f64) -> Self {
        value
    }
}

fn words<F: Float>(values: &[F]) -> Vec<u64> {
    values.iter().map(|v| v.word()).collect()
}

/// The values of a block, read as docs/format.md says. The standard library's parser of decimals
/// takes the place of the division.
fn literal<F: Narrowed>(bytes: &[u8], rows: usize) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    if bytes[0] == 0 {
        return bytes[1..].chunks(size_of::<F>()).map(word).collect();
    }
    assert_eq!(bytes[0], 1);
    let (digits, mut reader) = (bytes[1], ByteReader::new(&bytes[2..]));
    let mut integers = Vec::<F::Integer>::new();
    integers::decode(rows, &mut reader, &mut integers).unwrap();
    let unused = 64 - 8 * size_of::<F>();
    let decimal = |integer: F::Integer| {
        let integer = (integer.word() << unused) as i64 >> unused;
        let decimal: f64 = format!("{integer}e-{digits}").parse().unwrap();
        F::of(decimal).word()
    };
    let mut values: Vec<u64> = integers.into_iter().map(decimal).collect();
    let exceptions = reader.varint().unwrap() as usize;
    let rows: Vec<u16> = (0..exceptions).map(|_| reader.u16().unwrap()).collect();
    for row in rows {
        values[usize::from(row)] = word(reader.take(size_of::<F>()).unwrap());
    }
    assert_eq!(reader.remaining(), 0);
    values
}

/// Encodes, decodes after another value and compares bit for bit; returns the bytes.
fn comes_back<F: Narrowed>(values: &[F], what: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(values, &mut bytes);
    for is_fused in [true, false] {
        let mut reader = ByteReader::new(&bytes);
        let mut decoded = vec![F::of(7.0)];
        decode_with(is_fused, values.len(), &mut reader, &mut decoded).expect(what);
        assert_eq!(reader.remaining(), 0, "{what}");
        assert_eq!(decoded[0], F::of(7.0), "{what}");
        assert_eq!(
            words(&decoded[1..]),
            words(values),
            "{what}, fused: {is_fused}"
        );
    }
    assert_eq!(literal::<F>(&bytes, values.len()), words(values), "{what}");
    assert!(bytes.len() <= 1 + size_of_val(values), "{what}");
    bytes
}

/// Floats that are no decimals: NaNs with payloads, quiet and signalling, and the limits.
fn exceptional<F: Float>() -> Vec<F> {
    let (bits, sign) = match size_of::<F>() {
        4 => (23, 1 << 31),
        _ => (52, 1 << 63),
    };
    let infinity = sign - (1 << bits);
    let magnitudes = [
        infinity,
        infinity | 1 << (bits - 1),
        infinity | 1 << (bits - 1) | 0x1234,
        infinity | 1,
        infinity - 1,
        1,
        (1 << bits) - 1,
        1 << bits,
    ];
    let both = magnitudes.into_iter().flat_map(|m| [m, m | sign]);
    both.chain([sign]).map(F::of_word).collect()
}

fn check_kinds<F: Narrowed>() {
    let exceptional = exceptional::<F>();
    for rows in [0, 1, 2, 127, 128, 1024, 4095, 4096] {
        let mut rng = Rng::new(rows as u64);
        let pick = |i: usize| exceptional[i % exceptional.len()];
        let decimals: Vec<F> = (0..rows)
            .map(|_| F::of(rng.below(100_000) as f64 / 100.0))
            .collect();
        let mixed = |every: usize| -> Vec<F> {
            let value = |(i, v): (usize, &F)| match i % every {
                0 => pick(i / every),
                _ => *v,
            };
            decimals.iter().enumerate().map(value).collect()
        };
        let random = (0..rows).map(|_| F::of_word(rng.next_u64())).collect();
        let kinds = [
            ("decimals", decimals.clone()),
            ("one value", vec![F::of(-12.75); rows]),
            ("zeros", vec![F::of(0.0); rows]),
            ("negative zeros", vec![F::of(-0.0); rows]),
            ("all exceptions", (0..rows).map(pick).collect()),
            ("exceptions among decimals", mixed(37)),
            ("decimals among exceptions", mixed(2)),
            ("random bits", random),
        ];
        for (kind, values) in kinds {
            comes_back(&values, &format!("{rows} rows, {kind}"));
        }
    }
}

#[test]
fn every_kind_comes_back_bit_for_bit() {
    check_kinds::<f32>();
    check_kinds::<f64>();
}

/// Decimals of any number of digits, with steps, runs, trends and exceptions.
fn random<F: Narrowed>(rng: &mut Rng) -> Vec<F> {
    let rows = match rng.below(3) {
        0 => rng.below(300),
        1 => 4096,
        _ => rng.below(4097),
    };
    let digits = rng.below(25) as i32 - 2;
    let magnitude = 1 + (rng.next_u64() >> rng.below(64));
    let (run, slope) = (
        1 + rng.below(3) * rng.below(40),
        rng.below(2) * rng.below(9999),
    );
    let exceptions = [0, 0, 2, 20, 500][rng.below(5) as usize];
    let mut integer = 0;
    let value = |row: u64| {
        if row.is_multiple_of(run) {
            integer = (rng.below(magnitude) as i64).wrapping_sub((magnitude / 3) as i64);
        }
        let risen = integer.wrapping_add((slope * row) as i64);
        match exceptions > 0 && rng.one_in(exceptions) {
            true => F::of_word(rng.next_u64()),
            false => F::of(format!("{risen}e{}", -digits).parse().unwrap()),
        }
    };
    (0..rows).map(value).collect()
}

#[test]
fn random_blocks_come_back() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        comes_back(&random::<f32>(&mut rng), &format!("f32, seed {seed}"));
        comes_back(&random::<f64>(&mut rng), &format!("f64, seed {seed}"));
    }
}

#[test]
fn greatest_integers_come_back() {
    let edge = 1i64 << 51;
    for integer in [
        edge - 1,
        edge,
        edge + 1,
        i64::from(i32::MAX),
        1 << 31,
        1 << 53,
    ] {
        for digits in [0, 1, 2, 15, 18, 19] {
            for sign in ["", "-"] {
                let what = format!("{sign}{integer}e-{digits}");
                let value: f64 = what.parse().unwrap();
                comes_back(&[value; 100], &what);
                comes_back(&[value as f32; 100], &what);
            }
        }
    }
}

#[test]
fn products_are_the_rounded_quotients() {
    let mut rng = Rng::new(4);
    for power in POWERS {
        let inverse = Inverse::of(power);
        for round in 0..20_000 {
            let magnitude = (1 << 51) >> (round % 51);
            // A quotient next to the middle between two floats is the hardest.
            let middle = (rng.below(1 << 53) * 2 + 1) as f64 / (1u64 << 53) as f64;
            let near = (middle * power / 2f64.powi(round % 60)).round();
            let candidates = [rng.below(magnitude + 1) as f64, magnitude as f64, near];
            for number in candidates.into_iter().filter(|n| *n <= ROUNDING_RANGE) {
                for number in [number, 0.0 - number] {
                    let (product, quotient) = (inverse.quotient(number), number / power);
                    assert_eq!(product.to_bits(), quotient.to_bits(), "{number} / {power}");
                }
            }
        }
    }
}

/// Bytes of a block of 4,096 values.
fn encoded_bytes<F: Narrowed>(value: impl FnMut(u64) -> f64) -> usize {
    let values: Vec<F> = (0..4096).map(value).map(F::of).collect();
    comes_back(&values, "4,096 values").len()
}

#[test]
fn decimals_take_the_bits_of_their_integers() {
    let mut rng = Rng::new(1);
    let mut below = |n: u64| rng.below(n) as f64;
    let packed = |bits: usize| bits * 512..bits * 512 + 32;
    // Prices below 2^24 cents, temperatures of 800 steps, coordinates of 2^28 steps.
    let size = encoded_bytes::<f64>(|_| below(1 << 24) / 100.0);
    assert!(packed(24).contains(&size), "{size}");
    let size = encoded_bytes::<f32>(|_| (below(800) - 200.0) / 10.0);
    assert!(packed(10).contains(&size), "{size}");
    let size = encoded_bytes::<f64>(|_| (below(1 << 28) - 1e8) / 1e6);
    assert!(packed(28).contains(&size), "{size}");
    // A sorted column is a line with small residuals.
    let size = encoded_bytes::<f64>(|row| (row * 1_000 + below(64) as u64) as f64 / 100.0);
    assert!(size < 8 * 512, "{size}");
    // One in a hundred is an exception of 10 bytes.
    let size = encoded_bytes::<f64>(|row| match row % 100 {
        0 => below(1 << 53) / 3.0,
        _ => below(1 << 24) / 100.0,
    });
    assert!(
        packed(24).start + 41 * 10 <= size && size < packed(25).end,
        "{size}"
    );
}

#[test]
fn what_decimals_do_not_shrink_is_plain() {
    let mut rng = Rng::new(2);
    let bits: Vec<f64> = (0..4096).map(|_| f64::from_bits(rng.next_u64())).collect();
    let bytes = comes_back(&bits, "random bits");
    assert_eq!((bytes[0], bytes.len()), (PLAIN, 1 + 4096 * 8));
    let unit = |rng: &mut Rng| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let units: Vec<f64> = (0..4096).map(|_| unit(&mut rng)).collect();
    assert_eq!(comes_back(&units, "unit interval")[0], PLAIN);
    // Each alone would be a decimal, but the packing pads.
    assert_eq!(comes_back(&[1.5f32, 2.25, -3.0], "three")[0], PLAIN);
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let mut values = [0.25f64; 40];
    let nan = f64::from_bits(0x7ff8_0000_0000_0102);
    values[7] = nan;
    let head = [
        1, // decimals
        2, // digits
        0, 50, 0, 1, 0, 0, // a line from 25 without slope, residuals and patches
        1, 7, 0, // an exception in row 7
    ];
    let expected = [&head[..], &nan.to_bits().to_le_bytes()].concat();
    assert_eq!(comes_back(&values, "decimals"), expected);
    let expected = [&[0][..], &1.5f32.to_le_bytes(), &nan32().to_le_bytes()].concat();
    assert_eq!(comes_back(&[1.5f32, nan32()], "plain"), expected);
}

fn nan32() -> f32 {
    f32::from_bits(0xffc0_0001)
}

fn is_refused<F: Float>(rows: usize, bytes: &[u8]) -> bool {
    let mut values = Vec::<F>::new();
    decode(rows, &mut ByteReader::new(bytes), &mut values).is_err()
}

#[test]
fn cut_or_impossible_bytes_are_corrupt() {
    let mut rng = Rng::new(9);
    let exceptional = exceptional::<f64>();
    let value = |row: usize| match row % 9 {
        0 => exceptional[row / 9 % exceptional.len()],
        _ => rng.below(9_999_999) as f64 / 1000.0,
    };
    let mixed: Vec<f64> = (0..600).map(value).collect();
    let plain: Vec<f64> = (0..60).map(|_| f64::from_bits(rng.next_u64())).collect();
    for (form, values) in [(DECIMALS, &mixed), (PLAIN, &plain)] {
        let bytes = comes_back(values, "whole");
        assert_eq!(bytes[0], form);
        let rows = values.len();
        assert!((0..bytes.len()).all(|len| is_refused::<f64>(rows, &bytes[..len])));
    }
    let decimals = |digits: u8, exceptions: u64, row: u16| {
        let mut bytes = vec![DECIMALS, digits, 0, 50, 0, 1, 0, 0];
        bytes.put_varint(exceptions);
        bytes.put_u16(row);
        bytes.resize(1 << 12, 0);
        bytes
    };
    assert!(!is_refused::<f64>(100, &decimals(18, 1, 99)));
    assert!(!is_refused::<f32>(100, &decimals(18, 1, 99)));
    assert!(is_refused::<f64>(100, &decimals(19, 1, 99)), "digits");
    assert!(is_refused::<f64>(100, &decimals(255, 1, 99)), "digits");
    assert!(is_refused::<f64>(100, &decimals(2, 1, 100)), "a row");
    assert!(is_refused::<f64>(100, &decimals(2, 101, 0)), "exceptions");
    assert!(
        is_refused::<f64>(100, &decimals(2, u64::MAX, 0)),
        "exceptions"
    );
    assert!(is_refused::<f64>(100, &[2; 1000]), "a form");
    // An integer that no encoder writes is some float.
    let mut bytes = vec![DECIMALS, 3, 0];
    bytes.put_varint(u64::MAX);
    bytes.extend_from_slice(&[0, 1, 0, 0, 0]);
    assert!(!is_refused::<f64>(100, &bytes));
    assert!(!is_refused::<f32>(100, &bytes));
}

#[test]
fn flipped_bits_are_errors_or_floats() {
    let mut rng = Rng::new(11);
    let values = random_mix(&mut rng);
    let bytes = comes_back(&values, "whole");
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let mut decoded = Vec::<f64>::new();
        if decode(values.len(), &mut ByteReader::new(&damaged), &mut decoded).is_ok() {
            assert_eq!(decoded.len(), values.len(), "bit {bit}");
        }
    }
}

/// Decimals, a line's outliers and exceptions.
fn random_mix(rng: &mut Rng) -> Vec<f64> {
    let value = |_| match rng.below(40) {
        0 => f64::from_bits(rng.next_u64()),
        1 => rng.below(1 << 40) as f64 / 100.0,
        _ => rng.below(1 << 10) as f64 / 100.0,
    };
    (0..700).map(value).collect()
}
