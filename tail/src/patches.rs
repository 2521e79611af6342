//! New values of rows on their way into decoded columns.

use crate::record_page::RecordPage;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::ColumnId;
use strandline_base::cell::Cell;
use strandline_base::value_words::Physical;

/// New values of one column for rows of a range. Applied in order: later ones overwrite.
#[derive(Debug, Default)]
pub struct Patches {
    /// rows, by slot in the range
    slots: Vec<u16>,
    /// values of at most 8 bytes
    words: Vec<u64>,
    /// which words are NULL; empty if none is
    nulls: Vec<bool>,
    /// instead of words: where other values are
    records: Vec<(Arc<RecordPage>, u32)>,
}

impl Patches {
    /// No patch.
    pub(crate) const NONE: Self = Self {
        slots: Vec::new(),
        words: Vec::new(),
        nulls: Vec::new(),
        records: Vec::new(),
    };

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// All of them.
    pub fn all(&self) -> PatchList<'_> {
        self.part(0..self.len())
    }
    /// The patches at the positions in `part`.
    pub fn part(&self, part: Range<usize>) -> PatchList<'_> {
        PatchList {
            patches: self,
            part,
        }
    }

    /// Appends the cell of record `i`.
    pub(crate) fn push(&mut self, slot: u16, page: &Arc<RecordPage>, i: u32, column: ColumnId) {
        self.slots.push(slot);
        match page.cell(i, column) {
            Cell::Word(word) => self.push_word(Some(word)),
            _ if page.physical(column) == Some(Physical::Word) => self.push_word(None),
            _ => self.records.push((page.clone(), i)),
        }
    }

    fn push_word(&mut self, word: Option<u64>) {
        if word.is_none() || !self.nulls.is_empty() {
            self.nulls.resize(self.words.len(), false);
            self.nulls.push(word.is_none());
        }
        self.words.push(word.unwrap_or(0));
    }

    fn push_from(&mut self, from: &Self, at: usize) {
        self.slots.push(from.slots[at]);
        match from.records.get(at) {
            Some(record) => self.records.push(record.clone()),
            None if from.nulls.get(at) == Some(&true) => self.push_word(None),
            None => self.push_word(Some(from.words[at])),
        }
    }

    /// Appends the patches in `part` of `from`.
    pub(crate) fn extend(&mut self, from: &Self, part: Range<usize>) {
        let is_plain = |p: &Self| p.nulls.is_empty() && p.records.is_empty();
        if is_plain(self) && is_plain(from) {
            self.slots.extend_from_slice(&from.slots[part.clone()]);
            self.words.extend_from_slice(&from.words[part]);
        } else {
            part.for_each(|at| self.push_from(from, at));
        }
    }

    /// Appends a part of `older`, which is in slot order with one patch per slot, and `newer` on
    /// top of it, in the same form.
    pub(crate) fn extend_merged(&mut self, older: &Self, part: Range<usize>, newer: &Self) {
        let mut order: Vec<u32> = (0..newer.slots.len() as u32).collect();
        order.sort_by_key(|&at| newer.slots[at as usize]);
        let mut next = part.start;
        for (n, &at) in order.iter().enumerate() {
            let slot = newer.slots[at as usize];
            if order.get(n + 1).map(|&at| newer.slots[at as usize]) == Some(slot) {
                continue;
            }
            let untouched = older.slots[next..part.end].partition_point(|&before| before < slot);
            self.extend(older, next..next + untouched);
            next += untouched;
            if next < part.end && older.slots[next] == slot {
                next += 1;
            }
            self.push_from(newer, at as usize);
        }
        self.extend(older, next..part.end);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * 2
            + self.words.capacity() * 8
            + self.nulls.capacity()
            + self.records.capacity() * 16
    }
}

/// Consecutive patches.
#[derive(Clone, Debug)]
pub struct PatchList<'a> {
    patches: &'a Patches,
    part: Range<usize>,
}

impl<'a> PatchList<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.part.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Slots in the range and cells of `column`.
    pub fn iter(&self, column: ColumnId) -> impl Iterator<Item = (u16, Cell<'a>)> + use<'a> {
        let patches = self.patches;
        self.part.clone().map(move |at| {
            let cell = match patches.records.get(at) {
                Some((page, i)) => page.cell(*i, column),
                None if patches.nulls.get(at) == Some(&true) => Cell::Null,
                None => Cell::Word(patches.words[at]),
            };
            (patches.slots[at], cell)
        })
    }

    /// Slots and values, if all are words.
    pub fn words(&self) -> Option<(&'a [u16], &'a [u64])> {
        let patches = self.patches;
        let all = patches.nulls.is_empty() && patches.records.is_empty();
        let part = self.part.clone();
        all.then(|| (&patches.slots[part.clone()], &patches.words[part]))
    }
}
