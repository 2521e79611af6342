//! The execution of one partition of a scan: it reads units of the table, or fetches the rows that
//! indexes have found.

use super::fetch::Fetcher;
use super::source::Source;
use crate::planning::provider::access::Candidates;
use crate::runtime::blocking::in_place;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, RecordOutput,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use strandline_engine::{CoveredColumns, Covering, TableScan, UnitReader};
use strandline_semantics::error::{convert, raise};

/// The most pruned units of a turn, during which it cannot be cancelled.
const PRUNED_UNITS_MAX: usize = 64;

/// The candidates that a partition fetches at a time.
const FETCHED_ROWS: usize = 4096;

/// The state that the partitions of a scan share.
#[derive(Default)]
pub(super) struct Round {
    /// the number of units, or of pieces of [`FETCHED_ROWS`] candidates, that partitions have taken
    taken: Arc<AtomicUsize>,
    /// the decision of the first partition
    candidates: OnceLock<Option<Arc<Candidates>>>,
}

impl Round {
    /// The rows to fetch, if the decision is to fetch.
    pub fn candidates(&self) -> Option<&Arc<Candidates>> {
        self.candidates.get()?.as_ref()
    }

    /// Decides once whether to fetch candidates from indexes or to scan the table (None).
    fn decide(&self, source: &Source) -> Result<Option<Arc<Candidates>>, DataFusionError> {
        if let Some(decided) = self.candidates.get() {
            return Ok(decided.clone());
        }
        let found = source.candidates()?;
        Ok(self.candidates.get_or_init(|| found).clone())
    }
}

/// The execution of one partition.
pub(super) struct Reader {
    pub source: Arc<Source>,
    pub round: Arc<Round>,
    pub partition: usize,
    pub work: Work,
    pub schema: SchemaRef,
    pub left: usize,
    pub metrics: BaselineMetrics,
    pub counters: ExecutionPlanMetricsSet,
    pub reservation: MemoryReservation,
}

/// The way in which a partition finds its rows.
pub(super) enum Work {
    /// undecided, since the filters of joins may still change
    Undecided,
    Scan(Units),
    Fetch(Fetch),
}

/// The fetching of rows that indexes have found.
pub(super) struct Fetch {
    candidates: Arc<Candidates>,
    taken: Arc<AtomicUsize>,
    fetcher: Fetcher,
    /// Some: the candidates' entries have what the fetcher reads
    covered: Option<CoveredColumns>,
    metrics: FetchMetrics,
}

/// The metrics in EXPLAIN ANALYZE.
struct FetchMetrics {
    fetched: Count,
    rechecked: Count,
}

impl Fetch {
    /// The next rows; None at the end.
    fn next(&mut self) -> strandline_base::Result<Option<RecordBatch>> {
        let piece = self.taken.fetch_add(1, Ordering::Relaxed);
        let first = piece.saturating_mul(FETCHED_ROWS);
        let candidates = &self.candidates;
        let Some(rows) = candidates.rows.chunks(FETCHED_ROWS).nth(piece) else {
            return Ok(None);
        };
        let rows = match self.covered.as_ref().zip(candidates.covered.as_ref()) {
            Some((columns, entries)) => {
                let watch = &entries.watch;
                let keys = &entries.keys[first..first + rows.len()];
                self.fetcher
                    .covered(rows, keys, &Covering { columns, watch })?
            }
            None => self.fetcher.fetch(rows)?,
        };
        let batch = self.fetcher.filtered(&rows)?;
        self.metrics.fetched.add(rows.fetched);
        self.metrics
            .rechecked
            .add(rows.ids.len() - batch.num_rows());
        Ok(Some(batch))
    }
}

/// The units that this partition takes from a scan, one after the other.
pub(super) struct Units {
    scan: Arc<TableScan>,
    /// the number of units that partitions have taken
    taken: Arc<AtomicUsize>,
    unit: Unit,
}

enum Unit {
    /// the next unit must be taken
    Next,
    /// taken, not open
    Taken(usize),
    /// being read
    Open(Box<UnitReader>),
    /// no more units
    End,
}

/// The result of a turn.
enum Turn {
    Batch(RecordBatch),
    /// A unit has ended, or many units were pruned.
    Nothing,
    End,
    /// The next unit may have to read files.
    Files,
}

impl Units {
    fn new(scan: Arc<TableScan>, taken: Arc<AtomicUsize>) -> Self {
        Self {
            scan,
            taken,
            unit: Unit::Next,
        }
    }

    /// Continues to the next batch or the end of a unit, and skips pruned units. It stops before a
    /// unit that may read files unless `may_read`.
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

    /// Runs a turn here if it stays in memory, else on a blocking thread.
    async fn turn(&mut self) -> Result<Turn, DataFusionError> {
        let _timer = self.metrics.elapsed_compute().timer();
        if matches!(self.work, Work::Undecided) {
            self.work = self.decide()?;
        }
        let units = match &mut self.work {
            Work::Scan(units) => units,
            Work::Fetch(fetch) => {
                let batch = in_place(|| fetch.next()).map_err(raise)?;
                return Ok(match batch {
                    Some(batch) if batch.num_rows() > 0 => Turn::Batch(batch),
                    Some(_) => Turn::Nothing,
                    None => Turn::End,
                });
            }
            Work::Undecided => return Ok(Turn::End),
        };
        match units.turn(false).map_err(raise)? {
            Turn::Files => {}
            turn => return Ok(turn),
        }
        let rest = Units::new(units.scan.clone(), units.taken.clone());
        let mut taken = std::mem::replace(units, rest);
        let (taken, turn) = off_thread(move || {
            let turn = taken.turn(true)?;
            Ok((taken, turn))
        })
        .await?;
        self.work = Work::Scan(taken);
        Ok(turn)
    }

    /// Opens the scan and decides how to read. The scan is opened in both cases, because a
    /// serializable transaction records its predicates.
    fn decide(&self) -> Result<Work, DataFusionError> {
        let scan = self.source.open().map_err(raise)?;
        let taken = self.round.taken.clone();
        let candidates = match &self.source.access {
            Some(_) => self.round.decide(&self.source)?,
            None => None,
        };
        let Some(candidates) = candidates else {
            return Ok(Work::Scan(Units::new(scan, taken)));
        };
        let counter = |name| MetricBuilder::new(&self.counters).counter(name, self.partition);
        if self.partition == 0 {
            counter("index_entries").add(candidates.entries);
        }
        let metrics = FetchMetrics {
            fetched: counter("rows_fetched"),
            rechecked: counter("rows_rechecked_away"),
        };
        let fetcher = Fetcher::new(self.source.clone(), self.schema.clone(), &[]).map_err(raise)?;
        let covered = candidates.covered.as_ref();
        let covered = covered.and_then(|c| c.columns(&self.source.table, fetcher.columns()));
        Ok(Work::Fetch(Fetch {
            candidates,
            taken,
            fetcher,
            covered,
            metrics,
        }))
    }
}

/// Runs `work`, which may read files, on a blocking thread.
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

/// The engine's batch with the plan's schema (names, metadata).
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
