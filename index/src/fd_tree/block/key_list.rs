//! The entries of a block one after the other, with all their bytes.

use super::EntryKey;
use std::cmp::Ordering;
use std::ops::Range;

pub(super) const WORD: usize = size_of::<u64>();

/// Entries in order.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyList {
    bytes: Vec<u8>,
    /// the end of each entry
    ends: Vec<u32>,
    /// bytes with which all entries begin, of a sealed list
    common: usize,
}

impl KeyList {
    pub fn with_capacity(bytes: usize, entries: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(entries),
            common: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    fn range(&self, at: usize) -> Option<Range<usize>> {
        let end = *self.ends.get(at)? as usize;
        let start = match at {
            0 => 0,
            _ => *self.ends.get(at - 1)? as usize,
        };
        Some(start..end)
    }

    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.bytes.get(self.range(at)?)
    }

    pub fn last(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All entries, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Puts an entry in the place of `out`. Returns whether there is one.
    pub fn read(&self, at: usize, out: &mut EntryKey) -> bool {
        out.clear();
        let found = self.get(at);
        out.extend_from_slice(found.unwrap_or_default());
        found.is_some()
    }

    /// Appends the entry that begins with `shared` bytes of the last one and goes on with `rest`.
    /// Returns whether the last one has as many.
    pub fn push(&mut self, shared: usize, rest: &[u8]) -> bool {
        let last = self.len().checked_sub(1).and_then(|at| self.range(at));
        let last = last.unwrap_or_default();
        if shared > last.len() {
            return false;
        }
        let before = last.start..last.start + shared;
        self.bytes.extend_from_within(before);
        self.append(rest);
        true
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: &[u8]) {
        self.bytes.extend_from_slice(entry);
        self.ends.push(self.bytes.len() as u32);
    }

    /// For searches, when nothing more is appended: in order, all entries begin with what the first
    /// and the last one have in common.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        let first = self.get(0).unwrap_or_default();
        self.common = common_bytes(first, self.last().unwrap_or_default());
        self
    }

    /// The positions of the entries that are equal to the wanted one; if there is none, of the next
    /// one, empty.
    pub fn find(&self, wanted: &[u8]) -> Range<usize> {
        let begin = self.below(wanted);
        let equal = (begin..self.len()).take_while(|at| self.get(*at) == Some(wanted));
        begin..begin + equal.count()
    }

    /// The number of entries below `wanted`. Entries are compared by the word behind the bytes with
    /// which all of them begin, and as a whole if the words are equal.
    fn below(&self, wanted: &[u8]) -> usize {
        let first = self.get(0).unwrap_or_default();
        let common = first.get(..self.common).unwrap_or_default();
        match wanted.get(..self.common).unwrap_or(wanted).cmp(common) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let word_behind = |key: &[u8]| word_of(key.get(self.common..).unwrap_or_default());
        let word = word_behind(wanted);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let found = self.get(middle).unwrap_or_default();
            let found_word = word_behind(found);
            let is_below = match found_word == word {
                true => found < wanted,
                false => found_word < word,
            };
            match is_below {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// The first eight bytes; of fewer zeros follow.
pub(in crate::fd_tree) fn word_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; WORD];
            let pairs = word.iter_mut().zip(bytes);
            pairs.for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(word)
        }
    }
}

/// The number of bytes with which both begin.
pub(in crate::fd_tree) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks().0, b.as_chunks().0);
    let mut common = 0;
    for (a, b) in words_a.iter().zip(words_b) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return common + differing.trailing_zeros() as usize / 8;
        }
        common += size_of::<u64>();
    }
    let rest = a.iter().skip(common).zip(b.iter().skip(common));
    common + rest.take_while(|(a, b)| a == b).count()
}
