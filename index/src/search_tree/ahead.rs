//! Leaves that a cursor will come to, read ahead.
//!
//! The leaves' parents name them: so many reads are at the device at the same time, which right
//! links alone would not allow. A range of one leaf reads nothing ahead. The window doubles with
//! every step, so that a cursor that is given up early has read few leaves in vain.
//!
//! All of it is a hint: a leaf that no parent has yet, or a parent that cannot be read, costs time
//! only. The cursor meets the same error and reports it.

use super::kind::Kind;
use super::node::{Damage, Node, Probe};
use super::tree::Tree;
use crate::access_method::Direction;
use strandline_base::Result;
use strandline_storage::pages::{Access, PageNumber};

/// Leaves of the first step.
const WINDOW_MIN: usize = 2;
/// Leaves of a step at most: 1 MiB.
const WINDOW_MAX: usize = 128;

/// The leaves ahead of a cursor.
#[derive(Debug)]
pub(super) struct LeavesAhead {
    direction: Direction,
    /// where the leaves begin (backward: end) that were not read ahead; None before the first step
    edge: Option<Box<[u8]>>,
    /// leaves read ahead that the cursor has not come to
    left: usize,
    /// leaves of the next step
    window: usize,
    /// the range has no further leaves
    is_over: bool,
}

/// Leaves in the order of a cursor, each with the edge behind it.
#[derive(Debug, Default)]
struct Leaves {
    pages: Vec<PageNumber>,
    /// empty at the end of all leaves
    edges: Vec<Option<Box<[u8]>>>,
    /// the range ends with them
    is_last: bool,
}

impl LeavesAhead {
    /// Nothing is read ahead yet.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            edge: None,
            left: 0,
            window: WINDOW_MIN,
            is_over: false,
        }
    }

    /// The cursor has read a leaf; the rest of its range begins at `from` and ends at `before`.
    pub fn advance<K: Kind>(&mut self, tree: &Tree<K>, from: &[u8], before: Option<&[u8]>) {
        self.left = self.left.saturating_sub(1);
        if self.is_over || self.left > self.window / 2 {
            return;
        }
        let Ok(Some(leaves)) = self.next_leaves(tree, from, before) else {
            self.is_over = true;
            return;
        };
        let taken = tree.store.prefetch(tree.file, &leaves.pages);
        let Some(edge) = taken.checked_sub(1).and_then(|last| leaves.edges.get(last)) else {
            // No memory: the cursor goes on without, for as many leaves.
            self.left = self.window;
            return;
        };
        let is_all = taken == leaves.pages.len();
        self.is_over = edge.is_none() || is_all && leaves.is_last;
        self.edge = edge.clone();
        self.left += taken;
        let window_max = WINDOW_MAX.min(tree.store.prefetched_pages_max());
        self.window = (self.window * 2).min(window_max);
    }

    /// The next leaves of one parent; None for a tree without inner nodes.
    fn next_leaves<K: Kind>(
        &self,
        tree: &Tree<K>,
        from: &[u8],
        before: Option<&[u8]>,
    ) -> Result<Option<Leaves>> {
        // The cursor may have passed the edge.
        let edge = self.edge.as_deref();
        let probe = match self.direction {
            Direction::Forward => Probe::At(edge.unwrap_or(from).max(from)),
            Direction::Backward => {
                let is_ahead = |edge: &&[u8]| before.is_none_or(|before| *edge <= before);
                Probe::Before(edge.filter(is_ahead).or(before))
            }
        };
        let located = tree.locate(1, probe, Access::Random, &mut Vec::new())?;
        let Some((number, page)) = located else {
            return Ok(None);
        };
        let Some(parent) = tree.node(number, &page)? else {
            return Ok(None);
        };
        let leaves = match self.direction {
            Direction::Forward => self.forward(&parent, probe, before),
            Direction::Backward => self.backward(&parent, probe, from),
        };
        leaves.map(Some).map_err(|d| tree.damaged(number, d))
    }

    fn forward(
        &self,
        parent: &Node<'_>,
        probe: Probe<'_>,
        before: Option<&[u8]>,
    ) -> Result<Leaves, Damage> {
        let mut leaves = Leaves::default();
        for at in (parent.child_at(probe)?..parent.len()).take(self.window) {
            leaves.pages.push(parent.child(at)?);
            let end = match at + 1 < parent.len() {
                true => Some(low(parent, at + 1)?),
                false => parent.high(),
            };
            leaves.is_last = end.as_deref().zip(before).is_some_and(|(end, b)| end >= b);
            leaves.edges.push(end);
            if leaves.is_last {
                break;
            }
        }
        Ok(leaves)
    }

    fn backward(&self, parent: &Node<'_>, probe: Probe<'_>, from: &[u8]) -> Result<Leaves, Damage> {
        let mut leaves = Leaves::default();
        for at in (0..=parent.child_at(probe)?).rev().take(self.window) {
            leaves.pages.push(parent.child(at)?);
            let begin = low(parent, at)?;
            leaves.is_last = *begin <= *from;
            leaves.edges.push((!begin.is_empty()).then_some(begin));
            if leaves.is_last {
                break;
            }
        }
        Ok(leaves)
    }
}

/// The low fence of a child.
fn low(parent: &Node<'_>, at: usize) -> Result<Box<[u8]>, Damage> {
    Ok(parent.parts(at)?.concat().into())
}
