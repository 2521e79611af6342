//! A concurrent B-link tree of byte strings \[Lehman and Yao 1981; Sagiv 1986\].
//!
//! Each leaf is behind a read-write latch. Inner nodes are immutable behind an atomic pointer:
//! readers take no latch on them and write to no shared memory. A writer holds the inner node's
//! latch while it replaces the node by a changed copy, about once per split of a leaf.
//!
//! Invariants:
//! 1. The nodes of a level, from the leftmost one along the right links, cover everything. Each
//!    covers the bytes from its low fence to its high fence, which is the next node's low fence.
//! 2. The entries of an inner node are low fences of nodes one level below, with their numbers. A
//!    node may be missing there until its splitter has posted it; its left neighbour leads to it.
//! 3. A number that was read without its node's latch may lead to a freed node, or to a reused one.
//!    If the node is on the expected level and its low fence is at or before the probe, it leads to
//!    the probe by (1), whatever it was before. Otherwise the descent starts again.
//! 4. A node is freed only under its own latch and those of its parent and its left neighbour. The
//!    parent removes it before they are released, and its number becomes free after that. So a
//!    descent that has met a freed node does not meet it again. Numbers of inner nodes are not
//!    reused: an inner node is copied to be changed, and the copies of a split become visible one
//!    by one.
//! 5. The root is the leftmost node of its level and is never freed. It only grows: a tree that has
//!    become small keeps its height.
//!
//! Protocol:
//! * A reader holds one latch, that of the leaf that it reads.
//! * A writer latches its leaf, changes it, and links the new right neighbours of a split behind
//!   it. It releases the latch and then posts the new fences one level up. The same happens there,
//!   up to a new root.
//! * [`Tree::insert_seeing`] latches the leaf where the key's entries begin, and the leaves to its
//!   right that have further entries of the key. It holds them until it has added its own entry, so
//!   two threads that insert one key run one after the other.
//! * A leaf that a removal leaves less than half full is joined with a neighbour under the same
//!   parent, if the two together are at most seven eighths full; an empty leaf is always joined. So
//!   an index whose entries change again and again stays within about 1.4 times the size of a fresh
//!   one (`churn` of the benchmark `index`). The left node takes over the right one's range and
//!   entries, the parent removes the right one, and its number becomes free. An inner node that has
//!   lost a child is joined likewise. A leaf that is its parent's only child waits until the parent
//!   has been joined. An empty leaf thus costs no more than its number.
//!
//! Lock order: `growing`; an inner node's latch before latches of the level below; on one level
//! from left to right; then the tables' own locks. A thread that posts holds no latch of the level
//! below.
//!
//! Differences from the papers: nodes have low fences, so that numbers can be reused without epochs
//! or reference counts. Joins run where a removal meets an underfull leaf, without a queue.

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

/// The maximum bytes in use of a node.
pub(super) const NODE_BYTES: usize = if cfg!(shuttle) { 48 } else { 4096 };

/// A removal tries to join its leaf if the number of entries left is a multiple of this.
const JOIN_EVERY: usize = 8;

/// The slot of an inner node.
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

/// Numbers of added and removed entries, spread over leaves so that writers seldom share a cache
/// line.
#[repr(align(64))]
#[derive(Default)]
struct Counts {
    added: Counter,
    removed: Counter,
}

/// The tree; see the module's documentation.
pub(super) struct Tree {
    pub leaves: LeafTable,
    inners: AppendList<InnerSlot>,
    /// level and number of the root
    root: AtomicU64,
    growing: Mutex<()>,
    node_bytes: usize,
    counts: [Counts; 8],
    /// bytes of this tree
    bytes: Counter,
    /// bytes of all indexes that share this counter
    memory: Arc<Counter>,
}

impl Tree {
    /// An empty tree with nodes of at most `node_bytes` bytes.
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

    /// The maximum bytes in use of a node.
    pub fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Counts a change of memory from `before` to `after` bytes.
    pub fn account(&self, before: usize, after: usize) {
        if before != after {
            let grown = after.wrapping_sub(before);
            self.bytes.fetch_add(grown, Relaxed);
            self.memory.fetch_add(grown, Relaxed);
        }
    }

    /// Counts added and removed entries; called under the leaf's latch.
    pub fn count(&self, leaf: NodeId, added: usize, removed: usize) {
        let counts = &self.counts[leaf as usize % self.counts.len()];
        if added > 0 {
            counts.added.fetch_add(added, Relaxed);
        }
        if removed > 0 {
            counts.removed.fetch_add(removed, Relaxed);
        }
    }

    /// The numbers of entries added and removed so far.
    pub fn changes(&self) -> (usize, usize) {
        let removed = self.counts.iter().map(|c| c.removed.load(Relaxed)).sum();
        let added = self.counts.iter().map(|c| c.added.load(Relaxed)).sum();
        (added, removed)
    }

    /// Adds a new leaf or inner node to its table.
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

    /// The present copy of an inner node.
    #[inline]
    pub fn inner(&self, id: NodeId) -> arc_swap::Guard<Arc<Node>> {
        self.slot(id).node.load()
    }

    /// The number of a node of level `to` that leads to the probe along right links.
    #[inline]
    fn descend(&self, to: u8, probe: Probe<'_>) -> NodeId {
        loop {
            if let Some(id) = self.descend_once(to, probe) {
                return id;
            }
        }
    }

    /// [`Tree::descend`]; None if it meets a freed node.
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

    /// The inner node of `level` that covers `key`.
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

    /// The leaf that covers `key`, latched for writing, and its number.
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

    /// The inner node of `level` that covers `key`, its number and its latch.
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

    /// Replaces an inner node. The caller holds its latch.
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

    /// Adds an entry to a latched leaf. The caller releases the latch and then posts the new
    /// leaves.
    #[must_use]
    pub fn put(&self, id: NodeId, leaf: &mut Node, at: usize, entry: &[u8]) -> Posts {
        let before = leaf.memory_bytes();
        let rights = leaf.insert(at, entry, None, self.node_bytes);
        let posts = self.link(leaf, rights);
        self.account(before, leaf.memory_bytes());
        self.count(id, 1, 0);
        posts
    }

    /// Links new nodes between a latched node and its right neighbour.
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

    /// Posts new nodes of the level below to `level`. The caller holds no latch.
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

    /// Adds a new root over the old one and its new neighbour, unless another thread has added one.
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

    /// Adds an entry, and appends to `others` the other rows under its key. Returns whether the
    /// entry is new.
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

    /// [`Tree::insert_seeing`] for a key that has entries in several leaves, perhaps, from the leaf
    /// `first` on.
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

    /// Visits the rows under a key in order, until `visit` returns false.
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

    /// The row under a key, if there is only one.
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

    /// Removes an entry if it exists.
    pub fn remove(&self, entry: &[u8]) {
        let (id, mut leaf) = self.leaf_mut(entry);
        let Ok(at) = leaf.entries.search(entry) else {
            return;
        };
        let before = leaf.memory_bytes();
        leaf.entries.remove(at);
        self.count(id, 0, 1);
        self.account(before, leaf.memory_bytes());
        // A join is not tried at each removal, since the neighbours may be full.
        let left = leaf.entries.len();
        let is_due = left == 0 || left % JOIN_EVERY == 0 && self.is_underfull(&leaf);
        drop(leaf);
        if is_due {
            self.join(0, entry);
        }
    }

    /// Removes every entry for which `keep` returns false.
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
            let is_due = removed > 0 && self.is_underfull(&leaf);
            drop(leaf);
            if is_due {
                self.join(0, &from);
            }
        }
    }

    /// Joins the node of `level` that covers `key` with a neighbour, if the two together are at
    /// most seven eighths full or one is empty. The caller holds no latch.
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
        // The left node of the two.
        let pairs = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let mut pairs = pairs.filter(|left| left + 1 < parent.children.len());
        let Some(left) = pairs.find(|left| self.join_children(id, &parent, *left)) else {
            return false;
        };
        drop(latch);
        if level == 0 {
            self.leaves.release(parent.children[left + 1]);
        }
        if self.is_underfull(&parent) {
            self.join(level + 1, key);
        }
        true
    }

    /// Moves the content of the right one of two neighbouring children to the left one and frees
    /// the right one, if they are small. The parent is latched. A thread that waits for the right
    /// one's latch meanwhile descends again, and finds that the parent no longer has it.
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
            // A leaf between the two has not been posted yet.
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

    fn is_underfull(&self, node: &Node) -> bool {
        node.size() < self.node_bytes / 2
    }

    /// Whether two neighbours may be joined.
    fn are_small(&self, left: &Node, right: &Node) -> bool {
        let is_one_empty = left.entries.is_empty() || right.entries.is_empty();
        let children = 4 * (left.children.len() + right.children.len());
        let size = left.entries.joint_size(&right.entries) + children;
        is_one_empty || size <= self.node_bytes / 8 * 7
    }
}

/// Appends the rows that a leaf has under the key of `entry`; returns whether it has the entry
/// itself.
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
