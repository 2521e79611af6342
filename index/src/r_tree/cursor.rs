//! Searches: cursors over the entries that fulfil a condition, and over all entries by their
//! distance from a point [Hjaltason and Samet, *Distance Browsing*, TODS 1999].
//!
//! A cursor copies a node and holds no latch between two calls. Its memory: the nodes that it is
//! still to go to, and the entries of one leaf; a cursor by distance has the entries of all leaves
//! that it has read and not returned yet.
//!
//! The leaves that a cursor by condition goes to are read ahead from its second leaf on. The window
//! doubles, so that a cursor that is given up early has read few leaves in vain.
//!
//! A cursor by distance takes what is nearest from a heap: a node by the least distance that an
//! entry below it can have, or an entry. An entry that is nearer than the node it was found in was
//! added meanwhile; it is left out, so that distances ascend.

use super::node::Node;
use super::tree::{Search, Tree, Visit};
use crate::access_method::{Cursor, KeyBytes, NearestCursor, Neighbour};
use crate::rect::{Rect, SpatialQuery};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use strandline_base::{Result, RowId};
use strandline_storage::pages::{Access, PageNumber};

/// Leaves of the first step.
const WINDOW_MIN: usize = 2;
/// Leaves of a step at most: 1 MiB.
const WINDOW_MAX: usize = 128;

/// A cursor over the entries that fulfil a condition.
pub(super) struct ConditionCursor<'a> {
    tree: &'a Tree,
    search: Search<&'a Tree>,
    query: SpatialQuery,
    visits: Vec<Visit>,
    /// entries that have not been returned yet
    found: Vec<(Rect, RowId)>,
    access: Access,
    /// leaves read ahead that the cursor has not come to
    ahead: usize,
    /// leaves of the next step
    window: usize,
}

impl<'a> ConditionCursor<'a> {
    /// A cursor over the entries that fulfil `query`.
    pub fn new(tree: &'a Tree, query: SpatialQuery) -> Self {
        Self {
            tree,
            search: Search::new(tree),
            query,
            visits: vec![Visit::ROOT],
            found: Vec::new(),
            access: Access::Random,
            ahead: 0,
            window: WINDOW_MIN,
        }
    }

    /// The next entry.
    fn next_entry(&mut self) -> Result<Option<(Rect, RowId)>> {
        while self.found.is_empty() {
            let Some(visit) = self.visits.pop() else {
                return Ok(None);
            };
            let access = match visit.is_leaf() {
                true => self.access,
                false => Access::Random,
            };
            let (node, right) = self.search.visit(&visit, access)?;
            self.visits.extend(right);
            if node.level == 0 {
                self.take_leaf(&node);
                continue;
            }
            let query = &self.query;
            let may_hold = node
                .children()
                .filter(|(bound, _)| query.may_hold_within(&bound.rect));
            let children = may_hold.map(|(_, page)| Tree::child_of(&node, page));
            self.visits.extend(children);
        }
        Ok(self.found.pop())
    }

    fn take_leaf(&mut self, leaf: &Node) {
        let entries = leaf.entries.iter().map(|entry| entry.bound);
        let wanted = entries.filter(|bound| self.query.holds(&bound.rect));
        self.found
            .extend(wanted.map(|bound| (bound.rect, bound.row())));
        self.access = Access::Sequential;
        self.ahead = self.ahead.saturating_sub(1);
        if self.ahead == 0 {
            let next = self.visits.iter().rev();
            let leaves = next.take_while(|visit| visit.is_leaf()).take(self.window);
            let pages: Vec<PageNumber> = leaves.map(|visit| visit.page).collect();
            self.ahead = self.tree.store.prefetch(self.tree.file, &pages);
            self.window = (2 * self.window).min(WINDOW_MAX);
        }
    }
}

impl Cursor for ConditionCursor<'_> {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        let entry = self.next_entry()?;
        Ok(entry.map(|(rect, row)| (super::key_of(&rect), row)))
    }

    fn next_rows(&mut self, at_most: usize, rows: &mut Vec<RowId>) -> Result<bool> {
        for _ in 0..at_most {
            match self.next_entry()? {
                Some((_, row)) => rows.push(row),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// A cursor over all entries by their distance from a point.
pub(super) struct DistanceCursor {
    search: Search<Arc<Tree>>,
    point: [f64; 2],
    heap: BinaryHeap<Reverse<Near>>,
}

/// A node, or an entry, and its distance.
#[derive(Clone, Copy)]
struct Near {
    /// of a node: no entry below it is nearer
    distance: f64,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Entry(Rect, RowId),
    Node(Visit),
}

impl Near {
    /// Entries go before nodes of the same distance, and then by row.
    fn rank(&self) -> (bool, u64) {
        match self.place {
            Place::Entry(_, row) => (false, row.0),
            Place::Node(visit) => (true, u64::from(visit.page.0)),
        }
    }
}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = self.distance.total_cmp(&other.distance);
        by_distance.then_with(|| self.rank().cmp(&other.rank()))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Near {}

impl DistanceCursor {
    /// A cursor over all entries, those nearest to `point` first.
    pub fn new(tree: Arc<Tree>, point: [f64; 2]) -> Self {
        let root = Near {
            distance: 0.0,
            place: Place::Node(Visit::ROOT),
        };
        Self {
            search: Search::new(tree),
            point,
            heap: BinaryHeap::from([Reverse(root)]),
        }
    }

    fn push(&mut self, distance: f64, place: Place) {
        self.heap.push(Reverse(Near { distance, place }));
    }

    /// Puts what a node leads to into the heap.
    fn expand(&mut self, visit: &Visit, distance: f64) -> Result<()> {
        let (node, right) = self.search.visit(visit, Access::Random)?;
        if let Some(right) = right {
            self.push(distance, Place::Node(right));
        }
        if node.level == 0 {
            for bound in node.entries.iter().map(|entry| entry.bound) {
                let own = bound.rect.distance(self.point);
                if own.total_cmp(&distance).is_ge() {
                    self.push(own, Place::Entry(bound.rect, bound.row()));
                }
            }
            return Ok(());
        }
        for (bound, page) in node.children() {
            let own = bound.rect.distance_at_least(self.point);
            let least = if own.total_cmp(&distance).is_lt() {
                distance
            } else {
                own
            };
            self.push(least, Place::Node(Tree::child_of(&node, page)));
        }
        Ok(())
    }
}

impl NearestCursor for DistanceCursor {
    fn next(&mut self) -> Result<Option<Neighbour>> {
        while let Some(Reverse(Near { distance, place })) = self.heap.pop() {
            match place {
                Place::Node(visit) => self.expand(&visit, distance)?,
                Place::Entry(rect, row) => {
                    return Ok(Some(Neighbour {
                        distance,
                        rect,
                        row,
                    }));
                }
            }
        }
        Ok(None)
    }
}
