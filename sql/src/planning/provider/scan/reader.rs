//! One partition of a scan at work.

use super::source::Source;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_engine::{TableScan, UnitReader};
use strandline_semantics::error::{convert, raise};

/// So many units of which nothing has to be read make a turn: it cannot be stopped meanwhile.
const PRUNED_UNITS_MAX: usize = 64;

/// One partition at work.
pub(super) struct Reader {
    pub source: Arc<Source>,
    pub units: Units,
    pub schema: SchemaRef,
    pub left: usize,
    pub metrics: BaselineMetrics,
    pub reservation: MemoryReservation,
}

/// The units of a scan that this partition takes, one after the other.
pub(super) struct Units {
    scan: Arc<TableScan>,
    /// how many units partitions have taken
    taken: Arc<AtomicUsize>,
    unit: Unit,
}

enum Unit {
    /// the next one is to be taken
    Next,
    /// taken, to be opened
    Taken(usize),
    /// being read
    Open(Box<UnitReader>),
    /// there are no more
    End,
}

/// How a turn has ended.
enum Turn {
    Batch(RecordBatch),
    /// A unit has been read to its end, or many have been passed over.
    Nothing,
    End,
    /// The next unit may have to read files.
    Files,
}

impl Units {
    pub fn new(scan: Arc<TableScan>, taken: Arc<AtomicUsize>) -> Self {
        Self {
            scan,
            taken,
            unit: Unit::Next,
        }
    }

    /// Goes on to the next batch or the end of a unit, over however many units of which nothing
    /// has to be read, but stops before one that may read files unless it `may_read`.
    fn turn(&mut self, may_read: bool) -> strandline_base::Result<Turn> {
        let mut pruned = 0;
        loop {
            match &mut self.unit {
                Unit::Next => {
                    let unit = self.taken.fetch_add(1, Ordering::Relaxed);
                    self.unit = match unit < self.scan.units() {
                        true => Unit::Taken(unit),
                        false => Unit::End,
                    };
                }
                Unit::Taken(unit) => {
                    if !may_read && !self.scan.opens_in_memory(*unit) {
                        return Ok(Turn::Files);
                    }
                    let reader = self.scan.open_unit(*unit)?;
                    if !reader.is_at_end() {
                        self.unit = Unit::Open(Box::new(reader));
                        continue;
                    }
                    self.unit = Unit::Next;
                    pruned += 1;
                    if pruned == PRUNED_UNITS_MAX {
                        return Ok(Turn::Nothing);
                    }
                }
                Unit::Open(reader) if !may_read && !reader.is_resident() => {
                    return Ok(Turn::Files);
                }
                Unit::Open(reader) => match reader.next_batch()? {
                    Some(batch) => return Ok(Turn::Batch(batch)),
                    None => {
                        self.unit = Unit::Next;
                        return Ok(Turn::Nothing);
                    }
                },
                Unit::End => return Ok(Turn::End),
            }
        }
    }
}

impl Reader {
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        if self.left == 0 {
            return Ok(None);
        }
        let batch = loop {
            self.source.check_cancelled().map_err(raise)?;
            match self.turn().await? {
                Turn::Batch(batch) => break batch,
                Turn::Nothing | Turn::Files => {}
                Turn::End => {
                    self.reservation.free();
                    return Ok(None);
                }
            }
        };
        self.reservation.resize(batch.get_array_memory_size());
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        let batch = label(batch, &self.schema)?;
        Ok(Some(batch.record_output(&self.metrics)))
    }

    /// A turn here if that stays in memory, else off the asynchronous threads.
    async fn turn(&mut self) -> Result<Turn, DataFusionError> {
        let _timer = self.metrics.elapsed_compute().timer();
        match self.units.turn(false).map_err(raise)? {
            Turn::Files => {}
            turn => return Ok(turn),
        }
        let rest = Units::new(self.units.scan.clone(), self.units.taken.clone());
        let mut units = std::mem::replace(&mut self.units, rest);
        let (units, turn) = off_thread(move || {
            let turn = units.turn(true)?;
            Ok((units, turn))
        })
        .await?;
        self.units = units;
        Ok(turn)
    }
}

/// Runs `work`, which may read files, off the asynchronous threads.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> strandline_base::Result<T> + Send + 'static,
) -> Result<T, DataFusionError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(raise),
        Err(error) => Err(raise(convert(DataFusionError::ExecutionJoin(Box::new(
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
