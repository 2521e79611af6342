//! Estimates of numbers of entries: of a range, from the positions of its bounds in the nodes on
//! the way down; of a tree that has been opened, from nodes on a few ways down.

use super::kind::Kind;
use super::node::Probe;
use super::tree::{ROOT, Tree};
use crate::access_method::KeyRange;
use strandline_base::Result;
use strandline_storage::pages::Access;

/// In up to this many leaves the entries are counted one by one.
const COUNTED_LEAVES: usize = 4;

/// Ways down that an estimate of all entries takes.
const WAYS: usize = 16;

impl<K: Kind> Tree<K> {
    /// The number of entries of a range. It is exact if they are in up to four leaves. Otherwise
    /// all nodes of a level are taken to have equally many.
    pub fn estimate(&self, range: &KeyRange) -> Result<usize> {
        let from = range.from.as_ref().map_or(&[][..], |from| from.as_slice());
        let before = range.before.as_ref().map(|before| before.as_slice());
        if before.is_some_and(|before| before <= from) {
            return Ok(0);
        }
        let (mut counted, mut reached) = (0, Box::<[u8]>::from(from));
        for _ in 0..COUNTED_LEAVES {
            let (number, page) = self.leaf(Probe::At(&reached), Access::Random)?;
            let damaged = |damage| self.damaged(number, damage);
            let Some(leaf) = self.node(number, &page)? else {
                break;
            };
            let first = leaf.lower_bound(&reached).map_err(damaged)?;
            let end = before.map(|before| leaf.lower_bound(before)).transpose();
            let end = end.map_err(damaged)?.unwrap_or(leaf.len());
            counted += end.saturating_sub(first);
            let high = leaf.high();
            let high = high.filter(|high| before.is_none_or(|before| **high < *before));
            match high {
                Some(high) => reached = high,
                None => return Ok(counted),
            }
        }
        let end = before.map_or(Ok(1.0), |before| self.fraction_before(before));
        let share = (end? - self.fraction_before(from)?).max(0.0);
        Ok(counted.max((share * self.count.get() as f64) as usize))
    }

    /// The fraction of all entries that come before a key.
    fn fraction_before(&self, key: &[u8]) -> Result<f64> {
        let probe = Probe::At(key);
        let (mut fraction, mut share) = (0.0, 1.0);
        for level in (0..=self.height()?).rev() {
            let node = self.locate(level, probe, Access::Random, &mut Vec::new())?;
            let Some((number, page)) = node else {
                continue;
            };
            let damaged = |damage| self.damaged(number, damage);
            let Some(node) = self.node(number, &page)? else {
                continue;
            };
            let at = if level > 0 {
                node.child_at(probe).map_err(damaged)?
            } else {
                node.lower_bound(key).map_err(damaged)?
            };
            share /= node.len().max(1) as f64;
            fraction += share * at as f64;
        }
        Ok(fraction)
    }

    /// About how many entries there are: exactly, if the root is a leaf; otherwise from the numbers
    /// of children and entries on some ways down, evenly spread over the root's children.
    pub fn count_roughly(&self) -> Result<usize> {
        let fan_out = {
            let page = self.store.read(self.file, ROOT, Access::Random)?;
            self.node(ROOT, &page)?.map_or(0, |root| root.len())
        };
        if self.height()? == 0 {
            return Ok(fan_out);
        }
        let ways = WAYS.min(fan_out).max(1);
        let mut sum = 0.0;
        for way in 0..ways {
            let (mut below, mut number, mut at) = (1.0, ROOT, way * fan_out / ways);
            loop {
                let page = self.store.read(self.file, number, Access::Random)?;
                let Some(node) = self.node(number, &page)? else {
                    break;
                };
                below *= node.len() as f64;
                if node.level == 0 || node.len() == 0 {
                    break;
                }
                let at_most = at.min(node.len() - 1);
                let child = node.child(at_most);
                let child = child.map_err(|damage| self.damaged(number, damage))?;
                at = node.len() / 2;
                number = child;
            }
            sum += below;
        }
        Ok((sum / ways as f64) as usize)
    }
}
