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

use super::vortex::{Values, parsed, primitive, serialize, undecodable};
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{BLOCK_ROWS, Error, Result};
use vortex_array::dtype::NativePType;
use vortex_array::{ArrayRef, IntoArray};
use vortex_fastlanes::BitPackedData;

const LINE: u8 = 0;
const RUNS: u8 = 1;

/// Fraction bits of the slope.
const SLOPE_BITS: u32 = 12;
/// Size of a serialized Vortex array beyond its packed bits, in bytes; measured.
const ARRAY_OVERHEAD: usize = 170;
/// What patches add to it.
const PATCH_OVERHEAD: usize = 250;
/// Runs up to this length are written without looking at their length.
const SHORT_RUN: usize = 8;
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
    /// [`Word::scaled`] for all.
    fn scale_all(values: &mut [Self], scale: u64, reference: Self) {
        let low = u64::from(u32::MAX);
        let all = values.iter().fold(scale, |all, v| all | v.word());
        if all <= low {
            // Processors multiply vectors of 32-bit numbers to 64 bits, but not of 64-bit ones.
            values.iter_mut().for_each(|v| {
                let product = (v.word() & low) * (scale & low);
                *v = Self::of(product.wrapping_add(reference.word()));
            });
        } else {
            values
                .iter_mut()
                .for_each(|v| *v = v.scaled(Self::of(scale), reference));
        }
    }
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
#[derive(Clone, Debug)]
struct Line {
    reference: i64,
    slope: i64,
    scale: u64,
    residuals: Vec<u64>,
    /// Bits per packed residual; 0: they are all 0.
    bits: u32,
    /// Estimated size in bytes.
    size: usize,
}

impl Line {
    fn new<T: Word>(values: &[i64], reference: i64, slope: i64, scale: u64) -> Self {
        let distance =
            |(value, rise): (&i64, i64)| value.wrapping_sub(reference).wrapping_sub(rise) as u64;
        let residuals: Vec<u64> = match (slope, scale) {
            (0, 1) => values.iter().map(|v| distance((v, 0))).collect(),
            (0, _) => values.iter().map(|v| distance((v, 0)) / scale).collect(),
            _ => values
                .iter()
                .zip(rises(slope))
                .map(|v| distance(v) / scale)
                .collect(),
        };
        let (bits, size) = packed_size::<T>(&residuals);
        Self {
            reference,
            slope,
            scale,
            residuals,
            bits,
            size,
        }
    }
}

/// How far a line has risen at each row, rounded down. The offset keeps the sum positive, so that
/// the shift is one that processors have for vectors.
fn rises(slope: i64) -> impl Iterator<Item = i64> {
    const OFFSET: u64 = 1 << 62;
    (0u64..).map(move |i| {
        let rise = OFFSET.wrapping_add(i.wrapping_mul(slope as u64)) >> SLOPE_BITS;
        rise.wrapping_sub(OFFSET >> SLOPE_BITS) as i64
    })
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
    encode_line::<T>(&line, out)
}

fn encode_runs<T: Word>(values: &[i64], out: &mut Vec<u8>) -> Result<()> {
    let (mut heads, mut lengths) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|a, b| a == b) {
        heads.push(run[0]);
        lengths.push(run.len() as i64);
    }
    out.put_u8(RUNS);
    out.put_varint(heads.len() as u64);
    encode_line::<u16>(&best_line::<u16>(&lengths), out)?;
    encode_line::<T>(&best_line::<T>(&heads), out)
}

fn encode_line<T: Word>(line: &Line, out: &mut Vec<u8>) -> Result<()> {
    out.put_u8(LINE);
    out.put_varint(zigzag(line.reference));
    out.put_varint(zigzag(line.slope));
    out.put_varint(line.scale);
    let mut array = Vec::new();
    if line.bits > 0 {
        let residuals: Vec<T> = line.residuals.iter().map(|&r| T::of(r)).collect();
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
    let scale = if range == 0 {
        1
    } else {
        common_divisor(values, min)
    };
    let flat = Line::new::<T>(values, min, 0, scale);
    match sloped::<T>(values, range) {
        // A slope costs time when decoding: it must save a tenth.
        Some(line) if line.size * 10 < flat.size * 9 => line,
        _ => flat,
    }
}

/// Roughly the bits per value that [`encode`] needs for values like these.
pub(super) fn packed_bits(values: &[i64]) -> usize {
    best_line::<u64>(values).bits as usize
}

/// The line from the first to the last value, moved below all values; `None` when the values
/// have no trend that could save bits.
fn sloped<T: Word>(values: &[i64], range: u64) -> Option<Line> {
    let (first, last) = (*values.first()?, *values.last()?);
    let rise = last.checked_sub(first)?;
    if rise.unsigned_abs() < range / 2 || !(4..1 << 48).contains(&range) || values.len() < 16 {
        return None;
    }
    let slope = (rise << SLOPE_BITS) / (values.len() as i64 - 1);
    let lowest = values
        .iter()
        .zip(rises(slope))
        .map(|(v, rise)| v.wrapping_sub(rise))
        .min()?;
    Some(Line::new::<T>(values, lowest, slope, 1))
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

/// The width at which residuals take the least space, and that space in bytes. Residuals that
/// are wider become patches.
fn packed_size<T: Word>(residuals: &[u64]) -> (u32, usize) {
    let mut of_width = [0usize; 65];
    for residual in residuals {
        of_width[(64 - residual.leading_zeros()) as usize] += 1;
    }
    let widest = of_width.iter().rposition(|&n| n > 0).unwrap_or(0) as u32;
    if widest == 0 {
        return (0, 0);
    }
    // The kernels pack whole vectors of 1,024 values.
    let padded = residuals.len().next_multiple_of(1024);
    let size = |bits: u32| ARRAY_OVERHEAD + padded * bits as usize / 8;
    let mut best = (widest, size(widest));
    if widest >= T::BITS {
        best = (
            T::BITS,
            ARRAY_OVERHEAD + residuals.len() * T::BITS as usize / 8,
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

/// A line read from its bytes, so that decoding it again need not read them again.
#[derive(Debug)]
pub(crate) struct ParsedLine {
    reference: u64,
    slope: i64,
    scale: u64,
    /// None: all residuals are 0
    residuals: Option<ArrayRef>,
}

/// Reads a block of `rows` values of the width of `T` that is one line; None for other forms.
///
/// # Errors
/// As [`decode`].
pub(super) fn parse<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
) -> Result<Option<ParsedLine>> {
    if reader.u8().ok_or_else(cut_off)? != LINE {
        return Ok(None);
    }
    let line = parse_line::<T>(rows, reader)?;
    match reader.remaining() {
        0 => Ok(Some(line)),
        more => Err(undecodable(format!("{more} bytes too many"))),
    }
}

fn parse_line<T: Word>(rows: usize, reader: &mut ByteReader<'_>) -> Result<ParsedLine> {
    let mut head = || {
        Some((
            reader.varint()?,
            reader.varint()?,
            reader.varint()?,
            reader.bytes()?,
        ))
    };
    let (reference, slope, scale, array) = head().ok_or_else(cut_off)?;
    let residuals = match array.is_empty() {
        true => None,
        false => Some(parsed::<T>(rows, array)?),
    };
    Ok(ParsedLine {
        reference: unzigzag(reference) as u64,
        slope: unzigzag(slope),
        scale,
        residuals,
    })
}

fn decode_line<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Values<T>,
) -> Result<()> {
    parse_line::<T>(rows, reader)?.append(rows, values)
}

impl ParsedLine {
    /// Decodes the `rows` values and appends them.
    ///
    /// # Errors
    /// Residuals of another number or type are a corruption error.
    pub(super) fn append<T: Word>(&self, rows: usize, values: &mut Values<T>) -> Result<()> {
        let (reference, slope, scale) = (self.reference, self.slope, self.scale);
        let slice = match &self.residuals {
            None if slope == 0 => {
                values.append_constant(rows, T::of(reference));
                return Ok(());
            }
            None => values.append_constant(rows, T::of(0)),
            Some(array) => values.append_array(rows, array)?,
        };
        let first = T::of(reference);
        if slope != 0 {
            for (v, rise) in slice.iter_mut().zip(rises(slope)) {
                *v = v.scaled(T::of(scale), T::of(reference.wrapping_add(rise as u64)));
            }
        } else if scale != 1 {
            T::scale_all(slice, scale, first);
        } else if reference != 0 {
            slice
                .iter_mut()
                .for_each(|v| *v = v.scaled(T::of(1), first));
        }
        Ok(())
    }
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
        let length = usize::from(length);
        // Most runs are short: what is written too far, the next run overwrites.
        match rest.first_chunk_mut::<SHORT_RUN>() {
            Some(window) if length <= SHORT_RUN => *window = [head; SHORT_RUN],
            _ => rest[..length].fill(head),
        }
        rest = &mut rest[length..];
    }
    Ok(())
}
