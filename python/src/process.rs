//! Forks of this process since it loaded the module.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many times this process is a forked child of the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the module's loading and this process.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts a fork, in the child.
pub fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
