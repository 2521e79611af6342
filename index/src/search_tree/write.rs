//! Adding and removing entries: insertions, splits, and the posting of new nodes to their parents.

use super::entries::{Entries, Tail};
use super::kind::{Kind, Split};
use super::node::{self, Damage, Frame};
use super::tree::{Post, ROOT, Tree, row_at};
use crate::entry::entry_of;
use strandline_base::{CommitTs, Result, RowId};
use strandline_storage::pages::{Access, PageChange, PageNumber};

/// A removal tries to join its leaf if the number of entries left is a multiple of this.
const JOIN_EVERY: usize = 8;

/// A leaf whose division leaves less than one part in so many of it full is joined with a
/// neighbour. The last leaf has no high fence, so its entries are stored without a prefix.
/// Ascending keys with a long prefix in common fill it with few entries, which take little space
/// once there is a fence.
const SPARSE_PART: usize = 4;

/// What an addition has done to a node.
#[derive(Default)]
pub(super) struct Put {
    /// the new right neighbour
    pub post: Option<Post>,
    /// an entry of the node itself, if its division has left it sparse
    pub sparse: Option<Box<[u8]>>,
    /// retired entries that have gone
    pub expired: usize,
}

impl<K: Kind> Tree<K> {
    /// Adds an entry. Returns whether it is new.
    pub fn add(&self, key: &[u8], row: RowId) -> Result<bool> {
        self.check_key(key)?;
        let entry = entry_of(key, row);
        let (mut change, mut posts) = (self.begin(), Vec::new());
        let leaf = self.latch_leaf(&mut change, &entry, &mut posts)?;
        self.enter(change, leaf, &entry, posts)
    }

    /// Adds an entry to its latched leaf, or revives it; commits the change. Returns whether the
    /// entry is new.
    fn enter(
        &self,
        mut change: PageChange,
        leaf: PageNumber,
        entry: &[u8],
        mut posts: Vec<Post>,
    ) -> Result<bool> {
        let damaged = |damage| self.damaged(leaf, damage);
        let node = self.latched(&change, leaf)?;
        let (is_new, put) = match node.search(entry).map_err(damaged)? {
            Ok(at) => match node.tail(at).map_err(damaged)? {
                Tail::Retired(_) => (false, self.set_tail(&mut change, leaf, at, Tail::Live)?),
                Tail::Live | Tail::Child(_) => {
                    drop(change);
                    self.post_all(posts);
                    return Ok(false);
                }
            },
            Err(at) => (true, self.put(&mut change, leaf, at, entry, Tail::Live)?),
        };
        change.commit()?;
        self.count.note(usize::from(is_new), put.expired);
        posts.extend(put.post);
        self.post_all(posts);
        if let Some(sparse) = put.sparse {
            self.try_join(0, &sparse);
        }
        Ok(is_new)
    }

    /// Adds an entry, and appends to `others` the other rows under its key. Returns whether the
    /// entry is new.
    pub fn insert_seeing(&self, key: &[u8], row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.check_key(key)?;
        let _others_wait = self.stripe(key).lock();
        let (mut seen, mut posts, entry) = (Vec::new(), Vec::new(), entry_of(key, row));
        let mut change = self.begin();
        let leaf = self.latch_leaf(&mut change, key, &mut posts)?;
        let node = self.latched(&change, leaf)?;
        let is_new = if node.ends_after(key) {
            let damaged = |damage| self.damaged(leaf, damage);
            for at in node.lower_bound(key).map_err(damaged)?..node.len() {
                if !node.begins_with(at, key).map_err(damaged)? {
                    break;
                }
                seen.push(row_at(&node, at).map_err(damaged)?);
            }
            self.enter(change, leaf, &entry, posts)?
        } else {
            // The key has entries in several leaves. They are read one by one: other insertions of
            // the key wait for its lock.
            drop(change);
            self.visit_rows(key, |row| {
                seen.push(row);
                true
            })?;
            self.add(key, row)?
        };
        others.extend(seen.into_iter().filter(|other| *other != row));
        Ok(is_new)
    }

    /// Removes an entry if no snapshot needs it, and otherwise notes since when none will.
    pub fn retire(&self, key: &[u8], row: RowId, since: CommitTs) -> Result<()> {
        let (entry, is_expired) = (entry_of(key, row), since <= self.oldest());
        let (mut change, mut posts) = (self.begin(), Vec::new());
        let leaf = self.latch_leaf(&mut change, &entry, &mut posts)?;
        let damaged = |damage| self.damaged(leaf, damage);
        let node = self.latched(&change, leaf)?;
        let Ok(at) = node.search(&entry).map_err(damaged)? else {
            return Ok(());
        };
        if since != CommitTs::ZERO && !is_expired {
            let put = self.set_tail(&mut change, leaf, at, Tail::Retired(since))?;
            change.commit()?;
            self.count.note(0, put.expired);
            posts.extend(put.post);
            self.post_all(posts);
            return Ok(());
        }
        node::remove(self.node_mut(&mut change, leaf), K::ID, at).map_err(damaged)?;
        let node = self.latched(&change, leaf)?;
        let (left, size) = (node.len(), node.size());
        change.commit()?;
        self.count.note(0, 1);
        self.post_all(posts);
        if left == 0 || left.is_multiple_of(JOIN_EVERY) && self.is_underfull(size) {
            self.try_join(0, &entry);
        }
        Ok(())
    }

    /// Gives an entry of a latched leaf another tail.
    pub fn set_tail(
        &self,
        change: &mut PageChange,
        leaf: PageNumber,
        at: usize,
        tail: Tail,
    ) -> Result<Put> {
        let damaged = |damage| self.damaged(leaf, damage);
        let entry = self.latched(change, leaf)?.parts(at).map_err(damaged)?;
        let entry = entry.concat();
        node::remove(self.node_mut(change, leaf), K::ID, at).map_err(damaged)?;
        self.put(change, leaf, at, &entry, tail)
    }

    /// Adds an entry to a latched node. If its space does not suffice, expired entries go, and the
    /// node is written anew or divided. The caller commits the change, and then posts the new node.
    pub fn put(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        at: usize,
        entry: &[u8],
        tail: Tail,
    ) -> Result<Put> {
        let damaged = |damage| self.damaged(number, damage);
        let body = self.node_mut(change, number);
        if node::insert(body, K::ID, at, entry, tail).map_err(damaged)? {
            return Ok(Put::default());
        }
        let node = self.latched(change, number)?;
        let (frame, old) = (node.frame(K::ID), node.entries().map_err(damaged)?);
        let (mut all, mut place) = (Entries::default(), None);
        for (no, (bytes, tail_of)) in old.iter().enumerate() {
            if no == at {
                place = Some(all.len());
                all.push(entry, tail);
            }
            if !self.is_expired(tail_of) {
                all.push(bytes, tail_of);
            }
        }
        let place = place.unwrap_or(all.len());
        if at >= old.len() {
            all.push(entry, tail);
        }
        let expired = old.len() + 1 - all.len();
        if frame.size(&all, 0..all.len()) <= self.node_bytes() {
            self.write(change, number, &frame, &all, 0..all.len())?;
            return Ok(Put {
                expired,
                ..Put::default()
            });
        }
        let put = self.split(change, number, &frame, &all, place)?;
        Ok(Put { expired, ..put })
    }

    /// Divides a latched node, which is to have these entries, of which the one at `added` is new.
    fn split(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        frame: &Frame,
        all: &Entries,
        added: usize,
    ) -> Result<Put> {
        let split = self.split_place(frame, all, added);
        let too_long = Damage("no division of a full node's entries fits into two nodes");
        let Split { at, separator } = split.ok_or_else(|| self.damaged(number, too_long))?;
        let (mut left, right) = frame.divided(&separator);
        let right_number = change.allocate()?;
        self.write(change, right_number, &right, all, at..all.len())?;
        left.right = Some(right_number);
        if number != ROOT {
            self.write(change, number, &left, all, 0..at)?;
            let is_sparse = left.size(all, 0..at) < self.node_bytes() / SPARSE_PART;
            return Ok(Put {
                post: Some(Post {
                    level: frame.level + 1,
                    low: separator,
                    child: right_number,
                }),
                sparse: is_sparse.then(|| all.get(0).into()),
                expired: 0,
            });
        }
        let left_number = change.allocate()?;
        self.write(change, left_number, &left, all, 0..at)?;
        let children = [(Box::default(), left_number), (separator, right_number)];
        self.raise_root(change, frame, &children)?;
        Ok(Put::default())
    }

    /// Makes these nodes, which have taken over all entries of the root, its children.
    pub fn raise_root(
        &self,
        change: &mut PageChange,
        frame: &Frame,
        children: &[(Box<[u8]>, PageNumber)],
    ) -> Result<()> {
        let mut entries = Entries::default();
        for (low, child) in children {
            entries.push(low, Tail::Child(*child));
        }
        let frame = Frame {
            level: frame.level + 1,
            ..frame.clone()
        };
        self.write(change, ROOT, &frame, &entries, 0..entries.len())
    }

    /// Where a node is divided.
    fn split_place(&self, frame: &Frame, all: &Entries, added: usize) -> Option<Split> {
        let prefix_len = frame.prefix_len();
        let size = |at: usize| {
            let rest = all.get(at).len().saturating_sub(prefix_len);
            rest + all.tail(at).size() + node::ENTRY_OVERHEAD
        };
        // An inner node's first entry is its low fence, which is a fence of the level below.
        let separator = |split: &Split| match frame.level {
            0 => split.separator.clone(),
            _ => all.get(split.at).into(),
        };
        let fits = |split: &Split| {
            let (left, right) = frame.divided(&separator(split));
            left.size(all, 0..split.at) <= self.node_bytes()
                && right.size(all, split.at..all.len()) <= self.node_bytes()
        };
        let share = Self::share(frame, added, all.len());
        let split = K::pick_split(all, share, &size, &fits)?;
        Some(Split {
            separator: separator(&split),
            ..split
        })
    }

    /// Posts new nodes to their parents. The caller holds no latch. Posting is not part of the
    /// operation that made the node: a node that could not be posted is found along its left
    /// neighbour's right link, and the next writer that goes there posts it.
    pub fn post_all(&self, posts: Vec<Post>) {
        for post in posts {
            let mut next = Some(post);
            while let Some(post) = next {
                next = self.post(&post).unwrap_or_default();
            }
        }
    }

    fn post(&self, post: &Post) -> Result<Option<Post>> {
        let mut change = self.begin();
        let parent = self.latch(&mut change, post.level, &post.low, &mut Vec::new())?;
        let Some(parent) = parent else {
            return Ok(None);
        };
        let damaged = |damage| self.damaged(parent, damage);
        let search = self.latched(&change, parent)?.search(&post.low);
        let Err(at) = search.map_err(damaged)? else {
            return Ok(None);
        };
        let page = self.store.read(self.file, post.child, Access::Random)?;
        let child = self.node(post.child, &page)?;
        let begins = child.filter(|child| child.level + 1 == post.level && *child.low == *post.low);
        if begins.is_none() {
            return Ok(None);
        }
        drop(page);
        let tail = Tail::Child(post.child);
        let put = self.put(&mut change, parent, at, &post.low, tail)?;
        change.commit()?;
        Ok(put.post)
    }
}
