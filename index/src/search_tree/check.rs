//! Verification of a tree: its levels, the order and the place of its entries, its links, and the
//! number of its entries.

use super::kind::{Kind, Predicate};
use super::node::{Node, Probe};
use super::tree::{ROOT, Tree};
use strandline_base::Result;
use strandline_storage::pages::{Access, PageNumber};

impl<K: Kind> Tree<K> {
    /// Appends a line for every damage. Other threads may change the tree at the same time. An
    /// error of reading a page is a damage, too.
    pub fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let changes = self.count.changes();
        let height = match self.height() {
            Ok(height) => height,
            Err(error) => {
                damage.push(error.message().to_owned());
                return Ok(());
            }
        };
        let (mut entries, known) = (0, damage.len());
        for level in 0..=height {
            self.check_level(level, damage, &mut |node| {
                if node.level == 0 {
                    entries += node.len();
                }
            });
        }
        if damage.len() == known && self.count.changes() == changes {
            self.count.set(changes, entries);
        }
        Ok(())
    }

    /// Checks the nodes of a level one by one.
    fn check_level(&self, level: u8, damage: &mut Vec<String>, visit: &mut dyn FnMut(&Node<'_>)) {
        let mut reached = Some(Box::<[u8]>::default());
        while let Some(from) = reached {
            let located = self.locate(level, Probe::At(&from), Access::Sequential, &mut Vec::new());
            let (number, page) = match located {
                Ok(Some(found)) => found,
                // The root has been lowered meanwhile.
                Ok(None) => return,
                Err(error) => {
                    damage.push(error.message().to_owned());
                    return;
                }
            };
            let copy = page.to_vec();
            drop(page);
            let node = match self.node(number, &copy) {
                Ok(Some(node)) => node,
                Ok(None) => return,
                Err(error) => {
                    damage.push(error.message().to_owned());
                    return;
                }
            };
            if let Err(found) = node.verify() {
                damage.push(self.damaged(number, found).message().to_owned());
                return;
            }
            if self.check_entries(number, &node, damage).is_none() {
                return;
            }
            if number == ROOT && !(node.is_last() && node.low.is_empty()) {
                damage.push(self.line(number, "the root does not cover everything"));
            }
            visit(&node);
            reached = node.high();
            if reached.as_ref().is_some_and(|high| *high <= from) {
                damage.push(self.line(number, "the level does not go on behind the node"));
                return;
            }
        }
    }

    fn line(&self, number: PageNumber, what: &'static str) -> String {
        let error = self.damaged(number, super::node::Damage(what));
        error.message().to_owned()
    }

    /// Checks that entries lie within the node's predicate and lead to children that begin at them.
    /// None after a damage.
    fn check_entries(
        &self,
        number: PageNumber,
        node: &Node<'_>,
        damage: &mut Vec<String>,
    ) -> Option<()> {
        let high = node.high();
        let predicate = Predicate {
            low: node.low,
            high: high.as_deref(),
        };
        for at in 0..node.len() {
            let entry = match node.parts(at) {
                Ok(parts) => parts.concat(),
                Err(found) => {
                    damage.push(self.damaged(number, found).message().to_owned());
                    return None;
                }
            };
            if K::penalty(predicate, &entry) != 0 {
                damage.push(self.line(number, "an entry is outside the node's predicate"));
                return None;
            }
            if node.level == 0 && crate::entry::parts_of(&entry).is_none() {
                damage.push(
                    self.damaged(number, super::join::SHORT_ENTRY)
                        .message()
                        .to_owned(),
                );
                return None;
            }
            let child = (node.level > 0).then(|| node.child(at).ok()).flatten();
            if let Some(child) = child
                && !self.begins_at(node.level - 1, child, &entry)
            {
                damage.push(self.line(number, "a child does not begin at its fence"));
                return None;
            }
        }
        Some(())
    }

    /// Whether a child of a node begins at `fence`, or has been joined since.
    fn begins_at(&self, level: u8, child: PageNumber, fence: &[u8]) -> bool {
        let begins = || {
            let page = self.store.read(self.file, child, Access::Sequential).ok()?;
            let node = self.node(child, &page).ok()??;
            Some(node.level == level && *node.low == *fence)
        };
        let is_named = || {
            let mut met = Vec::new();
            let parent = self.locate(level + 1, Probe::At(fence), Access::Random, &mut met);
            let (number, page) = parent.ok()??;
            let node = self.node(number, &page).ok()??;
            let at = node.search(fence).ok()?.ok()?;
            Some(node.child(at).ok()? == child)
        };
        begins() == Some(true) || is_named() != Some(true)
    }
}
