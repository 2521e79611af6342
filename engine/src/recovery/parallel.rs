//! Work on several threads: each restores ranges of its own \[L-Store §5.1.3\].

use strandline_base::{Error, Result};

/// Does the work of threads 0 to `threads` − 1, that of thread 0 on the calling one; the first
/// error in their order.
pub(super) fn in_parallel(threads: usize, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads as u64)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let mut outcome = work(0);
        for other in others {
            let panicked = |_| Err(Error::internal("a recovery thread panicked"));
            outcome = outcome.and(other.join().unwrap_or_else(panicked));
        }
        outcome
    })
}
