//! Joins of nodes with few entries, the lowering of the root, and the sweep of all entries.
//!
//! A leaf that a removal leaves less than half full is joined with a neighbour under the same
//! parent, if the two together are at most seven eighths full; an empty leaf is always joined if
//! the joint node fits. So is a leaf that a division leaves less than a quarter full, as the last
//! leaf of ascending keys with a long prefix in common is: it has no high fence, and stores no
//! prefix. The left node takes over the right one's range and entries, the parent removes the right
//! one, whose page is marked as no node: one change of three pages. An inner node that has lost a
//! child is joined likewise. A node that is its parent's only child waits until the parent has been
//! joined. A root with one child takes over the child's content.
//!
//! A writer that has read the number of the right node's page before must see that it is no node
//! any more. The page store drops changes of pages that it frees. So the first change marks the
//! page, and a second one frees it. A crash between the two leaves a page that is not used again.
//!
//! The parent is latched first, then the left node, then the right one. The nodes are read before
//! the parent is latched, so that they are in memory.

use super::entries::Entries;
use super::kind::{Kind, Predicate};
use super::node::{self, Damage, Frame, Probe};
use super::tree::{ROOT, Tree};
use crate::access_method::KeyBytes;
use crate::entry::parts_of;
use strandline_base::{Result, RowId};
use strandline_storage::pages::{Access, PageChange, PageNumber};

impl<K: Kind> Tree<K> {
    /// Whether a node of this size is to be joined.
    pub fn is_underfull(&self, size: usize) -> bool {
        size < self.node_bytes() / 2
    }

    /// Joins the node of `level` that covers `key` with a neighbour if they are small. The caller
    /// holds no latch. A join that fails has changed nothing, and the next removal tries again.
    pub fn try_join(&self, level: u8, key: &[u8]) {
        while matches!(self.join(level, key), Ok(true)) {}
    }

    /// [`Tree::try_join`]; returns whether nodes were joined.
    fn join(&self, level: u8, key: &[u8]) -> Result<bool> {
        self.read_neighbours(level, key)?;
        let mut change = self.begin();
        let parent_number = self.latch(&mut change, level + 1, key, &mut Vec::new())?;
        let Some(parent_number) = parent_number else {
            return Ok(false);
        };
        let damaged = |damage| self.damaged(parent_number, damage);
        let parent = self.latched(&change, parent_number)?;
        if parent.len() == 1 && parent_number == ROOT {
            return self.lower_root(change);
        }
        if parent.len() == 1 {
            drop(change);
            return Ok(self.join(level + 1, key)? && self.join(level, key)?);
        }
        let at = parent.child_at(Probe::At(key)).map_err(damaged)?;
        let pairs = [at.checked_sub(1), (at + 1 < parent.len()).then_some(at)];
        for left in pairs.into_iter().flatten() {
            let Some(unused) = self.join_children(&mut change, parent_number, left)? else {
                continue;
            };
            let parent = self.latched(&change, parent_number)?;
            let (size, children) = (parent.size(), parent.len());
            change.commit()?;
            self.free(unused);
            if parent_number == ROOT && children == 1 {
                self.try_join(level, key);
            } else if parent_number != ROOT && self.is_underfull(size) {
                self.try_join(level + 1, key);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads the node of `level` that covers `key` and its neighbours into memory.
    fn read_neighbours(&self, level: u8, key: &[u8]) -> Result<()> {
        let parent = self.locate(level + 1, Probe::At(key), Access::Random, &mut Vec::new())?;
        let Some((number, page)) = parent else {
            return Ok(());
        };
        let damaged = |damage| self.damaged(number, damage);
        let mut children = Vec::new();
        if let Some(parent) = self.node(number, &page)? {
            let at = parent.child_at(Probe::At(key)).map_err(damaged)?;
            for at in at.saturating_sub(1)..(at + 2).min(parent.len()) {
                children.push(parent.child(at).map_err(damaged)?);
            }
        }
        drop(page);
        for child in children {
            // One that has been freed meanwhile cannot be read.
            let _ = self.store.read(self.file, child, Access::Random);
        }
        Ok(())
    }

    /// Frees the page of a node that is no more.
    fn free(&self, unused: PageNumber) {
        let mut change = self.begin();
        // A page that could not be freed is one that is not used again.
        let _ = change.free(unused).and_then(|()| change.commit());
    }

    /// Joins two children of a latched node, if they are small, and returns the page that the right
    /// one has left. Otherwise it releases them.
    fn join_children(
        &self,
        change: &mut PageChange,
        parent: PageNumber,
        left_at: usize,
    ) -> Result<Option<PageNumber>> {
        let node = self.latched(change, parent)?;
        let damaged = |damage| self.damaged(parent, damage);
        let left_number = node.child(left_at).map_err(damaged)?;
        let right_number = node.child(left_at + 1).map_err(damaged)?;
        change.write(left_number)?;
        // A node between the two has not been posted yet.
        if self.latched(change, left_number)?.right != Some(right_number) {
            change.release(left_number);
            return Ok(None);
        }
        change.write(right_number)?;
        let Some((frame, entries)) = self.joint(change, left_number, right_number)? else {
            change.release(right_number);
            change.release(left_number);
            return Ok(None);
        };
        self.write(change, left_number, &frame, &entries, 0..entries.len())?;
        node::clear(self.node_mut(change, right_number));
        node::remove(self.node_mut(change, parent), K::ID, left_at + 1).map_err(damaged)?;
        Ok(Some(right_number))
    }

    /// The node that two latched neighbours are to become; None if they are not small.
    fn joint(
        &self,
        change: &PageChange,
        left: PageNumber,
        right: PageNumber,
    ) -> Result<Option<(Frame, Entries)>> {
        let (left_node, right_node) = (self.latched(change, left)?, self.latched(change, right)?);
        let (left_high, right_high) = (left_node.high(), right_node.high());
        if left_high.as_deref() != Some(right_node.low) || left_node.level != right_node.level {
            let damage = Damage("the right neighbour does not begin at the high fence");
            return Err(self.damaged(left, damage));
        }
        let of_left = Predicate {
            low: left_node.low,
            high: left_high.as_deref(),
        };
        let of_right = Predicate {
            low: right_node.low,
            high: right_high.as_deref(),
        };
        let joint = K::union(of_left, of_right);
        let frame = Frame {
            kind: K::ID,
            level: left_node.level,
            right: right_node.right,
            low: joint.low.into(),
            high: joint.high.map(Box::from),
        };
        let is_one_empty = left_node.len() == 0 || right_node.len() == 0;
        let limit = if is_one_empty {
            self.node_bytes()
        } else {
            self.node_bytes() / 8 * 7
        };
        if left_node.size() + right_node.size() > limit + self.node_bytes() / 4 {
            return Ok(None);
        }
        let mut entries = left_node.entries().map_err(|d| self.damaged(left, d))?;
        let copied = right_node.copy_onto(0..right_node.len(), &mut entries);
        copied.map_err(|damage| self.damaged(right, damage))?;
        let size = frame.size(&entries, 0..entries.len());
        Ok((size <= limit).then_some((frame, entries)))
    }

    /// Moves the content of the latched root's only child into the root, as long as there is only
    /// one child.
    fn lower_root(&self, mut change: PageChange) -> Result<bool> {
        let damaged = |damage| self.damaged(ROOT, damage);
        let child = self.latched(&change, ROOT)?.child(0).map_err(damaged)?;
        change.write(child)?;
        let node = self.latched(&change, child)?;
        // The child has a right neighbour that has not been posted yet.
        if !node.is_last() {
            return Ok(false);
        }
        let content = change.body(child).to_vec();
        let root = self.node_mut(&mut change, ROOT);
        let content = content.get(..root.len()).unwrap_or_default();
        root.copy_from_slice(content);
        node::clear(self.node_mut(&mut change, child));
        let root = self.latched(&change, ROOT)?;
        let is_next = root.level > 0 && root.len() == 1;
        let level = root.level;
        change.commit()?;
        self.free(child);
        if is_next {
            self.try_join(level - 1, &[]);
        }
        Ok(true)
    }

    /// Removes every entry for which `keep` returns false, and every expired one.
    pub fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let mut reached = Some(Box::default());
        while let Some(from) = reached {
            let (mut change, mut posts) = (self.begin(), Vec::new());
            let number = self.latch_leaf(&mut change, &from, &mut posts)?;
            let damaged = |damage| self.damaged(number, damage);
            let leaf = self.latched(&change, number)?;
            let mut gone = Vec::new();
            for at in 0..leaf.len() {
                let entry = leaf.parts(at).map_err(damaged)?.concat();
                let parts = parts_of(&entry);
                let (key, row) = parts.ok_or_else(|| damaged(SHORT_ENTRY))?;
                let is_expired = self.is_expired(leaf.tail(at).map_err(damaged)?);
                if is_expired || !keep(&KeyBytes::encoded(key), row) {
                    gone.push(at);
                }
            }
            reached = leaf.high();
            if gone.is_empty() {
                drop(change);
                self.post_all(posts);
                continue;
            }
            let body = self.node_mut(&mut change, number);
            for at in gone.iter().rev() {
                node::remove(body, K::ID, *at).map_err(damaged)?;
            }
            let leaf = self.latched(&change, number)?;
            let is_due = leaf.len() == 0 || self.is_underfull(leaf.size());
            change.commit()?;
            self.count.note(0, gone.len());
            self.post_all(posts);
            if is_due {
                self.try_join(0, &from);
            }
        }
        Ok(())
    }
}

/// An entry without a row's number.
pub(super) const SHORT_ENTRY: Damage = Damage("an entry is shorter than a row's number");
