//! Estimates the number of entries of a range from the positions of its bounds in the nodes on the
//! way down.

use super::node::Probe;
use super::tree::Tree;
use crate::access_method::KeyRange;

/// In up to this many leaves the entries are counted one by one.
const COUNTED_LEAVES: usize = 4;

impl Tree {
    /// The number of entries of a range. It is exact if they are in up to four leaves. Otherwise
    /// all nodes of a level are taken to have equally many.
    pub fn estimate(&self, range: &KeyRange) -> usize {
        let from = range.from.as_ref().map_or(&[][..], |from| from.as_slice());
        let before = range.before.as_ref().map(|before| before.as_slice());
        if before.is_some_and(|before| before <= from) {
            return 0;
        }
        let (mut counted, mut reached) = (0, Box::from(from));
        for _ in 0..COUNTED_LEAVES {
            let leaf = self.leaf(Probe::At(&reached));
            let first = leaf.entries.lower_bound(&reached);
            let end = before.map_or(leaf.entries.len(), |before| {
                leaf.entries.lower_bound(before)
            });
            counted += end.saturating_sub(first);
            let ends_before = |high: &&[u8]| before.is_none_or(|before| *high < before);
            match leaf.high.as_deref().filter(ends_before) {
                Some(high) => reached = high.into(),
                None => return counted,
            }
        }
        let end = before.map_or(1.0, |before| self.fraction_before(before));
        let share = (end - self.fraction_before(from)).max(0.0);
        let (added, removed) = self.changes();
        let estimated = share * added.saturating_sub(removed) as f64;
        counted.max(estimated as usize)
    }

    /// The fraction of all entries that come before a key.
    fn fraction_before(&self, key: &[u8]) -> f64 {
        let (mut level, _) = self.root();
        let (mut fraction, mut share) = (0.0, 1.0);
        while level > 0 {
            let node = self.inner_at(level, key);
            share /= node.children.len() as f64;
            fraction += share * node.child_place(Probe::At(key)) as f64;
            level -= 1;
        }
        let leaf = self.leaf(Probe::At(key));
        let at = leaf.entries.lower_bound(key) as f64;
        fraction + share * at / leaf.entries.len().max(1) as f64
    }
}
