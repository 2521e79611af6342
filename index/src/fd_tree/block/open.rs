//! A block under construction, which knows what its entries take in each layout.

use super::key_list::{KeyList, common_bytes};
use super::key_table::{Differing, KeyTable, table_bytes};
use super::layout::{HEADER_BYTES, kinds_bytes};
use super::{Block, Keys, Kind, Kinds};
use strandline_base::bytes::varint_bytes;

/// Entries in order, to which more are appended.
#[derive(Clone, Debug, Default)]
pub(in crate::fd_tree) struct OpenBlock {
    keys: KeyList,
    kinds: Kinds,
    sizes: Sizes,
    /// where entries of one width differ
    differing: Differing,
}

/// What entries take in each layout.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    entries: usize,
    /// bytes as a sequence
    sequence: usize,
    /// bytes of each entry; None: they differ, or there is no entry
    width: Option<usize>,
    /// bytes of the fences' ordinals
    ordinals: usize,
    /// the kinds that there are, a bit for each code
    kinds: u8,
}

impl Sizes {
    /// With more entries of one key, which begins with `shared` bytes of the last one.
    #[inline]
    fn after(self, key: &[u8], shared: usize, kinds: &[Kind]) -> Self {
        let mut after = self;
        after.width = match self.entries {
            0 => Some(key.len()),
            _ => self.width.filter(|width| *width == key.len()),
        };
        let mut shared = shared;
        for kind in kinds {
            let rest = key.len() - shared;
            let ordinal = match kind {
                Kind::Fence(to) => varint_bytes(*to),
                Kind::Insert | Kind::Delete => 0,
            };
            let lengths = varint_bytes(shared as u64) + varint_bytes(rest as u64);
            after.sequence += 1 + lengths + rest + ordinal;
            after.entries += 1;
            after.ordinals += ordinal;
            after.kinds |= 1 << kind.code() as u8;
            shared = key.len();
        }
        after
    }

    /// Bytes as a table, if entries of one width that differ in so many bytes are not larger so
    /// than as a sequence.
    #[inline]
    fn table_bytes(&self, differing: usize) -> Option<usize> {
        let kinds = kinds_bytes(self.entries, self.kinds.is_power_of_two());
        let constant = table_bytes(self.width?, differing, self.entries);
        let bytes = constant + kinds + self.ordinals;
        Some(bytes).filter(|bytes| *bytes <= self.sequence)
    }

    /// Bytes used on the device, the header included.
    fn used_bytes(&self, differing: usize) -> usize {
        HEADER_BYTES + self.table_bytes(differing).unwrap_or(self.sequence)
    }
}

impl OpenBlock {
    /// With the entries of a block; None: they are not in order.
    pub fn of(block: &Block) -> Option<Self> {
        let mut open = Self::default();
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
        self.sizes.used_bytes(self.differing.count())
    }

    /// Appends entries with one key, which is not less than the last one, if they fit into a block
    /// of `bytes` with `entries_max`. Returns whether they do.
    pub fn push_if_room(
        &mut self,
        key: &[u8],
        kinds: &[Kind],
        bytes: usize,
        entries_max: usize,
    ) -> bool {
        let shared = self.shared_with_last(key);
        let after = self.sizes.after(key, shared, kinds);
        let differing = match (after.width, self.keys.get(0)) {
            (Some(_), Some(first)) => self.differing.count_with(first, key),
            _ => 0,
        };
        let has_room = after.used_bytes(differing) <= bytes && after.entries <= entries_max;
        if has_room {
            self.append(key, kinds, shared, after);
        }
        has_room
    }

    /// Appends an entry, whose key is not less than the last one.
    pub fn push(&mut self, key: &[u8], kind: Kind) {
        let shared = self.shared_with_last(key);
        let after = self.sizes.after(key, shared, &[kind]);
        self.append(key, &[kind], shared, after);
    }

    fn shared_with_last(&self, key: &[u8]) -> usize {
        common_bytes(self.keys.last().unwrap_or_default(), key)
    }

    fn append(&mut self, key: &[u8], kinds: &[Kind], shared: usize, after: Sizes) {
        debug_assert!(self.keys.last().is_none_or(|last| last <= key), "in order");
        match self.keys.get(0) {
            None => self.differing = Differing::none(key.len()),
            Some(first) if after.width.is_some() => self.differing.add(first, key),
            Some(_) => {}
        }
        let mut shared = shared;
        for kind in kinds {
            self.kinds.push(self.len(), *kind);
            self.keys.append(key, shared);
            shared = key.len();
        }
        self.sizes = after;
    }

    /// The entries so far.
    pub fn block(&self) -> Block {
        let differing = &self.differing;
        let keys = match self.sizes.table_bytes(differing.count()) {
            Some(_) => Keys::Table(KeyTable::of(differing.clone(), &self.keys)),
            None => Keys::List(self.keys.clone()),
        };
        Block {
            keys,
            kinds: self.kinds.clone(),
            used_bytes: self.used_bytes(),
        }
    }
}
