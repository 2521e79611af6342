//! The memory that all queries share, divided fairly among the consumers that can work with less.
//!
//! There are three kinds of consumers:
//! * *Sharers* can work with any amount: operators that spill to disk, and the merges of sorts'
//!   spill files, which read fewer files at a time. Each may have an equal part of the memory that
//!   the other kinds leave. DataFusion counts a merge among the consumers that cannot spill. The
//!   first partition's merge would then take all the memory, and the merges of the other partitions
//!   would fail.
//! * *Holders* cannot work with less, such as the hash table of a join: first come, first served.
//! * *Exchanges* between the partitions of a query are never refused: `RepartitionExec`, and
//!   `SortPreservingMergeExec`, which merges sorted partitions. Both hold a few batches per
//!   partition. `RepartitionExec` stops its inputs when every output has rows waiting. It must not
//!   spill, because in this version of DataFusion its spilling can deadlock (issue 24883 there).
//!   Two inputs spill at the same time, and the reader waits for the older file while its batch is
//!   in the newer one. `SortPreservingMergeExec` has one batch of each input and one output batch.
//!   It asks for memory when the sorts below it have their whole parts, which they keep until it
//!   has read their rows. The memory of exchanges is taken from the other kinds' part, down to half
//!   of the whole. It may be much if one partition gets most rows.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use parking_lot::Mutex;
use std::fmt;

/// The consumer names of exchanges.
const EXCHANGES: [&str; 2] = ["RepartitionExec", "SortPreservingMergeExec"];
/// The consumer name of a sort's merge.
const MERGE: &str = "ExternalSorterMerge";

/// The pool; see the module's header.
#[derive(Debug)]
pub struct QueryMemory {
    bytes: usize,
    held: Mutex<Held>,
}

/// Reserved bytes by kind.
#[derive(Debug, Default)]
struct Held {
    /// the number of sharers
    sharers: usize,
    by_sharers: usize,
    by_holders: usize,
    by_exchanges: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sharer,
    Holder,
    Exchange,
}

impl Kind {
    fn of(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        if EXCHANGES.iter().any(|exchange| name.starts_with(exchange)) {
            Self::Exchange
        } else if consumer.can_spill() || name.starts_with(MERGE) {
            Self::Sharer
        } else {
            Self::Holder
        }
    }
}

impl Held {
    fn by(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Sharer => &mut self.by_sharers,
            Kind::Holder => &mut self.by_holders,
            Kind::Exchange => &mut self.by_exchanges,
        }
    }

    /// The bytes by which a reservation of `kind` may grow from `size`, in a pool of `bytes`.
    fn left(&self, bytes: usize, kind: Kind, size: usize) -> usize {
        let all = bytes - self.by_exchanges.min(bytes / 2);
        let shared = all.saturating_sub(self.by_holders);
        match kind {
            Kind::Sharer => (shared / self.sharers.max(1)).saturating_sub(size),
            Kind::Holder => shared.saturating_sub(self.by_sharers),
            Kind::Exchange => usize::MAX,
        }
    }
}

impl QueryMemory {
    /// A pool of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes,
            held: Mutex::default(),
        }
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fair(pool_size: {})", human_readable_size(self.bytes))
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "fair"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if Kind::of(consumer) == Kind::Sharer {
            self.held.lock().sharers += 1;
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if Kind::of(consumer) == Kind::Sharer {
            self.held.lock().sharers -= 1;
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.held.lock().by(Kind::of(reservation.consumer())) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        *self.held.lock().by(Kind::of(reservation.consumer())) -= shrink;
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let kind = Kind::of(reservation.consumer());
        let mut held = self.held.lock();
        let left = held.left(self.bytes, kind, reservation.size());
        if additional > left {
            return Err(refused(reservation, additional, left));
        }
        *held.by(kind) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let held = self.held.lock();
        held.by_sharers + held.by_holders + held.by_exchanges
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

fn refused(reservation: &MemoryReservation, additional: usize, left: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{} has {} and asked for {} more; {} are left to it",
        reservation.consumer().name(),
        human_readable_size(reservation.size()),
        human_readable_size(additional),
        human_readable_size(left),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn reserved(pool: &Arc<dyn MemoryPool>, name: &str, spills: bool) -> MemoryReservation {
        let consumer = MemoryConsumer::new(name).with_can_spill(spills);
        consumer.register(pool)
    }

    #[test]
    fn only_exchanges_exceed_the_bound() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1_000));
        let exchange = reserved(&pool, "RepartitionExec[3]", true);
        let sort = reserved(&pool, "ExternalSorter[0]", true);
        assert!(sort.try_grow(2_000).is_err());
        sort.try_grow(400).unwrap();
        exchange.try_grow(5_000).unwrap();
        assert_eq!(pool.reserved(), 5_400);
        // Exchanges leave half of the memory.
        assert!(sort.try_grow(101).is_err());
        sort.try_grow(100).unwrap();
        exchange.shrink(5_000);
        sort.try_grow(500).unwrap();
        assert_eq!(pool.reserved(), 1_000);
        assert!(matches!(pool.memory_limit(), MemoryLimit::Finite(1_000)));
    }

    #[test]
    fn the_merge_of_sorted_partitions_is_not_refused_when_the_sorts_have_everything() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1_000));
        let sorts = [0, 1].map(|n| reserved(&pool, &format!("ExternalSorter[{n}]"), true));
        for sort in &sorts {
            sort.try_grow(500).unwrap();
        }
        let merge = reserved(&pool, "SortPreservingMergeExec[0]", false);
        merge.try_grow(10).unwrap();
        assert_eq!(pool.reserved(), 1_010);
    }

    #[test]
    fn sorts_and_their_merges_have_equal_parts() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1_000));
        let parts = [0, 1].map(|n| {
            let sort = reserved(&pool, &format!("ExternalSorter[{n}]"), true);
            (
                sort,
                reserved(&pool, &format!("ExternalSorterMerge[{n}]"), false),
            )
        });
        for (sort, merge) in &parts {
            assert!(merge.try_grow(251).is_err());
            merge.try_grow(250).unwrap();
            sort.try_grow(250).unwrap();
            assert!(sort.try_grow(1).is_err());
        }
        let [(sort, merge), _] = parts;
        drop((sort, merge));
        let join = reserved(&pool, "HashJoinInput", false);
        assert!(join.try_grow(501).is_err());
        join.try_grow(500).unwrap();
        assert_eq!(pool.reserved(), 1_000);
        drop(join);
        assert_eq!(pool.reserved(), 500);
    }
}
