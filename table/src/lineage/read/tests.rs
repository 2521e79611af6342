use super::*;
use crate::lineage::Shared;
use crate::lineage::history::{Reduction, unite};
use crate::lineage::horizon::Horizon;
use crate::update_run::{Run, RunRecord, RunWriter, UpdateCodec};
use std::sync::atomic::AtomicU64;
use strandline_base::{ManualClock, SqlState, SqlType, StorageId};
use strandline_device::MemoryDevice;
use strandline_storage::file::{Access, DataFiles, Tier};
use strandline_storage::pool::Pool;
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_tail::page_memory::PageAccount;
use strandline_tail::record_page::PageBytes;
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail::RECORDS_MAX;
use strandline_tail::write::write_entered;
use strandline_txn::{StartWord, TxnManager};

/// The row behind the first one.
const NEIGHBOUR: RowId = RowId(1);
const ALL: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];

/// A storage of three bigint columns with two rows of zeros, inserted at 1: the second one is
/// [`NEIGHBOUR`].
fn storage() -> (Arc<Lineage>, RowId) {
    storage_with(Arc::default())
}

fn storage_with(page_bytes: PageBytes) -> (Arc<Lineage>, RowId) {
    let device = Arc::new(MemoryDevice::new());
    let shared = Shared {
        files: DataFiles::new(device),
        pool: Pool::new(1 << 20),
        txns: TxnManager::new(Arc::new(ManualClock::new(1)), CommitTs(100)),
        page_bytes,
        next_file: Arc::new(AtomicU64::new(1)),
        consolidation: Arc::default(),
        range_bytes_max: 64 << 20,
        row_bytes_max: 1 << 30,
    };
    let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 3]);
    let lineage = Lineage::new(StorageId(1), schema, shared);
    let zeros = [const { Value::BigInt(0) }; 3];
    let [row, neighbour] = [(); 2].map(|()| {
        let row = lineage.insert(&zeros, &writer(1), &mut Vec::new());
        row.expect("inserted")
    });
    assert_eq!(neighbour, NEIGHBOUR);
    (lineage, row)
}

/// Of a transaction that committed at `ts`.
fn writer(ts: u64) -> Writer {
    Writer {
        word: StartWord::committed(CommitTs(ts)),
        statement: 0,
        snapshot: CommitTs(ts),
        speculative: false,
    }
}

fn try_set(lineage: &Lineage, row: RowId, column: ColumnId, ts: u64) -> Result<WriteOutcome> {
    let set = [(column, Value::BigInt(ts as i64))];
    lineage.write(row, Change::Update(&set), &writer(ts), &mut Vec::new())
}

fn set(lineage: &Lineage, row: RowId, column: ColumnId, ts: u64) {
    let outcome = try_set(lineage, row, column, ts);
    assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
}

fn read(lineage: &Lineage, row: RowId) -> Vec<i64> {
    let mut out = [const { Value::Null }; 3];
    assert!(lineage.read(row, &newest(), &ALL, &mut out).expect("read"));
    integers(&out)
}

/// Merges what was committed up to `ts`, all columns.
fn merge(lineage: &Arc<Lineage>, row: RowId, ts: u64) {
    assert!(merge_if_due(lineage, row, ts), "something to merge");
}

/// The same; false: there is nothing to merge.
fn merge_if_due(lineage: &Arc<Lineage>, row: RowId, ts: u64) -> bool {
    let range = lineage.range(row.range()).expect("the row's range");
    let horizon = Horizon::new(CommitTs(0), Vec::new(), Vec::new());
    let merged = lineage.merge_range(range, CommitTs(ts), &horizon, 3, true);
    let merged = merged.expect("merged");
    if let Some(merged) = &merged {
        lineage.publish_merge(merged);
    }
    merged.is_some()
}

fn newest() -> Visibility {
    Visibility {
        ts: CommitTs::MAX,
        own: StartWord(0),
        statement: 0,
    }
}

fn integers(row: &[Value]) -> Vec<i64> {
    let integer = |value: &Value| match value {
        Value::BigInt(n) => *n,
        other => panic!("{other:?} is no bigint"),
    };
    row.iter().map(integer).collect()
}

/// A reader that asks for the newest version has loaded the range's version; then a merge takes an
/// update of column 2, and a writer that goes by it puts one of column 1 on top, which does not
/// carry column 2 any more.
#[test]
fn an_update_that_goes_by_a_later_merge_does_not_end_the_walk() {
    let (lineage, row) = storage();
    merge(&lineage, row, 1);
    set(&lineage, row, ColumnId(2), 10);
    set(&lineage, NEIGHBOUR, ColumnId(1), 50); // keeps the tail
    let range = lineage.range(row.range()).expect("the row's range");
    let before = range.load_full();
    merge(&lineage, row, 10);
    set(&lineage, row, ColumnId(1), 20);

    let mut out = [const { Value::Null }; 3];
    let wanted = Wanted::new(&ALL, &mut out);
    let found = lineage.walk(range, &before, row, &newest(), wanted);
    assert!(found.expect("read"));
    assert_eq!(integers(&out), [0, 20, 10]);
    assert_eq!(read(&lineage, row), integers(&out));
}

/// The same on the way to a write: column 2 has been updated before, though neither the newest
/// record nor the bits of the version that the writer entered with show it.
#[test]
fn old_values_are_not_written_for_what_a_later_merge_has_taken() {
    let (lineage, row) = storage();
    merge(&lineage, row, 1);
    set(&lineage, row, ColumnId(2), 10);
    set(&lineage, NEIGHBOUR, ColumnId(1), 50); // keeps the tail
    let range = lineage.range(row.range()).expect("the row's range");
    let before = range.load_full();
    merge(&lineage, row, 10);
    set(&lineage, row, ColumnId(1), 20);

    let tail = range.load().tails[0].clone().expect("a tail");
    let value = [(ColumnId(2), Value::BigInt(30))];
    let (change, written) = (Change::Update(&value), &mut Vec::new());
    let place = (&**range, &*before, &*tail);
    let outcome = write_entered(&*lineage, place, row, change, &writer(30), written);
    assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
    let records: u32 = tail.pages().iter().map(|page| page.claimed()).sum();
    // Of columns 1 and 2 each an old value and an update; column 2's second update alone; the
    // neighbour's.
    assert_eq!(records, 5 + 2);
}

/// A row that always has an unmerged change, so that its tail is never given up.
#[test]
fn a_tail_goes_on_behind_two_to_the_power_of_31() {
    for first in [1 << 31, 1 << 32] {
        let account = PageAccount::with_first_record(first - 20);
        let (lineage, row) = storage_with(Arc::new(account));
        for ts in 2..60 {
            set(&lineage, row, ColumnId(1 + ts as u32 % 2), ts);
            if ts % 7 == 0 {
                merge(&lineage, row, ts - 1);
            }
            let (even, odd) = (ts & !1, (ts - 1) | 1);
            let odd = if odd == 1 { 0 } else { odd };
            assert_eq!(read(&lineage, row), [0, even as i64, odd as i64]);
        }
    }
}

#[test]
fn changes_beyond_the_last_number_are_refused() {
    let account = PageAccount::with_first_record(RECORDS_MAX - 9);
    let (lineage, row) = storage_with(Arc::new(account));
    // The first one comes with an old value.
    (2..10).for_each(|ts| set(&lineage, row, ColumnId(1), ts));
    let error = try_set(&lineage, row, ColumnId(1), 10).expect_err("no number is left");
    assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert_eq!(read(&lineage, row), [0, 9, 0]);
    // When all is merged, a new tail begins.
    merge(&lineage, row, 9);
    set(&lineage, row, ColumnId(1), 10);
    assert_eq!(read(&lineage, row), [0, 10, 0]);
}

#[test]
fn a_write_does_not_wait_for_ever_for_a_latch_or_a_sealed_tail() {
    let (lineage, row) = storage();
    set(&lineage, row, ColumnId(1), 2);
    let range = lineage.range(row.range()).expect("the row's range");
    let tail = range.load().tails[0].clone().expect("a tail");
    let latch = tail.row_map().latch(row.slot()).expect("free");
    let outcome = try_set(&lineage, row, ColumnId(1), 3);
    assert!(matches!(outcome, Ok(WriteOutcome::Busy)));
    drop(latch);
    assert!(tail.seal());
    let outcome = try_set(&lineage, row, ColumnId(1), 3);
    assert!(matches!(outcome, Ok(WriteOutcome::Busy)));
    tail.unseal();
    set(&lineage, row, ColumnId(1), 3);
    assert_eq!(read(&lineage, row), [0, 3, 0]);
}

/// What a cache between memory and the device goes by.
#[test]
fn reads_of_a_row_are_random_and_those_of_a_scan_sequential() {
    let (lineage, row) = storage();
    merge(&lineage, row, 1);
    let range = lineage.range(row.range()).expect("the row's range");
    let version = range.load_full();
    let BaseBody::Chunks(chunks) = &version.base.body else {
        panic!("merged into chunks");
    };
    let chunk = chunks.column(ColumnId(0)).expect("the first column");
    let reads = || [Access::Random, Access::Sequential].map(|a| lineage.shared.files.reads(a));
    assert_eq!(chunk.value(0).expect("value"), Value::BigInt(0));
    assert_eq!(
        reads(),
        [1, 0],
        "a short chunk is read at once, footer and all"
    );
    chunk.blocks(0..1, None).expect("blocks");
    assert_eq!(reads(), [1, 1]);
}

/// One pass gives what a read per version gives, wherever the row's records are: in the tail, in
/// runs, in both. Runs may lack what no moment from `oldest` on sees.
#[test]
fn a_row_s_versions_are_those_that_reads_find() {
    for seed in 0..60 {
        let mut rng = strandline_base::rng::Rng::new(seed);
        let (lineage, row) = storage();
        let (mut times, mut persisted, mut last) = (vec![1], 0, 60);
        for ts in 2..60 {
            match rng.below(8) {
                0 => {
                    persist(&lineage, row, persisted, ts - 1);
                    persisted = ts - 1;
                    merge_if_due(&lineage, row, ts - 1);
                }
                1 => {
                    persist(&lineage, row, persisted, ts - 1);
                    persisted = ts - 1;
                }
                2..=5 => {
                    set(&lineage, row, ColumnId(rng.below(3) as u32), ts);
                    times.push(ts);
                }
                6 => set(&lineage, NEIGHBOUR, ColumnId(1), ts),
                _ => {}
            }
        }
        if rng.one_in(2) {
            let outcome = lineage.write(row, Change::Delete, &writer(60), &mut Vec::new());
            assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
            (times, last) = ([times, vec![60]].concat(), 59);
        }
        if rng.one_in(2) {
            persist(&lineage, row, persisted, 60);
            merge_if_due(&lineage, row, 60);
        }
        let oldest = if rng.one_in(2) { rng.below(60) } else { 0 };
        reduce(&lineage, row, oldest);
        let is_kept = |to: &Option<CommitTs>| to.is_none_or(|to| to.0 > oldest);
        let first = |from: CommitTs| from.max(CommitTs(oldest));
        let mut found = Vec::new();
        let any = versions::VersionBounds::AnyChange;
        let mut visit = |v: versions::RowVersion<'_>| {
            if is_kept(&v.to) {
                found.push((first(v.from), v.to, v.values.to_vec()));
            }
            Ok(())
        };
        lineage
            .visit_versions(row, &ALL, any, &mut visit)
            .expect("visited");
        let ends = times
            .iter()
            .skip(1)
            .map(|ts| Some(CommitTs(*ts)))
            .chain([None]);
        let expected = times.iter().zip(ends).filter(|(ts, _)| **ts <= last);
        let expected: Vec<_> = expected
            .filter(|(_, to)| is_kept(to))
            .map(|(&ts, to)| (first(CommitTs(ts)), to))
            .map(|(from, to)| (from, to, read_at(&lineage, row, from.0)))
            .collect();
        assert_eq!(found, expected, "seed {seed}");

        // Of one column: the versions that changes of others began are one.
        let (one, wanted) = ([ColumnId(1)], versions::VersionBounds::WantedChange);
        let mut found = Vec::new();
        let mut visit = |v: versions::RowVersion<'_>| {
            if is_kept(&v.to) {
                found.push((first(v.from), v.values[0].clone()));
            }
            Ok(())
        };
        lineage
            .visit_versions(row, &one, wanted, &mut visit)
            .expect("visited");
        found.dedup_by(|a, b| a.1 == b.1);
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|(ts, _, v)| (ts, v[1].clone()))
            .collect();
        expected.dedup_by(|a, b| a.1 == b.1);
        assert_eq!(found, expected, "seed {seed}");
    }
}

fn read_at(lineage: &Lineage, row: RowId, ts: u64) -> Vec<Value> {
    let at = Visibility {
        ts: CommitTs(ts),
        ..newest()
    };
    let mut out = vec![Value::Null; 3];
    assert!(
        lineage.read(row, &at, &ALL, &mut out).expect("read"),
        "at {ts}"
    );
    out
}

/// Writes what was committed after `from` and up to `through` as a run.
fn persist(lineage: &Arc<Lineage>, row: RowId, from: u64, through: u64) {
    if from == through {
        return;
    }
    let range = lineage.range(row.range()).expect("the row's range");
    let version = range.load_full();
    let pending = lineage.pending_records(range.no(), &version, CommitTs(through), true, 3);
    let horizon = Horizon::new(CommitTs(0), Vec::new(), Vec::new());
    if let Some(run) = write_run(lineage, |push| pending.each(&horizon, push)) {
        let older = lineage.runs();
        let runs = [run].into_iter().chain(older.iter().cloned()).collect();
        lineage.set_runs(runs);
    }
    lineage.note_persisted(&version, CommitTs(through));
}

/// The run of the records that `fill` pushes; None: there are none.
fn write_run(
    lineage: &Lineage,
    fill: impl FnOnce(&mut dyn FnMut(RunRecord) -> Result<()>) -> Result<()>,
) -> Option<Arc<Run>> {
    let id = lineage.shared.new_file_id();
    let (files, name) = (&lineage.shared.files, format!("run-{id}"));
    let codec = UpdateCodec::of(&lineage.schema());
    let mut writer = RunWriter::create(files, Tier::Fast, &name, id, codec).expect("created");
    let mut records = 0;
    fill(&mut |record| {
        records += 1;
        writer.push(record)
    })
    .expect("written");
    (records > 0).then(|| Arc::new(writer.finish().expect("finished")))
}

/// Unites all runs without what no moment from `oldest` on sees.
fn reduce(lineage: &Arc<Lineage>, row: RowId, oldest: u64) {
    let range = lineage.range(row.range()).expect("the row's range");
    let merged_through = [(row.range(), range.load_full().base.merged_through())];
    let horizon = Horizon::new(CommitTs(oldest), Vec::new(), Vec::new());
    let reduction = Reduction {
        horizon: &horizon,
        merged_through: &merged_through.into(),
        has_oldest: true,
        begin: &|_| Ok(Some(CommitTs::ZERO)),
    };
    let runs = lineage.runs();
    let united = write_run(lineage, |push| unite(&runs, &reduction, push));
    lineage.set_runs(united.into_iter().collect());
}
