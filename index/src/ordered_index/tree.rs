//! A concurrent B-link tree of byte strings \[Lehman and Yao 1981; Sagiv 1986\].
//!
//! Leaves are behind a read-write latch each. Inner nodes are immutable behind an atomic pointer:
//! readers take no latch on them and write to no memory that others read; a writer holds the node's
//! latch while it replaces the node by a changed copy. One such copy is made per split of a leaf.
//!
//! Invariants:
//! 1. The nodes of a level, from the leftmost one along the right links, cover everything, each
//!    from its low to its high fence, which is the next one's low fence.
//! 2. The entries of an inner node are low fences of nodes one level below, with their numbers. A
//!    node may be missing there until its splitter has posted it; its left neighbour leads to it.
//! 3. A number that has been read without the latch of its node may lead to a freed node, or to one
//!    that is used again. A node on the expected level whose low fence is at or before the probe
//!    leads to the probe by (1), whatever it was before; otherwise the descent begins again.
//! 4. A node is freed only while its latch and those of its parent and of its left neighbour are
//!    held; the parent forgets it before they are let go, and its number is free after that. So a
//!    descent that has met a freed node does not meet it again. Numbers of inner nodes are not used
//!    again: an inner node is copied to be changed, and the copies of a split become visible one by
//!    one.
//! 5. The root is the leftmost node of its level and is never freed. It only grows: a tree that has
//!    become small keeps its height.
//!
//! Protocol:
//! * A reader holds one latch, of the leaf that it reads.
//! * A writer latches its leaf, changes it, links the new right neighbours of a split behind it,
//!   lets go, and then posts their fences one level up; there the same, up to a new root.
//! * [`Tree::insert_seeing`] latches the leaf where the key's entries begin, and further ones to
//!   its right if the key has entries there, until it has entered its own: two of them under one
//!   key come one after the other.
//! * A leaf that a removal leaves less than a quarter full is joined with a neighbour under the
//!   same parent if the two fill at most three quarters, an empty one always: what the right one
//!   covers and has goes to the left one, the parent forgets the right one, and its number is free.
//!   An inner node that has lost a child likewise. A leaf that is its parent's only child waits
//!   until the parent has been joined. So a leaf that has become empty costs no more than its
//!   number.
//!
//! Lock order: `growing`; an inner node's latch before those of the level below; on one level from
//! left to right; then the tables' own locks. Whoever posts holds no latch of the level below.
//!
//! Differences from the papers: nodes have low fences, so that numbers are used again without
//! epochs or reference counts; joins run where a removal meets an underfull leaf, not in a queue.

use super::entries::EntryBytes;
use super::leaf_table::LeafTable;
use super::node::{DescentStep, Node, NodeId, Probe};
use crate::access_method::{KeyBytes, Lookup};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes and entries; no part of the protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::sync::{
    AtomicU64, Mutex, MutexGuard, Ordering, RwLockReadGuard, RwLockWriteGuard,
};
use strandline_base::{AppendList, RowId};

/// Bytes in use of a node at most.
pub(super) const NODE_BYTES: usize = if cfg!(shuttle) { 48 } else { 4096 };

/// An inner node's place.
struct InnerSlot {
    latch: Mutex<()>,
    node: ArcSwap<Node>,
}

impl InnerSlot {
    fn new(node: Node) -> Self {
        Self {
            latch: Mutex::new(()),
            node: ArcSwap::from_pointee(node),
        }
    }
}

/// New nodes to the right of a node: their low fences and numbers.
pub(super) type Posts = Vec<(Box<[u8]>, NodeId)>;

/// Entries that came and went, by leaf, so that writers seldom share a cache line.
#[repr(align(64))]
#[derive(Default)]
struct Counts {
    added: Counter,
    removed: Counter,
}

/// See the module's documentation.
pub(super) struct Tree {
    pub leaves: LeafTable,
    inners: AppendList<InnerSlot>,
    /// the root's level and number
    root: AtomicU64,
    growing: Mutex<()>,
    node_bytes: usize,
    counts: [Counts; 8],
    /// bytes of this tree
    bytes: Counter,
    /// bytes of this and other indexes
    memory: Arc<Counter>,
}

impl Tree {
    /// An empty tree with nodes of at most so many bytes.
    pub fn new(node_bytes: usize, memory: Arc<Counter>) -> Self {
        let tree = Self {
            leaves: LeafTable::default(),
            inners: AppendList::default(),
            root: AtomicU64::new(0),
            growing: Mutex::new(()),
            node_bytes,
            counts: Default::default(),
            bytes: Counter::new(0),
            memory,
        };
        tree.account(0, size_of::<Self>());
        tree.allocate(Node::new(0));
        tree
    }

    /// Bytes in use of a node at most.
    pub fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Counts that something of `before` bytes now has `after` bytes.
    pub fn account(&self, before: usize, after: usize) {
        if before != after {
            let grown = after.wrapping_sub(before);
            self.bytes.fetch_add(grown, Relaxed);
            self.memory.fetch_add(grown, Relaxed);
        }
    }

    /// Counts entries, under the leaf's latch.
    pub fn count(&self, leaf: NodeId, added: usize, removed: usize) {
        let counts = &self.counts[leaf as usize % self.counts.len()];
        if added > 0 {
            counts.added.fetch_add(added, Relaxed);
        }
        if removed > 0 {
            counts.removed.fetch_add(removed, Relaxed);
        }
    }

    /// How many entries have been added and how many removed.
    pub fn changes(&self) -> (usize, usize) {
        let removed = self.counts.iter().map(|c| c.removed.load(Relaxed)).sum();
        let added = self.counts.iter().map(|c| c.added.load(Relaxed)).sum();
        (added, removed)
    }

    /// Puts a new leaf or inner node into its table.
    fn allocate(&self, node: Node) -> NodeId {
        self.account(0, node.memory_bytes());
        if node.level == 0 {
            self.leaves.allocate(node)
        } else {
            self.inners.push(InnerSlot::new(node)) as NodeId
        }
    }

    /// The root's level and number.
    pub fn root(&self) -> (u8, NodeId) {
        let root = self.root.load(Ordering::Acquire);
        ((root >> 32) as u8, root as NodeId)
    }

    #[inline]
    fn slot(&self, id: NodeId) -> &InnerSlot {
        let slot = self.inners.get(id as usize);
        slot.expect("links lead to numbers that have been given out")
    }

    /// An inner node as it is now.
    #[inline]
    pub fn inner(&self, id: NodeId) -> arc_swap::Guard<Arc<Node>> {
        self.slot(id).node.load()
    }

    /// The number of a node of level `to` that leads to the probe, along right links.
    #[inline]
    fn descend(&self, to: u8, probe: Probe<'_>) -> NodeId {
        loop {
            if let Some(id) = self.descend_once(to, probe) {
                return id;
            }
        }
    }

    /// [`Tree::descend`], unless it comes to a node that has been freed.
    #[inline]
    pub fn descend_once(&self, to: u8, probe: Probe<'_>) -> Option<NodeId> {
        let (mut level, mut id) = self.root();
        while level > to {
            let node = self.inner(id);
            id = match node.place(level, probe) {
                DescentStep::Here => {
                    level -= 1;
                    node.children[node.child_place(probe)]
                }
                DescentStep::Right(right) => right,
                DescentStep::Lost => return None,
            };
        }
        Some(id)
    }

    /// The inner node of `level` that covers these bytes.
    pub fn inner_at(&self, level: u8, key: &[u8]) -> arc_swap::Guard<Arc<Node>> {
        let probe = Probe::At(key);
        let mut id = self.descend(level, probe);
        loop {
            let node = self.inner(id);
            id = match node.place(level, probe) {
                DescentStep::Here => return node,
                DescentStep::Right(right) => right,
                DescentStep::Lost => self.descend(level, probe),
            };
        }
    }

    /// The leaf that covers the probe, latched for reading.
    #[inline]
    pub fn leaf(&self, probe: Probe<'_>) -> RwLockReadGuard<'_, Node> {
        let mut id = self.descend(0, probe);
        loop {
            let leaf = self.leaves.get(id).read();
            id = match leaf.place(0, probe) {
                DescentStep::Here => return leaf,
                DescentStep::Right(right) => right,
                DescentStep::Lost => {
                    drop(leaf);
                    self.descend(0, probe)
                }
            };
        }
    }

    /// The leaf that covers these bytes and its number, latched for writing.
    #[inline]
    pub fn leaf_mut(&self, key: &[u8]) -> (NodeId, RwLockWriteGuard<'_, Node>) {
        let probe = Probe::At(key);
        let mut id = self.descend(0, probe);
        loop {
            let leaf = self.leaves.get(id).write();
            id = match leaf.place(0, probe) {
                DescentStep::Here => return (id, leaf),
                DescentStep::Right(right) => right,
                DescentStep::Lost => {
                    drop(leaf);
                    self.descend(0, probe)
                }
            };
        }
    }

    /// The inner node of `level` that covers these bytes, its number and its latch.
    fn inner_mut(&self, level: u8, key: &[u8]) -> (NodeId, MutexGuard<'_, ()>, Arc<Node>) {
        let probe = Probe::At(key);
        let mut id = self.descend(level, probe);
        loop {
            let slot = self.slot(id);
            let latch = slot.latch.lock();
            let node = slot.node.load_full();
            id = match node.place(level, probe) {
                DescentStep::Here => return (id, latch, node),
                DescentStep::Right(right) => right,
                DescentStep::Lost => {
                    drop(latch);
                    self.descend(level, probe)
                }
            };
        }
    }

    /// Replaces an inner node, whose latch the caller holds.
    fn replace_inner(&self, id: NodeId, before: &Node, node: Node) {
        self.account(before.memory_bytes(), node.memory_bytes());
        self.slot(id).node.store(Arc::new(node));
    }

    /// Adds an entry. Returns whether it is new.
    pub fn add(&self, entry: &[u8]) -> bool {
        let (id, mut leaf) = self.leaf_mut(entry);
        let Err(at) = leaf.entries.search(entry) else {
            return false;
        };
        let posts = self.put(id, &mut leaf, at, entry);
        drop(leaf);
        self.post_all(1, posts);
        true
    }

    /// Adds an entry to a latched leaf; the caller posts the new leaves when it has let go.
    #[must_use]
    pub fn put(&self, id: NodeId, leaf: &mut Node, at: usize, entry: &[u8]) -> Posts {
        let before = leaf.memory_bytes();
        let rights = leaf.insert(at, entry, None, self.node_bytes);
        let posts = self.link(leaf, rights);
        self.account(before, leaf.memory_bytes());
        self.count(id, 1, 0);
        posts
    }

    /// Puts new nodes between a latched node and its right neighbour.
    #[must_use]
    pub fn link(&self, left: &mut Node, rights: Vec<Node>) -> Posts {
        let mut posts = Vec::with_capacity(rights.len());
        for mut node in rights.into_iter().rev() {
            node.right = left.right;
            let low = node.low.clone();
            left.right = self.allocate(node);
            posts.push((low, left.right));
        }
        posts
    }

    /// Makes new nodes of the level below known to `level`. No latch is held.
    pub fn post_all(&self, level: u8, posts: Posts) {
        for (low, id) in posts.into_iter().rev() {
            self.post(level, &low, id);
        }
    }

    fn post(&self, level: u8, low: &[u8], child: NodeId) {
        if self.root().0 < level && self.grow(level, low, child) {
            return;
        }
        let (id, latch, before) = self.inner_mut(level, low);
        let Err(at) = before.entries.search(low) else {
            return;
        };
        let mut node = Node::clone(&before);
        let rights = node.insert(at, low, Some(child), self.node_bytes);
        let posts = self.link(&mut node, rights);
        self.replace_inner(id, &before, node);
        drop(latch);
        self.post_all(level + 1, posts);
    }

    /// A new root over the old one and its new neighbour, unless there has been one meanwhile.
    fn grow(&self, level: u8, low: &[u8], child: NodeId) -> bool {
        let _growing = self.growing.lock();
        let (root_level, root) = self.root();
        if root_level >= level {
            return false;
        }
        let mut node = Node::new(level);
        node.entries = super::entries::Entries::of(&[&[], low]);
        node.children = vec![root, child];
        let id = self.allocate(node);
        let root = u64::from(level) << 32 | u64::from(id);
        self.root.store(root, Ordering::Release);
        true
    }

    /// Adds an entry, and appends to `others` the rows that were there under its key. Returns
    /// whether the entry is new.
    pub fn insert_seeing(&self, entry: &EntryBytes, others: &mut Vec<RowId>) -> bool {
        let (id, mut leaf) = self.leaf_mut(entry.key());
        if !leaf.ends_after(entry.key()) {
            return self.insert_seeing_several((id, leaf), entry, others);
        }
        if see(&leaf, entry, others) {
            return false;
        }
        let at = leaf.entries.lower_bound(entry.as_slice());
        let posts = self.put(id, &mut leaf, at, entry.as_slice());
        drop(leaf);
        self.post_all(1, posts);
        true
    }

    /// [`Tree::insert_seeing`] of a key whose entries, from those in `first` on, may be in several
    /// leaves.
    fn insert_seeing_several<'a>(
        &'a self,
        first: (NodeId, RwLockWriteGuard<'a, Node>),
        entry: &EntryBytes,
        others: &mut Vec<RowId>,
    ) -> bool {
        let mut held = vec![first];
        while let Some((_, leaf)) = held.last()
            && !leaf.ends_after(entry.key())
        {
            let right = leaf.right;
            held.push((right, self.leaves.get(right).write()));
        }
        let mut is_present = false;
        for (_, leaf) in &held {
            is_present |= see(leaf, entry, others);
        }
        let entry = entry.as_slice();
        let covers = |(_, leaf): &&mut (_, RwLockWriteGuard<'_, Node>)| *leaf.low <= *entry;
        let own = held.iter_mut().rev().find(covers);
        let Some((id, leaf)) = own.filter(|_| !is_present) else {
            return false;
        };
        let at = leaf.entries.lower_bound(entry);
        let posts = self.put(*id, leaf, at, entry);
        drop(held);
        self.post_all(1, posts);
        true
    }

    /// Visits the rows under a key, in order, until `visit` wants no more.
    #[inline]
    pub fn visit_rows(&self, key: &[u8], mut visit: impl FnMut(RowId) -> bool) {
        let mut reached: Option<Box<[u8]>> = None;
        loop {
            let from = reached.as_deref().unwrap_or(key);
            let leaf = self.leaf(Probe::At(from));
            let entries = &leaf.entries;
            for at in entries.lower_bound(from)..entries.len() {
                if !entries.begins_with(at, key) || !visit(entries.row(at)) {
                    return;
                }
            }
            let high = leaf.high.as_ref().filter(|high| high.starts_with(key));
            let Some(high) = high.cloned() else { return };
            drop(leaf);
            reached = Some(high);
        }
    }

    /// The row under a key if there is one only.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Lookup {
        let mut found = Lookup::None;
        self.visit_rows(key, |row| {
            found = match found {
                Lookup::None => Lookup::One(row),
                Lookup::One(_) | Lookup::Several => Lookup::Several,
            };
            found != Lookup::Several
        });
        found
    }

    /// Removes an entry if it is there.
    pub fn remove(&self, entry: &[u8]) {
        let (id, mut leaf) = self.leaf_mut(entry);
        let Ok(at) = leaf.entries.search(entry) else {
            return;
        };
        let before = leaf.memory_bytes();
        leaf.entries.remove(at);
        self.count(id, 0, 1);
        self.account(before, leaf.memory_bytes());
        // Not at each removal: the neighbours may be full.
        let left = leaf.entries.len();
        let is_due = left == 0 || left.is_power_of_two() && leaf.size() < self.node_bytes / 4;
        drop(leaf);
        if is_due {
            self.join(0, entry);
        }
    }

    /// Removes every entry that `keep` does not want.
    pub fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) {
        let mut reached = Some(Box::default());
        while let Some(from) = reached {
            let (id, mut leaf) = self.leaf_mut(&from);
            let before = leaf.memory_bytes();
            let removed = leaf.entries.retain(|entries, at| {
                let (key, row) = entries.entry(at);
                keep(&key, row)
            });
            self.count(id, 0, removed);
            self.account(before, leaf.memory_bytes());
            reached = leaf.high.clone();
            let is_due = removed > 0 && leaf.size() < self.node_bytes / 4;
            drop(leaf);
            if is_due {
                self.join(0, &from);
            }
        }
    }

    /// Joins the node of `level` that covers `key` with a neighbour if the two fill at most three
    /// quarters of a node or one is empty. No latch is held.
    pub fn join(&self, level: u8, key: &[u8]) -> bool {
        if self.root().0 <= level {
            return false;
        }
        let (id, latch, parent) = self.inner_mut(level + 1, key);
        let at = parent.child_place(Probe::At(key));
        if parent.children.len() == 1 {
            drop(latch);
            return self.join(level + 1, key) && self.join(level, key);
        }
        // The left one of the two.
        let pairs = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let mut pairs = pairs.filter(|left| left + 1 < parent.children.len());
        let Some(left) = pairs.find(|left| self.join_children(id, &parent, *left)) else {
            return false;
        };
        drop(latch);
        if level == 0 {
            self.leaves.release(parent.children[left + 1]);
        }
        if parent.size() < self.node_bytes / 4 {
            self.join(level + 1, key);
        }
        true
    }

    /// Moves what the right one of two neighbouring children of a latched parent has to the left
    /// one, and frees it, if they are small. Whoever waits for the right one's latch meanwhile, and
    /// descends again, finds that the parent does not name it any more.
    fn join_children(&self, id: NodeId, parent: &Node, left: usize) -> bool {
        let [left_id, right_id] = [left, left + 1].map(|at| parent.children[at]);
        let forget = || {
            let mut node = Node::clone(parent);
            node.entries.remove(left + 1);
            node.children.remove(left + 1);
            self.replace_inner(id, parent, node);
        };
        if parent.level == 1 {
            let mut left = self.leaves.get(left_id).write();
            // A leaf between the two is about to be posted.
            if left.right != right_id {
                return false;
            }
            let mut right = self.leaves.get(right_id).write();
            if !self.are_small(&left, &right) {
                return false;
            }
            let before = left.memory_bytes() + right.memory_bytes();
            left.absorb(std::mem::replace(&mut right, Node::free()));
            self.account(before, left.memory_bytes());
            forget();
            return true;
        }
        let _left_latch = self.slot(left_id).latch.lock();
        let left = self.inner(left_id);
        if left.right != right_id {
            return false;
        }
        let _right_latch = self.slot(right_id).latch.lock();
        let right = self.inner(right_id);
        if !self.are_small(&left, &right) {
            return false;
        }
        let mut joint = Node::clone(&left);
        joint.absorb(Node::clone(&right));
        self.replace_inner(left_id, &left, joint);
        forget();
        self.account(right.memory_bytes(), 0);
        self.slot(right_id).node.store(Arc::new(Node::free()));
        true
    }

    fn are_small(&self, left: &Node, right: &Node) -> bool {
        let is_one_empty = left.entries.is_empty() || right.entries.is_empty();
        let children = 4 * (left.children.len() + right.children.len());
        let size = left.entries.joint_size(&right.entries) + children;
        is_one_empty || size <= self.node_bytes / 4 * 3
    }
}

/// Appends the rows that a leaf has under the key of `entry`; returns whether it has the entry.
fn see(leaf: &Node, entry: &EntryBytes, others: &mut Vec<RowId>) -> bool {
    let entries = &leaf.entries;
    let present = entries.search(entry.as_slice()).ok();
    let places = entries.lower_bound(entry.key())..entries.len();
    let of_key = places.take_while(|at| entries.begins_with(*at, entry.key()));
    let of_others = of_key.filter(|at| Some(*at) != present);
    others.extend(of_others.map(|at| entries.row(at)));
    present.is_some()
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.memory_bytes(), Relaxed);
    }
}
