//! The files that a checkpoint has written, until the manifest names them.

use std::sync::Arc;
use strandline_device::Device;

/// Files that a checkpoint has written, removed unless they are kept.
pub(super) struct NewFiles {
    device: Arc<dyn Device>,
    names: Vec<String>,
}

impl NewFiles {
    pub fn new(device: &Arc<dyn Device>) -> Self {
        let device = device.clone();
        let names = Vec::new();
        Self { device, names }
    }
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
    pub fn extend(&mut self, names: impl IntoIterator<Item = String>) {
        self.names.extend(names);
    }
    pub fn take(&mut self, mut others: Self) {
        self.names.append(&mut others.names);
    }
    /// They stay: the manifest names them, or may do so.
    pub fn keep(&mut self) {
        self.names.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for name in &self.names {
            // What cannot be removed now is an orphan, removed at the next open.
            let _ = self.device.remove(name);
        }
    }
}
