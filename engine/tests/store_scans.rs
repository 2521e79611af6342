//! Scans of tables in an object store: requests, how many of them are under way at the same time,
//! and faults.

mod common;

use arrow_array::{BooleanArray, RecordBatch};
use common::*;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_object::{ObjectDevice, Options};
use strandline_sim::{SimDisk, SimStore, StoreFault};

/// Rows of a range: the fewest that a bulk load writes as chunks.
const ROWS: i64 = 4096;

/// A machine with a disk, and the store.
struct Machine {
    disk: SimDisk,
    store: SimStore,
    /// requests take real time, so that they may wait for others
    is_real_time: bool,
    settings: Settings,
}

impl Machine {
    fn new() -> Self {
        Self {
            disk: SimDisk::new(1),
            store: SimStore::new(),
            is_real_time: false,
            settings: Settings::default(),
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        let options = Options {
            attempts: 2,
            ..Options::default()
        };
        let (store, prefix) = (Arc::new(self.store.clone()), Path::from("db"));
        let objects = match self.is_real_time {
            true => ObjectDevice::new(store, prefix, "sim://db", options),
            false => {
                let runtime = SimStore::runtime().expect("runtime");
                ObjectDevice::on_runtime(store, prefix, "sim://db", options, runtime)
            }
        };
        let objects = Arc::new(objects.expect("objects"));
        Arc::new(TieredDevice::new(self.disk.device(), objects, "sim://db").expect("tiers"))
    }

    fn open(&self) -> Arc<Db> {
        self.open_at(&clock())
    }

    fn open_at(&self, clock: &Arc<ManualClock>) -> Arc<Db> {
        open_with(self.device(), clock, self.settings.clone()).expect("open")
    }

    /// The ranges of objects that were requested since request number `from`, by object.
    fn gets(&self, from: u64) -> BTreeMap<String, Vec<(u64, u64)>> {
        let mut gets: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for request in self.store.log(from) {
            let Some((range, object)) =
                request.strip_prefix("get ").and_then(|r| r.split_once(' '))
            else {
                continue;
            };
            let (start, end) = range.split_once("..").expect("a range");
            let range = (start.parse().expect("start"), end.parse().expect("end"));
            gets.entry(object.to_owned()).or_default().push(range);
        }
        gets
    }
}

fn requests(gets: &BTreeMap<String, Vec<(u64, u64)>>) -> usize {
    gets.values().map(Vec::len).sum()
}

fn bytes(gets: &BTreeMap<String, Vec<(u64, u64)>>) -> u64 {
    gets.values()
        .flatten()
        .map(|(start, end)| end - start)
        .sum()
}

/// A text that does not shrink when it is encoded.
fn text(rng: &mut Rng, len: usize) -> String {
    let letter = |_| char::from(b'!' + rng.below(94) as u8);
    (0..len).map(letter).collect()
}

/// Loads `ranges` ranges, each in a file of its own, with texts of `len` bytes.
fn load(db: &Arc<Db>, ranges: i64, len: usize) -> State {
    create_table(db, HistoryPolicy::None);
    let (t, mut rng, mut state) = (table(db), Rng::new(7), State::new());
    for range in 0..ranges {
        let keys = range * ROWS..(range + 1) * ROWS;
        let rows: Vec<_> = keys
            .map(|k| (k, Some(k / 2), text(&mut rng, len)))
            .collect();
        run(db, |s| {
            let mut load = s.bulk_insert(&t)?;
            load.append(&batch(&rows))?;
            load.finish()
        })
        .expect("load");
        state.extend(rows.into_iter().map(|(k, a, b)| (k, (a, b))));
    }
    db.checkpoint(true).expect("checkpoint");
    state
}

fn state(db: &Arc<Db>) -> State {
    state_at(db, db.stable())
}

/// A scan of its own transaction.
fn scan(db: &Arc<Db>, request: ScanRequest) -> Arc<TableScan> {
    let t = table(db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    statement.scan(&t, request).expect("scan")
}

/// A filter of `a` that selects no row.
struct Nothing;

impl RowFilter for Nothing {
    fn columns(&self) -> &[ColumnId] {
        &[ColumnId(1)]
    }
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        Ok(BooleanArray::from(vec![false; batch.num_rows()]))
    }
}

/// One request for each range, with all columns, and no other: neither for headers nor for footers.
/// All are under way at the same time.
#[test]
fn a_scan_requests_each_range_once_and_several_at_the_same_time() {
    let mut machine = Machine::new();
    let expected = load(&machine.open(), 10, 40);
    machine.is_real_time = true;
    let db = machine.open();
    let before = machine.store.requests();
    machine.store.gather_gets("chunks-", 10);
    assert_eq!(state(&db), expected);
    let gets = machine.gets(before);
    assert_eq!((gets.len(), requests(&gets)), (10, 10), "{gets:?}");
    assert_eq!(machine.store.gets_in_flight_max(), 10);
    // What memory has is not requested again.
    let before = machine.store.requests();
    assert_eq!(state(&db), expected);
    assert_eq!(machine.store.requests(), before);
}

#[test]
fn no_more_than_32_requests_are_under_way() {
    let machine = Machine::new();
    let expected = load(&machine.open(), 50, 10);
    let db = machine.open();
    let before = machine.store.requests();
    assert_eq!(state(&db), expected);
    assert_eq!(requests(&machine.gets(before)), 50);
    assert!(machine.store.gets_in_flight_max() <= 32);
}

/// Of 16 MB, the first rows take those of their range and 8 MiB after them.
#[test]
fn a_scan_that_stops_early_does_not_read_the_table() {
    let machine = Machine::new();
    let expected = load(&machine.open(), 12, 400);
    let db = machine.open();
    let before = machine.store.requests();
    let scan = scan(&db, request());
    let mut reader = scan.open_unit(0).expect("open");
    let batch = reader.next_batch().expect("read").expect("rows");
    assert!(batch.num_rows() < expected.len());
    drop((reader, scan));
    let gets = machine.gets(before);
    let unit_bytes = 2 << 20;
    assert!(bytes(&gets) <= (8 << 20) + unit_bytes, "{gets:?}");
    assert_eq!(state(&db), expected);
}

/// Bounds come first, several at a time; of the ranges that they prune nothing else is requested.
#[test]
fn what_bounds_prune_is_not_requested() {
    let mut machine = Machine::new();
    let expected = load(&machine.open(), 40, 40);
    machine.is_real_time = true;
    let db = machine.open();
    let before = machine.store.requests();
    // Not of the key, whose values the opening has read.
    let prune = |op, value| ColumnPredicate {
        column: ColumnId(1),
        op,
        value: Value::BigInt(value),
    };
    let request = ScanRequest {
        prune: vec![
            prune(CompareOp::Ge, 30 * ROWS / 2),
            prune(CompareOp::Lt, 33 * ROWS / 2),
        ],
        ..request()
    };
    machine.store.gather_gets("chunks-", 4);
    let found = scan_all(&scan(&db, request));
    let wanted = expected.range(30 * ROWS..33 * ROWS);
    let wanted: State = wanted.map(|(k, row)| (*k, row.clone())).collect();
    assert_eq!(found, wanted);
    let gets = machine.gets(before);
    assert_eq!((gets.len(), requests(&gets)), (40, 43), "{gets:?}");
    let whole = |ranges: &&Vec<(u64, u64)>| ranges.iter().any(|(start, end)| end - start > 4096);
    assert_eq!(gets.values().filter(whole).count(), 3, "{gets:?}");
    assert!((4..=32).contains(&machine.store.gets_in_flight_max()));
}

/// The texts of later ranges are not requested once the filter has selected nothing.
#[test]
fn output_columns_are_not_requested_while_filters_select_nothing() {
    let machine = Machine::new();
    load(&machine.open(), 14, 400);
    let db = machine.open();
    let before = machine.store.requests();
    let request = ScanRequest {
        filters: vec![Arc::new(Nothing)],
        ..request()
    };
    assert!(scan_all(&scan(&db, request)).is_empty());
    let gets = machine.gets(before);
    assert_eq!(gets.len(), 14);
    assert!(bytes(&gets) <= 12 << 20, "{}: {gets:?}", bytes(&gets));
}

/// Little memory means fewer windows or none, and the same rows.
#[test]
fn scans_are_right_with_little_memory() {
    for memory_bytes in [16 << 20, 64 << 20] {
        let mut machine = Machine::new();
        machine.settings.memory_bytes = memory_bytes;
        let expected = load(&machine.open(), 8, 400);
        let db = machine.open();
        assert_eq!(state(&db), expected, "{memory_bytes}");
    }
}

/// What the block cache has is not requested, after a restart too.
#[test]
fn cached_ranges_are_not_requested() {
    let mut machine = Machine::new();
    machine.settings.block_cache_bytes = 64 << 20;
    let expected = load(&machine.open(), 6, 40);
    let db = machine.open();
    let before = machine.store.requests();
    assert_eq!(state(&db), expected);
    assert_eq!(requests(&machine.gets(before)), 6);
    drop(db);
    let db = machine.open();
    let before = machine.store.requests();
    assert_eq!(state(&db), expected);
    assert_eq!(
        requests(&machine.gets(before)),
        0,
        "{:?}",
        machine.gets(before)
    );
}

/// A fault of one request is overcome by its repetition.
#[test]
fn one_fault_of_a_scan_is_overcome() {
    let machine = Machine::new();
    let expected = load(&machine.open(), 5, 40);
    for fault in [StoreFault::Refuse, StoreFault::Hang, StoreFault::HangAfter] {
        for at in 1..=5 {
            let db = machine.open();
            let first = machine.store.requests();
            machine.store.fault_at(first + at, fault);
            assert_eq!(state(&db), expected, "{fault:?} at {at}");
        }
    }
}

/// The windows of a scan that has met the error have failed; its readers request for themselves.
#[test]
fn a_scan_of_an_unreachable_store_ends_with_its_error() {
    let machine = Machine::new();
    let expected = load(&machine.open(), 5, 40);
    for prune in [false, true] {
        let db = machine.open();
        let predicate = ColumnPredicate {
            column: ColumnId(0),
            op: CompareOp::Ge,
            value: Value::BigInt(0),
        };
        let request = ScanRequest {
            prune: prune.then_some(predicate).into_iter().collect(),
            ..request()
        };
        let scan = scan(&db, request);
        machine.store.set_unreachable(true);
        let error = scan.read_unit(0).expect_err("unreachable");
        assert_eq!(error.sqlstate(), SqlState::IO_ERROR, "{error}");
        assert!(error.message().contains("sim://db"), "{error}");
        machine.store.set_unreachable(false);
        assert_eq!(scan_all(&scan), expected);
    }
}

/// An object that was damaged after its upload is found by the reader's checksums.
#[test]
fn a_damaged_object_is_found_in_a_window() {
    let machine = Machine::new();
    load(&machine.open(), 3, 40);
    let db = machine.open();
    let name = files(&*machine.device(), "chunks-").remove(1);
    let path = Path::from("db").join(name.as_str());
    let objects = machine.store.objects();
    SimStore::runtime().expect("runtime").block_on(async {
        let bytes = objects.get(&path).await.expect("get").bytes().await;
        let mut bytes = bytes.expect("bytes").to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        objects.put(&path, bytes.into()).await.expect("put");
    });
    let scan = scan(&db, request());
    let units = (0..scan.units()).map(|unit| scan.read_unit(unit));
    let errors: Vec<Error> = units.filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].sqlstate(), SqlState::DATA_CORRUPTED);
    assert!(errors[0].message().contains(&name), "{}", errors[0]);
}

/// Units in any order, by several threads, while merges replace the ranges' files.
#[test]
fn scans_by_several_threads_are_right_while_ranges_are_merged() {
    let machine = Machine::new();
    let wall = clock();
    let expected = load(&machine.open_at(&wall), 8, 40);
    for seed in 0..4 {
        let db = machine.open_at(&wall);
        let before = state(&db);
        assert_eq!(before.len(), expected.len());
        let scan = scan(&db, request());
        let mut order: Vec<usize> = (0..scan.units()).collect();
        if seed > 0 {
            let mut rng = Rng::new(seed);
            order.sort_by_cached_key(|_| rng.next_u64());
        }
        let (taken, found) = (AtomicUsize::new(0), strandline_base::sync::Mutex::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while let Some(&unit) = order.get(taken.fetch_add(1, Ordering::Relaxed)) {
                        let batches = scan.read_unit(unit).expect("read");
                        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
                        *found.lock() += rows;
                    }
                });
            }
            let db = &db;
            threads.spawn(move || {
                for k in 0..8 {
                    let first = k * ROWS;
                    set(db, first..first + 10, seed as i64).expect("update");
                    db.checkpoint(true).expect("checkpoint");
                }
            });
        });
        assert_eq!(*found.lock(), expected.len());
        assert_eq!(scan_all(&scan), before, "the snapshot has not changed");
        drop(scan);
        wall.advance(Duration::from_secs(1).as_micros() as u64);
        let changed = state(&db);
        for k in 0..8 {
            assert_eq!(changed[&(k * ROWS)].0, Some(seed as i64));
        }
        assert!(db.check().expect("check").is_empty());
    }
}

/// The footer of a new chunk is in memory: a row's first read requests one block, and the header of
/// its file.
#[test]
fn the_first_read_of_a_row_requests_no_footer() {
    let machine = Machine::new();
    let db = machine.open();
    let expected = load(&db, 1, 400);
    let before = machine.store.requests();
    let (t, mut row) = (table(&db), Vec::new());
    let found = run(&db, |s| {
        s.point_get(&t, 0, &[Value::BigInt(5)], &[ColumnId(2)], &mut row)
    });
    assert!(found.expect("get"));
    assert_eq!(row, [Value::from(expected[&5].1.clone())]);
    let gets = machine.gets(before);
    assert!(requests(&gets) <= 2, "{gets:?}");
}

/// Opening builds the key's index. It requests the key's values of all ranges at the same time.
#[test]
fn an_opening_requests_the_keys_of_several_ranges_at_the_same_time() {
    let mut machine = Machine::new();
    let expected = load(&machine.open(), 10, 40);
    machine.is_real_time = true;
    let before = machine.store.requests();
    machine.store.gather_gets("chunks-", 10);
    let db = machine.open();
    let gets = machine.gets(before);
    assert_eq!(machine.store.gets_in_flight_max(), 10);
    let chunks = gets.iter().filter(|(name, _)| name.starts_with("chunks-"));
    assert_eq!(
        chunks.map(|(_, ranges)| ranges.len()).sum::<usize>(),
        10,
        "{gets:?}"
    );
    assert_eq!(
        get(&db, 5).map(|row| row[0].clone()),
        Some(Value::BigInt(5))
    );
    assert_eq!(state(&db), expected);
}
