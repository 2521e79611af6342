//! Bit-packed integers, interleaved so that one vector instruction unpacks many
//! \[FastLanes §3: interleaved bit-packing\].
//!
//! The packed bits are rows of 1,024, each a row of *lanes*: adjacent words of 16, 32 or 64 bits.
//! Value i goes to lane i mod the number of lanes. A lane's values are adjacent without gaps, the
//! first one in the lowest bits of the lane's word in the first row. So all lanes of a row are
//! shifted and masked alike, and values come out in order.
//!
//! The kernels are plain loops that the compiler vectorizes, compiled for several instruction sets;
//! the best one is chosen at run time.
//!
//! Differences from the paper: values stay in order. The paper's transposed order serves
//! differences between neighbours, which are not used here.

use fearless_simd::{Level, dispatch};
use prefetch_index::prefetch_index;
use std::marker::PhantomData;
use std::sync::LazyLock;
use strandline_base::bytes::ByteReader;

/// Bytes of a row of lanes.
const ROW_BYTES: usize = 128;
/// Most lanes of a row: of 16 bits.
const LANES_MAX: usize = ROW_BYTES / 2;
/// Bytes of packed bits that are prefetched ahead, possibly from the next block, which is adjacent.
/// Columns are larger than caches, and the processor's own prefetching is slower than unpacking:
/// without this, scans take twice the time.
const PREFETCH_BYTES: usize = 4096;

/// The best instructions that the processor has.
static INSTRUCTIONS: LazyLock<Level> = LazyLock::new(Level::new);

/// Whether kernels have an instruction that multiplies and adds with one rounding. Elsewhere
/// `mul_add` is a call.
pub(super) fn has_fused_multiply_add() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = INSTRUCTIONS.as_avx2().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    let has = cfg!(target_arch = "aarch64");
    has
}

/// Appends the results of `map` on the numbers below `count`.
pub(super) fn append_numbered<T: Copy + Default>(
    count: usize,
    map: impl Fn(u64) -> T + Copy,
    out: &mut Vec<T>,
) {
    dispatch!(*INSTRUCTIONS, _ => append_numbered_inline(count, map, out));
}

#[inline(always)]
fn append_numbered_inline<T: Copy + Default>(
    count: usize,
    map: impl Fn(u64) -> T + Copy,
    out: &mut Vec<T>,
) {
    let start = out.len();
    out.resize(start + count, T::default());
    for (number, value) in out[start..].iter_mut().enumerate() {
        *value = map(number as u64);
    }
}

/// A lane's word, as an unsigned integer.
pub(super) trait Lane: Copy {
    /// Bits of the type.
    const BITS: u32;
    /// The lanes of a row.
    const COUNT: usize = ROW_BYTES * 8 / Self::BITS as usize;
    /// The low bits of a word.
    fn of(word: u64) -> Self;
    /// Zero-extended.
    fn word(self) -> u64;
    /// The `lane`-th of a row.
    fn get(row: &[u8; ROW_BYTES], lane: usize) -> Self;
    /// Sets bits of the `lane`-th of a row.
    fn set(row: &mut [u8; ROW_BYTES], lane: usize, bits: Self);
    /// The `bits` bits from `shift` on; `low` has the first ones and `high` the others.
    fn join(low: Self, high: Self, shift: u32, bits: u32) -> Self;
    /// The `bits` bits from `shift` on.
    fn cut(self, shift: u32, bits: u32) -> Self;
}

macro_rules! lane {
    ($t:ty) => {
        impl Lane for $t {
            const BITS: u32 = <$t>::BITS;
            #[inline(always)]
            fn of(word: u64) -> Self {
                word as $t
            }
            #[inline(always)]
            fn word(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn get(row: &[u8; ROW_BYTES], lane: usize) -> Self {
                Self::from_le_bytes(row.as_chunks().0[lane])
            }
            #[inline(always)]
            fn set(row: &mut [u8; ROW_BYTES], lane: usize, bits: Self) {
                let word = &mut row.as_chunks_mut().0[lane];
                *word = (Self::from_le_bytes(*word) | bits).to_le_bytes();
            }
            #[inline(always)]
            fn join(low: Self, high: Self, shift: u32, bits: u32) -> Self {
                ((low >> shift) | (high << (Self::BITS - shift))).cut(0, bits)
            }
            #[inline(always)]
            fn cut(self, shift: u32, bits: u32) -> Self {
                (self >> shift) & (Self::MAX >> (Self::BITS - bits))
            }
        }
    };
}
lane!(u16);
lane!(u32);
lane!(u64);

/// Values of `bits` bits, packed.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a, L> {
    bits: u32,
    count: usize,
    rows: &'a [[u8; ROW_BYTES]],
    lane: PhantomData<L>,
}

/// The row of a lane's `at`-th value, and the bits before it in the lane's word there.
#[inline(always)]
fn place<L: Lane>(at: usize, bits: u32) -> (usize, u32) {
    let bit = at * bits as usize;
    (bit / L::BITS as usize, (bit % L::BITS as usize) as u32)
}

/// Bytes that `count` values of `bits` bits take in lanes of `L`.
pub(super) fn packed_bytes<L: Lane>(count: usize, bits: u32) -> usize {
    let (full, rest) = place::<L>(count.div_ceil(L::COUNT), bits);
    (full + usize::from(rest > 0)) * ROW_BYTES
}

/// Appends the low `bits` bits of each value; `bits` is from 1 to the width of a lane.
pub(super) fn pack<L: Lane>(values: &[u64], bits: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + packed_bytes::<L>(values.len(), bits), 0);
    let (rows, _) = out[start..].as_chunks_mut::<ROW_BYTES>();
    for (at, values) in values.chunks(L::COUNT).enumerate() {
        let (row, shift) = place::<L>(at, bits);
        let value = |v: &u64| L::of(*v).cut(0, bits).word();
        for (lane, v) in values.iter().map(value).enumerate() {
            L::set(&mut rows[row], lane, L::of(v << shift));
        }
        if shift + bits > L::BITS {
            for (lane, v) in values.iter().map(value).enumerate() {
                L::set(&mut rows[row + 1], lane, L::of(v >> (L::BITS - shift)));
            }
        }
    }
}

impl<'a, L: Lane> Packed<'a, L> {
    /// Reads the next `count` values of `bits` bits (1 to the bits of a lane); None: too few bytes
    /// are left.
    pub fn read(reader: &mut ByteReader<'a>, count: usize, bits: u32) -> Option<Self> {
        let (rows, _) = reader.take(packed_bytes::<L>(count, bits))?.as_chunks();
        Some(Self {
            bits,
            count,
            rows,
            lane: PhantomData,
        })
    }

    /// One of the values, which exists.
    #[inline]
    pub fn get(&self, at: usize) -> L {
        let (row, shift) = place::<L>(at / L::COUNT, self.bits);
        let lane = at % L::COUNT;
        let low = L::get(&self.rows[row], lane);
        if shift + self.bits <= L::BITS {
            return low.cut(shift, self.bits);
        }
        let high = L::get(&self.rows[row + 1], lane);
        L::join(low, high, shift, self.bits)
    }

    /// Appends the results of `map` on each value's number and value.
    pub fn append<T: Copy + Default>(self, map: impl Fn(usize, L) -> T + Copy, out: &mut Vec<T>) {
        self.append_at(*INSTRUCTIONS, map, out);
    }

    fn append_at<T: Copy + Default>(
        self,
        instructions: Level,
        map: impl Fn(usize, L) -> T + Copy,
        out: &mut Vec<T>,
    ) {
        dispatch!(instructions, _ => self.append_rows(map, out));
    }

    /// Always inlined, so that it is compiled for the caller's instruction set. The loops over
    /// lanes need the same, so they are plain: `Vec::extend` may stay out of line.
    #[inline(always)]
    fn append_rows<T: Copy + Default>(self, map: impl Fn(usize, L) -> T + Copy, out: &mut Vec<T>) {
        let (bits, end) = (self.bits, out.len() + self.count);
        out.reserve(self.count.next_multiple_of(L::COUNT));
        let mut values = [T::default(); LANES_MAX];
        let values = &mut values[..L::COUNT];
        for at in 0..self.count.div_ceil(L::COUNT) {
            let (row, shift) = place::<L>(at, bits);
            let (low, first) = (&self.rows[row], at * L::COUNT);
            let is_first_of_row = shift < bits;
            if is_first_of_row {
                prefetch_index(low, PREFETCH_BYTES);
                prefetch_index(low, PREFETCH_BYTES + ROW_BYTES / 2);
            }
            if shift + bits <= L::BITS {
                for (lane, value) in values.iter_mut().enumerate() {
                    *value = map(first + lane, L::get(low, lane).cut(shift, bits));
                }
            } else {
                let high = &self.rows[row + 1];
                for (lane, value) in values.iter_mut().enumerate() {
                    let (low, high) = (L::get(low, lane), L::get(high, lane));
                    *value = map(first + lane, L::join(low, high, shift, bits));
                }
            }
            out.extend_from_slice(values);
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests;
