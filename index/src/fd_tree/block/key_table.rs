//! The entries of a block that have one width: the bytes in which no entries differ once, and a row
//! of the other bytes for each entry. Searches compare rows, so that nothing is copied.
//!
//! Invariant: an entry compares with a wanted one as its row does with the wanted bytes in the
//! row's places, up to the first constant byte that the wanted one has not; if these are equal,
//! that byte decides ([`Sought`]).

use super::EntryKey;
use super::key_list::{KeyList, WORD, word_of};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;
use strandline_base::bytes::{ByteReader, PutBytes, varint_bytes};

/// The most equal entries: a fence, and a data entry.
const EQUAL_ENTRIES_MAX: usize = 2;
/// A search of more entries begins with a guess.
const GUESS_ENTRIES_MIN: usize = 16;
/// Entries on either side of a guess that are looked at first.
const GUESS_STEP: usize = 8;

/// A bit for each byte of entries of one width: 1 if entries differ there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Differing {
    /// a bit for each of eight bytes, from the lowest on
    bits: SmallVec<[u8; WORD]>,
    count: usize,
}

impl Differing {
    /// Of one entry.
    pub fn none(width: usize) -> Self {
        Self {
            bits: SmallVec::from_elem(0, width.div_ceil(WORD)),
            count: 0,
        }
    }

    fn is_set(&self, at: usize) -> bool {
        let bits = self.bits.get(at / WORD).copied().unwrap_or_default();
        bits >> (at % WORD) & 1 == 1
    }

    fn set(&mut self, at: usize) {
        let is_new = !self.is_set(at);
        if let (Some(bits), true) = (self.bits.get_mut(at / WORD), is_new) {
            *bits |= 1 << (at % WORD);
            self.count += 1;
        }
    }

    /// Bytes in which entries differ.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes in which entries differ, one more entry included.
    pub fn count_with(&self, first: &[u8], key: &[u8]) -> usize {
        let bits = self.bits.iter().zip(differing_bits(first, key));
        let more = bits.map(|(bits, differing)| (differing & !bits).count_ones() as usize);
        self.count + more.sum::<usize>()
    }

    /// Sets those in which two entries of the width differ.
    pub fn add(&mut self, first: &[u8], key: &[u8]) {
        for (bits, differing) in self.bits.iter_mut().zip(differing_bits(first, key)) {
            self.count += (differing & !*bits).count_ones() as usize;
            *bits |= differing;
        }
    }

    /// Runs of bytes in which entries differ.
    fn runs(&self, width: usize) -> Runs {
        let mut runs = Runs::new();
        for at in (0..width as u32).filter(|at| self.is_set(*at as usize)) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}

/// For each eight bytes of two entries of one width the bits of those that differ.
fn differing_bits(a: &[u8], b: &[u8]) -> impl Iterator<Item = u8> {
    let words = a.as_chunks().0.iter().zip(b.as_chunks().0);
    let words = words.map(|(a, b)| u64::from_be_bytes(*a) ^ u64::from_be_bytes(*b));
    let rest = a.len() % WORD;
    let last = (rest > 0).then(|| last_word(a, rest) ^ last_word(b, rest));
    words.chain(last).map(differing_bytes)
}

/// The last `rest` bytes, less than eight; zeros follow.
fn last_word(bytes: &[u8], rest: usize) -> u64 {
    match bytes.last_chunk() {
        Some(word) => u64::from_be_bytes(*word) << ((WORD - rest) * u8::BITS as usize),
        None => word_of(bytes),
    }
}

/// A bit for each of eight bytes: 1 if it is not zero.
fn differing_bytes(differing: u64) -> u8 {
    if differing == 0 {
        return 0;
    }
    // The highest bit of each byte that is not zero, then these bits side by side. The first byte
    // is the highest one of the words.
    let low = u64::from_be_bytes([0x7f; WORD]);
    let highest = (((differing & low) + low) | differing) & !low;
    let first_lowest = (highest >> 7).swap_bytes();
    (first_lowest.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Bytes of a table of so many entries of a width that differ in so many bytes, but for kinds and
/// ordinals.
pub(super) fn table_bytes(width: usize, differing: usize, entries: usize) -> usize {
    let constant = width - differing;
    varint_bytes(width as u64) + width.div_ceil(WORD) + constant + entries * differing
}

/// Runs of bytes in which entries differ, of less than 2^32 bytes.
type Runs = SmallVec<[Range<u32>; 4]>;

fn usizes(run: &Range<u32>) -> Range<usize> {
    run.start as usize..run.end as usize
}

/// Entries of one width, in order. What a search needs beside the rows lies side by side, since it
/// waits for each line of memory.
#[derive(Clone, Debug)]
pub(super) struct KeyTable {
    /// an entry, with zeros where entries differ
    constant: EntryKey,
    runs: Runs,
    /// bytes of a row
    differing: usize,
    entries: usize,
    /// has the rows, from `start` on
    bytes: Vec<u8>,
    start: usize,
    /// the words of the first and the last row
    words: [u64; 2],
}

/// What is looked for, as rows have it.
struct Sought {
    row: SmallVec<[u8; 32]>,
    /// how an entry whose row begins with `row` compares with the wanted one
    tie: Ordering,
}

impl KeyTable {
    /// The table of entries of one width which differ in these bytes.
    pub fn of(differing: Differing, keys: &KeyList) -> Self {
        let mut constant: EntryKey = keys.get(0).unwrap_or_default().into();
        let (width, entries) = (constant.len(), keys.len());
        let runs = differing.runs(width);
        let mut bytes = vec![0; entries * differing.count];
        let mut of_row = 0;
        for run in runs.iter().map(usizes) {
            constant.get_mut(run.clone()).unwrap_or_default().fill(0);
            let rows = bytes.chunks_exact_mut(differing.count);
            let parts = keys
                .bytes()
                .chunks_exact(width)
                .zip(rows)
                .map(|(key, row)| {
                    let row = row.get_mut(of_row..of_row + run.len()).unwrap_or_default();
                    (key.get(run.clone()).unwrap_or_default(), row)
                });
            copy_parts(parts, run.len());
            of_row += run.len();
        }
        let table = Self {
            constant,
            runs,
            differing: differing.count,
            entries,
            bytes,
            start: 0,
            words: [0; 2],
        };
        table.with_words()
    }

    fn with_words(mut self) -> Self {
        self.words = [0, self.entries.saturating_sub(1)].map(|at| self.word(at));
        self
    }

    /// Puts all but the rows.
    pub fn put_constant(&self, out: &mut Vec<u8>) {
        let width = self.constant.len();
        let mut differing = Differing::none(width);
        for at in self.runs.iter().flat_map(usizes) {
            differing.set(at);
        }
        out.put_varint(width as u64);
        out.extend_from_slice(&differing.bits);
        let constant = self.constant.iter().enumerate();
        let constant = constant.filter(|(at, _)| !differing.is_set(*at));
        out.extend(constant.map(|(_, byte)| *byte));
    }

    /// What [`KeyTable::put_constant`] has put: a table without rows.
    pub fn take_constant(reader: &mut ByteReader<'_>) -> Option<Self> {
        let width = usize::try_from(reader.varint()?).ok()?;
        let bits: SmallVec<[u8; WORD]> = reader.take(width.div_ceil(WORD))?.into();
        let count = bits.iter().map(|bits| bits.count_ones() as usize).sum();
        let differing = Differing { bits, count };
        let mut stored = reader.take(width.checked_sub(count)?)?.iter();
        let mut constant = EntryKey::from_elem(0, width);
        for (at, byte) in constant.iter_mut().enumerate() {
            if !differing.is_set(at) {
                // None: a bit behind the width is set.
                *byte = *stored.next()?;
            }
        }
        Some(Self {
            runs: differing.runs(width),
            constant,
            differing: count,
            entries: 0,
            bytes: Vec::new(),
            start: 0,
            words: [0; 2],
        })
    }

    /// Puts the rows.
    pub fn put_rows(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(self.rows()).unwrap_or_default());
    }

    /// With rows, which are this range of `bytes`. None: there are not as many.
    pub fn with_rows(self, entries: usize, bytes: Vec<u8>, rows: Range<usize>) -> Option<Self> {
        if self.differing == 0 && entries > EQUAL_ENTRIES_MAX {
            return None;
        }
        let table = Self {
            entries,
            bytes,
            start: rows.start,
            ..self
        };
        (table.rows() == rows).then(|| table.with_words())
    }

    fn rows(&self) -> Range<usize> {
        self.start..self.start + self.entries * self.differing
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let runs = match self.runs.spilled() {
            true => self.runs.capacity() * size_of::<Range<u32>>(),
            false => 0,
        };
        let constant = match self.constant.spilled() {
            true => self.constant.capacity(),
            false => 0,
        };
        constant + runs + self.bytes.capacity()
    }

    fn row(&self, at: usize) -> &[u8] {
        let width = self.differing;
        let from = self.start + at * width;
        self.bytes.get(from..from + width).unwrap_or_default()
    }

    /// Puts an entry in the place of `out`. Returns whether there is one.
    pub fn read(&self, at: usize, out: &mut EntryKey) -> bool {
        out.clear();
        if at >= self.entries {
            return false;
        }
        out.extend_from_slice(&self.constant);
        let mut row = self.row(at);
        for run in self.runs.iter().map(usizes) {
            let (own, rest) = row.split_at_checked(run.len()).unwrap_or_default();
            if let (Some(to), true) = (out.get_mut(run.clone()), own.len() == run.len()) {
                to.copy_from_slice(own);
            }
            row = rest;
        }
        true
    }

    fn seek(&self, wanted: &[u8]) -> Sought {
        let mut row = SmallVec::new();
        let mut at = 0;
        let part = |range: Range<usize>| {
            let rest = wanted.get(range.start..).unwrap_or_default();
            rest.get(..range.len()).unwrap_or(rest)
        };
        let width = self.constant.len();
        for run in self
            .runs
            .iter()
            .map(usizes)
            .chain(std::iter::once(width..width))
        {
            let constant = self.constant.get(at..run.start).unwrap_or_default();
            match constant.cmp(part(at..run.start)) {
                Ordering::Equal => {}
                tie => return Sought { row, tie },
            }
            let own = part(run.clone());
            row.extend_from_slice(own);
            if own.len() < run.len() {
                // The wanted one ends here.
                let tie = Ordering::Greater;
                return Sought { row, tie };
            }
            at = run.end;
        }
        let tie = width.cmp(&wanted.len());
        Sought { row, tie }
    }

    /// The positions of the entries that are equal to the wanted one; if there is none, of the next
    /// one, empty.
    pub fn find(&self, wanted: &[u8]) -> Range<usize> {
        let sought = self.seek(wanted);
        let begin = self.below(&sought);
        if sought.tie != Ordering::Equal {
            return begin..begin;
        }
        let is_equal = |at: &usize| self.row(*at) == sought.row.as_slice();
        let equal = (begin..self.entries).take_while(is_equal);
        begin..begin + equal.count()
    }

    /// The first bytes of a row, and what follows it; of a short rest zeros follow.
    fn word(&self, at: usize) -> u64 {
        let from = self.start + at * self.differing;
        word_of(self.bytes.get(from..).unwrap_or_default())
    }

    /// The number of entries below what is sought. Rows are compared by their first word, and as a
    /// whole if the words are equal.
    fn below(&self, sought: &Sought) -> usize {
        let compared = sought.row.len();
        let unused = WORD.saturating_sub(compared) * u8::BITS as usize;
        let cut = |word: u64| word.checked_shr(unused as u32).unwrap_or_default();
        let wanted = cut(word_of(&sought.row));
        let is_below = |at: usize| {
            let ordering = match cut(self.word(at)).cmp(&wanted) {
                Ordering::Equal if compared > WORD => {
                    let row = self.row(at).get(..compared).unwrap_or_default();
                    row.cmp(&sought.row)
                }
                ordering => ordering,
            };
            ordering.then(sought.tie).is_lt()
        };
        let (mut low, mut high) = (0, self.entries);
        if self.entries > GUESS_ENTRIES_MIN {
            let words = [self.words[0], self.words[1]].map(cut);
            (low, high) = around(guess(words, wanted, self.entries), self.entries, is_below);
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            match is_below(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// Where `wanted` is among so many entries, of which the first and the last have these words, if
/// they are evenly spread.
fn guess([first, last]: [u64; 2], wanted: u64, entries: usize) -> usize {
    let behind = wanted.saturating_sub(first);
    let all = last.saturating_sub(first);
    match behind < all {
        true => (u128::from(behind) * entries as u128 / u128::from(all)) as usize,
        false => entries - 1,
    }
}

/// A range around a guess, less than `entries`, in which the first entry that is not below is, or
/// behind which it is: twice as wide from step to step.
fn around(guess: usize, entries: usize, is_below: impl Fn(usize) -> bool) -> (usize, usize) {
    let mut step = GUESS_STEP;
    if is_below(guess) {
        let mut low = guess + 1;
        while low + step < entries {
            if !is_below(low + step) {
                return (low, low + step);
            }
            low += step + 1;
            step *= 2;
        }
        return (low, entries);
    }
    let mut high = guess;
    while high > step {
        if is_below(high - step) {
            return (high - step + 1, high);
        }
        high -= step;
        step *= 2;
    }
    (0, high)
}

/// Copies parts of `length` bytes. A copy of a length that the compiler knows is an instruction or
/// two, and most parts are short.
fn copy_parts<'a>(parts: impl Iterator<Item = (&'a [u8], &'a mut [u8])>, length: usize) {
    match length {
        1 => copy_chunks::<1>(parts),
        2 => copy_chunks::<2>(parts),
        3 => copy_chunks::<3>(parts),
        4 => copy_chunks::<4>(parts),
        5 => copy_chunks::<5>(parts),
        6 => copy_chunks::<6>(parts),
        7 => copy_chunks::<7>(parts),
        8 => copy_chunks::<8>(parts),
        _ => parts.for_each(|(from, to)| to.copy_from_slice(from)),
    }
}

fn copy_chunks<'a, const N: usize>(parts: impl Iterator<Item = (&'a [u8], &'a mut [u8])>) {
    for (from, to) in parts {
        if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>()) {
            *to = *from;
        }
    }
}
