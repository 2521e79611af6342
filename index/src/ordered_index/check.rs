//! Verification of a tree: its levels, its order, and the number of its entries.

use super::node::{DescentStep, Node, NodeId, Probe};
use super::tree::Tree;

/// Descents before a node counts as lost. Concurrent changes may free the node that a descent
/// arrives at.
const ATTEMPTS: usize = 100;

impl Tree {
    /// Appends a line for every damage. Other threads may change the tree at the same time.
    pub fn check(&self, damage: &mut Vec<String>) {
        let changes = self.changes();
        let mut entries = 0;
        let is_walked = self.check_level(0, damage, &mut |leaf, _| entries += leaf.entries.len());
        let held = changes.0.wrapping_sub(changes.1);
        if is_walked && self.changes() == changes && entries != held {
            damage.push(format!(
                "an ordered index: {entries} entries are found of {held}"
            ));
        }
        for level in 1..=self.root().0 {
            self.check_level(level, damage, &mut |node, damage| {
                self.check_children(node, damage);
            });
        }
    }

    /// Checks the nodes of a level one by one; returns whether it reached the end.
    fn check_level(
        &self,
        level: u8,
        damage: &mut Vec<String>,
        visit: &mut dyn FnMut(&Node, &mut Vec<String>),
    ) -> bool {
        let mut reached = Some(Box::default());
        while let Some(from) = reached {
            let Some(node) = (0..ATTEMPTS).find_map(|_| self.copy_of(level, &from)) else {
                let from = hex(&from);
                let line = format!("an ordered index: no node of level {level} is found at {from}");
                damage.push(line);
                return false;
            };
            check_node(&node, damage);
            visit(&node, damage);
            reached = node.high;
            if reached.as_ref().is_some_and(|high| *high <= from) {
                return false; // it does not go on
            }
        }
        true
    }

    /// A copy of the node of `level` that covers `key`; None if the descent meets a freed node.
    fn copy_of(&self, level: u8, key: &[u8]) -> Option<Node> {
        let probe = Probe::At(key);
        let mut id = self.descend_once(level, probe)?;
        loop {
            let node = if level == 0 {
                self.leaves.get(id).read().clone()
            } else {
                Node::clone(&self.inner(id))
            };
            match node.place(level, probe) {
                DescentStep::Here => return Some(node),
                DescentStep::Right(right) => id = right,
                DescentStep::Lost => return None,
            }
        }
    }

    /// Checks that the children of an inner node begin at the node's separators.
    fn check_children(&self, node: &Node, damage: &mut Vec<String>) {
        let (children, fences) = (node.children.len(), node.entries.len());
        if children != fences || children == 0 {
            damage.push(format!(
                "an ordered index: an inner node has {children} children and {fences} fences"
            ));
            return;
        }
        for (at, child) in node.children.iter().enumerate() {
            let fence = node.entries.get(at);
            if !self.begins_at(node.level - 1, *child, &fence) {
                let fence = hex(&fence);
                damage.push(format!(
                    "an ordered index: a child at {fence} does not begin there"
                ));
            }
        }
    }

    /// Whether a child of a node begins at `fence`, or has been joined since.
    fn begins_at(&self, level: u8, child: NodeId, fence: &[u8]) -> bool {
        let begins = |node: &Node| node.level == level && *node.low == *fence;
        let is_there = if level == 0 {
            begins(&self.leaves.get(child).read())
        } else {
            begins(&self.inner(child))
        };
        let is_named = |parent: Node| {
            let at = parent.child_place(Probe::At(fence));
            parent.children.get(at) == Some(&child)
        };
        is_there || !self.copy_of(level + 1, fence).is_some_and(is_named)
    }
}

/// Checks a node's fences and its entries' order.
fn check_node(node: &Node, damage: &mut Vec<String>) {
    let name = if node.level == 0 {
        "leaf"
    } else {
        "inner node"
    };
    let mut report = |what: &str, at: &[u8]| {
        let at = hex(at);
        damage.push(format!("an ordered index: a {name}'s {what} at {at}"));
    };
    if node.high.as_ref().is_some_and(|high| *high <= node.low) {
        report("high fence is not behind its low fence", &node.low);
    }
    let mut previous: Option<Vec<u8>> = None;
    for at in 0..node.entries.len() {
        let entry = node.entries.get(at);
        if previous.as_ref().is_some_and(|previous| *previous >= entry) {
            report("entry is not behind the one before it", &entry);
        }
        if *entry < *node.low || node.high.as_ref().is_some_and(|high| **high <= *entry) {
            report("entry is not between the fences", &entry);
        }
        previous = Some(entry);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .take(32)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
