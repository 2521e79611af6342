//! Forks of this process since it loaded the module.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the process that loaded the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the process that loaded the module and this one.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts a fork, in the child.
pub fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
