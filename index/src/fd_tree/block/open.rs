//! A block under construction, which knows what its entries take on the device.
//!
//! A block is a table as long as its entries fit so, and a sequence from then on, if that takes
//! more of them. A sequence is not measured before: most blocks are tables up to the end, and one
//! pass over a full block costs less than a look at its neighbour for each entry.

use super::key_list::{KeyList, common_bytes};
use super::key_table::{Differing, KeyTable, table_bytes};
use super::layout::{HEADER_BYTES, kinds_bytes};
use super::{Block, Keys, Kind, Kinds};
use strandline_base::bytes::varint_bytes;

/// Entries in order, to which more are appended.
#[derive(Clone, Debug)]
pub(in crate::fd_tree) struct OpenBlock {
    limits: Limits,
    keys: KeyList,
    kinds: Kinds,
    /// where entries differ, while they are a table
    differing: Differing,
    /// bytes of the fences' ordinals
    ordinals: usize,
    /// bytes used as a sequence, the header included; None while they are a table, or none
    sequence: Option<usize>,
}

/// What a block on the device has at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::fd_tree) struct Limits {
    pub bytes: usize,
    pub entries: usize,
}

/// What becomes of a block with further entries.
#[derive(Clone, Copy, Debug)]
enum After {
    /// bytes in which entries differ
    Table(usize),
    /// bytes used
    Sequence(usize),
}

/// Bytes of an entry in a sequence, which begins with `shared` bytes of the entry before it.
fn sequence_bytes(key: &[u8], shared: usize, kind: Kind) -> usize {
    let rest = key.len() - shared;
    let lengths = varint_bytes(shared as u64) + varint_bytes(rest as u64);
    1 + lengths + rest + ordinal_bytes(kind)
}

fn ordinal_bytes(kind: Kind) -> usize {
    match kind {
        Kind::Fence(to) => varint_bytes(to),
        Kind::Insert | Kind::Delete => 0,
    }
}

impl OpenBlock {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            keys: KeyList::default(),
            kinds: Kinds::default(),
            differing: Differing::default(),
            ordinals: 0,
            sequence: None,
        }
    }

    /// With the entries of a block; None: they are not in order.
    pub fn of(block: &Block, limits: Limits) -> Option<Self> {
        let mut open = Self::new(limits);
        for (key, kind) in block.iter() {
            if open.keys.last().is_some_and(|last| *last > *key) {
                return None;
            }
            open.push(&key, kind);
        }
        Some(open)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes used on the device, the header included.
    pub fn used_bytes(&self) -> usize {
        match (self.sequence, self.keys.get(0)) {
            (Some(bytes), _) => bytes,
            (None, None) => HEADER_BYTES,
            (None, Some(first)) => {
                let is_one_kind = self.kinds.of_all().is_some();
                let fixed = HEADER_BYTES + kinds_bytes(self.len(), is_one_kind) + self.ordinals;
                fixed + table_bytes(first.len(), self.differing.count(), self.len())
            }
        }
    }

    /// Appends entries with one key, which is not less than the last one, if there is room.
    /// Returns whether there is.
    pub fn push_if_room(&mut self, key: &[u8], kinds: &[Kind]) -> bool {
        let has_room = self.len() + kinds.len() <= self.limits.entries;
        match self.after(key, kinds).filter(|_| has_room) {
            Some(after) => {
                self.append(key, kinds, after);
                true
            }
            None => false,
        }
    }

    /// Appends an entry, whose key is not less than the last one.
    pub fn push(&mut self, key: &[u8], kind: Kind) {
        let after = self.after(key, &[kind]);
        // An entry alone always has room.
        debug_assert!(after.is_some(), "the caller knows that there is room");
        let after = after.unwrap_or(After::Sequence(self.limits.bytes));
        self.append(key, &[kind], after);
    }

    /// What the block is with more entries of one key; None: it has no room for them.
    #[inline]
    fn after(&self, key: &[u8], kinds: &[Kind]) -> Option<After> {
        let bytes = self.limits.bytes;
        if self.sequence.is_none()
            && let Some((differing, used)) = self.as_table(key, kinds)
            && used <= bytes
        {
            return Some(After::Table(differing));
        }
        let mut used = self.as_sequence()?;
        let mut shared = common_bytes(self.keys.last().unwrap_or_default(), key);
        for kind in kinds {
            used += sequence_bytes(key, shared, *kind);
            shared = key.len();
        }
        (used <= bytes).then_some(After::Sequence(used))
    }

    /// As a table with more entries: the bytes in which they differ, and bytes used. None: entries
    /// have not one width.
    #[inline]
    fn as_table(&self, key: &[u8], kinds: &[Kind]) -> Option<(usize, usize)> {
        let first = self.keys.get(0).unwrap_or(key);
        if first.len() != key.len() {
            return None;
        }
        let differing = self.differing.count_with(first, key);
        let (mut is_one_kind, mut ordinals) = (true, self.ordinals);
        let code = match self.len() {
            0 => kinds.first().map(|kind| kind.code()),
            _ => self.kinds.of_all(),
        };
        for kind in kinds {
            is_one_kind &= code == Some(kind.code());
            ordinals += ordinal_bytes(*kind);
        }
        let entries = self.len() + kinds.len();
        let used = HEADER_BYTES + kinds_bytes(entries, is_one_kind) + ordinals;
        Some((differing, used + table_bytes(key.len(), differing, entries)))
    }

    /// Bytes used as a sequence; None: more than a block has.
    fn as_sequence(&self) -> Option<usize> {
        if self.sequence.is_some() {
            return self.sequence;
        }
        let (mut used, mut before) = (HEADER_BYTES, &[][..]);
        for at in 0..self.len() {
            let key = self.keys.get(at)?;
            used += sequence_bytes(key, common_bytes(before, key), self.kinds.get(at)?);
            if used > self.limits.bytes {
                return None;
            }
            before = key;
        }
        Some(used)
    }

    fn append(&mut self, key: &[u8], kinds: &[Kind], after: After) {
        debug_assert!(self.keys.last().is_none_or(|last| last <= key), "in order");
        match after {
            After::Sequence(used) => self.sequence = Some(used),
            After::Table(differing) => match self.keys.get(0) {
                None => self.differing = Differing::none(key.len()),
                Some(first) if differing != self.differing.count() => {
                    self.differing.add(first, key)
                }
                Some(_) => {}
            },
        }
        for kind in kinds {
            self.kinds.push(self.len(), *kind);
            self.ordinals += ordinal_bytes(*kind);
            self.keys.append(key);
        }
    }

    /// The entries so far.
    pub fn block(&self) -> Block {
        let keys = match (self.sequence, self.len()) {
            (None, 1..) => Keys::Table(KeyTable::of(self.differing.clone(), &self.keys)),
            _ => Keys::List(self.keys.clone().sealed()),
        };
        Block {
            keys,
            kinds: self.kinds.clone(),
            used_bytes: self.used_bytes(),
        }
    }
}
