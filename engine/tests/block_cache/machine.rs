//! A machine with two disks and a block cache, and a table whose rows are known.

use crate::common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

pub const CACHE: &str = "block-cache";
pub const SEGMENT_BYTES: u32 = 8 << 10;
/// Bytes of the cache: its header and eight segments.
pub const CACHE_BYTES: u64 = 4096 + 8 * SEGMENT_BYTES as u64;
/// Rows of [`begin`].
pub const ROWS: i64 = 60;

/// The value of column `a` by key.
pub type Model = BTreeMap<i64, i64>;

/// The settings with a cache of small segments.
pub fn with_cache() -> Settings {
    Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        block_cache_bytes: CACHE_BYTES,
        block_cache_segment_bytes_max: SEGMENT_BYTES,
        ..eager(6)
    }
}

/// The disks of one machine. Operations of both are numbered together.
#[derive(Clone)]
pub struct Machine {
    pub fast: SimDisk,
    pub capacity: SimDisk,
}

impl Machine {
    pub fn new(seed: u64) -> Self {
        let fast = SimDisk::new(seed);
        let capacity = fast.beside(seed + 100);
        Self { fast, capacity }
    }

    pub fn try_device(&self) -> Result<Arc<dyn Device>> {
        let tiers = TieredDevice::new(self.fast.device(), self.capacity.device(), "/capacity");
        Ok(Arc::new(tiers?))
    }

    pub fn device(&self) -> Arc<dyn Device> {
        self.try_device().expect("tiers")
    }

    pub fn open(&self, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
        open_with(self.try_device()?, clock, with_cache())
    }

    /// Opens the database without a cache.
    pub fn open_plain(&self, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
        open_with(self.device(), clock, eager(6))
    }

    /// The machine found after a crash; what each disk has lost is drawn for itself.
    pub fn after_crash(&self, seed: u64) -> Self {
        let fast = self.fast.after_crash(seed);
        let capacity = self.capacity.after_crash(seed ^ 1);
        capacity.join(&fast);
        Self { fast, capacity }
    }

    /// The machine found after its power was cut with everything written.
    pub fn copy(&self) -> Self {
        let (fast, capacity) = (self.fast.after_crash(1), self.capacity.after_crash(1));
        capacity.join(&fast);
        Self { fast, capacity }
    }

    /// The bytes of the cache's file.
    pub fn cache_file(&self) -> Option<Vec<u8>> {
        self.fast.content(CACHE)
    }
}

pub fn stats(db: &Db) -> BlockCacheStats {
    db.block_cache_stats().expect("a cache")
}

/// A database with a cache and rows in chunks.
pub fn begin(seed: u64) -> (Machine, Arc<ManualClock>, Arc<Db>, Model) {
    let (machine, wall) = (Machine::new(seed), clock());
    let db = machine.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    let mut model = Model::new();
    insert_some(&db, &mut model, 0..ROWS, 1).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    (machine, wall, db, model)
}

/// Inserts rows with value `a` in one transaction. The model has them if the commit may have
/// happened.
pub fn insert_some(
    db: &Arc<Db>,
    model: &mut Model,
    keys: std::ops::Range<i64>,
    a: i64,
) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in keys.clone() {
            s.point_insert(&t, &row(k, a * 1000 + k, &format!("row {k}")))?;
            model.insert(k, a * 1000 + k);
        }
        Ok(())
    })
}

/// Text of a loaded row. A load of fewer than 4,096 rows gets a file if it has an eighth of a
/// range's bytes; so the rows are wide, and alike, so that the file is short.
pub fn wide_text(rows: usize) -> String {
    "wide ".repeat(160_000 / 5 / rows)
}

/// Loads rows with value `a` past the tails, into a chunk file that only the log knows.
pub fn load_some(
    db: &Arc<Db>,
    model: &mut Model,
    keys: std::ops::Range<i64>,
    a: i64,
) -> Result<()> {
    let (t, text) = (table(db), wide_text(keys.clone().count()));
    let rows: Vec<_> = keys
        .map(|k| (k, Some(a * 1000 + k), text.clone()))
        .collect();
    model.extend(rows.iter().map(|(k, a, _)| (*k, a.unwrap_or_default())));
    run(db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish().map(drop)
    })
}

/// Sets `a` of rows that there are.
pub fn set_some(db: &Arc<Db>, model: &mut Model, keys: std::ops::Range<i64>, a: i64) -> Result<()> {
    for k in keys.clone() {
        model.insert(k, a);
    }
    set(db, keys, a)
}

/// Column `a` of the row with key `k`; other columns are not read.
pub fn a_of(db: &Arc<Db>, k: i64) -> Result<Option<i64>> {
    let t = table(db);
    let mut out = Vec::new();
    let found = run(db, |s| {
        s.point_get(&t, 0, &[Value::BigInt(k)], &[ColumnId(1)], &mut out)
    })?;
    Ok(match out.first() {
        Some(Value::BigInt(a)) if found => Some(*a),
        _ => None,
    })
}

/// All rows, read one by one.
pub fn read_rows(db: &Arc<Db>, keys: impl Iterator<Item = i64>) -> Result<Model> {
    let mut found = Model::new();
    for k in keys {
        if let Some(a) = a_of(db, k)? {
            found.insert(k, a);
        }
    }
    Ok(found)
}

/// Reads of single rows, scans and files agree with the model.
pub fn assert_right(db: &Arc<Db>, model: &Model, what: &str) {
    let keys = 0..model.keys().next_back().map_or(0, |last| last + 2);
    let found = read_rows(db, keys).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(&found, model, "{what}");
    let scanned: Model = state_at(db, db.stable())
        .into_iter()
        .map(|(k, (a, _))| (k, a.unwrap_or_default()))
        .collect();
    assert_eq!(&scanned, model, "{what}: a scan");
}

/// Opens, reads every row and ends a few times, so that the cache has segments.
pub fn warm_up(machine: &Machine, wall: &Arc<ManualClock>, model: &Model) {
    for _ in 0..2 {
        let db = machine.open(wall).expect("open");
        assert_right(&db, model, "warming up");
    }
}
