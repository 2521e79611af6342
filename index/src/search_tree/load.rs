//! Adds many sorted entries, leaf by leaf.
//!
//! A leaf and the sorted entries that it covers become full leaves, nine tenths each, of which the
//! first stays on the leaf's page: about [`CHANGE_PAGES`] pages in one change. If few entries
//! belong to a leaf they are added to it one by one, in one change. An empty tree is thus built
//! from left to right, its pages are allocated in order, and each is written to the log once, as
//! an image; the last one of a change is filled up by the next change.
//!
//! Differences from the literature: there is no separate builder from the leaves up that must have
//! the tree for itself. A load runs beside readers and writers.

use super::entries::{Entries, Tail};
use super::kind::Kind;
use super::node::{self, Frame};
use super::tree::{Post, ROOT, Tree};
use crate::entry::key_of;
use strandline_base::Result;
use strandline_storage::pages::{PageChange, PageNumber};

/// The leaves that one change fills.
const CHANGE_PAGES: usize = 16;
/// The leaves that are filled while the root is a leaf: their fences must fit into the root.
const FIRST_PAGES: usize = 2;
/// Entries are added one by one if the leaf has more than this many times as many.
const INSERT_RATIO: usize = 4;

impl<K: Kind> Tree<K> {
    /// Adds entries, which are sorted and distinct. Appends to `met` those that may not be
    /// alone under their key, whether they were there or not.
    pub fn enter_all(&self, entries: &[&[u8]], mut met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        let mut rest = entries;
        while !rest.is_empty() {
            let entered = self.enter_some(rest, met.as_deref_mut())?;
            rest = rest.get(entered..).unwrap_or_default();
        }
        Ok(())
    }

    /// Adds the first of these entries, which are sorted and distinct, to the leaf that covers
    /// them; perhaps not all that the leaf covers. Returns their number. `met` as for
    /// [`Tree::enter_all`].
    fn enter_some(&self, entries: &[&[u8]], met: Option<&mut Vec<Vec<u8>>>) -> Result<usize> {
        let Some(first) = entries.first() else {
            return Ok(0);
        };
        let (mut change, mut posts) = (self.begin(), Vec::new());
        let number = self.latch_leaf(&mut change, first, &mut posts)?;
        let leaf = self.latched(&change, number)?;
        let high = leaf.high();
        let covered = high.map_or(entries.len(), |high| {
            entries.partition_point(|entry| **entry < *high)
        });
        let covered = entries.get(..covered).unwrap_or(entries);
        let (entered, new, mut found) = if covered.len() * INSERT_RATIO < leaf.len() {
            self.enter_few(&mut change, number, covered, &mut posts)?
        } else {
            self.enter_many(&mut change, number, covered, &mut posts)?
        };
        change.commit()?;
        self.count.note(new.0, new.1);
        self.post_all(posts);
        if let Some(met) = met {
            met.append(&mut found);
        }
        Ok(entered)
    }

    /// [`Tree::enter_some`] one by one, up to the first split of the leaf. Returns the number of
    /// entries, of new ones and of expired ones, and those that may not be alone under their key.
    fn enter_few(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        entries: &[&[u8]],
        posts: &mut Vec<Post>,
    ) -> Result<Entered> {
        let damaged = |damage| self.damaged(number, damage);
        let (mut added, mut expired, mut met) = (0, 0, Vec::new());
        for (no, entry) in entries.iter().enumerate() {
            let leaf = self.latched(change, number)?;
            let found = leaf.search(entry).map_err(damaged)?;
            let (Ok(at) | Err(at)) = found;
            let key = key_of(entry);
            let behind = at + usize::from(found.is_ok());
            let neighbours = [at.checked_sub(1), (behind < leaf.len()).then_some(behind)];
            let mut is_met = [leaf.low, &leaf.high().unwrap_or_default()]
                .iter()
                .any(|fence| fence.starts_with(key));
            for at in neighbours.into_iter().flatten() {
                is_met |= leaf.begins_with(at, key).map_err(damaged)?;
            }
            if is_met {
                met.push(entry.to_vec());
            }
            let put = match found {
                Ok(at) => match leaf.tail(at).map_err(damaged)? {
                    Tail::Retired(_) => self.set_tail(change, number, at, Tail::Live)?,
                    Tail::Live | Tail::Child(_) => continue,
                },
                Err(at) => {
                    added += 1;
                    self.put(change, number, at, entry, Tail::Live)?
                }
            };
            expired += put.expired;
            if put.post.is_some() || number == ROOT && self.latched(change, number)?.level > 0 {
                posts.extend(put.post);
                return Ok((no + 1, (added, expired), met));
            }
        }
        Ok((entries.len(), (added, expired), met))
    }

    /// [`Tree::enter_some`] by writing the leaf and its new right neighbours anew.
    fn enter_many(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        entries: &[&[u8]],
        posts: &mut Vec<Post>,
    ) -> Result<Entered> {
        let leaf = self.latched(change, number)?;
        let frame = leaf.frame(K::ID);
        let old = leaf.entries().map_err(|d| self.damaged(number, d))?;
        let pages = if number == ROOT {
            FIRST_PAGES
        } else {
            CHANGE_PAGES
        };
        let budget = pages * (self.node_bytes() / 10 * 9);
        let (mut size, mut entered) = (frame.size(&old, 0..old.len()), 0);
        for entry in entries {
            size += entry.len() + node::ENTRY_OVERHEAD;
            if size > budget && entered > 0 {
                break;
            }
            entered += 1;
        }
        let entries = entries.get(..entered).unwrap_or(entries);
        let (all, is_new) = merged(&old, entries);
        let fences = [&*frame.low, frame.high.as_deref().unwrap_or_default()];
        let is_met = |at: usize| {
            let key = key_of(all.get(at));
            let before = at
                .checked_sub(1)
                .map_or(fences[0], |before| all.get(before));
            let behind = match at + 1 < all.len() {
                true => all.get(at + 1),
                false => fences[1],
            };
            before.starts_with(key) || behind.starts_with(key)
        };
        let is_own = |at: &usize| entries.binary_search(&all.get(*at)).is_ok();
        let met = (0..all.len()).filter(|at| is_met(*at)).filter(is_own);
        let met = met.map(|at| all.get(at).to_vec()).collect();
        let added = is_new.iter().filter(|is_new| **is_new).count();
        self.write_leaves(change, number, &frame, &all, posts)?;
        Ok((entered, (added, 0), met))
    }

    /// Writes entries into a latched leaf and as many new right neighbours as they need.
    fn write_leaves(
        &self,
        change: &mut PageChange,
        number: PageNumber,
        frame: &Frame,
        all: &Entries,
        posts: &mut Vec<Post>,
    ) -> Result<()> {
        let mut parts = self.pack(frame, all);
        if let [(only, places)] = parts.as_slice() {
            return self.write(change, number, only, all, places.clone());
        }
        let mut numbers = Vec::with_capacity(parts.len());
        for no in 0..parts.len() {
            numbers.push(match no {
                0 if number != ROOT => number,
                _ => change.allocate()?,
            });
        }
        let mut children = Vec::with_capacity(parts.len());
        for (no, (part, places)) in parts.iter_mut().enumerate() {
            if let Some(right) = numbers.get(no + 1) {
                part.right = Some(*right);
            }
            let Some(own) = numbers.get(no).copied() else {
                continue;
            };
            self.write(change, own, part, all, places.clone())?;
            children.push((part.low.clone(), own));
        }
        if number == ROOT {
            return self.raise_root(change, frame, &children);
        }
        let new = children.into_iter().skip(1);
        posts.extend(new.map(|(low, child)| Post {
            level: frame.level + 1,
            low,
            child,
        }));
        Ok(())
    }

    /// Divides entries into nodes that are up to nine tenths full.
    fn pack(&self, frame: &Frame, all: &Entries) -> Vec<(Frame, std::ops::Range<usize>)> {
        let limit = self.node_bytes() / 10 * 9;
        let (mut parts, mut rest, mut start) = (Vec::new(), frame.clone(), 0);
        loop {
            let left_at = |end: usize| {
                let separator = K::separator(all.get(end - 1), all.get(end));
                rest.divided(&separator)
            };
            let fits = |end: usize| match end < all.len() {
                true => left_at(end).0.size(all, start..end) <= limit,
                false => rest.size(all, start..end) <= limit,
            };
            // The greatest number of entries that fits: first by doubling, then by halving.
            let (mut low, mut high) = (start + 1, start + 2);
            while high <= all.len() && fits(high) {
                (low, high) = (high, start + 2 * (high - start));
            }
            high = high.min(all.len() + 1);
            while low + 1 < high {
                let middle = usize::midpoint(low, high);
                if fits(middle) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            let end = low.min(all.len());
            if end >= all.len() {
                parts.push((rest, start..all.len()));
                return parts;
            }
            let (left, right) = left_at(end);
            parts.push((left, start..end));
            (rest, start) = (right, end);
        }
    }
}

/// The numbers of entries, of new ones and expired ones; entries that may not be alone.
type Entered = (usize, (usize, usize), Vec<Vec<u8>>);

/// A leaf's entries and others, sorted and distinct; with each whether it is new. An entry that was
/// retired is live again if it is among the others.
fn merged(old: &Entries, entries: &[&[u8]]) -> (Entries, Vec<bool>) {
    let (mut all, mut is_new) = (Entries::default(), Vec::new());
    let (mut old, mut new) = (old.iter().peekable(), entries.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (all, is_new),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((old, _)), Some(new)) => (*old).cmp(**new),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        match (old, new) {
            (Some((bytes, tail)), None) => all.push(bytes, tail),
            (_, Some(bytes)) => all.push(bytes, Tail::Live),
            (None, None) => {}
        }
        is_new.push(order.is_gt());
    }
}
