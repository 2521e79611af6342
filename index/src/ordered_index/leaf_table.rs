//! Leaves by number: a table that only grows, and a list of the free numbers.
//!
//! A number may be reused at once. A descent that reaches a leaf by a number read earlier checks
//! the leaf's level and low fence (`Node::place`).

use super::node::{Node, NodeId};
use strandline_base::AppendList;
use strandline_base::sync::{Mutex, RwLock};

/// The table of leaves; see the module's documentation.
#[derive(Default)]
pub(super) struct LeafTable {
    slots: AppendList<RwLock<Node>>,
    free: Mutex<Vec<NodeId>>,
}

impl LeafTable {
    /// Adds a leaf and gives it a number.
    pub fn allocate(&self, leaf: Node) -> NodeId {
        let free = self.free.lock().pop();
        if let Some(id) = free {
            *self.get(id).write() = leaf;
            return id;
        }
        self.slots.push(RwLock::new(leaf)) as NodeId
    }

    /// Frees the number of a leaf that nothing refers to any more.
    pub fn release(&self, id: NodeId) {
        self.free.lock().push(id);
    }

    /// The slot of a leaf.
    ///
    /// # Panics
    /// If the number has never been allocated.
    #[inline]
    pub fn get(&self, id: NodeId) -> &RwLock<Node> {
        let slot = self.slots.get(id as usize);
        slot.expect("links lead to numbers that have been given out")
    }

    /// The number of leaves in use.
    #[cfg(all(test, not(shuttle)))]
    pub fn len(&self) -> usize {
        let free = self.free.lock().len();
        self.slots.len() - free
    }
}
