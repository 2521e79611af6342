//! A history checker in the manner of Elle: random concurrent transactions append to lists and read
//! them, with merges, checkpoints, rollbacks and savepoints all along; from what the committed ones
//! have read follows who depends on whom, and a cycle of dependencies is an anomaly.
//!
//! A row is a list: its text column holds the numbers of the appends. The final list of a key gives
//! the order of its versions, because every append keeps what was there. So
//! * the reader of a version depends on its writer (wr),
//! * the writer of a version on that of the version before it (ww),
//! * the writer of the next version on whoever has read this one (rw).
//!
//! Serializable permits no cycle; snapshot isolation only such with two rw edges in a row, so none
//! with fewer than two.

mod common;

use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 150;
const KEYS: u64 = 6;

/// What a transaction has done to a key: the list it saw, and the number it appended to it.
#[derive(Clone, Debug)]
struct Access {
    key: i64,
    seen: Vec<u64>,
    appended: Option<u64>,
}

type Committed = Vec<Access>;

struct World {
    db: Arc<Db>,
    table: Arc<TableDef>,
    isolation: Isolation,
    next: AtomicU64,
}

fn list(text: &str) -> Vec<u64> {
    let numbers = text.split(',').filter(|part| !part.is_empty());
    numbers.map(|n| n.parse().expect("a number")).collect()
}

fn text(list: &[u64]) -> Value {
    let numbers: Vec<String> = list.iter().map(u64::to_string).collect();
    Value::from(numbers.join(","))
}

impl World {
    /// A random transaction; None if it was rolled back or refused.
    fn transaction(&self, rng: &mut Rng) -> Result<Option<Committed>> {
        let txn = self.db.begin(TxnOptions {
            isolation: self.isolation,
            ..TxnOptions::default()
        })?;
        let mut done = Committed::new();
        for _ in 0..=rng.below(4) {
            let savepoint = txn.savepoint();
            let key = rng.below(KEYS) as i64;
            match rng.below(8) {
                0 => done.extend(self.scan(&txn)?),
                1 => {
                    // Taken back, but what was read was read.
                    let mut access = self.append(&txn, key)?;
                    txn.rollback_to(&savepoint)?;
                    access.appended = None;
                    done.push(access);
                }
                2..=4 => done.push(Access {
                    key,
                    seen: self.read(&txn, key)?.unwrap_or_default(),
                    appended: None,
                }),
                _ => done.push(self.append(&txn, key)?),
            }
        }
        if rng.below(8) == 0 {
            txn.rollback();
            return Ok(None);
        }
        txn.commit()?;
        Ok(Some(done))
    }

    fn read(&self, txn: &Arc<Transaction>, key: i64) -> Result<Option<Vec<u64>>> {
        let mut out = Vec::new();
        let key = [Value::BigInt(key)];
        let statement = txn.begin_statement()?;
        let found = statement.point_get(&self.table, 0, &key, &[ColumnId(2)], &mut out)?;
        Ok(match (found, out.first()) {
            (true, Some(Value::Text(value))) => Some(list(value)),
            _ => None,
        })
    }

    fn append(&self, txn: &Arc<Transaction>, key: i64) -> Result<Access> {
        let before = self.read(txn, key)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let seen = before.clone().unwrap_or_default();
        let mut after = seen.clone();
        after.push(number);
        let statement = txn.begin_statement()?;
        let (k, value) = (Value::BigInt(key), text(&after));
        if before.is_some() {
            statement.point_update(&self.table, 0, &[k], &[(ColumnId(2), value)])?;
        } else {
            statement.point_insert(&self.table, &[k, Value::Null, value])?;
        }
        Ok(Access {
            key,
            seen,
            appended: Some(number),
        })
    }

    fn scan(&self, txn: &Arc<Transaction>) -> Result<Committed> {
        let scan = txn.begin_statement()?.scan(&self.table, request())?;
        let rows = scan_all(&scan);
        Ok((0..KEYS as i64)
            .map(|key| Access {
                key,
                seen: rows.get(&key).map_or_else(Vec::new, |(_, b)| list(b)),
                appended: None,
            })
            .collect())
    }
}

/// Runs the threads; all committed transactions, the last one a scan of everything.
fn history(isolation: Isolation, seed: u64) -> Vec<Committed> {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let db = open(Arc::new(MemoryDevice::new()), &clock).expect("open");
    let (table, _) = create_table(&db, HistoryPolicy::None);
    let world = World {
        db,
        table,
        isolation,
        next: AtomicU64::new(1),
    };
    let running = AtomicBool::new(true);
    let (refused, mut all) = (AtomicU64::new(0), Vec::new());
    std::thread::scope(|scope| {
        let merging = scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                world.db.checkpoint(true).expect("checkpoint");
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (world, refused) = (&world, &refused);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * THREADS + thread);
                    let mut committed = Vec::new();
                    for _ in 0..TRANSACTIONS {
                        match world.transaction(&mut rng) {
                            Ok(done) => committed.extend(done),
                            Err(error) if error.kind() == ErrorKind::Conflict => {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            // Two insert one key: the later one is told.
                            Err(error) if error.sqlstate() == SqlState::UNIQUE_VIOLATION => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    committed
                })
            })
            .collect();
        for worker in workers {
            all.extend(worker.join().expect("no worker panics"));
        }
        running.store(false, Ordering::Relaxed);
        merging.join().expect("merging does not panic");
    });
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    all.push(world.scan(&txn).expect("scan"));
    println!("{} committed, {refused:?} refused", all.len());
    assert!(all.len() > TRANSACTIONS as usize, "most must come through");
    all
}

/// Dependencies between transactions, by index.
#[derive(Default)]
struct Dependencies {
    /// ww and wr
    firm: BTreeSet<(usize, usize)>,
    /// rw
    anti: BTreeSet<(usize, usize)>,
}

impl Dependencies {
    fn of(history: &[Committed]) -> Self {
        let last = history.last().expect("the final scan");
        let order: BTreeMap<i64, &Vec<u64>> = last.iter().map(|a| (a.key, &a.seen)).collect();
        let mut writer = BTreeMap::new();
        for (i, transaction) in history.iter().enumerate() {
            for number in transaction.iter().filter_map(|access| access.appended) {
                assert!(writer.insert(number, i).is_none(), "numbers are unique");
            }
        }
        let mut found = Self::default();
        for (i, transaction) in history.iter().enumerate() {
            for access in transaction {
                found.add(i, access, order[&access.key], &writer);
            }
        }
        found
    }

    fn add(
        &mut self,
        reader: usize,
        access: &Access,
        order: &[u64],
        writer: &BTreeMap<u64, usize>,
    ) {
        let seen = &access.seen;
        // Only committed elements (G1a), of one version order (no lost update), whole (G1b).
        assert!(
            order.starts_with(seen),
            "{seen:?} is no prefix of {order:?}"
        );
        if let Some(number) = access.appended {
            assert_eq!(order.get(seen.len()), Some(&number), "an append was lost");
        }
        if let Some(before) = seen.last() {
            self.firm.insert((writer[before], reader));
        }
        if let Some(after) = order.get(seen.len())
            && writer[after] != reader
        {
            self.anti.insert((reader, writer[after]));
        }
        self.firm.retain(|(from, to)| from != to);
    }

    /// A cycle of the given edges, if there is one.
    fn cycle(edges: &BTreeSet<(usize, usize)>) -> Option<Vec<usize>> {
        let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(from, to) in edges {
            next.entry(from).or_default().push(to);
        }
        let mut finished = BTreeSet::new();
        for &start in next.keys() {
            let mut path = vec![(start, 0)];
            while let Some((node, at)) = path.last_mut() {
                let node = *node;
                match next.get(&node).and_then(|to| to.get(*at)) {
                    Some(&to) => {
                        *at += 1;
                        if let Some(from) = path.iter().position(|(n, _)| *n == to) {
                            return Some(path[from..].iter().map(|(n, _)| *n).collect());
                        }
                        if !finished.contains(&to) {
                            path.push((to, 0));
                        }
                    }
                    None => {
                        finished.insert(node);
                        path.pop();
                    }
                }
            }
        }
        None
    }

    fn all(&self) -> BTreeSet<(usize, usize)> {
        self.firm.union(&self.anti).copied().collect()
    }
}

/// `make soak` and failures: STRANDLINE_SEED.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let given = std::env::var("STRANDLINE_SEED").ok();
    let first = given.and_then(|text| text.parse().ok()).unwrap_or(1);
    first..first + count
}

#[test]
fn serializable_histories_have_no_cycle() {
    for seed in seeds(3) {
        let history = history(Isolation::Serializable, seed);
        let dependencies = Dependencies::of(&history);
        if let Some(cycle) = Dependencies::cycle(&dependencies.all()) {
            let involved: Vec<_> = cycle.iter().map(|i| (i, &history[*i])).collect();
            panic!("seed {seed}: {involved:#?}");
        }
    }
}

#[test]
fn snapshot_histories_have_no_cycle_with_less_than_two_anti_dependencies() {
    for seed in seeds(3) {
        let history = history(Isolation::Snapshot, seed);
        let dependencies = Dependencies::of(&history);
        assert_eq!(Dependencies::cycle(&dependencies.firm), None, "seed {seed}");
        for &edge in &dependencies.anti {
            let mut edges = dependencies.firm.clone();
            edges.insert(edge);
            assert_eq!(Dependencies::cycle(&edges), None, "seed {seed}");
        }
    }
}

#[test]
fn the_checker_finds_write_skew() {
    let read = |key, seen: &[u64]| Access {
        key,
        seen: seen.to_vec(),
        appended: None,
    };
    let append = |key, seen: &[u64], number| Access {
        key,
        seen: seen.to_vec(),
        appended: Some(number),
    };
    let history = [
        vec![read(1, &[]), append(2, &[], 7)],
        vec![read(2, &[]), append(1, &[], 8)],
        vec![read(1, &[8]), read(2, &[7])],
    ];
    let dependencies = Dependencies::of(&history);
    assert_eq!(Dependencies::cycle(&dependencies.firm), None);
    assert!(Dependencies::cycle(&dependencies.all()).is_some());
}
