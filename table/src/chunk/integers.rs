//! Integers of one block, compressed.
//!
//! A block's values are written as a line plus bit-packed residuals,
//! `value[i] = reference + (slope × i) >> 12 + scale × residual[i]`, or as runs. The line covers
//! what the lightweight schemes of column stores call constant (no residuals), sequence (slope, no
//! residuals), frame of reference (slope 0) and linear frame of reference (sorted keys); the scale
//! is the greatest common divisor of the differences (amounts in whole units, timestamps in whole
//! seconds). Runs hold their lengths and values as integers of this same form. The scheme is
//! chosen per block by its exact size. Residuals are one Vortex array: bit-packed with patches for
//! outliers, or plain when no bits are saved.
//!
//! All arithmetic wraps at 64 bits, so that every range of values can be encoded and damaged
//! bytes cannot overflow.

use super::vortex::{Values, primitive, serialize, undecodable};
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{BLOCK_ROWS, Error, Result};
use vortex_array::IntoArray;
use vortex_array::dtype::NativePType;
use vortex_fastlanes::BitPackedData;

const LINE: u8 = 0;
const RUNS: u8 = 1;

/// Fraction bits of the slope.
const SLOPE_BITS: u32 = 12;
/// Size of a serialized Vortex array beyond its packed bits, in bytes; measured.
const ARRAY_OVERHEAD: usize = 170;
/// What patches add to it.
const PATCH_OVERHEAD: usize = 250;
/// Runs may be nested this deep when decoding: the values of runs are never runs themselves.
const MAX_DEPTH: usize = 1;

/// The unsigned integers that residuals are packed as: the width of the column's values.
pub(super) trait Word: NativePType {
    /// Bits of the type.
    const BITS: u32;
    /// The low bits of a word.
    fn of(word: u64) -> Self;
    /// Zero-extended.
    fn word(self) -> u64;
    /// `self × scale + reference`, wrapping.
    fn scaled(self, scale: Self, reference: Self) -> Self;
}

macro_rules! word {
    ($t:ty) => {
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            fn of(word: u64) -> Self {
                word as $t
            }
            fn word(self) -> u64 {
                u64::from(self)
            }
            fn scaled(self, scale: Self, reference: Self) -> Self {
                self.wrapping_mul(scale).wrapping_add(reference)
            }
        }
    };
}
word!(u16);
word!(u32);
word!(u64);

/// A line through a block's values, and how the residuals are packed.
#[derive(Clone, Copy, Debug)]
struct Line {
    reference: i64,
    slope: i64,
    scale: u64,
    /// Bits per packed residual; 0: there are none.
    bits: u32,
    /// Estimated size in bytes.
    size: usize,
}

impl Line {
    fn at(&self, i: usize) -> i64 {
        self.reference
            .wrapping_add(self.slope.wrapping_mul(i as i64) >> SLOPE_BITS)
    }

    fn residual(&self, i: usize, value: i64) -> u64 {
        value.wrapping_sub(self.at(i)) as u64 / self.scale
    }
}

/// Appends at most [`BLOCK_ROWS`] values, each sign- or zero-extended from the width of `T`.
///
/// # Errors
/// Only when Vortex fails.
pub(super) fn encode<T: Word>(values: &[i64], out: &mut Vec<u8>) -> Result<()> {
    debug_assert!(values.len() <= BLOCK_ROWS);
    let line = best_line::<T>(values);
    let runs = 1 + values.windows(2).filter(|w| w[0] != w[1]).count();
    // Upper estimate: values at the line's width, lengths at 12 bits.
    let runs_size = runs * (line.bits as usize + 12) / 8 + 2 * ARRAY_OVERHEAD;
    if line.bits > 0 && runs_size < line.size {
        return encode_runs::<T>(values, out);
    }
    encode_line::<T>(values, &line, out)
}

fn encode_runs<T: Word>(values: &[i64], out: &mut Vec<u8>) -> Result<()> {
    let (mut heads, mut lengths) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|a, b| a == b) {
        heads.push(run[0]);
        lengths.push(run.len() as i64);
    }
    out.put_u8(RUNS);
    out.put_varint(heads.len() as u64);
    encode_line::<u16>(&lengths, &best_line::<u16>(&lengths), out)?;
    encode_line::<T>(&heads, &best_line::<T>(&heads), out)
}

fn encode_line<T: Word>(values: &[i64], line: &Line, out: &mut Vec<u8>) -> Result<()> {
    out.put_u8(LINE);
    out.put_varint(zigzag(line.reference));
    out.put_varint(zigzag(line.slope));
    out.put_varint(line.scale);
    let mut array = Vec::new();
    if line.bits > 0 {
        let residuals: Vec<T> = values
            .iter()
            .enumerate()
            .map(|(i, &v)| T::of(line.residual(i, v)))
            .collect();
        serialize(&mut array, |context| {
            let plain = primitive(&residuals);
            if line.bits >= T::BITS {
                return Ok(plain);
            }
            Ok(BitPackedData::encode(&plain, line.bits as u8, context)?.into_array())
        })?;
    }
    out.put_bytes(&array);
    Ok(())
}

/// The smallest line for `values`.
fn best_line<T: Word>(values: &[i64]) -> Line {
    let min = values.iter().copied().min().unwrap_or(0);
    let max = values.iter().copied().max().unwrap_or(0);
    let range = max.wrapping_sub(min) as u64;
    let mut flat = Line {
        reference: min,
        slope: 0,
        scale: 1,
        bits: 0,
        size: 0,
    };
    if range == 0 {
        return flat;
    }
    flat.scale = common_divisor(values, min);
    let (bits, size) = packed_size::<T>(values, &flat);
    (flat.bits, flat.size) = (bits, size);
    match sloped(values, range) {
        Some(mut line) => {
            (line.bits, line.size) = packed_size::<T>(values, &line);
            // A slope costs time when decoding: it must save a tenth.
            if line.size * 10 < flat.size * 9 {
                line
            } else {
                flat
            }
        }
        None => flat,
    }
}

/// Roughly the bits per value that [`encode`] needs for values like these.
pub(super) fn packed_bits(values: &[i64]) -> usize {
    best_line::<u64>(values).bits as usize
}

/// The line from the first to the last value, moved below all values; `None` when the values
/// have no trend that could save bits.
fn sloped(values: &[i64], range: u64) -> Option<Line> {
    let (first, last) = (*values.first()?, *values.last()?);
    let rise = last.checked_sub(first)?;
    if rise.unsigned_abs() < range / 2 || !(4..1 << 48).contains(&range) || values.len() < 16 {
        return None;
    }
    let slope = (rise << SLOPE_BITS) / (values.len() as i64 - 1);
    let mut line = Line {
        reference: 0,
        slope,
        scale: 1,
        bits: 0,
        size: 0,
    };
    let lowest = values
        .iter()
        .enumerate()
        .map(|(i, &v)| v.wrapping_sub(line.at(i)))
        .min()?;
    line.reference = lowest;
    Some(line)
}

/// The greatest common divisor of the values' distances from `min`.
fn common_divisor(values: &[i64], min: i64) -> u64 {
    let mut divisor = 0u64;
    for &value in values {
        let (mut a, mut b) = (divisor, value.wrapping_sub(min) as u64);
        if a != 0 && b.is_multiple_of(a) {
            continue;
        }
        while b != 0 {
            (a, b) = (b, a % b);
        }
        divisor = a;
        if divisor == 1 {
            break;
        }
    }
    divisor.max(1)
}

/// The width at which the residuals of `line` take the least space, and that space in bytes.
/// Residuals that are wider become patches.
fn packed_size<T: Word>(values: &[i64], line: &Line) -> (u32, usize) {
    let mut of_width = [0usize; 65];
    for (i, &value) in values.iter().enumerate() {
        of_width[(64 - line.residual(i, value).leading_zeros()) as usize] += 1;
    }
    let widest = of_width.iter().rposition(|&n| n > 0).unwrap_or(0) as u32;
    if widest == 0 {
        return (0, 0);
    }
    // The kernels pack whole vectors of 1,024 values.
    let padded = values.len().next_multiple_of(1024);
    let size = |bits: u32| ARRAY_OVERHEAD + padded * bits as usize / 8;
    let mut best = (widest, size(widest));
    if widest >= T::BITS {
        best = (
            T::BITS,
            ARRAY_OVERHEAD + values.len() * T::BITS as usize / 8,
        );
    }
    let mut patches = 0;
    for bits in (1..widest.min(T::BITS)).rev() {
        patches += of_width[bits as usize + 1];
        let patched = size(bits) + PATCH_OVERHEAD + patches * (T::BITS as usize / 8 + 2);
        // Patches cost time when decoding: they must save a tenth.
        if patched * 10 < size(widest) * 9 && patched < best.1 {
            best = (bits, patched);
        }
    }
    best
}

/// Decodes `rows` values that [`encode`] wrote and appends them.
///
/// # Errors
/// Bytes that [`encode`] cannot have written are a corruption error.
pub(super) fn decode<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Values<T>,
) -> Result<()> {
    decode_nested(rows, reader, values, MAX_DEPTH)
}

fn cut_off() -> Error {
    undecodable("the bytes end early".to_owned())
}

fn decode_nested<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Values<T>,
    depth: usize,
) -> Result<()> {
    match reader.u8().ok_or_else(cut_off)? {
        LINE => decode_line(rows, reader, values),
        RUNS if depth > 0 => decode_runs(rows, reader, values, depth - 1),
        form => Err(undecodable(format!("unknown form {form} of integers"))),
    }
}

fn decode_line<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Values<T>,
) -> Result<()> {
    let mut head = || {
        Some((
            reader.varint()?,
            reader.varint()?,
            reader.varint()?,
            reader.bytes()?,
        ))
    };
    let (reference, slope, scale, array) = head().ok_or_else(cut_off)?;
    let (reference, slope) = (unzigzag(reference) as u64, unzigzag(slope));
    if array.is_empty() && slope == 0 {
        values.append_constant(rows, T::of(reference));
        return Ok(());
    }
    let slice = if array.is_empty() {
        values.append_constant(rows, T::of(0))
    } else {
        values.append_serialized(rows, array)?
    };
    let (first, scale_word) = (T::of(reference), T::of(scale));
    if slope != 0 {
        for (i, v) in slice.iter_mut().enumerate() {
            let rise = slope.wrapping_mul(i as i64) >> SLOPE_BITS;
            *v = v.scaled(scale_word, T::of(reference.wrapping_add(rise as u64)));
        }
    } else if scale != 1 {
        slice
            .iter_mut()
            .for_each(|v| *v = v.scaled(scale_word, first));
    } else if reference != 0 {
        slice
            .iter_mut()
            .for_each(|v| *v = v.scaled(T::of(1), first));
    }
    Ok(())
}

fn decode_runs<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Values<T>,
    depth: usize,
) -> Result<()> {
    let runs = reader.varint().ok_or_else(cut_off)?;
    let runs = usize::try_from(runs).ok().filter(|&n| n <= rows);
    let runs = runs.ok_or_else(|| undecodable("more runs than rows".to_owned()))?;
    let (mut lengths, mut heads) = (
        Values::<u16>::with_capacity(runs),
        Values::with_capacity(runs),
    );
    decode_nested(runs, reader, &mut lengths, depth)?;
    decode_nested(runs, reader, &mut heads, depth)?;
    let total: usize = lengths.values().iter().map(|&n| usize::from(n)).sum();
    if total != rows {
        return Err(undecodable(format!(
            "runs of {total} rows in all, expected {rows}"
        )));
    }
    let mut rest = values.append_constant(rows, T::of(0));
    for (&length, &head) in lengths.values().iter().zip(heads.values()) {
        let (run, tail) = rest.split_at_mut(usize::from(length));
        run.fill(head);
        rest = tail;
    }
    Ok(())
}
