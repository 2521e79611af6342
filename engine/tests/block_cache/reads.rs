//! Which accesses to the capacity tier the cache spares.

use crate::common::counting_device::CountingDevice;
use crate::common::*;
use crate::machine::a_of;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// Rows: several blocks of 4,096.
const ROWS: i64 = 13_000;
/// A block of 4,096 rows of a column that does not compress.
const BLOCK_BYTES: u64 = 64 << 10;

/// Two devices in memory, of which the capacity tier counts accesses.
#[derive(Default)]
struct Directories {
    fast: Arc<MemoryDevice>,
    capacity: Arc<CountingDevice>,
    clock: Option<Arc<ManualClock>>,
}

/// A value that does not compress.
fn noise(k: i64) -> i64 {
    (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) ^ (k << 13)
}

impl Directories {
    /// A closed database with chunks of several blocks.
    fn new() -> Self {
        let directories = Self {
            clock: Some(clock()),
            ..Self::default()
        };
        let db = directories.open(0);
        create_table(&db, HistoryPolicy::None);
        let rows = (0..ROWS).map(|k| (k, Some(noise(k)), "text".to_owned()));
        let rows = batch(&rows.collect::<Vec<_>>());
        let t = table(&db);
        run(&db, |s| {
            let mut load = s.bulk_insert(&t)?;
            load.append(&rows)?;
            load.finish()
        })
        .expect("load");
        db.close().expect("close");
        directories
    }

    fn open(&self, block_cache_bytes: u64) -> Arc<Db> {
        let device = TieredDevice::new(self.fast.clone(), self.capacity.clone(), "/capacity");
        let settings = Settings {
            block_cache_bytes,
            ..Settings::default()
        };
        let clock = self.clock.as_ref().expect("a clock");
        open_with(Arc::new(device.expect("tiers")), clock, settings).expect("open")
    }

    /// Opens the database with a cache of 16 MiB.
    fn open_cached(&self) -> Arc<Db> {
        self.open(16 << 20)
    }

    /// Accesses to chunk files and the bytes read while `work` runs.
    fn accesses(&self, work: impl FnOnce()) -> (u64, u64) {
        let counts = || (self.capacity.reads("chunks"), self.capacity.read("chunks"));
        let before = counts();
        work();
        let after = counts();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Accesses by reading column `a` of row `k`.
    fn read(&self, db: &Arc<Db>, k: i64) -> (u64, u64) {
        self.accesses(|| assert_eq!(a_of(db, k).expect("read"), Some(noise(k))))
    }

    /// The name of the only chunk file.
    fn chunk_file(&self) -> String {
        files(&*self.capacity, "chunks-").remove(0)
    }

    /// Bytes of the chunk file.
    fn len(&self) -> u64 {
        let file = self.capacity.inner().open(&self.chunk_file());
        file.expect("open").len().expect("len")
    }

    /// Flips a bit of the chunk file.
    fn damage(&self, offset: u64) {
        let file = self
            .capacity
            .inner()
            .open(&self.chunk_file())
            .expect("open");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("read");
        file.write_all_at(&[byte[0] ^ 4], offset).expect("write");
    }
}

/// Without a cache the first read of a column takes the footer, with its trailer, and the block.
/// The keys' opening has read the header.
#[test]
fn a_first_read_without_a_cache_takes_two_accesses() {
    let directories = Directories::new();
    let db = directories.open(0);
    let (reads, bytes) = directories.read(&db, 0);
    assert_eq!(reads, 2);
    assert!(bytes <= BLOCK_BYTES + 4096, "{bytes}");
    let (reads, _) = directories.read(&db, 5_000);
    assert_eq!(reads, 1, "another block: the footer stays in memory");
    assert_eq!(
        directories.read(&db, 1),
        (0, 0),
        "the first block is in memory"
    );
}

/// The promise: one access, at most 64 KiB. The footer is on the fast tier, also after a restart.
#[test]
fn a_cold_read_of_one_column_takes_one_access() {
    let directories = Directories::new();
    let db = directories.open_cached();
    assert_eq!(directories.read(&db, 0).0, 2, "nothing is cached");
    drop(db);
    let db = directories.open_cached();
    let (reads, bytes) = directories.read(&db, 5_000);
    assert_eq!(reads, 1);
    assert!(bytes > 16 << 10 && bytes <= BLOCK_BYTES, "{bytes}");
    assert_eq!(directories.read(&db, 0), (0, 0), "a cached block");
    drop(db);
    let db = directories.open_cached();
    for k in [0, 5_000] {
        assert_eq!(directories.read(&db, k), (0, 0), "both are cached now");
    }
    let stats = db.block_cache_stats().expect("a cache");
    assert!(stats.hits >= 3 && stats.damaged == 0, "{stats:?}");
}

/// The columns of a row are asked of the cache first, and of the capacity tier as one batch.
#[test]
fn a_cold_row_is_one_batch_and_then_cached() {
    let directories = Directories::new();
    let read = |db: &Arc<Db>, k: i64| {
        let waits = directories.capacity.waits("chunks");
        let (reads, _) = directories.accesses(|| {
            let table = table(db);
            let mut out = Vec::new();
            let columns = [ColumnId(1), ColumnId(2)];
            let key = [Value::BigInt(k)];
            let found = run(db, |s| s.point_get(&table, 0, &key, &columns, &mut out));
            assert!(found.expect("read"));
            assert_eq!(out, [Value::BigInt(noise(k)), Value::from("text")]);
        });
        (directories.capacity.waits("chunks") - waits, reads)
    };
    let db = directories.open_cached();
    // The footer of column `a`; then its block, and the whole chunk of the text, which is short.
    assert_eq!(read(&db, 5_000), (2, 3));
    drop(db);
    let db = directories.open_cached();
    assert_eq!(read(&db, 5_000), (0, 0));
    assert_eq!(read(&db, 9_000), (1, 1), "a block that is not cached");
    let stats = db.block_cache_stats().expect("a cache");
    assert_eq!(stats.damaged, 0);
}

/// A killed process keeps what was written, and only that.
#[test]
fn the_cache_is_warm_after_a_close_and_its_counts_are_shown() {
    let directories = Directories::new();
    let db = directories.open_cached();
    directories.read(&db, 0);
    db.close().expect("close");
    let rows = db.tier_counts().expect("counts");
    let cache = rows.iter().find(|row| row.name == "block_cache");
    let cache = cache.expect("a row for the cache");
    assert!(cache.bytes > 30 << 10 && cache.bytes_max.is_some_and(|max| max >= 12 << 20));
    assert_eq!((cache.writes, cache.fresh_bytes), (Some(1), None));
    assert!(
        cache
            .written_bytes
            .is_some_and(|written| written > cache.bytes)
    );
    let [_, misses, admissions, ..] = cache.events.expect("events");
    assert!(misses >= 2 && admissions >= 2);
    let sections = db.inspect().expect("inspect").sections;
    let section = sections
        .iter()
        .find(|section| section.title == "Block cache");
    let rows = &section.expect("a section").rows;
    assert_eq!(rows.len(), 1, "one segment");
    assert_eq!(rows[0][3], cache.bytes.to_string());
    assert!(
        sections
            .iter()
            .any(|s| s.title == "Tiers" && s.rows.iter().any(|row| row[0] == "block_cache"))
    );
    drop(db);
    let db = directories.open_cached();
    assert_eq!(directories.read(&db, 0), (0, 0));
}

/// Scans neither ask for blocks nor leave any: footers only.
#[test]
fn a_scan_does_not_fill_the_cache() {
    let directories = Directories::new();
    let db = directories.open_cached();
    let (reads, bytes) = directories.accesses(|| {
        assert_eq!(state_at(&db, db.stable()).len() as i64, ROWS);
    });
    assert!(
        reads > 0 && bytes > 90 << 10,
        "{reads} reads, {bytes} bytes"
    );
    let stats = db.block_cache_stats().expect("a cache");
    assert!(stats.bytes <= 4 * 4096, "{stats:?}");
    assert!(
        stats.blocks <= 4,
        "the header and a footer per column: {stats:?}"
    );
    drop(db);
    let db = directories.open_cached();
    let (again, _) = directories.accesses(|| {
        assert_eq!(state_at(&db, db.stable()).len() as i64, ROWS);
    });
    assert!(
        again < reads,
        "footers are on the fast tier: {again} of {reads}"
    );
}

/// The check reads the capacity tier, though the cache has the block, the footer and the header.
#[test]
fn a_check_reads_past_the_cache() {
    // The header, a block of column `a`, the footer of the last column.
    let places: [fn(u64) -> u64; 3] = [|_| 20, |len| len / 2, |len| len - 20];
    for place in places {
        let directories = Directories::new();
        let db = directories.open_cached();
        for k in (0..ROWS).step_by(4_096) {
            directories.read(&db, k);
        }
        assert_eq!(db.check().expect("check"), Vec::<String>::new());
        db.close().expect("close");
        drop(db);
        let at = place(directories.len());
        directories.damage(at);
        let db = directories.open_cached();
        for k in (0..ROWS).step_by(4_096) {
            assert_eq!(directories.read(&db, k), (0, 0), "the cache has it");
        }
        let damage = db.check().expect("check");
        assert!(!damage.is_empty(), "byte {at}");
        assert!(damage[0].contains("chunks-"), "{damage:?}");
    }
}

/// A block that is damaged on the capacity tier is an error, and is not copied into the cache: once
/// it is repaired it is read.
#[test]
fn damage_of_the_capacity_tier_is_not_cached() {
    let directories = Directories::new();
    let db = directories.open_cached();
    directories.read(&db, 0);
    // Column `a` follows the keys, which hardly take space; the file's middle is in a block of it.
    let middle = directories.len() / 2;
    directories.damage(middle);
    let admissions = || db.block_cache_stats().expect("a cache").admissions;
    let (mut errors, mut admitted) = (Vec::new(), admissions());
    for k in (0..ROWS).step_by(4_096) {
        match a_of(&db, k) {
            Err(error) => {
                assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED);
                assert_eq!(admissions(), admitted, "damage is not admitted");
                errors.push(k);
            }
            Ok(found) => assert_eq!(found, Some(noise(k))),
        }
        admitted = admissions();
    }
    assert_eq!(errors.len(), 1, "one block is damaged");
    directories.damage(middle);
    assert_eq!(
        a_of(&db, errors[0]).expect("repaired"),
        Some(noise(errors[0]))
    );
}
