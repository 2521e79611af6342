//! A block under construction, which knows what its entries take in each layout.

use super::key_list::{KeyList, common_bytes};
use super::key_table::{Differing, KeyTable};
use super::layout::{HEADER_BYTES, kinds_bytes};
use super::{Block, Keys, Kind, Kinds};
use strandline_base::bytes::varint_bytes;

/// Entries in order, to which more are appended.
#[derive(Clone, Debug, Default)]
pub(in crate::fd_tree) struct OpenBlock {
    keys: KeyList,
    kinds: Kinds,
    sizes: Sizes,
}

/// What entries take in each layout.
#[derive(Clone, Debug, Default)]
struct Sizes {
    entries: usize,
    /// bytes as a sequence
    sequence: usize,
    /// width of the entries, and the bytes in which they differ; None: their widths differ, or
    /// there is no entry
    table: Option<(usize, Differing)>,
    /// bytes of the fences' ordinals
    ordinals: usize,
    /// the kinds that there are, a bit for each code
    kinds: u8,
}

impl Sizes {
    /// With more entries of one key, which begins with `shared` bytes of the last one.
    fn after(&self, first: Option<&[u8]>, key: &[u8], shared: usize, kinds: &[Kind]) -> Self {
        let mut after = self.clone();
        match (first, &mut after.table) {
            (None, table) => *table = Some((key.len(), Differing::none(key.len()))),
            (Some(first), Some((width, differing))) if *width == key.len() => {
                differing.add(first, key);
            }
            (Some(_), table) => *table = None,
        }
        for (nth, kind) in kinds.iter().enumerate() {
            let shared = if nth == 0 { shared } else { key.len() };
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
        }
        after
    }

    /// Bytes as a table, if it is not larger than a sequence.
    fn table_bytes(&self) -> Option<usize> {
        let (width, differing) = self.table.as_ref()?;
        let kinds = kinds_bytes(self.entries, self.kinds.is_power_of_two());
        let bytes = differing.table_bytes(*width, self.entries) + kinds + self.ordinals;
        Some(bytes).filter(|bytes| *bytes <= self.sequence)
    }

    /// Bytes used on the device, the header included.
    fn used_bytes(&self) -> usize {
        HEADER_BYTES + self.table_bytes().unwrap_or(self.sequence)
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
        self.sizes.used_bytes()
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
        let after = self.sizes.after(self.keys.get(0), key, shared, kinds);
        let has_room = after.used_bytes() <= bytes && after.entries <= entries_max;
        if has_room {
            self.append(key, kinds, shared, after);
        }
        has_room
    }

    /// Appends an entry, whose key is not less than the last one.
    pub fn push(&mut self, key: &[u8], kind: Kind) {
        let shared = self.shared_with_last(key);
        let after = self.sizes.after(self.keys.get(0), key, shared, &[kind]);
        self.append(key, &[kind], shared, after);
    }

    fn shared_with_last(&self, key: &[u8]) -> usize {
        common_bytes(self.keys.last().unwrap_or_default(), key)
    }

    fn append(&mut self, key: &[u8], kinds: &[Kind], shared: usize, after: Sizes) {
        debug_assert!(self.keys.last().is_none_or(|last| last <= key), "in order");
        let mut shared = shared;
        for kind in kinds {
            self.kinds.push(self.len(), *kind);
            self.keys
                .push(shared, key.get(shared..).unwrap_or_default());
            shared = key.len();
        }
        self.sizes = after;
    }

    /// The entries so far.
    pub fn block(&self) -> Block {
        let table = self.sizes.table.as_ref();
        let keys = match table.filter(|_| self.sizes.table_bytes().is_some()) {
            Some((_, differing)) => Keys::Table(KeyTable::of(differing.clone(), self.keys.iter())),
            None => Keys::List(self.keys.clone()),
        };
        Block {
            keys,
            kinds: self.kinds.clone(),
            used_bytes: self.used_bytes(),
        }
    }
}
