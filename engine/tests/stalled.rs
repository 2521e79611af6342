//! Clients that stop reading: whatever they were reading, writers go on, and memory and files stay
//! bounded while ten times the memory for updates is written.

mod common;

use common::*;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

const ROWS: i64 = 9_000;
/// Rows that are updated, in all parts of the range.
const UPDATED: i64 = 100;
/// A text of so many bytes in every update.
const TEXT_BYTES: usize = 4000;
const SEGMENT_BYTES: u64 = 1 << 20;

/// A database with little memory, and a table in one range.
struct Stalled {
    device: Arc<MemoryDevice>,
    clock: Arc<strandline_base::ManualClock>,
    db: Arc<Db>,
    table: Arc<TableDef>,
    written: i64,
}

impl Stalled {
    fn new(history: HistoryPolicy) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let settings = Settings {
            memory_bytes: Settings::MEMORY_BYTES_MIN,
            wal_segment_bytes: SEGMENT_BYTES,
            checkpoint_wal_bytes: 4 * SEGMENT_BYTES,
            background_maintenance: false,
            merge_threads: 1,
            ..Settings::default()
        };
        let options = DbOptions {
            device: device.clone(),
            clock: clock.clone(),
            settings,
        };
        let db = Db::open(options).expect("open");
        create_table(&db, history);
        let table = table(&db);
        let rows: Vec<_> = (0..ROWS).map(|k| (k, Some(k), String::new())).collect();
        run(&db, |s| {
            let mut load = s.bulk_insert(&table)?;
            load.append(&batch(&rows))?;
            load.finish()
        })
        .expect("load");
        db.checkpoint(true).expect("checkpoint");
        Self {
            device,
            clock,
            db,
            table,
            written: 0,
        }
    }

    /// The tails' own share: checkpoints begin at half of it.
    fn share(&self) -> u64 {
        self.db.settings().tail_bytes() as u64
    }

    fn tail_bytes(&self) -> u64 {
        let counters = self.db.counters();
        let found = counters.iter().find(|(name, _)| *name == "tail_bytes");
        found.expect("a counter").1
    }

    /// One update of about [`TEXT_BYTES`].
    fn update(&mut self) {
        let k = self.written % UPDATED * (ROWS / UPDATED);
        self.written += 1;
        self.clock.advance(10);
        let text = format!("{:0width$}", self.written, width = TEXT_BYTES);
        let set = [
            (ColumnId(1), Value::BigInt(-self.written)),
            (ColumnId(2), Value::from(text.as_str())),
        ];
        let key = [Value::BigInt(k)];
        let found = run(&self.db, |s| s.point_update(&self.table, 0, &key, &set));
        assert!(found.unwrap_or_else(|e| panic!("update {}: {e}", self.written)));
    }

    /// Fills the tails nearly up to their share.
    fn fill_tails(&mut self) {
        while self.tail_bytes() < self.share() / 8 * 7 {
            self.update();
        }
    }

    /// Bytes of files by kind: log segments, all others.
    fn file_bytes(&self) -> (u64, u64) {
        let device: &dyn Device = &*self.device;
        let names = device.list().expect("list");
        let len = |name: &String| device.open(name).expect("open").len().expect("len");
        let (log, others): (Vec<_>, Vec<_>) = names.iter().partition(|n| n.starts_with("wal-"));
        (
            log.into_iter().map(len).sum(),
            others.into_iter().map(len).sum(),
        )
    }

    /// Writes ten times the memory for updates; the most bytes of files but the log's meanwhile.
    fn write_ten_budgets(&mut self) -> u64 {
        let (until, mut most) = (
            self.written + 10 * self.share() as i64 / TEXT_BYTES as i64,
            0,
        );
        while self.written < until {
            for _ in 0..UPDATED {
                self.update();
                assert!(self.tail_bytes() <= 2 * self.share());
            }
            // As the background thread would, by the log's size.
            self.db.merge_due(true).expect("checkpoint");
            let (log, others) = self.file_bytes();
            assert!(log <= 8 * SEGMENT_BYTES, "{log} bytes of log");
            most = most.max(others);
        }
        most
    }

    fn begin(&self) -> Arc<Statement> {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        txn.begin_statement().expect("statement")
    }

    fn state(&self) -> State {
        scan_all(&self.begin().scan(&self.table, request()).expect("scan"))
    }
}

/// Twice what files come to if nobody reads: what a reader may see has to stay.
fn files_max() -> u64 {
    static BOUND: OnceLock<u64> = OnceLock::new();
    *BOUND.get_or_init(|| {
        let mut world = Stalled::new(HistoryPolicy::None);
        world.fill_tails();
        world.write_ten_budgets() * 2
    })
}

fn rows(batches: impl Iterator<Item = arrow_array::RecordBatch>) -> State {
    let mut state = State::new();
    for batch in batches {
        for i in 0..batch.num_rows() {
            let value = |at: usize, t| types::value_at(t, batch.column(at), i);
            let (k, a) = (value(0, SqlType::BigInt), value(1, SqlType::BigInt));
            let (Value::BigInt(k), Value::BigInt(a)) = (k, a) else {
                panic!("numbers")
            };
            let Value::Text(b) = value(2, SqlType::Text) else {
                panic!("a text")
            };
            let before = state.insert(k, (Some(a), b.to_string()));
            assert!(before.is_none(), "key {k} twice");
        }
    }
    state
}

/// Reads the first batch of `scan`, lets ten budgets be written, reads the rest.
fn stall(world: &mut Stalled, scan: &Arc<TableScan>, files_max: u64) -> State {
    assert_eq!(scan.units(), 1, "the range that is written");
    let mut unit = scan.open_unit(0).expect("unit");
    let first = unit.next_batch().expect("read").expect("rows");
    assert!(
        first.num_rows() < ROWS as usize / 2,
        "the reader is in the middle"
    );
    let most = world.write_ten_budgets();
    assert!(
        most <= files_max,
        "{most} bytes of files, {files_max} allowed"
    );
    let rest = std::iter::from_fn(|| unit.next_batch().expect("read"));
    rows([first].into_iter().chain(rest))
}

#[test]
fn a_scan() {
    let files_max = files_max();
    let mut world = Stalled::new(HistoryPolicy::None);
    world.fill_tails();
    let before = world.state();
    let scan = world.begin().scan(&world.table, request()).expect("scan");
    assert_eq!(stall(&mut world, &scan, files_max), before);
}

#[test]
fn a_scan_of_the_past() {
    let policy = || HistoryPolicy::For(1);
    let files_max = files_max();
    let mut world = Stalled::new(policy());
    world.fill_tails();
    let (before, moment) = (world.state(), world.db.stable());
    let statement = world.begin();
    let scan = statement.scan_as_of(&world.table, moment, request());
    assert_eq!(stall(&mut world, &scan.expect("scan"), files_max), before);
}

#[test]
fn a_scan_at_a_merged_moment() {
    let files_max = files_max();
    let mut world = Stalled::new(HistoryPolicy::None);
    world.fill_tails();
    world.db.checkpoint(true).expect("checkpoint");
    let (before, moment) = (world.state(), world.db.stable());
    world.clock.advance(1000);
    world.update();
    let tables = [world.table.clone()];
    let Relaxed::Older(statement) = world.begin().relaxed(&tables, moment).expect("relaxed") else {
        panic!("all but one update is merged");
    };
    let scan = statement.scan(&world.table, request()).expect("scan");
    assert_eq!(stall(&mut world, &scan, files_max), before);
}

/// All that the reader has to be kept for is the history of an interval that has ended.
#[test]
fn a_scan_of_versions() {
    let policy = || HistoryPolicy::For(Duration::from_millis(1).as_micros() as u64);
    let files_max = files_max();
    let mut world = Stalled::new(policy());
    world.fill_tails();
    let from = world.db.stable();
    (0..50).for_each(|_| world.update());
    let columns: Vec<_> = (0..3)
        .map(|id| VersionColumn::Stored(ColumnId(id)))
        .collect();
    let columns: Vec<_> = columns
        .into_iter()
        .chain([VersionColumn::ValidFrom])
        .collect();
    let scan = |world: &Stalled| {
        let interval = (from, world.db.stable());
        let scan = world
            .begin()
            .scan_versions(&world.table, interval, None, &columns);
        scan.expect("scan")
    };
    let expected: Vec<_> = {
        let mut unit = scan(&world).open_unit(0).expect("unit");
        std::iter::from_fn(|| unit.next_batch().expect("read")).collect()
    };
    let scan = scan(&world);
    let mut unit = scan.open_unit(0).expect("unit");
    let first = unit.next_batch().expect("read").expect("rows");
    let most = world.write_ten_budgets();
    assert!(
        most <= files_max,
        "{most} bytes of files, {files_max} allowed"
    );
    let mut found = vec![first];
    found.extend(std::iter::from_fn(|| unit.next_batch().expect("read")));
    let concat = |batches: &[arrow_array::RecordBatch]| {
        arrow_select::concat::concat_batches(&scan.schema(), batches).expect("one batch")
    };
    let (found, expected) = (concat(&found), concat(&expected));
    assert_eq!(expected.num_rows() as i64, ROWS + 50);
    assert_eq!(found, expected);
}

/// A backup whose target is slow.
#[test]
fn a_backup() {
    let files_max = files_max();
    let mut world = Stalled::new(HistoryPolicy::None);
    world.fill_tails();
    let before = world.state();
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = world.db.clone();
    let stalled = strandline_base::sync::Mutex::new((world, false));
    let observer = |_: CopyProgress| {
        let (world, has_stalled) = &mut *stalled.lock();
        if !std::mem::replace(has_stalled, true) {
            let most = world.write_ten_budgets();
            assert!(
                most <= files_max,
                "{most} bytes of files, {files_max} allowed"
            );
        }
        true
    };
    db.backup(&target, &observer).expect("backup");
    let (world, has_stalled) = stalled.into_inner();
    assert!(has_stalled);
    let copy = open(target, &world.clock).expect("open the backup");
    let scan = run(&copy, |s| s.scan(&table(&copy), request())).expect("scan");
    assert_eq!(scan_all(&scan), before);
}
