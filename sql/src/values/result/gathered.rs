//! Rows that are gathered before the first one is returned: rows of RETURNING, of a locking query,
//! of [`Connection::query`](crate::Connection::query). Their bytes are reserved in the query
//! memory, so that a result that does not fit fails with 53200 instead of exhausting memory.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use std::sync::Arc;
use strandline_column::row_bytes::batch_bytes;

/// Batches and their reservation.
pub(crate) struct Gathered {
    batches: Vec<RecordBatch>,
    reserved: MemoryReservation,
}

impl Gathered {
    /// An empty result that reserves from `pool`.
    pub fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            batches: Vec::new(),
            reserved: MemoryConsumer::new("the result").register(pool),
        }
    }

    /// Adds a batch.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.reserved.try_grow(batch_bytes(&batch))?;
        self.batches.push(batch);
        Ok(())
    }

    /// Takes the batches and ends their reservation.
    pub fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::query_memory::QueryMemory;
    use datafusion::arrow::array::{ArrayRef, Int64Array};

    #[test]
    fn what_does_not_fit_is_refused_and_given_back() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1000));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut gathered = Gathered::new(&pool);
        gathered.push(batch.clone()).unwrap();
        gathered.push(batch.clone()).unwrap();
        assert_eq!(pool.reserved(), 800);
        assert!(gathered.push(batch).is_err());
        assert_eq!(gathered.into_batches().len(), 2);
        assert_eq!(pool.reserved(), 0);
    }
}
