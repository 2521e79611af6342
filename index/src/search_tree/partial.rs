//! Partial traversals: the leaf that an entry belongs to, by the inner nodes alone
//! \[Indirection §3.3\]. The leaf is not read.

use super::kind::Kind;
use super::node::{Damage, Probe};
use super::tree::{ROOT, Tree};
use strandline_base::Result;
use strandline_storage::pages::{Access, PageNumber};

/// A leaf, and the entries that it covered when its parent was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafRange {
    pub leaf: PageNumber,
    pub low: Box<[u8]>,
    /// None: no end
    pub high: Option<Box<[u8]>>,
}

impl<K: Kind> Tree<K> {
    /// The leaf to which its parent leads for an entry. It covers the entry unless it has been
    /// split or joined since, or a part of it is unposted.
    pub fn leaf_range(&self, entry: &[u8]) -> Result<LeafRange> {
        let probe = Probe::At(entry);
        let parent = self.locate(1, probe, Access::Random, &mut Vec::new())?;
        let Some((number, page)) = parent else {
            return Ok(LeafRange {
                leaf: ROOT,
                low: Box::default(),
                high: None,
            });
        };
        let damaged = |damage| self.damaged(number, damage);
        let parent = self.node(number, &page)?;
        let parent = parent.ok_or_else(|| damaged(Damage("the page holds no node")))?;
        let at = parent.child_at(probe).map_err(damaged)?;
        let fence = |at| parent.parts(at).map(|parts| Box::from(parts.concat()));
        let high = match at + 1 < parent.len() {
            true => Some(fence(at + 1).map_err(damaged)?),
            false => parent.high(),
        };
        Ok(LeafRange {
            leaf: parent.child(at).map_err(damaged)?,
            low: fence(at).map_err(damaged)?,
            high,
        })
    }
}
