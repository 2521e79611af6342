//! One partition of a scan at work.

use super::source::Source;
use crate::error::{convert, wrap};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::BaselineMetrics;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_engine::TableScan;

/// One partition at work.
pub(super) struct Reader {
    pub source: Arc<Source>,
    pub scan: Arc<TableScan>,
    pub schema: SchemaRef,
    pub taken: Arc<AtomicUsize>,
    pub ready: VecDeque<RecordBatch>,
    pub left: usize,
    pub metrics: BaselineMetrics,
    pub reservation: MemoryReservation,
}

impl Reader {
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            if let Some(batch) = self.ready.pop_front() {
                let batch = if batch.num_rows() > self.left {
                    batch.slice(0, self.left)
                } else {
                    batch
                };
                self.left -= batch.num_rows();
                self.metrics.record_output(batch.num_rows());
                return label(batch, &self.schema).map(Some);
            }
            self.source.check_cancelled().map_err(wrap)?;
            let unit = self.taken.fetch_add(1, Ordering::Relaxed);
            if unit >= self.scan.units() {
                self.reservation.free();
                return Ok(None);
            }
            let batches = self.read(unit).await?;
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
            self.reservation.resize(bytes);
            self.ready
                .extend(batches.into_iter().filter(|b| b.num_rows() > 0));
        }
    }

    async fn read(&self, unit: usize) -> Result<Vec<RecordBatch>, DataFusionError> {
        let _timer = self.metrics.elapsed_compute().timer();
        if self.scan.is_resident(unit) {
            return self.scan.read_unit(unit).map_err(wrap);
        }
        let scan = self.scan.clone();
        let task = tokio::task::spawn_blocking(move || scan.read_unit(unit));
        match task.await {
            Ok(batches) => batches.map_err(wrap),
            Err(error) => Err(wrap(convert(DataFusionError::ExecutionJoin(Box::new(
                error,
            ))))),
        }
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
