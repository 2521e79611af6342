//! Verification of a tree: that each node is what its parent's entry says, that one way leads to
//! it, and the number of entries.

use super::node::{Damage, Node};
use super::tree::{Search, Tree, Visit};
use crate::tree_pages::ROOT;
use std::collections::HashSet;
use strandline_base::Result;
use strandline_storage::pages::{Access, PageNumber};

impl Tree {
    /// Appends a line for every damage. Other threads may change the tree at the same time. An
    /// error of reading a page is a damage, too. Behind a damage the nodes below are not looked at.
    pub fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let (changes, known) = (self.count.changes(), damage.len());
        let mut search = Search::new(self);
        let (mut visits, mut met) = (vec![Visit::ROOT], HashSet::from([ROOT]));
        let mut entries = 0;
        while let Some(visit) = visits.pop() {
            let node = match self.checked(&mut search, &visit) {
                Ok((node, right)) => {
                    visits.extend(right);
                    node
                }
                Err(error) => {
                    damage.push(error.message().to_owned());
                    continue;
                }
            };
            if node.level == 0 {
                entries += node.entries.len();
            }
            for (_, page) in node.children() {
                if met.insert(page) {
                    visits.push(Self::child_of(&node, page));
                } else {
                    damage.push(self.line(page, "several ways lead to the node"));
                }
            }
        }
        if damage.len() == known && self.count.changes() == changes {
            self.count.set(changes, entries);
        }
        Ok(())
    }

    fn line(&self, number: PageNumber, what: &'static str) -> String {
        let error = self.damaged(number, Damage(what));
        error.message().to_owned()
    }

    /// A node whose children are what it says. Writers wait, so that a node and its children are
    /// those of one moment.
    fn checked(&self, search: &mut Search<&Self>, visit: &Visit) -> Result<(Node, Option<Visit>)> {
        let _others_wait = self.writers.lock();
        let (node, right) = search.visit(visit, Access::Sequential)?;
        if node.is_gone {
            return Ok((node, right));
        }
        let wrong = |page, what| Err(self.damaged(page, Damage(what)));
        if visit.page == ROOT && (node.right.is_some() || node.split_no != 0) {
            return wrong(ROOT, "the root has been divided like another node");
        }
        if node.level > 0 && node.entries.is_empty() {
            return wrong(visit.page, "an inner node has no children");
        }
        for (bound, page) in node.children() {
            let child = self.visit(&Self::child_of(&node, page), Access::Sequential)?;
            if child.is_gone || child.bound() != Some(bound) {
                return wrong(page, "the node is not what its parent's entry says");
            }
            if child.split_no > node.child_splits {
                return wrong(page, "the node was divided without its parent");
            }
        }
        Ok((node, right))
    }
}
