//! Integers of every width and form, and invalid bytes.

use super::*;
use strandline_base::rng::Rng;

/// The value of a word in a column of the width of `T`: sign-extended.
fn fitted<T: Word>(word: u64) -> i64 {
    let unused = 64 - T::BITS;
    (word << unused) as i64 >> unused
}

/// Encodes, decodes after another value and compares; returns the bytes.
fn comes_back<T: Word>(values: &[i64], what: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::<T>(values, &mut bytes);
    let mut reader = ByteReader::new(&bytes);
    let mut decoded = vec![T::of(7)];
    decode(values.len(), &mut reader, &mut decoded).expect(what);
    assert_eq!(reader.remaining(), 0, "{what}");
    assert_eq!(decoded[0].word(), 7, "{what}");
    let decoded: Vec<i64> = decoded[1..].iter().map(|v| fitted::<T>(v.word())).collect();
    assert_eq!(decoded, values, "{what}");
    bytes
}

/// Residuals of `bits` bits above `reference`, including the least and the greatest.
fn of_width<T: Word>(rng: &mut Rng, rows: usize, bits: u32, reference: i64) -> Vec<i64> {
    let greatest = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    let residual = |row| match row {
        0 => greatest,
        1 => 0,
        _ => rng.next_u64() & greatest,
    };
    let residuals: Vec<u64> = (0..rows).map(residual).collect();
    let value = |r: u64| fitted::<T>((reference as u64).wrapping_add(r));
    residuals.into_iter().map(value).collect()
}

fn check_widths<T: Word>() {
    let references = [
        0,
        1,
        -1,
        -12_345,
        i64::MIN >> (64 - T::BITS),
        i64::MAX >> (64 - T::BITS),
    ];
    for bits in [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64] {
        for rows in [1, 2, 31, 33, 1024, 4095, 4096] {
            for reference in references.into_iter().filter(|_| bits <= T::BITS) {
                let mut rng = Rng::new(u64::from(bits) << 16 | rows as u64);
                let values = of_width::<T>(&mut rng, rows, bits, reference);
                let what = format!("{rows} values of {bits} bits from {reference}");
                let bytes = comes_back::<T>(&values, &what);
                let packed = residual_bytes::<T>(rows, bits.max(1));
                let is_wrapped = values.iter().any(|v| *v < reference);
                assert!(
                    is_wrapped || bytes.len() <= packed + 30,
                    "{what}: {} bytes",
                    bytes.len()
                );
            }
        }
    }
}

#[test]
fn widths_around_those_of_lanes_come_back() {
    check_widths::<u16>();
    check_widths::<u32>();
    check_widths::<u64>();
}

#[test]
fn extremes_come_back() {
    let extremes = [i64::MIN, i64::MAX, 0, -1, i64::MIN + 1, i64::MAX - 1];
    let mut rng = Rng::new(3);
    let values: Vec<i64> = (0..4096).map(|_| extremes[rng.below(6) as usize]).collect();
    comes_back::<u64>(&values, "64 bits");
    let narrow: Vec<i64> = values.iter().map(|v| v >> 32).collect();
    comes_back::<u32>(&narrow, "32 bits");
    let narrow: Vec<i64> = values.iter().map(|v| v >> 48).collect();
    comes_back::<u16>(&narrow, "16 bits");
    comes_back::<u64>(&[], "nothing");
}

/// One outlier, at every row in turn.
fn check_patches<T: Word>(slope: i64, scale: i64, outlier: i64) {
    const ROWS: usize = 600;
    for at in 0..ROWS {
        let mut rng = Rng::new(at as u64);
        let value = |row| fitted::<T>((row * slope + scale * rng.below(6) as i64 - 5_000) as u64);
        let mut values: Vec<i64> = (0..ROWS as i64).map(value).collect();
        values[at] = fitted::<T>(values[at].wrapping_add(outlier) as u64);
        let what = format!("an outlier of {} bits at {at}", T::BITS);
        let bytes = comes_back::<T>(&values, &what);
        assert!(bytes.len() < ROWS, "{what}: {} bytes", bytes.len());
    }
}

#[test]
fn an_outlier_in_any_row_is_a_patch() {
    check_patches::<u16>(0, 1, 30_000);
    check_patches::<u32>(0, 1, 1 << 30);
    check_patches::<u64>(0, 1, 1 << 62);
    check_patches::<u64>(0, 100, 100 << 40);
    check_patches::<u64>(0, 1 << 40, 1 << 60);
    check_patches::<u64>(0, 1, 1 << 20);
}

#[test]
fn an_outlier_of_a_sloped_line_is_a_patch() {
    for at in (1..4095).step_by(7) {
        let mut rng = Rng::new(at as u64);
        let value = |row: i64| row * 1_000_003 + rng.below(6) as i64;
        let mut values: Vec<i64> = (0..4096).map(value).collect();
        values[at] += 1 << 30;
        let bytes = comes_back::<u64>(&values, "sloped");
        assert!(bytes.len() < 4096, "{at}: {} bytes", bytes.len());
    }
}

#[test]
fn few_values_among_equal_ones_are_patches_of_no_bits() {
    let mut rng = Rng::new(5);
    let mut values = vec![-77; 4096];
    for _ in 0..20 {
        values[rng.below(4096) as usize] = (rng.next_u64() >> 3) as i64;
    }
    let bytes = comes_back::<u64>(&values, "equal");
    assert!(
        bytes.len() < 20 * patch_bytes::<u64>() + 30,
        "{}",
        bytes.len()
    );
}

/// Values of random shape: trend, unit, width, outliers, runs.
fn random<T: Word>(rng: &mut Rng) -> Vec<i64> {
    let rows = match rng.below(3) {
        0 => rng.below(200),
        1 => 4096,
        _ => rng.below(4097),
    };
    let bits = rng.below(u64::from(T::BITS)) as u32;
    let scale = [1, 1, 10, 86_400_000_000, rng.next_u64() as i64][rng.below(5) as usize];
    let slope = [0, 0, 1, -3, rng.below(1 << 40) as i64][rng.below(5) as usize];
    let reference = rng.next_u64() as i64 >> rng.below(64);
    let outliers = [0, 0, 3, 50, 700][rng.below(5) as usize];
    let run = 1 + rng.below(4) * rng.below(30);
    let mut value = 0;
    let of_row = |row: u64| {
        if row.is_multiple_of(run) {
            value = (rng.next_u64() & ((1 << bits) - 1)) as i64;
        }
        if outliers > 0 && rng.one_in(outliers) {
            value = rng.next_u64() as i64;
        }
        let rise = slope.wrapping_mul(row as i64).wrapping_add(reference);
        fitted::<T>(value.wrapping_mul(scale).wrapping_add(rise) as u64)
    };
    (0..rows).map(of_row).collect()
}

#[test]
fn random_shapes_come_back() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let what = format!("seed {seed}");
        comes_back::<u16>(&random::<u16>(&mut rng), &what);
        comes_back::<u32>(&random::<u32>(&mut rng), &what);
        comes_back::<u64>(&random::<u64>(&mut rng), &what);
    }
}

#[test]
fn cut_or_impossible_bytes_are_corrupt() {
    let is_refused = |rows, bytes: &[u8]| {
        let mut values = Vec::<u32>::new();
        decode(rows, &mut ByteReader::new(bytes), &mut values).is_err()
    };
    let mut rng = Rng::new(9);
    let mut values = of_width::<u32>(&mut rng, 100, 9, -4);
    values[50] = 1 << 30;
    let runs: Vec<i64> = (0..100).map(|row| row / 20 * 7 % 5).collect();
    for values in [&values, &runs] {
        let bytes = comes_back::<u32>(values, "whole");
        assert!((0..bytes.len()).all(|len| is_refused(100, &bytes[..len])));
    }
    let line = |bits: u8, patches: u64, row: u16| {
        let mut bytes = vec![LINE, 0, 0, 1, bits];
        bytes.put_varint(patches);
        bytes.put_u16(row);
        bytes.resize(1 << 16, 0);
        bytes
    };
    assert!(!is_refused(100, &line(32, 1, 99)));
    assert!(is_refused(100, &line(33, 1, 99)), "bits");
    assert!(is_refused(100, &line(32, 1, 100)), "a row");
    assert!(is_refused(100, &line(32, 101, 0)), "patches");
    assert!(is_refused(100, &[RUNS, 2, RUNS, 1]), "nested runs");
}
