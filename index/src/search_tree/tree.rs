//! A concurrent search tree on the pages of a file: a B-link tree \[Lehman and Yao 1981; Sagiv
//! 1986\] whose nodes have low fences too.
//!
//! Invariants:
//! 1. The nodes of a level, from the leftmost one along the right links, cover everything. Each
//!    covers the bytes from its low fence to its high fence, which is the next node's low fence.
//! 2. The entries of an inner node are low fences of nodes one level below, with their pages. A
//!    node may be missing there until it has been posted; its left neighbour leads to it.
//! 3. The root is page 1 for ever and alone on its level. Its level is the tree's height less one.
//! 4. A page number that was read without the latch of its node may lead to a freed page, or to one
//!    that is used again. If the node there is on the expected level and begins at or before the
//!    probe, it leads to the probe by (1), whatever it was before. Otherwise the descent starts
//!    again.
//! 5. A change that takes a node away marks its page as no node and removes it from its parent, and
//!    happens only if the parent has it and its left neighbour leads to it. So a node that is still
//!    to be posted is never taken away, a descent that has met such a page does not meet it again,
//!    and no writer changes it. The page is freed after that.
//! 6. Each change of pages (a [`PageChange`]) takes the tree from one state with these invariants
//!    to another one. The log has a change as a whole or not at all; so a crash leaves such a
//!    state.
//!
//! Protocol:
//! * A reader holds one latch and reads no page while it holds it. A cursor holds none between two
//!   calls.
//! * A writer descends like a reader, latches its node alone for writing, and verifies by (4) that
//!   it is still the right one. The pages that it latches have just been read, so that the device
//!   is seldom read under a latch: only if a page has been evicted in between.
//! * A split links the new right node and cuts the left one in one change. The new fence is posted
//!   one level up afterwards, in a change of its own. If a crash or an error comes between, the
//!   node stays unposted until a writer reaches it along the right link; that writer posts it. Who
//!   posts verifies, with the parent latched, that the node still begins at this fence.
//! * A split of the root moves its entries to two new nodes; nothing is left to be posted.
//! * [`Tree::insert_seeing`] excludes other insertions of its key by one of [`STRIPES`] locks.
//! * Joins are described in `join`.
//!
//! Lock order: a key's lock; then latches from the top down, and on one level from left to right;
//! at most three at a time, those of new pages included. The page store takes its own locks below
//! them.
//!
//! Differences from the papers: nodes have low fences, so that pages can be used again without
//! epochs, reference counts or node sequence numbers. Unposted nodes are posted by the next writer,
//! as in PostgreSQL; there is no separate recovery of the tree.

use super::entries::{Entries, Tail};
use super::kind::{Kind, Share};
use super::node::{self, Damage, Frame, Node, Probe};
use crate::access_method::Lookup;
use crate::access_method::OldestSnapshot;
use crate::entry::{ROW_BYTES, parts_of};
use crate::key_hash::hash_bytes;
pub(super) use crate::tree_pages::ROOT;
use crate::tree_pages::{self, Count};
use std::marker::PhantomData;
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error, Result, RowId};
use strandline_storage::pages::{Access, PageChange, PageFileId, PageNumber, PageRead, PageStore};

/// Bytes of an entry on a page beside its key's, at most: row, timestamp, offset and length.
const ENTRY_EXTRA: usize = ROW_BYTES + 8 + 4;

/// The fraction of a node's bytes that an entry takes at most, so that a full node can be divided.
const ENTRY_SHARE: usize = 6;

/// Descents that meet a freed page before the tree counts as damaged.
const ATTEMPTS: usize = 1000;

/// Locks that keys share.
const STRIPES: usize = 64;

/// A new node: its level, its low fence, and its page.
#[derive(Clone, Debug)]
pub(super) struct Post {
    pub level: u8,
    pub low: Box<[u8]>,
    pub child: PageNumber,
}

/// What a node is to a descent.
enum Step {
    /// it covers the probe
    Here,
    /// the probe is further right
    Right(PageNumber),
    /// it does not lead to the probe
    Lost,
}

/// The tree; see the module's documentation.
pub(super) struct Tree<K> {
    pub store: Arc<PageStore>,
    pub file: PageFileId,
    node_bytes: usize,
    oldest: OldestSnapshot,
    stripes: Box<[Mutex<()>]>,
    pub count: Count,
    kind: PhantomData<K>,
}

fn step(node: Option<&Node<'_>>, level: u8, probe: Probe<'_>) -> Result<Step, Damage> {
    let Some(node) = node.filter(|node| node.level == level && node.begins_by(probe)) else {
        return Ok(Step::Lost);
    };
    if node.ends_behind(probe) {
        return Ok(Step::Here);
    }
    let no_right = Damage("a node with a high fence has no right neighbour");
    node.right.map(Step::Right).ok_or(no_right)
}

impl<K: Kind> Tree<K> {
    /// A tree in a file that is open. Nodes take `node_bytes` of a page's body.
    pub fn new(
        store: Arc<PageStore>,
        file: PageFileId,
        node_bytes: usize,
        oldest: OldestSnapshot,
    ) -> Self {
        Self {
            store,
            file,
            node_bytes,
            oldest,
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            count: Count::default(),
            kind: PhantomData,
        }
    }

    /// Writes an empty root into a new file.
    pub fn plant(&self) -> Result<()> {
        let mut change = self.begin();
        let number = change.allocate()?;
        if number != ROOT {
            let message = format!("the first page of a new file is {}", number.0);
            return Err(Error::internal(message));
        }
        let root = Frame {
            kind: K::ID,
            level: 0,
            right: None,
            low: Box::default(),
            high: None,
        };
        self.write(&mut change, ROOT, &root, &Entries::default(), 0..0)?;
        change.commit()?;
        Ok(())
    }

    /// Bytes of a node.
    pub fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// The longest key.
    pub fn key_bytes_max(&self) -> usize {
        ((self.node_bytes - node::HEADER_BYTES) / ENTRY_SHARE).saturating_sub(ENTRY_EXTRA)
    }

    /// Verifies that a key is not too long.
    pub fn check_key(&self, key: &[u8]) -> Result<()> {
        let limit = self.key_bytes_max();
        if key.len() <= limit {
            return Ok(());
        }
        let message = format!("a key of {} bytes exceeds the index's {limit}", key.len());
        let (kind, state) = (
            strandline_base::ErrorKind::Invalid,
            strandline_base::SqlState::PROGRAM_LIMIT_EXCEEDED,
        );
        Err(Error::new(kind, state, message).with_hint("Index fewer or shorter columns."))
    }

    /// A new change.
    pub fn begin(&self) -> PageChange {
        self.store.begin(self.file)
    }

    /// The timestamp of the oldest snapshot.
    pub fn oldest(&self) -> CommitTs {
        (self.oldest)()
    }

    /// The lock of a key.
    pub fn stripe(&self, key: &[u8]) -> &Mutex<()> {
        let at = hash_bytes(key) as usize % self.stripes.len();
        self.stripes.get(at).expect("there are as many locks")
    }

    /// The error for a damaged node.
    pub fn damaged(&self, number: PageNumber, damage: Damage) -> Error {
        tree_pages::damaged(self.file, number, damage)
    }

    /// The node in a page's body.
    pub fn node<'a>(&self, number: PageNumber, body: &'a [u8]) -> Result<Option<Node<'a>>> {
        let node = body.get(..self.node_bytes).unwrap_or(body);
        Node::read(node, K::ID).map_err(|damage| self.damaged(number, damage))
    }

    /// The part of a changed page's body that has the node.
    pub fn node_mut<'a>(&self, change: &'a mut PageChange, number: PageNumber) -> &'a mut [u8] {
        let body = change.body_mut(number);
        let len = body.len().min(self.node_bytes);
        body.split_at_mut(len).0
    }

    /// The node of a latched page.
    pub fn latched<'a>(&self, change: &'a PageChange, number: PageNumber) -> Result<Node<'a>> {
        let node = self.node(number, change.body(number))?;
        node.ok_or_else(|| self.damaged(number, Damage("the page holds no node")))
    }

    /// Writes a node anew.
    pub fn write(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        frame: &Frame,
        entries: &Entries,
        places: std::ops::Range<usize>,
    ) -> Result<()> {
        let body = self.node_mut(change, number);
        let written = frame.write(entries, places, body);
        written.map_err(|damage| self.damaged(number, damage))
    }

    /// The level of the root.
    pub fn height(&self) -> Result<u8> {
        let page = self.store.read(self.file, ROOT, Access::Random)?;
        let root = self.node(ROOT, &page)?;
        root.map(|root| root.level)
            .ok_or_else(|| self.damaged(ROOT, Damage("the root's page holds no node")))
    }

    /// The node of `level` that covers the probe, latched for reading; None if the root is below
    /// this level. Appends to `met` the nodes that it came to by right links: they may be unposted.
    ///
    /// A page that cannot be read may be one that has been freed since its number was read. So an
    /// error counts only when the next descent meets it at the same page.
    pub fn locate(
        &self,
        level: u8,
        probe: Probe<'_>,
        access: Access,
        met: &mut Vec<Post>,
    ) -> Result<Option<(PageNumber, PageRead)>> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            met.clear();
            match self.descend(level, probe, access, met) {
                Ok(Descent::Found(number, page)) => return Ok(Some((number, page))),
                Ok(Descent::TooHigh) => return Ok(None),
                Ok(Descent::Lost) => {}
                Err((number, error)) if number == ROOT || failed == Some(number) => {
                    return Err(error);
                }
                Err((number, _)) => failed = Some(number),
            }
        }
        let damage = Damage("the root does not lead to every key");
        Err(self.damaged(ROOT, damage))
    }

    fn descend(
        &self,
        level: u8,
        probe: Probe<'_>,
        access: Access,
        met: &mut Vec<Post>,
    ) -> Result<Descent, (PageNumber, Error)> {
        let (mut number, mut at_level, mut passed) = (ROOT, None, Box::<[u8]>::default());
        loop {
            let failed = |error| (number, error);
            let damaged = |damage| (number, self.damaged(number, damage));
            let is_target = at_level == Some(level);
            let access = if is_target { access } else { Access::Random };
            let page = self.store.read(self.file, number, access).map_err(failed)?;
            let node = self.node(number, &page).map_err(failed)?;
            let here = match (at_level, &node) {
                (Some(level), _) => level,
                (None, Some(root)) => root.level,
                (None, None) => return Err(damaged(Damage("the root's page holds no node"))),
            };
            if here < level {
                return Ok(Descent::TooHigh);
            }
            at_level = Some(here);
            let next = match step(node.as_ref(), here, probe).map_err(damaged)? {
                Step::Lost => return Ok(Descent::Lost),
                // The links of a level lead to the right; a page that is used again need not.
                _ if node.is_some_and(|node| *node.low < *passed) => return Ok(Descent::Lost),
                Step::Here if here == level => return Ok(Descent::Found(number, page)),
                Step::Here => {
                    at_level = Some(here - 1);
                    passed = Box::default();
                    let child = |node: Node<'_>| node.child(node.child_at(probe)?);
                    node.map(child).transpose().map_err(damaged)?
                }
                Step::Right(right) => {
                    passed = node.and_then(|node| node.high()).unwrap_or_default();
                    met.push(Post {
                        level: here + 1,
                        low: passed.clone(),
                        child: right,
                    });
                    Some(right)
                }
            };
            let Some(next) = next else {
                return Ok(Descent::Lost);
            };
            drop(page);
            number = next;
        }
    }

    /// The leaf that covers the probe, latched for reading.
    pub fn leaf(&self, probe: Probe<'_>, access: Access) -> Result<(PageNumber, PageRead)> {
        let leaf = self.locate(0, probe, access, &mut Vec::new())?;
        Ok(leaf.expect("no root is below the leaves' level"))
    }

    /// Latches the node of `level` that covers `key` for writing, in addition to what the change
    /// has latched; None if the root is below this level.
    pub fn latch(
        &self,
        change: &mut PageChange,
        level: u8,
        key: &[u8],
        met: &mut Vec<Post>,
    ) -> Result<Option<PageNumber>> {
        let probe = Probe::At(key);
        loop {
            let Some((number, page)) = self.locate(level, probe, Access::Random, met)? else {
                return Ok(None);
            };
            drop(page);
            change.write(number)?;
            let node = self.node(number, change.body(number))?;
            match step(node.as_ref(), level, probe) {
                Ok(Step::Here) => return Ok(Some(number)),
                Ok(Step::Right(_) | Step::Lost) => change.release(number),
                Err(damage) => return Err(self.damaged(number, damage)),
            }
        }
    }

    /// [`Tree::latch`] for a leaf.
    pub fn latch_leaf(
        &self,
        change: &mut PageChange,
        key: &[u8],
        met: &mut Vec<Post>,
    ) -> Result<PageNumber> {
        let leaf = self.latch(change, 0, key, met)?;
        Ok(leaf.expect("no root is below the leaves' level"))
    }

    /// Visits the rows under a key in order, until `visit` returns false.
    pub fn visit_rows(&self, key: &[u8], mut visit: impl FnMut(RowId) -> bool) -> Result<()> {
        let mut reached: Option<Box<[u8]>> = None;
        loop {
            let from = reached.as_deref().unwrap_or(key);
            let (number, page) = self.leaf(Probe::At(from), Access::Random)?;
            let damaged = |damage| self.damaged(number, damage);
            let Some(leaf) = self.node(number, &page)? else {
                continue;
            };
            for at in leaf.lower_bound(from).map_err(damaged)?..leaf.len() {
                if !leaf.begins_with(at, key).map_err(damaged)? {
                    return Ok(());
                }
                let row = row_at(&leaf, at).map_err(damaged)?;
                if !visit(row) {
                    return Ok(());
                }
            }
            let high = leaf.high().filter(|high| high.starts_with(key));
            let Some(high) = high else { return Ok(()) };
            drop(page);
            reached = Some(high);
        }
    }

    /// The row under a key, if there is only one.
    pub fn find(&self, key: &[u8]) -> Result<Lookup> {
        let mut found = Lookup::None;
        self.visit_rows(key, |row| {
            found = match found {
                Lookup::None => Lookup::One(row),
                Lookup::One(_) | Lookup::Several => Lookup::Several,
            };
            found != Lookup::Several
        })?;
        Ok(found)
    }

    /// Whether an entry with this tail is one that no snapshot needs.
    pub fn is_expired(&self, tail: Tail) -> bool {
        matches!(tail, Tail::Retired(since) if since <= self.oldest())
    }

    /// Which share of a node's entries stays in it when one is added at `at`.
    pub fn share(frame: &Frame, at: usize, len: usize) -> Share {
        match frame.high {
            None if at + 1 == len => Share::Most,
            _ => Share::Half,
        }
    }
}

/// The end of a descent.
enum Descent {
    Found(PageNumber, PageRead),
    /// the root is below the level
    TooHigh,
    /// a page was freed meanwhile
    Lost,
}

/// The row of a leaf's entry.
pub(super) fn row_at(leaf: &Node<'_>, at: usize) -> Result<RowId, Damage> {
    let [prefix, rest] = leaf.parts(at)?;
    if let Some((_, row)) = parts_of(rest) {
        return Ok(row);
    }
    let entry = [prefix, rest].concat();
    let (_, row) = parts_of(&entry).ok_or(Damage("an entry is shorter than a row's number"))?;
    Ok(row)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::search_tree::kind::BTree;

    /// A page number may lead to a page that is used again for another node.
    #[test]
    fn a_node_of_another_level_or_behind_the_probe_leads_nowhere() {
        let frame = Frame {
            kind: BTree::ID,
            level: 1,
            right: Some(PageNumber(9)),
            low: Box::from(*b"c"),
            high: Some(Box::from(*b"f")),
        };
        let (mut body, mut entries) = (vec![0; 256], Entries::default());
        entries.push(b"c", Tail::Child(PageNumber(5)));
        frame.write(&entries, 0..1, &mut body).expect("it fits");
        let node = Node::read(&body, BTree::ID).expect("whole");
        let step = |level, probe| step(node.as_ref(), level, probe).expect("whole");
        for bytes in [&b"c"[..], b"d"] {
            assert!(matches!(step(1, Probe::At(bytes)), Step::Here));
            assert!(matches!(step(0, Probe::At(bytes)), Step::Lost));
        }
        assert!(matches!(step(1, Probe::At(b"b")), Step::Lost));
        assert!(matches!(step(1, Probe::Before(Some(b"c"))), Step::Lost));
        assert!(matches!(
            step(1, Probe::At(b"f")),
            Step::Right(PageNumber(9))
        ));
        assert!(matches!(step(1, Probe::Before(Some(b"f"))), Step::Here));
        assert!(matches!(
            super::step(None, 1, Probe::At(b"d")),
            Ok(Step::Lost)
        ));
    }
}
