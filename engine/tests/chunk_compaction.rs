//! Chunk files that are mostly superseded are compacted: their columns move into new files.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Rows of the table, in one range.
const ROWS: i64 = 300;

/// Two disks of one machine.
struct Machine {
    fast: SimDisk,
    capacity: SimDisk,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let fast = SimDisk::new(seed);
        let capacity = fast.beside(seed + 100);
        Self { fast, capacity }
    }

    fn device(&self) -> Arc<dyn Device> {
        let tiers = TieredDevice::new(self.fast.device(), self.capacity.device(), "/capacity");
        Arc::new(tiers.expect("tiers"))
    }

    fn open(&self, wall: &Arc<ManualClock>) -> Arc<Db> {
        open(self.device(), wall).expect("open")
    }

    /// What the next start finds: one disk may lose what the other one keeps.
    fn after_crash(&self, seed: u64) -> Self {
        let fast = self.fast.after_crash(seed);
        let capacity = self.capacity.after_crash(seed ^ 1);
        capacity.join(&fast);
        Self { fast, capacity }
    }

    /// The chunk files with their lengths.
    fn chunks(&self) -> BTreeMap<String, u64> {
        let names = files(&*self.capacity.device(), "chunks-").into_iter();
        let bytes = |name: &String| self.capacity.content(name).expect("a file").len() as u64;
        names.map(|name| (name.clone(), bytes(&name))).collect()
    }

    fn chunk_bytes(&self) -> u64 {
        self.chunks().values().sum()
    }
}

fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    counters.iter().find(|c| c.0 == name).expect("a counter").1
}

/// (superseded bytes, compacted files, compactions set aside)
fn compactions(db: &Db) -> (u64, u64, u64) {
    let names = [
        "superseded_bytes",
        "compacted_files",
        "compactions_set_aside",
    ];
    names.map(|name| counter(db, name)).into()
}

/// A text that does not compress; a chunk of these has most of a file's bytes.
fn text(k: i64, round: u64) -> String {
    let mut rng = Rng::new(k as u64 * 1_000 + round);
    (0..3).map(|_| format!("{:016x}", rng.next_u64())).collect()
}

/// The rows of round 0 in one chunk file.
fn create(db: &Arc<Db>, history: HistoryPolicy) {
    create_table(db, history);
    fill(db, &table(db));
}

fn fill(db: &Arc<Db>, t: &Arc<TableDef>) {
    run(db, |s| {
        for k in 0..ROWS {
            s.point_insert(t, &row(k, k * 7919 % 1_000, &text(k, 0)))?;
        }
        Ok(())
    })
    .expect("insert");
    db.checkpoint(true).expect("checkpoint");
}

/// Gives all rows the texts of `round`: the merge supersedes the chunk of `b`.
fn set_texts(db: &Arc<Db>, round: u64) -> Result<()> {
    set_texts_of(db, &table(db), round)
}

fn set_texts_of(db: &Arc<Db>, t: &Arc<TableDef>, round: u64) -> Result<()> {
    run(db, |s| {
        for k in 0..ROWS {
            let set = [(ColumnId(2), Value::from(text(k, round).as_str()))];
            s.point_update(t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
    .map(drop)
}

/// The state after [`set_texts`].
fn texts(round: u64) -> State {
    let row = |k: i64| (k, (Some(k * 7919 % 1_000), text(k, round)));
    (0..ROWS).map(row).collect()
}

fn assert_state(db: &Arc<Db>, expected: &State, what: &str) {
    assert_eq!(&state_at(db, db.stable()), expected, "{what}: scan");
    for k in [0, 1, ROWS - 1] {
        let (a, b) = &expected[&k];
        let found = get(db, k).expect("a row");
        assert_eq!(found, row(k, a.expect("a value"), b), "{what}: row {k}");
    }
    assert!(db.check().expect("check").is_empty(), "{what}");
}

#[test]
fn bytes_return_to_the_bound_and_columns_are_moved_once() {
    let (machine, wall) = (Machine::new(1), clock());
    let mut db = machine.open(&wall);
    create(&db, HistoryPolicy::None);
    let loaded = machine.chunk_bytes();
    let mut first = None;
    for round in 1..=10 {
        wall.advance(1_000);
        set_texts(&db, round).expect("update");
        let compacted = db.checkpoint(true).expect("merge").compacted_files;
        assert_eq!(compacted, u64::from(round == 1), "the columns move once");
        assert_eq!(compactions(&db).0, 0, "nothing is superseded");
        let (files, bytes) = (machine.chunks(), machine.chunk_bytes());
        assert_eq!(files.len(), 2, "texts and times, and the other columns");
        assert_eq!(*first.get_or_insert(bytes) / 64, bytes / 64);
        // The rows' times are new.
        assert!(
            bytes <= loaded * 5 / 4 + 8 * ROWS as u64,
            "{bytes} of {loaded}"
        );
        assert_state(&db, &texts(round), "merged");
        if round % 3 == 0 {
            drop(db);
            db = machine.open(&wall);
            assert_state(&db, &texts(round), "opened");
        }
    }
}

#[test]
fn a_file_that_is_mostly_in_use_stays() {
    let (machine, wall) = (Machine::new(2), clock());
    let db = machine.open(&wall);
    create(&db, HistoryPolicy::None);
    let loaded = machine.chunks();
    set(&db, 0..ROWS, 5).expect("update");
    let report = db.checkpoint(true).expect("merge");
    assert_eq!((report.merged_ranges, report.compacted_files), (1, 0));
    let (superseded, ..) = compactions(&db);
    assert!(superseded > 0);
    let files = machine.chunks();
    assert!(loaded.keys().all(|name| files.contains_key(name)));
    drop(db);
    let db = machine.open(&wall);
    assert_eq!(compactions(&db).0, superseded, "it is in the manifest");
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!((report.merged_ranges, report.compacted_files), (0, 0));
    // Its texts are superseded as well: what is left of the file moves, and the numbers of the
    // second file, which are fewer bytes than its superseded times.
    set_texts(&db, 1).expect("update");
    assert_eq!(db.checkpoint(true).expect("merge").compacted_files, 2);
    let files = machine.chunks();
    assert!(!loaded.keys().any(|name| files.contains_key(name)));
    let mut expected = texts(1);
    expected.values_mut().for_each(|(a, _)| *a = Some(5));
    assert_state(&db, &expected, "merged");
}

/// A file with a column that waits for its merge waits, too: the column would be written twice.
#[test]
fn a_file_with_a_column_that_is_behind_waits() {
    let device = Arc::new(MemoryDevice::new());
    let db = open_eager(device, &clock(), 16).expect("open");
    create(&db, HistoryPolicy::None);
    set(&db, 3..4, 5).expect("update");
    set_texts(&db, 1).expect("update");
    let report = db.checkpoint(false).expect("merge of the texts");
    assert_eq!((report.merged_ranges, report.compacted_files), (1, 0));
    assert!(compactions(&db).0 > 0);
    let report = db.checkpoint(true).expect("merge of the rest");
    assert_eq!((report.merged_ranges, report.compacted_files), (1, 1));
    // The times beside the texts.
    let superseded = compactions(&db).0;
    assert!(superseded < 10 * ROWS as u64, "{superseded} bytes");
    let mut expected = texts(1);
    expected.get_mut(&3).expect("a row").0 = Some(5);
    assert_state(&db, &expected, "merged");
}

#[test]
fn readers_of_earlier_moments_see_the_same_before_and_after() {
    let (machine, wall) = (Machine::new(3), clock());
    let db = machine.open(&wall);
    create(&db, HistoryPolicy::Forever);
    let first = db.stable();
    let options = || TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = db.begin(options()).expect("begin");
    let t = table(&db);
    let statement = old.begin_statement().expect("statement");
    let scan = statement.scan(&t, request()).expect("scan");
    wall.advance(1_000);
    set_texts(&db, 1).expect("update");
    let second = db.stable();
    assert_eq!(state_at(&db, first), texts(0), "before");
    assert_eq!(db.checkpoint(true).expect("merge").compacted_files, 1);
    assert_eq!(scan_all(&scan), texts(0), "a scan that began before");
    let later = old.begin_statement().expect("statement");
    let again = later.scan(&t, request()).expect("scan");
    assert_eq!(scan_all(&again), texts(0), "an old snapshot");
    drop((scan, statement, again, later, old));
    for _ in 0..2 {
        wall.advance(1_000);
        db.checkpoint(true).expect("checkpoint");
        assert_eq!(state_at(&db, first), texts(0), "as of the first");
        assert_eq!(state_at(&db, second), texts(1), "as of the second");
    }
    drop(db);
    let db = machine.open(&wall);
    assert_eq!(state_at(&db, first), texts(0), "opened");
    assert_state(&db, &texts(1), "opened");
}

/// A file that somebody holds stays as long.
#[test]
fn a_backup_that_is_being_copied_keeps_the_old_file() {
    let (machine, wall) = (Machine::new(4), clock());
    let db = machine.open(&wall);
    create(&db, HistoryPolicy::None);
    let old: Vec<String> = machine.chunks().into_keys().collect();
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let compacted = AtomicU64::new(0);
    let compact = |_| {
        if compacted.load(Ordering::Relaxed) == 0 {
            set_texts(&db, 1).expect("update");
            let report = db.checkpoint(true).expect("merge");
            compacted.store(report.compacted_files, Ordering::Relaxed);
            assert!(machine.chunks().contains_key(&old[0]), "it is held");
        }
        true
    };
    db.backup(&target, &compact).expect("backup");
    assert_eq!(compacted.into_inner(), 1);
    assert!(!machine.chunks().contains_key(&old[0]), "it is let go");
    assert_state(&db, &texts(1), "the source");
    let copy = open(target, &wall).expect("open the copy");
    assert_state(&copy, &texts(0), "the copy");
}

/// A machine with a range whose next merge compacts a file.
fn before_compaction(seed: u64) -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (machine, wall) = (Machine::new(seed), clock());
    let db = machine.open(&wall);
    create(&db, HistoryPolicy::None);
    set_texts(&db, 1).expect("update");
    (machine, wall, db)
}

/// A crash at each operation of the checkpoint, and another one at an operation of the next: the
/// rows are there, and no file is left over.
#[test]
fn a_crash_at_any_write_and_a_second_one_lose_nothing() {
    let (machine, _, db) = before_compaction(5);
    let begun = machine.fast.operations();
    assert_eq!(db.checkpoint(true).expect("merge").compacted_files, 1);
    let operations = machine.fast.operations() - begun;
    let sizes: Vec<u64> = machine.chunks().into_values().collect();
    for at in 1..=operations {
        for seed in [0, 1, 2 + at] {
            let what = format!("operation {at} of {operations}, seed {seed}");
            let (machine, wall, db) = before_compaction(5);
            machine.fast.crash_at(machine.fast.operations() + at);
            let _ = db.checkpoint(true);
            drop(db);
            let machine = machine.after_crash(seed);
            let db = machine.open(&wall);
            assert_state(&db, &texts(1), &what);
            // The second crash is at another operation.
            let second = 1 + (at * 7 + seed) % operations;
            machine.fast.crash_at(machine.fast.operations() + second);
            let _ = db.checkpoint(true);
            drop(db);
            machine.fast.crash();
            let machine = machine.after_crash(seed + 1);
            let db = machine.open(&wall);
            assert_state(&db, &texts(1), &format!("{what}, then {second}"));
            db.checkpoint(true).expect("merge");
            db.checkpoint(true).expect("checkpoint");
            assert_eq!(compactions(&db).0, 0, "{what}");
            let left: Vec<u64> = machine.chunks().into_values().collect();
            assert_eq!(left.len(), sizes.len(), "{what}: no file is left over");
            assert_state(&db, &texts(1), &format!("{what}, merged"));
        }
    }
}

/// The capacity tier has room for the merge only: the merge succeeds, writers and checkpoints go
/// on, and the compaction follows when there is room.
#[test]
fn a_full_capacity_tier_puts_the_compaction_off() {
    // The least room, in steps, in which the checkpoint succeeds.
    let attempt = |room: u64| {
        let (machine, wall, db) = before_compaction(6);
        let used = machine.capacity.used_bytes();
        machine.capacity.limit_capacity(Some(used + room));
        let report = db.checkpoint(true).ok()?;
        Some((machine, wall, db, report))
    };
    let found = (0..1 << 20).step_by(128).find_map(attempt);
    let (machine, wall, db, report) = found.expect("some room is enough");
    assert_eq!((report.merged_ranges, report.compacted_files), (1, 0));
    let (superseded, compacted, set_aside) = compactions(&db);
    assert!(superseded > 0);
    assert_eq!((compacted, set_aside), (0, 1));
    db.check_health().expect("well");
    assert_eq!(machine.chunks().len(), 2, "nothing is left of the attempt");
    assert_state(&db, &texts(1), "full");
    // Background checkpoints pause it, and do their work.
    insert(&db, &row(ROWS, 1, "more"));
    machine.capacity.limit_capacity(None);
    let report = db.checkpoint(false).expect("checkpoint");
    assert_eq!((report.compacted_files, report.run_records), (0, 1));
    wall.advance(2_000_000);
    insert(&db, &row(ROWS + 1, 1, "more"));
    let report = db.checkpoint(false).expect("checkpoint");
    assert_eq!((report.compacted_files, report.run_records), (1, 1));
    assert_eq!(compactions(&db), (0, 1, 0));
    let mut expected = texts(1);
    let more = (Some(1), "more".to_string());
    expected.extend([(ROWS, more.clone()), (ROWS + 1, more)]);
    assert_state(&db, &expected, "there is room");
    drop(db);
    assert_state(&machine.open(&wall), &expected, "opened");
}

/// Tables `t` and `u`, whose next merges compact a file each.
fn two_before_compaction() -> (Machine, Arc<Db>) {
    let (machine, wall) = (Machine::new(8), clock());
    let db = machine.open(&wall);
    create(&db, HistoryPolicy::None);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let t = table(&db);
    let create_u = txn.change_catalog(&mut |catalog| {
        let mut u = definition(catalog, t.columns.clone(), HistoryPolicy::None);
        u.name = "u".into();
        catalog.put_table(u);
        Ok(())
    });
    create_u.expect("create");
    txn.commit().expect("commit");
    let u = db.catalog().table("public", "u").expect("u").clone();
    fill(&db, &u);
    set_texts(&db, 1).expect("update");
    set_texts_of(&db, &u, 1).expect("update");
    (machine, db)
}

/// The merges of all tables come first, and a full device ends the compactions of this checkpoint.
#[test]
fn a_compaction_without_room_takes_none_from_other_tables() {
    let attempt = |room: u64| {
        let (machine, db) = two_before_compaction();
        let used = machine.capacity.used_bytes();
        machine.capacity.limit_capacity(Some(used + room));
        let report = db.checkpoint(true).ok()?;
        Some((machine, db, report))
    };
    // The least room in which the merges succeed.
    let (mut short, mut enough) = (0, 1 << 20);
    while short + 1 < enough {
        let room = (short + enough) / 2;
        match attempt(room) {
            Some(_) => enough = room,
            None => short = room,
        }
    }
    let (machine, db, report) = attempt(enough).expect("enough room");
    assert_eq!((report.merged_ranges, report.compacted_files), (2, 0));
    assert_eq!(compactions(&db).2, 1, "that of u is not tried");
    db.check_health().expect("well");
    insert(&db, &row(ROWS, 1, "more"));
    machine.capacity.limit_capacity(None);
    assert_eq!(db.checkpoint(true).expect("room").compacted_files, 2);
    assert_eq!(compactions(&db), (0, 2, 0));
}

/// A column that cannot be read is not moved. The merge of others goes on.
#[test]
fn a_damaged_column_is_set_aside_and_merges_go_on() {
    let (machine, wall, db) = before_compaction(7);
    drop(db);
    let old: Vec<String> = machine.chunks().into_keys().collect();
    // The first block of `k`, the first column.
    machine.capacity.flip_bits(&old[0], 70, 4);
    let db = machine.open(&wall);
    let report = db.checkpoint(true).expect("the merge of the texts");
    assert_eq!((report.merged_ranges, report.compacted_files), (1, 0));
    assert_eq!(compactions(&db).2, 1);
    assert!(machine.chunks().contains_key(&old[0]));
    machine.capacity.flip_bits(&old[0], 70, 4);
    assert_eq!(db.checkpoint(true).expect("again").compacted_files, 1);
    assert_eq!(compactions(&db), (0, 1, 0));
    drop(db);
    assert_state(&machine.open(&wall), &texts(1), "mended");
}

/// Rows of a table with two wide columns, in one range.
const WIDE_ROWS: i64 = 5;
/// Bytes of a value of `b`. The column has more than a merge or a compaction takes into memory.
const WIDE_BYTES: usize = 100_000;

/// A text of `bytes` of which no codec makes less than three quarters.
fn wide_text(bytes: usize, seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let letter = |six: u64| char::from(b'0' + six as u8);
    (0..bytes).map(|_| letter(rng.below(64))).collect()
}

/// The row `k` after round `round` of changes of `c`, whose values have more bytes than those of
/// `b`.
fn wide_row(k: i64, round: u64) -> [Value; 4] {
    let b = wide_text(WIDE_BYTES, k as u64);
    let c = wide_text(WIDE_BYTES * 5 / 4, 100 * (1 + round) + k as u64);
    let (b, c) = (Value::from(b.as_str()), Value::from(c.as_str()));
    [Value::BigInt(k), Value::BigInt(k), b, c]
}

fn open_small(machine: &Machine, wall: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    open_with(machine.device(), wall, settings).expect("open")
}

/// A machine with a range whose next merge supersedes `c`, so that the file's other columns move:
/// the wide column `b` with them.
fn before_wide_compaction() -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (machine, wall) = (Machine::new(9), clock());
    let db = open_small(&machine, &wall);
    create_table(&db, HistoryPolicy::None);
    alter(&db, |t| add_column(t, "c", SqlType::Text, Value::Null));
    let t = table(&db);
    for k in 0..WIDE_ROWS {
        run(&db, |s| s.point_insert(&t, &wide_row(k, 0))).expect("insert");
    }
    db.checkpoint(true).expect("checkpoint");
    for k in 0..WIDE_ROWS {
        let set = [(ColumnId(3), wide_row(k, 1)[3].clone())];
        run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
    }
    (machine, wall, db)
}

fn assert_wide_rows(db: &Arc<Db>, what: &str) {
    for k in 0..WIDE_ROWS {
        let found = get(db, k).expect("a row");
        assert!(found == wide_row(k, 1), "{what}: row {k}");
    }
    assert!(db.check().expect("check").is_empty(), "{what}");
}

/// A wide column is compacted block by block. A crash at each operation loses nothing.
#[test]
fn a_crash_during_the_compaction_of_a_wide_column_loses_nothing() {
    let (machine, _, db) = before_wide_compaction();
    let begun = machine.fast.operations();
    assert_eq!(db.checkpoint(true).expect("merge").compacted_files, 1);
    let operations = machine.fast.operations() - begun;
    let sizes: Vec<u64> = machine.chunks().into_values().collect();
    let column_bytes = db.settings().range_bytes() as u64 / 4;
    assert_eq!(sizes.len(), 2, "c, and the other columns");
    assert!(sizes.iter().all(|bytes| *bytes > column_bytes), "{sizes:?}");
    assert_wide_rows(&db, "compacted");
    for at in 1..=operations {
        for seed in [0, 2 + at] {
            let what = format!("operation {at} of {operations}, seed {seed}");
            let (machine, wall, db) = before_wide_compaction();
            machine.fast.crash_at(machine.fast.operations() + at);
            let _ = db.checkpoint(true);
            drop(db);
            let machine = machine.after_crash(seed);
            let db = open_small(&machine, &wall);
            assert_wide_rows(&db, &what);
            db.checkpoint(true).expect("merge");
            db.checkpoint(true).expect("checkpoint");
            assert_eq!(compactions(&db).0, 0, "{what}");
            assert_eq!(
                machine.chunks().len(),
                sizes.len(),
                "{what}: files left over"
            );
            assert_wide_rows(&db, &format!("{what}, merged"));
        }
    }
}
