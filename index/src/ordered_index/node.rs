//! A node of the tree: a leaf, or an inner node.
//!
//! A node covers the byte strings from its low fence, inclusive, to its high fence, exclusive. An
//! inner node's entries are the low fences of its children; the first is its own low fence.

use super::entries::{Entries, separator};

/// The number of a leaf or an inner node in its table.
pub(super) type NodeId = u32;

/// The link of a node that has no right neighbour.
pub(super) const NO_NODE: NodeId = NodeId::MAX;

/// The level of a node that is not in use.
const FREE: u8 = u8::MAX;

/// The target of a descent.
#[derive(Clone, Copy)]
pub(super) enum Probe<'a> {
    /// the node that covers these bytes
    At(&'a [u8]),
    /// the node that covers the position directly before these bytes; None: before the end
    Before(Option<&'a [u8]>),
}

/// The result of comparing a node with a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DescentStep {
    /// the node covers the probe
    Here,
    /// the probe is behind the node's high fence: continue with the right neighbour
    Right(NodeId),
    /// the node has been freed since, and perhaps reused: start again from the root
    Lost,
}

/// A node; see the module's documentation.
#[derive(Clone)]
pub(super) struct Node {
    /// 0: a leaf
    pub level: u8,
    /// the low fence; empty: none
    pub low: Box<[u8]>,
    /// the high fence, if any
    pub high: Option<Box<[u8]>>,
    /// the node on the same level whose low fence is this one's high fence
    pub right: NodeId,
    pub entries: Entries,
    /// one for each entry of an inner node
    pub children: Vec<NodeId>,
    /// the position of the newest entry; a split at it leaves full nodes when entries come in order
    last: u16,
}

impl Node {
    /// A node that covers everything.
    pub fn new(level: u8) -> Self {
        Self::between(level, Box::default(), None, Entries::default())
    }

    /// A node that covers the bytes between two fences, without neighbours and children.
    pub fn between(level: u8, low: Box<[u8]>, high: Option<Box<[u8]>>, entries: Entries) -> Self {
        Self {
            level,
            low,
            high,
            right: NO_NODE,
            entries,
            children: Vec::new(),
            last: 0,
        }
    }

    /// A node that is not in use.
    pub fn free() -> Self {
        Self::new(FREE)
    }

    /// Bytes in use, to which the limit of a node applies.
    pub fn size(&self) -> usize {
        self.entries.size() + 4 * self.children.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let fences = self.low.len() + self.high.as_ref().map_or(0, |high| high.len());
        size_of::<Self>() + fences + self.entries.memory_bytes() + 4 * self.children.capacity()
    }

    /// Compares the node with the probe of a descent to `level`.
    #[inline]
    pub fn place(&self, level: u8, probe: Probe<'_>) -> DescentStep {
        let high = self.high.as_deref();
        let (is_lost, is_right) = match probe {
            Probe::At(key) => (*self.low > *key, high.is_some_and(|high| *high <= *key)),
            Probe::Before(None) => (false, high.is_some()),
            Probe::Before(Some(key)) => {
                let is_lost = !self.low.is_empty() && *self.low >= *key;
                (is_lost, high.is_some_and(|high| *high < *key))
            }
        };
        if self.level != level || is_lost {
            DescentStep::Lost
        } else if is_right {
            DescentStep::Right(self.right)
        } else {
            DescentStep::Here
        }
    }

    /// The position of the child that covers `probe`; this inner node must cover it.
    #[inline]
    pub fn child_place(&self, probe: Probe<'_>) -> usize {
        let behind = match probe {
            Probe::At(key) => match self.entries.search(key) {
                Ok(at) => at + 1,
                Err(at) => at,
            },
            Probe::Before(None) => self.entries.len(),
            Probe::Before(Some(key)) => self.entries.lower_bound(key),
        };
        behind.saturating_sub(1)
    }

    /// Whether every entry that begins with `bytes` is in this node or further left.
    pub fn ends_after(&self, bytes: &[u8]) -> bool {
        self.high
            .as_ref()
            .is_none_or(|high| !high.starts_with(bytes))
    }

    /// Inserts an entry at a position. A node that would exceed `limit` bytes is split. Returns the
    /// nodes to its right, whose right links are not set.
    pub fn insert(
        &mut self,
        at: usize,
        entry: &[u8],
        child: Option<NodeId>,
        limit: usize,
    ) -> Vec<Self> {
        let len = self.entries.len();
        let is_in_order = at == len && at == usize::from(self.last) + 1;
        let size = self.entries.size_with(entry) + 4 * (self.children.len() + 1);
        if size <= limit || len < self.split_len() {
            self.entries.insert(at, entry);
            if let Some(child) = child {
                self.children.insert(at, child);
            }
            self.last = at as u16;
            return Vec::new();
        }
        let is_apart = len == 1 || !self.entries.shares_prefix(entry);
        if at == len && (is_in_order || is_apart) {
            let low = self.fence(separator(&self.entries.get(len - 1), entry), entry);
            let mut right = self.cut_off(low, Entries::of(&[entry]));
            right.children.extend(child);
            return vec![right];
        }
        if at == 0 && is_apart {
            let all = std::mem::take(&mut self.entries);
            let low = self.fence(separator(entry, &all.get(0)), &all.get(0));
            let mut right = self.cut_off(low, all);
            right.children = std::mem::take(&mut self.children);
            self.entries = Entries::of(&[entry]);
            self.children.extend(child);
            return vec![right];
        }
        let mut right = self.split_at(self.entries.split_place());
        if *entry < *right.low {
            let mut nodes = self.insert(at, entry, child, limit);
            nodes.push(right);
            return nodes;
        }
        let nodes = right.insert(at - self.entries.len(), entry, child, limit);
        std::iter::once(right).chain(nodes).collect()
    }

    /// A node with at most this many entries is not split, however long they are. A level therefore
    /// has fewer nodes than the level below.
    fn split_len(&self) -> usize {
        if self.level == 0 { 1 } else { 4 }
    }

    /// Moves the entries from a position on into a new node to the right.
    fn split_at(&mut self, at: usize) -> Self {
        let low = self.fence(self.entries.separator(at), &self.entries.get(at));
        let mut right = self.cut_off(low, self.entries.slice(at..self.entries.len()));
        right.children = self.children.split_off(at.min(self.children.len()));
        self.entries = self.entries.slice(0..at);
        self.last = 0;
        right
    }

    /// The fence before an entry. In a leaf any separator will do. In an inner node it must be the
    /// entry itself, the low fence of a child.
    fn fence(&self, separator: Box<[u8]>, entry: &[u8]) -> Box<[u8]> {
        if self.level == 0 {
            separator
        } else {
            entry.into()
        }
    }

    /// Cuts off the part from `low` on; returns a node that covers it.
    fn cut_off(&mut self, low: Box<[u8]>, entries: Entries) -> Self {
        let high = self.high.replace(low.clone());
        Self::between(self.level, low, high, entries)
    }

    /// Takes over everything that its right neighbour covers.
    pub fn absorb(&mut self, right: Self) {
        self.entries.append(right.entries);
        self.children.extend(right.children);
        self.high = right.high;
        self.right = right.right;
        self.last = 0;
    }
}
