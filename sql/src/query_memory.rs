//! The memory that all queries share: fairly among those that can spill to disk, so that each of
//! them has some.
//!
//! Exchanges between the partitions of a query (`RepartitionExec`) are counted but never refused.
//! What they hold is a few batches per partition, because they stop their inputs when every output
//! has rows waiting; and an exchange that spills can wait for itself for ever in this version of
//! DataFusion (issue 24883 there: two inputs spill at the same time, the reader waits for the older
//! file while the batch it needs is in the newer one).

use datafusion::common::Result;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use std::fmt;

/// How an exchange names itself.
const EXCHANGE: &str = "RepartitionExec";

/// See the module's header.
#[derive(Debug)]
pub struct QueryMemory(FairSpillPool);

impl QueryMemory {
    /// A pool of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self(FairSpillPool::new(bytes))
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn register(&self, consumer: &MemoryConsumer) {
        self.0.register(consumer);
    }
    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.unregister(consumer);
    }
    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.0.grow(reservation, additional);
    }
    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.0.shrink(reservation, shrink);
    }
    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if reservation.consumer().name().starts_with(EXCHANGE) {
            self.0.grow(reservation, additional);
            return Ok(());
        }
        self.0.try_grow(reservation, additional)
    }
    fn reserved(&self) -> usize {
        self.0.reserved()
    }
    fn memory_limit(&self) -> MemoryLimit {
        self.0.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn reserved(pool: &Arc<dyn MemoryPool>, name: &str) -> MemoryReservation {
        let consumer = MemoryConsumer::new(name).with_can_spill(true);
        consumer.register(pool)
    }

    #[test]
    fn only_exchanges_exceed_the_bound() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1_000));
        let exchange = reserved(&pool, "RepartitionExec[3]");
        let sort = reserved(&pool, "ExternalSorter[0]");
        assert!(sort.try_grow(2_000).is_err());
        sort.try_grow(400).unwrap();
        exchange.try_grow(5_000).unwrap();
        assert_eq!(pool.reserved(), 5_400);
        assert!(sort.try_grow(2_000).is_err());
        exchange.shrink(5_000);
        assert_eq!(pool.reserved(), 400);
        assert!(matches!(pool.memory_limit(), MemoryLimit::Finite(1_000)));
    }
}
