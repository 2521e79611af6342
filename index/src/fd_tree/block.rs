//! A block of a level [FD+ §2.1]: entries in order, which do not change. `open` has those that take
//! entries, `layout` the bytes on the device.

mod key_list;
mod key_table;
mod layout;
mod open;

#[cfg(test)]
pub(super) use key_list::common_bytes;
pub(super) use key_list::word_of;
pub(super) use layout::{ENTRY_OVERHEAD_MAX, HEADER_BYTES};
pub(super) use open::{Limits, OpenBlock};

use key_list::KeyList;
use key_table::KeyTable;
use smallvec::SmallVec;
use std::ops::Range;

/// The bytes of an entry or a fence. Those of most keys lie within it.
pub(super) type EntryKey = SmallVec<[u8; 32]>;

/// The kind of an entry. Of equal entries a fence comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Delete,
    /// the ordinal of a block in the next level
    Fence(u64),
}

impl Kind {
    pub fn is_data(self) -> bool {
        !matches!(self, Self::Fence(_))
    }

    fn code(self) -> KindCode {
        match self {
            Self::Insert => KindCode::Insert,
            Self::Delete => KindCode::Delete,
            Self::Fence(_) => KindCode::Fence,
        }
    }
}

/// A kind without the ordinal of a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KindCode {
    #[default]
    Insert = 0,
    Delete = 1,
    Fence = 2,
}

impl KindCode {
    pub fn of(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Insert),
            1 => Some(Self::Delete),
            2 => Some(Self::Fence),
            _ => None,
        }
    }

    /// Whether a data entry inserts; None: it is a fence.
    fn is_insert(self) -> Option<bool> {
        match self {
            Self::Insert => Some(true),
            Self::Delete => Some(false),
            Self::Fence => None,
        }
    }
}

/// An entry with its own bytes.
pub(super) type Item = (Box<[u8]>, Kind);

/// Where a block belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub tree: u64,
    pub number: u64,
    pub run: u64,
    pub ordinal: u64,
}

/// The name of an index in messages: its identity is the number of its level file.
pub(super) fn index_name(tree: u64) -> String {
    format!("index levels-{tree:08x}")
}

/// The kinds of a block's entries.
#[derive(Clone, Debug, Default)]
struct Kinds {
    first: KindCode,
    /// the kind of each entry; empty while all have the first one's
    each: Vec<KindCode>,
    /// position of each fence among the entries, and the block that it leads to
    fences: Vec<(u32, u64)>,
}

impl Kinds {
    /// Entries of one kind, of which no fence is known.
    pub fn all_of(code: KindCode) -> Self {
        Self {
            first: code,
            ..Self::default()
        }
    }

    pub fn code(&self, at: usize) -> KindCode {
        *self.each.get(at).unwrap_or(&self.first)
    }

    /// The kind of all entries; None: they differ.
    pub fn of_all(&self) -> Option<KindCode> {
        self.each.is_empty().then_some(self.first)
    }

    /// The kinds of the entries, which differ.
    pub fn each(&self) -> &[KindCode] {
        &self.each
    }

    /// The blocks to which the fences lead, in order.
    pub fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.fences.iter().map(|(_, to)| *to)
    }

    /// Appends the kind of the entry at `at`, the next one.
    pub fn push(&mut self, at: usize, kind: Kind) {
        if let Kind::Fence(to) = kind {
            self.fences.push((at as u32, to));
        }
        let code = kind.code();
        if at == 0 {
            self.first = code;
        }
        if self.each.is_empty() && code != self.first {
            self.each.resize(at, self.first);
        }
        if code != self.first || !self.each.is_empty() {
            self.each.push(code);
        }
    }

    fn get(&self, at: usize) -> Option<Kind> {
        Some(match self.code(at) {
            KindCode::Insert => Kind::Insert,
            KindCode::Delete => Kind::Delete,
            KindCode::Fence => Kind::Fence(self.fence(at)?),
        })
    }

    /// The block to which the fence at this position leads.
    fn fence(&self, at: usize) -> Option<u64> {
        let found = match self.of_all() {
            Some(_) => at,
            None => {
                let of = |(position, _): &(u32, u64)| *position as usize;
                self.fences.binary_search_by_key(&at, of).ok()?
            }
        };
        Some(self.fences.get(found)?.1)
    }

    /// The last fence of the first `end` entries.
    fn last_fence(&self, end: usize) -> Option<u64> {
        let is_within = |(at, _): &(u32, u64)| (*at as usize) < end;
        let within = match self.of_all() {
            Some(_) => end,
            None => self.fences.partition_point(is_within),
        };
        Some(self.fences.get(within.checked_sub(1)?)?.1)
    }

    fn memory_bytes(&self) -> usize {
        let fences = self.fences.capacity() * size_of::<(u32, u64)>();
        self.each.capacity() * size_of::<KindCode>() + fences
    }
}

/// The bytes of a block's entries.
#[derive(Clone, Debug)]
enum Keys {
    List(KeyList),
    Table(KeyTable),
}

/// The entries of a block, in order.
#[derive(Clone, Debug)]
pub(super) struct Block {
    keys: Keys,
    kinds: Kinds,
    /// bytes used on the device, the header included
    used_bytes: usize,
}

impl Block {
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::List(keys) => keys.len(),
            Keys::Table(keys) => keys.len(),
        }
    }

    /// Puts the bytes of an entry in the place of `out`. Returns its kind; None: there is none.
    pub fn read(&self, at: usize, out: &mut EntryKey) -> Option<Kind> {
        let is_there = match &self.keys {
            Keys::List(keys) => keys.read(at, out),
            Keys::Table(keys) => keys.read(at, out),
        };
        self.kinds.get(at).filter(|_| is_there)
    }

    pub fn get(&self, at: usize) -> Option<(EntryKey, Kind)> {
        let mut key = EntryKey::new();
        let kind = self.read(at, &mut key)?;
        Some((key, kind))
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (EntryKey, Kind)> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Bytes used on the device, the header included.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let keys = match &self.keys {
            Keys::List(keys) => keys.memory_bytes(),
            Keys::Table(keys) => keys.memory_bytes(),
        };
        size_of::<Self>() + keys + self.kinds.memory_bytes()
    }

    pub fn first_key(&self) -> Option<EntryKey> {
        Some(self.get(0)?.0)
    }

    pub fn last_key(&self) -> Option<EntryKey> {
        Some(self.get(self.len().checked_sub(1)?)?.0)
    }

    /// The positions of the entries with exactly this key; if there is none, of the next one,
    /// empty.
    fn position(&self, key: &[u8]) -> Range<usize> {
        match &self.keys {
            Keys::List(keys) => keys.find(key),
            Keys::Table(keys) => keys.find(key),
        }
    }

    /// The number of entries with keys below `key`.
    pub fn below(&self, key: &[u8]) -> usize {
        self.position(key).start
    }

    /// The number of entries with keys up to `key`.
    pub fn up_to(&self, key: &[u8]) -> usize {
        self.position(key).end
    }

    /// The data entry with exactly this key, if there is one: whether it inserts. And, as
    /// [`Block::floor_fence`], the way down.
    pub fn find(&self, key: &[u8]) -> (Option<bool>, Option<u64>) {
        let found = self.position(key);
        let end = found.end;
        let is_insert = found
            .into_iter()
            .find_map(|at| self.kinds.code(at).is_insert());
        (is_insert, self.kinds.last_fence(end))
    }

    /// The number of entries with keys below `key`, and, as [`Block::floor_fence`], the way down.
    pub fn seek(&self, key: &[u8]) -> (usize, Option<u64>) {
        let found = self.position(key);
        (found.start, self.kinds.last_fence(found.end))
    }

    /// The last fence that is not greater than `key`.
    pub fn floor_fence(&self, key: &[u8]) -> Option<u64> {
        self.kinds.last_fence(self.up_to(key))
    }
}
