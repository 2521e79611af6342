//! The concurrent R-tree on the pages of a file: what a search reads, and in which order.
//!
//! Invariants:
//! 1. Every node but the root has one entry in one node, its parent, one level above. The entry's
//!    bound is the union of the bounds of the node's entries, of which there is at least one.
//! 2. The root is page 1 for ever. Its level is the tree's height less one.
//! 3. A node has two numbers: `child_splits` grows with every split of one of its children, and
//!    both parts of a divided node go on with its number; `split_no` is what the parent's
//!    `child_splits` became by the node's own last split. So a node's `split_no` is at most its
//!    parent's `child_splits`. It is above an older copy of the parent's if and only if the node
//!    was divided after the copy was made.
//! 4. A split moves entries only into the new right node, which the divided node's right link leads
//!    to, and which takes over its old `split_no` and right link. So the nodes that a node has
//!    been divided into since a copy of its parent was made are: the node, and those along the
//!    right links up to and with the first one whose `split_no` is not above the copy's
//!    `child_splits`. No node is among them twice.
//! 5. A node is taken away if it has no entries, or if the root takes over its entries. It is
//!    marked, keeps its entries and links, and its page is used again only when no search runs
//!    that began before (`searches`).
//! 6. An operation changes pages by one [`PageChange`], which the log has as a whole or not at all.
//!    So the invariants hold after a crash. Only the changes that lower the root and free pages
//!    come behind, and a load writes the nodes below the root before the root.
//!
//! Protocol:
//! * A search holds one latch at a time, and none while it reads a page from the device. It copies
//!   a node, and goes to the children that its condition may hold for. From a child with a greater
//!   `split_no` than the parent's copy allows it goes to the right as well, by (4). So it finds
//!   each entry that stays in the tree once.
//! * Writers of a tree exclude each other by one lock, from their descent to their commit. A writer
//!   first reads the pages on its way without the lock, so that the device is seldom read under it.
//!   It latches pages when it knows all that it changes, from the root down.
//!
//! Lock order: the writers' lock; then latches from the top down, or the registry of searches. The
//! page store takes its own locks below them. A search takes no latch beside another one, so a
//! writer's latches cannot wait for each other.
//!
//! Differences from the papers \[Kornacker, Mohan and Hellerstein, *Concurrency and Recovery in
//! Generalized Search Trees*, SIGMOD 1997\]: node sequence numbers are counted by parents instead
//! of a global counter or LSNs, so that no counter has to survive a crash, and they match a
//! parent's copy exactly. A split and its entry in the parent are one change, so no node is without
//! a parent. Writers exclude each other: a second writer would have to descend again after each
//! change of a bound. Readers lock no predicates: a row's versions decide what a reader sees.
//! Underfull nodes are not dissolved as in \[Guttman 1984\]: entries that move into another node
//! are missed by a search that has read it already.

use super::node::{Damage, NODE_BYTES_MIN, Node, Tail};
use super::searches::{Running, Searches};
use crate::access_method::OldestSnapshot;
use crate::tree_pages::{Count, ROOT, damaged};
use std::collections::HashSet;
use std::ops::Deref;
use strandline_base::sync::{Arc, Mutex};
use strandline_base::{CommitTs, Error, Result};
use strandline_storage::pages::{
    Access, PAGE_BODY_BYTES, PageChange, PageFileId, PageNumber, PageStore,
};

/// Ways down that an estimate of all entries takes.
const WAYS: usize = 16;

/// The tree; see the module's documentation.
pub(super) struct Tree {
    pub store: Arc<PageStore>,
    pub file: PageFileId,
    pub node_bytes: usize,
    oldest: OldestSnapshot,
    /// the writers' lock
    pub writers: Mutex<()>,
    pub searches: Arc<Searches>,
    pub count: Count,
}

/// A node that a search goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub page: PageNumber,
    /// None: the root
    from: Option<From>,
}

/// What the copy that has led to a node says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct From {
    level: u8,
    /// the parent's number of splits of its children
    child_splits: u64,
}

/// A search beside writers, which borrows the tree or shares it.
pub(super) struct Search<T> {
    tree: T,
    _running: Running,
    /// the pages that right links have led to
    met: HashSet<PageNumber>,
}

impl<T: Deref<Target = Tree>> Search<T> {
    /// A search that has not read a page yet.
    pub fn new(tree: T) -> Self {
        Self {
            _running: tree.searches.begin(),
            tree,
            met: HashSet::new(),
        }
    }

    /// The node that a way leads to, and the way on to its right neighbour ([`Search::right_of`]).
    pub fn visit(&mut self, visit: &Visit, access: Access) -> Result<(Node, Option<Visit>)> {
        let node = self.tree.visit(visit, access)?;
        let right = self.right_of(visit, &node)?;
        Ok((node, right))
    }

    /// The way to a node's right neighbour, if the node has been divided since the copy of its
    /// parent was made.
    ///
    /// # Errors
    /// XX001 if there is none, or if another node has led there. So every search ends: levels
    /// descend to children, and right links lead to each node once.
    pub fn right_of(&mut self, visit: &Visit, node: &Node) -> Result<Option<Visit>> {
        let is_divided = |from: &From| node.split_no > from.child_splits;
        let Some(from) = visit.from.filter(is_divided) else {
            return Ok(None);
        };
        let no_right = Damage("a node that has been divided has no right neighbour of its own");
        let right = node.right.filter(|right| self.met.insert(*right));
        let page = right.ok_or_else(|| self.tree.damaged(visit.page, no_right))?;
        let from = Some(from);
        Ok(Some(Visit { page, from }))
    }
}

impl Visit {
    /// The begin of every search.
    pub const ROOT: Self = Self {
        page: ROOT,
        from: None,
    };

    /// Whether the node is a leaf, as far as its parent knows.
    pub fn is_leaf(&self) -> bool {
        self.from.is_some_and(|from| from.level == 0)
    }
}

impl Tree {
    /// A tree in a file that is open. Nodes take `node_bytes` of a page's body.
    ///
    /// # Errors
    /// XX000 if no node can have so many bytes.
    pub fn new(
        store: Arc<PageStore>,
        file: PageFileId,
        node_bytes: usize,
        oldest: OldestSnapshot,
    ) -> Result<Self> {
        if !(NODE_BYTES_MIN..=PAGE_BODY_BYTES).contains(&node_bytes) {
            let message = format!(
                "a node of {node_bytes} bytes; between {NODE_BYTES_MIN} and {PAGE_BODY_BYTES} fit"
            );
            return Err(Error::internal(message));
        }
        Ok(Self {
            store,
            file,
            node_bytes,
            oldest,
            writers: Mutex::new(()),
            searches: Arc::default(),
            count: Count::default(),
        })
    }

    /// Writes an empty root into a new file.
    pub fn plant(&self) -> Result<()> {
        let mut change = self.begin();
        let number = change.allocate()?;
        if number != ROOT {
            let message = format!("the first page of a new file is {}", number.0);
            return Err(Error::internal(message));
        }
        self.write(&mut change, ROOT, &Node::new(0, Vec::new()))?;
        change.commit()?;
        Ok(())
    }

    /// A new change.
    pub fn begin(&self) -> PageChange {
        self.store.begin(self.file)
    }

    /// The error for a damaged node.
    pub fn damaged(&self, number: PageNumber, damage: Damage) -> Error {
        damaged(self.file, number, damage)
    }

    /// Whether an entry with this tail is one that no snapshot needs.
    pub fn is_expired(&self, tail: Tail) -> bool {
        matches!(tail, Tail::Retired(since) if since <= self.oldest())
    }

    /// The timestamp of the oldest snapshot.
    pub fn oldest(&self) -> CommitTs {
        (self.oldest)()
    }

    /// The node of a page.
    pub fn read(&self, number: PageNumber, access: Access) -> Result<Node> {
        let page = self.store.read(self.file, number, access)?;
        let bytes = page.get(..self.node_bytes).unwrap_or(&page);
        Node::decode(bytes).map_err(|damage| self.damaged(number, damage))
    }

    /// Writes a node into a page that the change has latched.
    pub fn write(&self, change: &mut PageChange, number: PageNumber, node: &Node) -> Result<()> {
        let body = change.body_mut(number);
        let len = body.len().min(self.node_bytes);
        let (body, _) = body.split_at_mut(len);
        node.encode(body)
            .map_err(|damage| self.damaged(number, damage))
    }

    /// The node that a way leads to.
    ///
    /// # Errors
    /// XX001 if it is not on the level below the parent's.
    pub fn visit(&self, visit: &Visit, access: Access) -> Result<Node> {
        let node = self.read(visit.page, access)?;
        if visit.from.is_some_and(|from| from.level != node.level) {
            let damage = Damage("the node is not on the level below its parent's");
            return Err(self.damaged(visit.page, damage));
        }
        Ok(node)
    }

    /// The way to a child of a node.
    pub fn child_of(node: &Node, page: PageNumber) -> Visit {
        let from = From {
            level: node.level.saturating_sub(1),
            child_splits: node.child_splits,
        };
        Visit {
            page,
            from: Some(from),
        }
    }

    /// About how many entries there are: exactly, if the root is a leaf; otherwise from the numbers
    /// of entries on some ways down, evenly spread over the root's children.
    pub fn count_roughly(&self) -> Result<usize> {
        let _running = self.searches.begin();
        let root = self.read(ROOT, Access::Random)?;
        if root.level == 0 {
            return Ok(root.entries.len());
        }
        let fan_out = root.entries.len();
        let ways = WAYS.min(fan_out);
        let mut sum = 0.0;
        for way in 0..ways {
            let (mut below, mut node, mut at) = (1.0, root.clone(), way * fan_out / ways);
            loop {
                below *= node.entries.len() as f64;
                let Some((_, child)) = node.children().nth(at) else {
                    break;
                };
                node = self.visit(&Self::child_of(&node, child), Access::Random)?;
                at = node.entries.len() / 2;
            }
            sum += below;
        }
        Ok((sum / ways.max(1) as f64) as usize)
    }
}
