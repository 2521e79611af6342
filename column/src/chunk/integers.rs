//! Integers of one block, compressed.
//!
//! A block's values are written as a line plus bit-packed residuals, `value[i] = reference + (slope
//! × i) >> 12 + scale × residual[i]`, or as runs. The line covers the lightweight schemes of column
//! stores: constant (no residuals), sequence (slope, no residuals), frame of reference (slope 0)
//! and linear frame of reference (sorted keys). The scale is the greatest common divisor of the
//! differences (amounts in whole units, timestamps in whole seconds). Runs store their lengths and
//! values as integers of the same form. The scheme is chosen per block by its exact size. Residuals
//! are [bit-packed](bit_packing) to one width. Wider outliers are patches, which are stored
//! separately in full and applied afterwards.
//!
//! All arithmetic wraps at 64 bits, so that every range of values can be encoded and damaged
//! bytes cannot overflow.

use super::bit_packing::{Lane, Packed, append_numbered, pack, packed_bytes};
use super::undecodable;
use arrow_buffer::ArrowNativeType;
use std::convert::identity;
use std::ops::Range;
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{BLOCK_ROWS, Error, Result};

const LINE: u8 = 0;
const RUNS: u8 = 1;

/// Fraction bits of the slope.
const SLOPE_BITS: u32 = 12;
/// The approximate bytes of a line without its residuals.
const LINE_OVERHEAD: usize = 12;
/// Runs up to this length are written without a check of their length.
const SHORT_RUN: usize = 8;
/// The most levels of nested runs in decoding: the values of runs are never runs themselves.
const MAX_DEPTH: usize = 1;

/// The unsigned integers that values are decoded to: the width of the column's values.
pub(super) trait Word: ArrowNativeType {
    /// Bits of the type.
    const BITS: u32;
    /// The lanes of residuals that have no more bits than these.
    type Narrow: Lane;
    /// The lanes of wider residuals.
    type Wide: Lane;
    /// The low bits of a word.
    fn of(word: u64) -> Self;
    /// Zero-extended.
    fn word(self) -> u64;
}

macro_rules! word {
    ($t:ty, $narrow:ty, $wide:ty) => {
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            type Narrow = $narrow;
            type Wide = $wide;
            #[inline(always)]
            fn of(word: u64) -> Self {
                word as $t
            }
            #[inline(always)]
            fn word(self) -> u64 {
                u64::from(self)
            }
        }
    };
}
word!(u16, u16, u16);
word!(u32, u32, u32);
word!(u64, u32, u64);

fn residual_bytes<T: Word>(count: usize, bits: u32) -> usize {
    if bits <= T::Narrow::BITS {
        packed_bytes::<T::Narrow>(count, bits)
    } else {
        packed_bytes::<T::Wide>(count, bits)
    }
}

/// Bytes of a patch: the row's number and the residual.
const fn patch_bytes<T: Word>() -> usize {
    2 + T::BITS as usize / 8
}

/// A line through a block's values, and the packing of the residuals.
#[derive(Clone, Debug)]
struct Line {
    reference: i64,
    slope: i64,
    scale: u64,
    residuals: Vec<u64>,
    /// Bits per packed residual; wider ones are patches.
    bits: u32,
    /// Bytes of the residuals.
    size: usize,
}

impl Line {
    fn new<T: Word>(values: &[i64], reference: i64, slope: i64, scale: u64) -> Self {
        let distance =
            |(value, rise): (&i64, i64)| value.wrapping_sub(reference).wrapping_sub(rise) as u64;
        let cut = |residual| T::of(residual).word();
        let residuals: Vec<u64> = match (slope, scale) {
            (0, 1) => values.iter().map(|v| cut(distance((v, 0)))).collect(),
            (0, _) => values
                .iter()
                .map(|v| cut(distance((v, 0)) / scale))
                .collect(),
            _ => values
                .iter()
                .zip(rises(slope))
                .map(|v| cut(distance(v) / scale))
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

fn rises(slope: i64) -> impl Iterator<Item = i64> {
    (0u64..).map(move |row| rise(slope, row))
}

/// The rise of a line at a row, rounded down. The offset keeps the sum positive, so that the shift
/// is one with a vector instruction.
#[inline(always)]
fn rise(slope: i64, row: u64) -> i64 {
    const OFFSET: u64 = 1 << 62;
    let rise = OFFSET.wrapping_add(row.wrapping_mul(slope as u64)) >> SLOPE_BITS;
    rise.wrapping_sub(OFFSET >> SLOPE_BITS) as i64
}

/// Appends at most [`BLOCK_ROWS`] values, each sign- or zero-extended from the width of `T`.
pub(super) fn encode<T: Word>(values: &[i64], out: &mut Vec<u8>) {
    debug_assert!(values.len() <= BLOCK_ROWS);
    let line = best_line::<T>(values);
    let runs = 1 + values.windows(2).filter(|w| w[0] != w[1]).count();
    // Upper estimate: values at the line's width and with all its patches, lengths at 12 bits.
    let patches = line.size - residual_bytes::<T>(values.len(), line.bits);
    let heads = residual_bytes::<T>(runs, line.bits) + patches;
    let runs_size = heads + residual_bytes::<u16>(runs, 12) + LINE_OVERHEAD;
    if runs_size < line.size {
        encode_runs::<T>(values, out);
    } else {
        encode_line::<T>(&line, out);
    }
}

fn encode_runs<T: Word>(values: &[i64], out: &mut Vec<u8>) {
    let (mut heads, mut lengths) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|a, b| a == b) {
        heads.push(run[0]);
        lengths.push(run.len() as i64);
    }
    out.put_u8(RUNS);
    out.put_varint(heads.len() as u64);
    encode_line::<u16>(&best_line::<u16>(&lengths), out);
    encode_line::<T>(&best_line::<T>(&heads), out);
}

fn encode_line<T: Word>(line: &Line, out: &mut Vec<u8>) {
    out.put_u8(LINE);
    out.put_varint(zigzag(line.reference));
    out.put_varint(zigzag(line.slope));
    out.put_varint(line.scale);
    out.put_u8(line.bits as u8);
    let rows = line.residuals.iter().enumerate();
    let patches: Vec<_> = rows.filter(|(_, r)| bits_of(**r) > line.bits).collect();
    out.put_varint(patches.len() as u64);
    for (row, residual) in patches {
        out.put_u16(row as u16);
        out.extend_from_slice(&residual.to_le_bytes()[..T::BITS as usize / 8]);
    }
    if (1..=T::Narrow::BITS).contains(&line.bits) {
        pack::<T::Narrow>(&line.residuals, line.bits, out);
    } else if line.bits > 0 {
        pack::<T::Wide>(&line.residuals, line.bits, out);
    }
}

fn bits_of(residual: u64) -> u32 {
    u64::BITS - residual.leading_zeros()
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
        // A slope slows decoding, so it must save a tenth.
        Some(line) if line.size * 10 < flat.size * 9 => line,
        _ => flat,
    }
}

/// The approximate bits per value that [`encode`] needs for such values.
pub(super) fn packed_bits(values: &[i64]) -> usize {
    best_line::<u64>(values).size * 8 / values.len().max(1)
}

/// The line from the first to the last value, moved below all values; `None` if the values have no
/// trend that saves bits.
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

/// The width at which residuals take the least space, and the bytes. Wider residuals become
/// patches.
fn packed_size<T: Word>(residuals: &[u64]) -> (u32, usize) {
    let mut of_width = [0usize; 65];
    for residual in residuals {
        of_width[bits_of(*residual) as usize] += 1;
    }
    let widest = of_width.iter().rposition(|&n| n > 0).unwrap_or(0) as u32;
    let size = |bits: u32| residual_bytes::<T>(residuals.len(), bits);
    let mut best = (widest, size(widest));
    let mut patches = 0;
    for bits in (0..widest).rev() {
        patches += of_width[bits as usize + 1];
        let patched = size(bits) + patches * patch_bytes::<T>();
        // Patches slow decoding, so they must save a tenth.
        if patched * 10 < size(widest) * 9 && patched < best.1 {
            best = (bits, patched);
        }
    }
    best
}

/// An empty vector into which values made of `rows` integers can be decoded without reallocation.
pub(super) fn room<T: Word, V>(rows: usize) -> Vec<V> {
    Vec::with_capacity(rows.next_multiple_of(T::Narrow::COUNT))
}

/// Decodes `rows` values that [`encode`] wrote and appends them.
///
/// # Errors
/// Bytes that [`encode`] cannot have written are a corruption error.
pub(super) fn decode<T: Word>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<T>,
) -> Result<()> {
    decode_as(rows, reader, values, identity::<T>)
}

/// As [`decode`], but appends the results of `map` on the integers.
pub(super) fn decode_as<T: Word, V: Copy + Default>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<V>,
    map: impl Fn(T) -> V + Copy,
) -> Result<()> {
    decode_nested(rows, reader, values, map, MAX_DEPTH)
}

fn cut_off() -> Error {
    undecodable("the bytes end early".to_owned())
}

fn decode_nested<T: Word, V: Copy + Default>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<V>,
    map: impl Fn(T) -> V + Copy,
    depth: usize,
) -> Result<()> {
    match reader.u8().ok_or_else(cut_off)? {
        LINE => decode_line(rows, reader, values, map),
        RUNS if depth > 0 => decode_runs(rows, reader, values, map, depth - 1),
        form => Err(undecodable(format!("unknown form {form} of integers"))),
    }
}

fn decode_line<T: Word, V: Copy + Default>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<V>,
    map: impl Fn(T) -> V + Copy,
) -> Result<()> {
    let head = Head::read::<T>(rows, reader)?;
    let (line, start) = (head.line, values.len());
    if head.bits == 0 && line.slope == 0 {
        values.resize(start + rows, map(T::of(line.reference)));
    } else if head.bits == 0 {
        append_numbered(rows, |row| map(T::of(line.value(row, 0))), values);
    } else if head.bits <= T::Narrow::BITS {
        let packed = Packed::<T::Narrow>::read(reader, rows, head.bits);
        head.append(packed.ok_or_else(cut_off)?, map, values);
    } else {
        let packed = Packed::<T::Wide>::read(reader, rows, head.bits);
        head.append(packed.ok_or_else(cut_off)?, map, values);
    }
    let values = &mut values[start..];
    for patch in head.patches.chunks_exact(patch_bytes::<T>()) {
        let (row, residual) = patch.split_at(2);
        let row = u16::from_le_bytes([row[0], row[1]]);
        let value = values.get_mut(usize::from(row));
        let value = value.ok_or_else(|| undecodable(format!("a patch of row {row}")))?;
        let mut word = [0; 8];
        word[..residual.len()].copy_from_slice(residual);
        *value = map(T::of(line.value(u64::from(row), u64::from_le_bytes(word))));
    }
    Ok(())
}

/// The places of integers that [`encode`] has written as a line: one of them is read without the
/// others.
#[derive(Clone, Debug)]
pub(super) struct LineLayout {
    line: StoredLine,
    bits: u32,
    rows: usize,
    /// of the patches in the block
    patches: Range<usize>,
    /// of the packed residuals in the block
    packed: Range<usize>,
}

impl LineLayout {
    /// The layout of what `reader` is at in a block that it has to its end; None: they are runs.
    ///
    /// # Errors
    /// Bytes that [`encode`] cannot have written are a corruption error.
    pub fn read<T: Word>(rows: usize, reader: &mut ByteReader<'_>) -> Result<Option<Self>> {
        if reader.u8().ok_or_else(cut_off)? != LINE {
            return Ok(None);
        }
        let head = Head::read::<T>(rows, reader)?;
        let packed_bytes = residual_bytes::<T>(rows, head.bits);
        let from = reader.position();
        reader.take(packed_bytes).ok_or_else(cut_off)?;
        if reader.remaining() != 0 {
            let more = reader.remaining();
            return Err(undecodable(format!("{more} bytes too many")));
        }
        Ok(Some(Self {
            line: head.line,
            bits: head.bits,
            rows,
            patches: from - head.patches.len()..from,
            packed: from..from + packed_bytes,
        }))
    }

    /// The integer of a row, which exists; None: the bytes are not those of the layout.
    pub fn value<T: Word>(&self, block: &[u8], row: usize) -> Option<T> {
        let patches = block.get(self.patches.clone())?;
        let mut patches = patches.chunks_exact(patch_bytes::<T>());
        let patch =
            patches.rfind(|patch| usize::from(u16::from_le_bytes([patch[0], patch[1]])) == row);
        let residual = match patch {
            Some(patch) => {
                let mut word = [0; 8];
                word[..patch.len() - 2].copy_from_slice(&patch[2..]);
                u64::from_le_bytes(word)
            }
            None if self.bits == 0 => 0,
            None => {
                let packed = &mut ByteReader::new(block.get(self.packed.clone())?);
                if self.bits <= T::Narrow::BITS {
                    Packed::<T::Narrow>::read(packed, self.rows, self.bits)?
                        .get(row)
                        .word()
                } else {
                    Packed::<T::Wide>::read(packed, self.rows, self.bits)?
                        .get(row)
                        .word()
                }
            }
        };
        Some(T::of(self.line.value(row as u64, residual)))
    }
}

/// The line of a block as it is stored.
#[derive(Clone, Copy, Debug)]
struct StoredLine {
    reference: u64,
    slope: i64,
    scale: u64,
}

impl StoredLine {
    /// The integer of a row with this residual.
    #[inline(always)]
    fn value(&self, row: u64, residual: u64) -> u64 {
        let base = self.reference.wrapping_add(rise(self.slope, row) as u64);
        residual.wrapping_mul(self.scale).wrapping_add(base)
    }
}

/// The fields before packed residuals.
struct Head<'a> {
    line: StoredLine,
    /// at most the width
    bits: u32,
    /// [`patch_bytes`] each
    patches: &'a [u8],
}

impl<'a> Head<'a> {
    fn read<T: Word>(rows: usize, reader: &mut ByteReader<'a>) -> Result<Self> {
        let head = Self::read_fields::<T>(rows, reader).ok_or_else(cut_off)?;
        if head.bits > T::BITS {
            return Err(undecodable(format!("residuals of {} bits", head.bits)));
        }
        Ok(head)
    }

    fn read_fields<T: Word>(rows: usize, reader: &mut ByteReader<'a>) -> Option<Self> {
        let (reference, slope) = (unzigzag(reader.varint()?), unzigzag(reader.varint()?));
        let (scale, bits) = (reader.varint()?, reader.u8()?);
        let patches = usize::try_from(reader.varint()?).ok();
        let patches = patches.filter(|&n| n <= rows)?;
        Some(Self {
            line: StoredLine {
                reference: reference as u64,
                slope,
                scale,
            },
            bits: u32::from(bits),
            patches: reader.take(patches * patch_bytes::<T>())?,
        })
    }

    /// Appends the results of `map` on the integers of packed residuals.
    fn append<L: Lane, T: Word, V: Copy + Default>(
        &self,
        packed: Packed<'_, L>,
        map: impl Fn(T) -> V + Copy,
        values: &mut Vec<V>,
    ) {
        let map = |word| map(T::of(word));
        let line = self.line;
        let (reference, scale) = (line.reference, line.scale);
        match (line.slope, u32::try_from(scale)) {
            (0, Ok(1)) => packed.append(|_, v| map(v.word().wrapping_add(reference)), values),
            // Processors can multiply vectors of 32-bit numbers to 64 bits, but rarely of 64-bit
            // numbers.
            (0, Ok(scale)) => packed.append(
                |_, v| map(v.word().wrapping_mul(scale.into()).wrapping_add(reference)),
                values,
            ),
            _ => packed.append(|row, v| map(line.value(row as u64, v.word())), values),
        }
    }
}

fn decode_runs<T: Word, V: Copy + Default>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<V>,
    map: impl Fn(T) -> V + Copy,
    depth: usize,
) -> Result<()> {
    let runs = reader.varint().ok_or_else(cut_off)?;
    let runs = usize::try_from(runs).ok().filter(|&n| n <= rows);
    let runs = runs.ok_or_else(|| undecodable("more runs than rows".to_owned()))?;
    let (mut lengths, mut heads) = (room::<u16, u16>(runs), room::<T, V>(runs));
    decode_nested(runs, reader, &mut lengths, identity::<u16>, depth)?;
    decode_nested(runs, reader, &mut heads, map, depth)?;
    let total: usize = lengths.iter().map(|&n| usize::from(n)).sum();
    if total != rows {
        return Err(undecodable(format!(
            "runs of {total} rows in all, expected {rows}"
        )));
    }
    let start = values.len();
    values.resize(start + rows, V::default());
    let mut rest = &mut values[start..];
    for (&length, &head) in lengths.iter().zip(&heads) {
        let length = usize::from(length);
        // Most runs are short. The next run overwrites the excess.
        match rest.first_chunk_mut::<SHORT_RUN>() {
            Some(window) if length <= SHORT_RUN => *window = [head; SHORT_RUN],
            _ => rest[..length].fill(head),
        }
        rest = &mut rest[length..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;
