//! The paper's Lemmas 1 to 3 and Theorems 1 and 2 \[L-Store §4.1.2, §4.2\] as invariants of random
//! work, with merges and checkpoints forced between any two steps of any transaction, readers held
//! over them, and crashes after any step.
//!
//! Every step is taken on two databases, one that is merged all the time and a twin that never is;
//! a naive oracle knows what both must show.
//!
//! * Lemma 1, a merge operates on stable data only: a range's base is exactly the committed state
//!   as of its lineage, which is at or before the stable timestamp.
//! * Lemma 2, outdated pages are discarded safely: whatever snapshot is held, or kept by the
//!   history policy, reads the same after any number of merges.
//! * Theorem 1, the merge is contention-free: it returns while transactions are open, leaves their
//!   records and the row map alone, and every step ends as it does in the twin.
//! * Lemma 3 and Theorem 2, inconsistent reads are detected and consistent snapshots made: a scan
//!   that meets merges between its parts, or between two columns of a part, mixes nothing.
//!
//! `STRANDLINE_SEED` replays one seed, `STRANDLINE_RUNS` sets how many are tried.

mod common;

use arrow_array::{BooleanArray, RecordBatch};
use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_column::types;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;
use strandline_table::lineage::image::RangeImage;
use strandline_tail::record_page::RecordKind;

const KEYS: u64 = 24;
const READERS_MAX: usize = 4;

/// A database on a simulated disk, with a clock of its own.
struct Side {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
}

impl Side {
    fn new(seed: u64, history: HistoryPolicy) -> (Self, CommitTs) {
        let (disk, clock) = (SimDisk::new(seed), clock());
        let db = open_eager(disk.device(), &clock, DUE).expect("open");
        let (_, ts) = create_table(&db, history);
        (Self { disk, clock, db }, ts)
    }
    fn crashed(&self, seed: u64) -> Self {
        let disk = self.disk.after_crash(seed);
        let clock = self.clock.clone();
        let db = open_eager(disk.device(), &clock, DUE).expect("recovery");
        Self { disk, clock, db }
    }
    fn point(&self, statement: &Statement, k: i64) -> Option<(Option<i64>, String)> {
        let (t, mut out) = (table(&self.db), Vec::new());
        let columns = [ColumnId(1), ColumnId(2)];
        let found = statement.point_get(&t, 0, &[Value::BigInt(k)], &columns, &mut out);
        found.expect("get").then(|| cells(&out))
    }
}

/// Records that make a range due: few, so that columns are often merged apart.
const DUE: u32 = 8;

/// Columns `a` and `b`.
fn cells(values: &[Value]) -> (Option<i64>, String) {
    let a = match &values[0] {
        Value::BigInt(a) => Some(*a),
        _ => None,
    };
    match &values[1] {
        Value::Text(b) => (a, b.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A transaction on both sides.
struct Open {
    txns: [Arc<Transaction>; 2],
    begin: State,
    /// own writes: None = deleted
    writes: BTreeMap<i64, Option<(Option<i64>, String)>>,
}

impl Open {
    fn view(&self, committed: &State) -> State {
        let mut view = match self.txns[0].options().isolation {
            Isolation::Snapshot => self.begin.clone(),
            _ => committed.clone(),
        };
        apply(&mut view, &self.writes);
        view
    }
}

fn apply(state: &mut State, writes: &BTreeMap<i64, Option<(Option<i64>, String)>>) {
    for (key, value) in writes {
        match value {
            Some(value) => state.insert(*key, value.clone()),
            None => state.remove(key),
        };
    }
}

/// A snapshot of the merged side that stays, with what it must go on to see.
struct Reader {
    statement: Arc<Statement>,
    scan: Arc<TableScan>,
    /// units opened at the beginning, read at the end
    units: Vec<UnitReader>,
    expected: State,
}

struct World {
    /// the one that is merged, and the twin that is not
    sides: [Side; 2],
    /// committed states by commit timestamp
    moments: BTreeMap<CommitTs, State>,
    history: HistoryPolicy,
    open: Vec<Open>,
    readers: Vec<Reader>,
}

impl World {
    fn new(seed: u64, history: HistoryPolicy) -> Self {
        let (merged, ts) = Side::new(seed, history);
        let (twin, same) = Side::new(seed, history);
        assert_eq!(ts, same);
        let mut world = Self {
            sides: [merged, twin],
            moments: BTreeMap::from([(ts, State::new())]),
            history,
            open: Vec::new(),
            readers: Vec::new(),
        };
        world.fill();
        world
    }
    /// Most rows are there from the beginning, in one range.
    fn fill(&mut self) {
        self.begin(&mut Rng::new(0));
        for key in 0..KEYS as i64 {
            let action = Action::random(key, &State::new(), &mut Rng::new(key as u64));
            for (txn, side) in self.open[0].txns.iter().zip(&self.sides) {
                assert_eq!(action.take(txn, &table(&side.db)), Ok(true));
            }
            self.open[0].writes.insert(key, action.after);
        }
        self.commit(0);
        self.merge(true);
    }
    fn merged(&self) -> &Side {
        &self.sides[0]
    }
    fn now(&self) -> &State {
        self.moments.values().next_back().expect("one")
    }
    fn at(&self, ts: CommitTs) -> &State {
        self.moments.range(..=ts).next_back().expect("created").1
    }

    fn begin(&mut self, rng: &mut Rng) {
        let isolation = match rng.one_in(2) {
            true => Isolation::ReadCommitted,
            false => Isolation::Snapshot,
        };
        let begin = |side: &Side| {
            let options = TxnOptions {
                isolation,
                ..TxnOptions::default()
            };
            side.db.begin(options).expect("begin")
        };
        let txns = self.sides.each_ref().map(begin);
        let (begin, writes) = (self.now().clone(), BTreeMap::new());
        self.open.push(Open {
            txns,
            begin,
            writes,
        });
    }

    /// Something random in a random transaction, perhaps taken back to a savepoint; Theorem 1: it
    /// ends the same way with merges and without.
    fn step(&mut self, rng: &mut Rng) {
        let at = rng.below(self.open.len() as u64) as usize;
        let mut one = self.open.swap_remove(at);
        let key = rng.below(KEYS) as i64;
        if self.open.iter().any(|o| o.writes.contains_key(&key)) {
            return self.open.push(one); // would wait for the other one
        }
        let taken_back = rng.one_in(5);
        let savepoints = one.txns.each_ref().map(|txn| txn.savepoint());
        let before = one.writes.clone();
        let action = Action::random(key, &one.view(self.now()), rng);
        let outcomes = [0, 1].map(|i| action.take(&one.txns[i], &table(&self.sides[i].db)));
        assert_eq!(outcomes[0], outcomes[1], "Theorem 1: {action:?}");
        if outcomes[0].is_err() {
            one.txns.iter().for_each(|txn| txn.rollback());
            return;
        }
        assert_eq!(outcomes[0], Ok(true), "{action:?}");
        one.writes.insert(key, action.after);
        if taken_back {
            for (txn, savepoint) in one.txns.iter().zip(&savepoints) {
                txn.rollback_to(savepoint).expect("rollback to");
            }
            one.writes = before;
        }
        self.open.push(one);
    }

    fn commit(&mut self, at: usize) {
        let one = self.open.swap_remove(at);
        let mut next = self.now().clone();
        apply(&mut next, &one.writes);
        let has_written = one.txns[0].has_written();
        let times = one.txns.each_ref().map(|txn| txn.commit().expect("commit"));
        if has_written {
            assert_eq!(times[0], times[1]);
            self.moments.insert(times[0], next);
        }
    }

    fn hold_a_reader(&mut self, rng: &mut Rng) {
        let options = TxnOptions {
            isolation: Isolation::Snapshot,
            ..TxnOptions::default()
        };
        let txn = self.merged().db.begin(options).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let t = table(&self.merged().db);
        let scan = statement.scan(&t, request()).expect("scan");
        let early = if rng.one_in(2) { scan.units() } else { 0 };
        let units = (0..early).map(|unit| scan.open_unit(unit).expect("unit"));
        self.readers.push(Reader {
            units: units.collect(),
            statement,
            scan,
            expected: self.now().clone(),
        });
    }

    /// Merges and checkpoints, whatever is open, and looks at what they did.
    /// Whether some column's chunk is behind another one's.
    fn merge(&self, all: bool) -> bool {
        let images = || {
            let db = &self.merged().db;
            db.lineage_of(&table(db)).expect("image")
        };
        let before = images();
        before.iter().for_each(check_two_hops);
        self.merged().db.checkpoint(all).expect("checkpoint");
        let after = images();
        self.check_lemma_1(&after);
        check_theorem_1(&before, &after);
        let is_behind = |range: &RangeImage| range.merged.all() < range.merged.rows();
        after.iter().any(is_behind)
    }

    /// A range's base is the committed state as of its lineage.
    fn check_lemma_1(&self, ranges: &[RangeImage]) {
        let stable = self.merged().db.stable();
        for range in ranges.iter().filter(|range| !range.is_insert) {
            let through = range.merged.rows();
            assert!(through <= stable, "Lemma 1: {through} after {stable}");
            let columns = [ColumnId(1), ColumnId(2)].map(|c| self.at(range.merged.column(c)));
            for row in &range.rows {
                let Some(start) = row.start.commit_ts().filter(|_| !row.is_deleted) else {
                    continue;
                };
                assert!(start.max(row.last_updated) <= through, "Lemma 1: {row:?}");
                let Value::BigInt(key) = row.values[0] else {
                    panic!("{row:?}")
                };
                let (a, b) = cells(&row.values[1..]);
                let [of_a, of_b] = columns.map(|state| state.get(&key).expect("a row since"));
                assert_eq!((a, &b), (of_a.0, &of_b.1), "Lemma 1: {key}");
                assert!(self.at(through).contains_key(&key), "Lemma 1: {key}");
            }
        }
    }

    /// What is held, and what the policy keeps, is as it was.
    fn check_lemma_2(&mut self, rng: &mut Rng) {
        for reader in &self.readers {
            if rng.one_in(2) {
                assert_eq!(scan_all(&reader.scan), reader.expected, "Lemma 2: a scan");
            }
            let key = rng.below(KEYS) as i64;
            let found = self.merged().point(&reader.statement, key);
            assert_eq!(found.as_ref(), reader.expected.get(&key), "Lemma 2: {key}");
        }
        self.check_moments(self.merged(), rng);
        if self.readers.len() == READERS_MAX {
            let at = rng.below(READERS_MAX as u64) as usize;
            self.readers.swap_remove(at).finish();
        }
    }

    /// The newest state and, if they are kept, some moments of the past.
    fn check_moments(&self, side: &Side, rng: &mut Rng) {
        let t = table(&side.db);
        let txn = side.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let found = scan_all(&statement.scan(&t, request()).expect("scan"));
        assert_eq!(&found, self.now(), "the newest state");
        if self.history == HistoryPolicy::None {
            return;
        }
        let (first, last) = (*self.moments.keys().next().expect("one"), side.db.stable());
        for _ in 0..2 {
            let ts = CommitTs(first.0 + rng.below(last.0 - first.0 + 1));
            let scan = statement.scan_as_of(&t, ts, request()).expect("as of");
            assert_eq!(&scan_all(&scan), self.at(ts), "Lemma 2: as of {ts}");
        }
    }

    /// A crash now keeps what was acknowledged, whatever was merged or open.
    fn crash(&mut self, rng: &mut Rng) {
        let style = rng.next_u64();
        let merged = self.merged().crashed(style);
        self.check_moments(&merged, rng);
        let damage = merged.db.check().expect("check");
        assert!(damage.is_empty(), "{damage:?}");
        if rng.one_in(3) {
            let twin = self.sides[1].crashed(style);
            self.readers.drain(..).for_each(Reader::finish);
            self.open.clear();
            self.sides = [merged, twin];
        }
    }
}

impl Reader {
    /// Reads the units that were opened at the beginning. Lemma 3 and Theorem 2: parts that are
    /// read before and after merges make one snapshot.
    fn finish(self) {
        if self.units.is_empty() {
            return;
        }
        let mut found = State::new();
        for mut unit in self.units {
            while let Some(batch) = unit.next_batch().expect("read") {
                add_rows(&batch, &mut found);
            }
        }
        assert_eq!(found, self.expected, "Theorem 2: units opened before");
    }
}

fn add_rows(batch: &RecordBatch, state: &mut State) {
    for i in 0..batch.num_rows() {
        let value = |at: usize, t| types::value_at(t, batch.column(at), i);
        let Value::BigInt(key) = value(0, SqlType::BigInt) else {
            panic!("a key")
        };
        let row = cells(&[value(1, SqlType::BigInt), value(2, SqlType::Text)]);
        assert!(state.insert(key, row).is_none(), "key {key} twice");
    }
}

/// A merge changes no row map entry but those of records that it takes out of the tails, and takes
/// no record of an open transaction away.
fn check_theorem_1(before: &[RangeImage], after: &[RangeImage]) {
    for (before, after) in before.iter().zip(after) {
        let open = |range: &RangeImage| {
            let records = range.records.iter().filter(|r| r.start.is_txn()).cloned();
            records.collect::<Vec<_>>()
        };
        assert_eq!(open(before), open(after), "Theorem 1: open records");
        for (row, now) in before.rows.iter().zip(&after.rows) {
            let is_newest = |r: &strandline_table::lineage::image::RecordImage| {
                r.row == row.row && r.number == row.head
            };
            let is_gone = now.head == 0 && !after.records.iter().any(is_newest);
            let is_kept = now.head == row.head || is_gone;
            assert!(is_kept, "Theorem 1: {row:?} is now {now:?}");
        }
    }
}

/// The newest record of a row has every column updated since its base: with base that is two hops.
fn check_two_hops(range: &RangeImage) {
    for row in range.rows.iter().filter(|row| row.head > 0) {
        let newer = |r: &&strandline_table::lineage::image::RecordImage| {
            let ts = r.start.commit_ts();
            r.row == row.row && r.kind == RecordKind::Update && ts > Some(range.merged.all())
        };
        let records: Vec<_> = range.records.iter().filter(newer).collect();
        let Some(newest) = records.last().filter(|newest| newest.number == row.head) else {
            continue; // a deletion, or not committed
        };
        for record in &records {
            for (column, _) in &record.columns {
                let has = newest.columns.iter().any(|(c, _)| c == column);
                assert!(has, "{:?} lacks column {column} of {record:?}", newest);
            }
        }
    }
}

/// A write of one row.
#[derive(Debug)]
struct Action {
    key: i64,
    is_insert: bool,
    set: Vec<(ColumnId, Value)>,
    /// the row after it; None: deleted
    after: Option<(Option<i64>, String)>,
}

impl Action {
    /// An insertion if there is no such row, else an update or deletion.
    fn random(key: i64, view: &State, rng: &mut Rng) -> Self {
        let fresh = (
            (!rng.one_in(6)).then(|| rng.below(1000) as i64),
            format!("{} is more than twelve bytes", rng.below(1000)),
        );
        let a = |row: &(Option<i64>, String)| row.0.map_or(Value::Null, Value::BigInt);
        let b = |row: &(Option<i64>, String)| Value::from(row.1.as_str());
        let Some(row) = view.get(&key).cloned() else {
            return Self {
                key,
                is_insert: true,
                set: vec![(ColumnId(1), a(&fresh)), (ColumnId(2), b(&fresh))],
                after: Some(fresh),
            };
        };
        let (set, after) = match rng.below(if key % 6 == 0 { 6 } else { 60 }) {
            0 => (Vec::new(), None),
            1 | 5.. => (vec![(ColumnId(1), a(&fresh))], Some((fresh.0, row.1))),
            2 => (vec![(ColumnId(2), b(&fresh))], Some((row.0, fresh.1))),
            _ => {
                let set = vec![(ColumnId(1), a(&fresh)), (ColumnId(2), b(&fresh))];
                (set, Some(fresh))
            }
        };
        Self {
            key,
            is_insert: false,
            set,
            after,
        }
    }

    /// Whether the row was found, or how it failed.
    fn take(&self, txn: &Arc<Transaction>, t: &Arc<catalog::TableDef>) -> Outcome {
        let statement = txn.begin_statement().expect("statement");
        let key = [Value::BigInt(self.key)];
        let outcome = match &self.after {
            Some((a, b)) if self.is_insert => {
                let a = a.map_or(Value::Null, Value::BigInt);
                let row = [Value::BigInt(self.key), a, Value::from(b.as_str())];
                statement.point_insert(t, &row).map(|_| true)
            }
            Some(_) => statement.point_update(t, 0, &key, &self.set),
            None => statement.point_delete(t, 0, &key),
        };
        outcome.map_err(|e| e.sqlstate())
    }
}

type Outcome = std::result::Result<bool, SqlState>;

/// How many merges left columns of different lineage.
fn run_seed(seed: u64) -> usize {
    let history = match seed % 3 {
        0 => HistoryPolicy::None,
        _ => HistoryPolicy::Forever,
    };
    let (mut rng, mut lagging) = (Rng::new(seed), 0);
    let mut world = World::new(seed, history);
    for step in 0..200 {
        // Tails grow in some stretches, in the others merges follow each other.
        let is_growing = step / 25 % 2 == 1;
        let us = rng.below(2000);
        world.sides.iter().for_each(|side| side.clock.advance(us));
        match rng.below(20) {
            0..=2 if world.open.len() < 3 => world.begin(&mut rng),
            3 | 4 if !world.open.is_empty() => world.commit(0),
            5 if !world.open.is_empty() => {
                let one = world.open.remove(0);
                one.txns.iter().for_each(|txn| txn.rollback());
            }
            6 if world.readers.len() < READERS_MAX => world.hold_a_reader(&mut rng),
            _ if world.open.is_empty() => world.begin(&mut rng),
            _ => world.step(&mut rng),
        }
        if rng.below(24) < if is_growing { 5 } else { 16 } {
            lagging += usize::from(world.merge(rng.one_in(8)));
        }
        world.check_lemma_2(&mut rng);
        if rng.one_in(6) {
            world.crash(&mut rng);
        }
    }
    world.readers.drain(..).for_each(Reader::finish);
    lagging
}

#[test]
fn merges_between_any_two_steps_keep_the_lemmas() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("STRANDLINE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STRANDLINE_RUNS").unwrap_or(12),
    };
    let mut lagging = 0;
    for seed in seeds.clone() {
        println!("seed {seed}");
        lagging += run_seed(seed);
    }
    println!("{lagging} merges left columns of different lineage");
    assert!(
        lagging > 0 || seeds.end - seeds.start < 10,
        "columns are merged apart"
    );
}

/// A filter over column `a` that lets everything through, and has the table updated and merged
/// before the scan comes to column `b`.
struct Meddler {
    db: Arc<Db>,
    rows: i64,
}

impl RowFilter for Meddler {
    fn columns(&self) -> &[ColumnId] {
        &[ColumnId(1)]
    }
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        set_all(&self.db, self.rows);
        self.db.checkpoint(true)?;
        Ok(BooleanArray::from(vec![true; batch.num_rows()]))
    }
}

/// Updates `a` and `b` of all rows together: `b` is `a` as text.
fn set_all(db: &Arc<Db>, rows: i64) {
    let (t, now) = (table(db), db.stable().0 as i64);
    let set = [
        (ColumnId(1), Value::BigInt(now)),
        (ColumnId(2), Value::from(now.to_string())),
    ];
    let txn = db.begin(TxnOptions::default()).expect("begin");
    for k in 0..rows {
        let statement = txn.begin_statement().expect("statement");
        let found = statement.point_update(&t, 0, &[Value::BigInt(k)], &set);
        assert!(found.expect("update"));
    }
    txn.commit().expect("commit");
}

#[test]
fn lemma_3_a_scan_that_meets_a_merge_between_two_columns_mixes_nothing() {
    let (side, _) = Side::new(1, HistoryPolicy::None);
    let rows = 50;
    for k in 0..rows {
        insert(&side.db, &row(k, 0, "0"));
    }
    side.db.checkpoint(true).expect("merge");
    for round in 0..6 {
        set_all(&side.db, rows);
        let expected = side.db.stable();
        if round % 2 == 0 {
            side.db.checkpoint(true).expect("merge");
        }
        let meddler = Meddler {
            db: side.db.clone(),
            rows,
        };
        let request = ScanRequest {
            filters: vec![Arc::new(meddler)],
            ..request()
        };
        let t = table(&side.db);
        let scan = run(&side.db, |s| s.scan(&t, request)).expect("scan");
        let found = scan_all(&scan);
        assert_eq!(found.len(), rows as usize);
        for (a, b) in found.values() {
            assert_eq!(a.expect("not NULL").to_string(), *b, "Lemma 3");
            assert!((a.expect("not NULL") as u64) < expected.0);
        }
    }
}
