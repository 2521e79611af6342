//! One partition of a scan at work.

use super::source::Source;
use crate::error::{convert, wrap};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_engine::{TableScan, UnitReader};

/// One partition at work.
pub(super) struct Reader {
    pub source: Arc<Source>,
    pub scan: Arc<TableScan>,
    pub schema: SchemaRef,
    pub taken: Arc<AtomicUsize>,
    /// the unit being read, and whether that stays in memory
    pub unit: Option<(UnitReader, bool)>,
    pub left: usize,
    pub metrics: BaselineMetrics,
    pub reservation: MemoryReservation,
}

impl Reader {
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        if self.left == 0 {
            return Ok(None);
        }
        loop {
            let Some((mut reader, is_resident)) = self.unit.take() else {
                self.source.check_cancelled().map_err(wrap)?;
                let unit = self.taken.fetch_add(1, Ordering::Relaxed);
                if unit >= self.scan.units() {
                    self.reservation.free();
                    return Ok(None);
                }
                let is_resident = self.scan.is_resident(unit);
                let scan = self.scan.clone();
                let open = move || scan.open_unit(unit);
                self.unit = Some((self.run(is_resident, open).await?, is_resident));
                continue;
            };
            let read = move || {
                let batch = reader.next_batch()?;
                Ok((reader, batch))
            };
            let (reader, batch) = self.run(is_resident, read).await?;
            let Some(batch) = batch else { continue };
            self.unit = Some((reader, is_resident));
            self.reservation.resize(batch.get_array_memory_size());
            let batch = batch.slice(0, batch.num_rows().min(self.left));
            self.left -= batch.num_rows();
            let batch = label(batch, &self.schema)?;
            return Ok(Some(batch.record_output(&self.metrics)));
        }
    }

    /// Runs `work` here if it stays in memory, else off the asynchronous threads.
    async fn run<T: Send + 'static>(
        &self,
        stays_in_memory: bool,
        work: impl FnOnce() -> strandline_base::Result<T> + Send + 'static,
    ) -> Result<T, DataFusionError> {
        let _timer = self.metrics.elapsed_compute().timer();
        if stays_in_memory {
            return work().map_err(wrap);
        }
        off_thread(work).await
    }
}

/// Runs `work`, which may read files, off the asynchronous threads.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> strandline_base::Result<T> + Send + 'static,
) -> Result<T, DataFusionError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(wrap),
        Err(error) => Err(wrap(convert(DataFusionError::ExecutionJoin(Box::new(
            error,
        ))))),
    }
}

/// The engine's batch under the plan's schema (names, metadata).
fn label(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    if Arc::ptr_eq(&batch.schema(), schema) {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        batch.columns().to_vec(),
        &options,
    )?)
}
