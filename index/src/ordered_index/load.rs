//! Adds many sorted entries, leaf by leaf.
//!
//! A leaf gets all entries of a sorted run that it covers under one latch. If they are few compared
//! with the leaf's own, they are inserted one by one. Otherwise both are merged into full leaves
//! that replace the leaf, at most [`MERGE_ENTRIES`] at a time. An empty tree is thus built from its
//! leaves up, while other threads may change it.

use super::OrderedIndex;
use super::entries::{Entries, ROW_BYTES, common_len, row_bytes, row_of, separator};
use super::node::{Node, NodeId};
use super::tree::Tree;
use crate::sorted_load::LoadTarget;
use strandline_base::sync::RwLockWriteGuard;
use strandline_base::{Result, RowId, Value};

/// The maximum number of entries that are merged under one latch: about 200 us.
const MERGE_ENTRIES: usize = 4096;
/// Entries are inserted one by one if the leaf has more than this many times as many.
const INSERT_RATIO: usize = 4;

impl LoadTarget for OrderedIndex {
    fn put_entry(&self, key: &[Value], row: RowId, bytes: &mut Vec<u8>) -> Result<()> {
        let row = row_bytes(row)?;
        self.keys.encode_onto(key, bytes);
        bytes.extend(row);
        Ok(())
    }

    fn enter(&self, entries: &[&[u8]], mut met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        let mut rest = entries;
        while !rest.is_empty() {
            let entered = self.tree.enter(rest, met.as_deref_mut());
            rest = &rest[entered..];
        }
        Ok(())
    }

    fn parts<'e>(&self, entry: &'e [u8]) -> Option<(&'e [u8], RowId)> {
        let (key, row) = entry.split_last_chunk::<ROW_BYTES>()?;
        Some((key, row_of(*row)))
    }

    fn account(&self, before: usize, after: usize) {
        self.tree.account(before, after);
    }
}

impl Tree {
    /// Adds the first of these entries, which are sorted and distinct, to the leaf that covers
    /// them; perhaps not all that the leaf covers. Returns their number. Appends to `met`
    /// those that may not be alone under their key, whether they were there or not.
    fn enter(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> usize {
        let (id, mut leaf) = self.leaf_mut(entries[0]);
        let entries = &entries[..entries.len().min(MERGE_ENTRIES)];
        let covered = leaf.high.as_ref().map_or(entries.len(), |high| {
            entries.partition_point(|entry| **entry < **high)
        });
        let covered = &entries[..covered];
        if covered.len() * INSERT_RATIO < leaf.entries.len() {
            return self.enter_few(id, leaf, covered, met);
        }
        let (mut present, mut ends) = (Vec::new(), vec![0]);
        for at in 0..leaf.entries.len() {
            leaf.entries.copy(at, &mut present);
            ends.push(present.len());
        }
        let present: Vec<_> = ends
            .windows(2)
            .map(|end| &present[end[0]..end[1]])
            .collect();
        let all = merged(&present, covered);
        if let Some(met) = met {
            let is_met = |at: usize| {
                let before = at.checked_sub(1).map(|before| all[before]);
                is_met(&leaf, all[at], before, all.get(at + 1).copied())
            };
            let is_own = |at: &usize| covered.binary_search(&all[*at]).is_ok();
            let found = (0..all.len()).filter(|at| is_met(*at)).filter(is_own);
            met.extend(found.map(|at| all[at].to_vec()));
        }
        let before = leaf.memory_bytes();
        let rights = pack(&mut leaf, &all, self.node_bytes());
        let posts = self.link(&mut leaf, rights);
        self.account(before, leaf.memory_bytes());
        self.count(id, all.len() - present.len(), 0);
        drop(leaf);
        self.post_all(1, posts);
        covered.len()
    }

    /// [`Tree::enter`] one by one, up to the first split of the leaf.
    fn enter_few(
        &self,
        id: NodeId,
        mut leaf: RwLockWriteGuard<'_, Node>,
        entries: &[&[u8]],
        mut met: Option<&mut Vec<Vec<u8>>>,
    ) -> usize {
        for (no, entry) in entries.iter().enumerate() {
            let found = leaf.entries.search(entry);
            let (Ok(at) | Err(at)) = found;
            if let Some(met) = &mut met {
                let before = at.checked_sub(1).map(|before| leaf.entries.get(before));
                let behind = at + usize::from(found.is_ok());
                let behind = (behind < leaf.entries.len()).then(|| leaf.entries.get(behind));
                if is_met(&leaf, entry, before.as_deref(), behind.as_deref()) {
                    met.push(entry.to_vec());
                }
            }
            if found.is_ok() {
                continue;
            }
            let posts = self.put(id, &mut leaf, at, entry);
            if !posts.is_empty() {
                drop(leaf);
                self.post_all(1, posts);
                return no + 1;
            }
        }
        entries.len()
    }
}

/// Whether the neighbours of a leaf's entry allow another entry under the same key.
fn is_met(leaf: &Node, entry: &[u8], before: Option<&[u8]>, behind: Option<&[u8]>) -> bool {
    let key = &entry[..entry.len() - ROW_BYTES];
    before.unwrap_or(&leaf.low).starts_with(key)
        || behind
            .or(leaf.high.as_deref())
            .is_some_and(|behind| behind.starts_with(key))
}

/// Merges two sorted lists; each entry occurs once.
fn merged<'a>(left: &[&'a [u8]], right: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut all = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let order = a.cmp(b);
        all.push(if order.is_le() { **a } else { **b });
        if order.is_le() {
            left.next();
        }
        if order.is_ge() {
            right.next();
        }
    }
    all.extend(left);
    all.extend(right);
    all
}

/// Bytes in use of a node that has these entries.
fn packed_size(entries: &[&[u8]]) -> usize {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return 0;
    };
    let bytes: usize = entries.iter().map(|entry| entry.len() + 2).sum();
    bytes - common_len(first, last) * (entries.len() - 1)
}

/// Fills a leaf with these entries up to nine tenths. The rest goes into the returned leaves, which
/// belong to its right.
fn pack(leaf: &mut Node, all: &[&[u8]], limit: usize) -> Vec<Node> {
    let (mut cuts, mut start, mut bytes) = (vec![0], 0, 0);
    for (at, entry) in all.iter().enumerate() {
        bytes += entry.len() + 2;
        let size = bytes - common_len(all[start], entry) * (at - start);
        if size > limit / 10 * 9 && at > start {
            cuts.push(at);
            (start, bytes) = (at, entry.len() + 2);
        }
    }
    // Balance the last two leaves if the last would be much smaller.
    if let [.., before, last] = cuts.as_mut_slice()
        && all.len() - *last < (*last - *before) / 3
    {
        let middle = usize::midpoint(*before, all.len());
        if packed_size(&all[middle..]) <= limit {
            *last = middle;
        }
    }
    cuts.push(all.len());
    let mut high = leaf.high.take();
    let mut rights = Vec::with_capacity(cuts.len() - 2);
    for cut in cuts.windows(2).skip(1).rev() {
        let low = separator(all[cut[0] - 1], all[cut[0]]);
        let entries = Entries::of(&all[cut[0]..cut[1]]);
        rights.push(Node::between(0, low.clone(), high.replace(low), entries));
    }
    rights.reverse();
    leaf.entries = Entries::of(&all[..cuts[1]]);
    leaf.high = high;
    rights
}
