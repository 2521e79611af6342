//! A blocked Bloom filter over a part of a level's keys or entries (`partition`): of most that a
//! level does not have, a lookup knows so without reading a block. Above all an insert, which looks
//! whether its entry is there, reads nothing. Filters of an index whose keys have mostly one entry
//! are of keys, so that lookups of absent keys read nothing either; others are of entries, since
//! there most inserts meet a key that is there.
//!
//! The eight bits of a key or entry are in one line of 32 bytes, one bit in each word, as in
//! Parquet's filter. At 10 bits about 1 of 100 absent ones is taken to be present.
//!
//! The words are no part of the protocol: a hash is added before the block with its entry is
//! published under the state's lock, which a reader takes before it looks here.

use crate::entry::key_of;
use crate::key_hash::hash_bytes;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::bytes::{ByteReader, PutBytes};

const WORDS: usize = 8;
/// Bytes of a line.
pub(super) const LINE_BYTES: usize = WORDS * size_of::<u32>();
const LINE_BITS: usize = LINE_BYTES * u8::BITS as usize;
/// Odd factors, one for each word of a line.
const FACTORS: [u32; WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

#[derive(Debug, Default)]
pub(super) struct Filter {
    lines: Vec<[AtomicU32; WORDS]>,
}

/// What filters have of each entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterOf {
    /// its key: a lookup of an absent key reads nothing
    #[default]
    Keys,
    /// all its bytes: an insertion under a key that others have reads nothing
    Entries,
}

impl FilterOf {
    /// What a filter looks at of an entry.
    #[inline]
    pub fn hash(self, entry: &[u8]) -> u64 {
        match self {
            Self::Keys => hash_bytes(key_of(entry)),
            Self::Entries => hash_bytes(entry),
        }
    }
}

/// The filters of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterForm {
    /// bits for each entry; 0: there are no filters
    pub bits: usize,
    pub of: FilterOf,
}

impl Filter {
    /// A filter for so many entries.
    pub fn new(entries: usize, bits_per_entry: usize) -> Self {
        let lines = (entries * bits_per_entry).div_ceil(LINE_BITS).max(1);
        let lines = std::iter::repeat_with(Default::default).take(lines);
        Self {
            lines: lines.collect(),
        }
    }

    /// The entries for which so many lines are enough.
    pub fn entries_of(lines: usize, bits_per_entry: usize) -> usize {
        lines * LINE_BITS / bits_per_entry.max(1)
    }

    /// The line of a hash in a filter of so many lines.
    pub fn line_of(hash: u64, lines: usize) -> usize {
        ((u128::from(hash) * lines as u128) >> u64::BITS) as usize
    }

    fn line(&self, hash: u64) -> Option<&[AtomicU32; WORDS]> {
        self.lines.get(Self::line_of(hash, self.lines.len()))
    }

    fn masks(hash: u64) -> [u32; WORDS] {
        FACTORS.map(|factor| 1 << ((hash as u32).wrapping_mul(factor) >> 27))
    }

    /// Adds a key. One thread adds at a time, so that no instruction has to lock a word: eight that
    /// did took a seventh of a merge's time.
    pub fn add(&self, hash: u64) {
        for (word, mask) in self.line(hash).into_iter().flatten().zip(Self::masks(hash)) {
            word.store(word.load(Relaxed) | mask, Relaxed);
        }
    }

    /// False: no entry with this hash has been added.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.line_may_contain(Self::line_of(hash, self.lines.len()), hash)
    }

    /// As [`Filter::may_contain`], where the hash's line is `line` of these lines.
    pub fn line_may_contain(&self, line: usize, hash: u64) -> bool {
        let words = self.lines.get(line).into_iter().flatten();
        words
            .zip(Self::masks(hash))
            .all(|(word, mask)| word.load(Relaxed) & mask != 0)
    }

    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Appends up to `count` lines.
    pub fn put_lines(&self, from: usize, count: usize, out: &mut Vec<u8>) {
        let lines = self.lines.iter().skip(from).take(count);
        for word in lines.flatten() {
            out.put_u32(word.load(Relaxed));
        }
    }

    /// Takes lines that [`Filter::put_lines`] has put, behind those that are there.
    pub fn take_lines(&mut self, count: usize, reader: &mut ByteReader<'_>) -> Option<()> {
        for _ in 0..count {
            let mut line = <[AtomicU32; WORDS]>::default();
            for word in &mut line {
                *word.get_mut() = reader.u32()?;
            }
            self.lines.push(line);
        }
        Some(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_nothing_and_errs_seldom() {
        let filter = Filter::new(10_000, 10);
        let entry = |number: u64| [number.to_be_bytes(), [7; 8]].concat();
        for number in 0..10_000 {
            filter.add(FilterOf::Keys.hash(&entry(number)));
        }
        let may_contain = |number| filter.may_contain(hash_bytes(&u64::to_be_bytes(number)));
        assert!((0..10_000).all(may_contain));
        let wrong = (10_000..110_000).filter(|number| may_contain(*number));
        assert!(wrong.count() < 2_500, "of 100,000");
        assert!(!Filter::new(0, 10).may_contain(3));
    }
}
