//! What operations of the R-tree read and log: pages and bytes, no times.
//!
//! `cargo run --release -p strandline-index --example r_tree [ENTRIES]` (default: 100,000). The
//! points are uniformly distributed. Searches run with memory for four pages, so that each page
//! that an operation needs is read.

use std::sync::{Arc, Mutex};
use strandline_base::rng::Rng;
use strandline_base::{CommitTs, Result, RowId, Value};
use strandline_device::MemoryDevice;
use strandline_index::{
    AccessMethod, Rect, SpatialIndex, SpatialIndexSettings, SpatialMethod, SpatialQuery,
};
use strandline_storage::pages::{PAGE_BYTES, PageFileId, PageLog, PageSettings, PageStore};
use strandline_storage::pool::Pool;
use strandline_storage::wal::Lsn;

const FILE: PageFileId = PageFileId(1);
/// Operations of each kind.
const OPERATIONS: u64 = 1_000;
/// The points' coordinates are below this.
const SIDE: f64 = 1e6;

/// A log that keeps nothing but its end.
#[derive(Debug, Default)]
struct Log(Mutex<u64>);

impl PageLog for Log {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut end = self.0.lock().expect("not poisoned");
        *end += record.len() as u64;
        Ok(Lsn(*end))
    }
    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
    fn end(&self) -> Lsn {
        Lsn(*self.0.lock().expect("not poisoned"))
    }
}

struct Bench {
    store: Arc<PageStore>,
    log: Arc<Log>,
    index: SpatialIndex,
}

fn settings() -> SpatialIndexSettings {
    SpatialIndexSettings::new(Arc::new(|| CommitTs::ZERO))
}

fn store(device: &Arc<MemoryDevice>, log: &Arc<Log>, pages: usize) -> Arc<PageStore> {
    let settings = PageSettings {
        pool: Pool::new(pages * PAGE_BYTES),
        ..PageSettings::default()
    };
    PageStore::new(device.clone(), log.clone(), settings)
}

/// An index that `fill` has filled, with memory for four pages from then on.
fn filled(points: &[[f64; 2]], is_loaded: bool) -> Result<Bench> {
    let (device, log) = (Arc::new(MemoryDevice::default()), Arc::default());
    let store_all = store(&device, &log, 1 << 20);
    let index = SpatialIndex::create(store_all.clone(), FILE, settings())?;
    let before = log.end().0;
    if is_loaded {
        let mut load = index.bulk_load();
        for (point, row) in points.iter().zip(0..) {
            load.push(&point.map(Value::Double), RowId(row), &mut Vec::new())?;
        }
        load.finish()?;
    } else {
        for (point, row) in points.iter().zip(0..) {
            index.add(&index.encode(&point.map(Value::Double)), RowId(row))?;
        }
    }
    let bytes = (log.end().0 - before) as f64 / points.len() as f64;
    store_all.checkpoint()?;
    let used = store_all.check(FILE)?.used.len();
    let fill = points.len() as f64 / used as f64;
    let how = if is_loaded { "loaded" } else { "inserted" };
    println!("{how}: {used} pages, {fill:.0} entries a page, {bytes:.0} log bytes an entry");
    store_all.close_file(FILE);
    let store = store(&device, &log, 4);
    store.open_file(FILE)?;
    let index = SpatialIndex::open(store.clone(), FILE, settings())?;
    Ok(Bench { store, log, index })
}

impl Bench {
    /// Runs an operation many times, each for a random point; prints the mean numbers.
    fn measure(&self, name: &str, mut act: impl FnMut([f64; 2]) -> Result<usize>) -> Result<()> {
        let mut rng = Rng::new(2);
        let before = (self.store.stats().reads, self.log.end().0);
        let mut found = 0;
        for _ in 0..OPERATIONS {
            found += act(point(&mut rng))?;
        }
        let mean = |sum: u64| sum as f64 / OPERATIONS as f64;
        let reads = mean(self.store.stats().reads - before.0);
        let bytes = mean(self.log.end().0 - before.1);
        let found = mean(found as u64);
        println!("  {name}: {reads:.2} pages read, {bytes:.0} bytes logged, {found:.1} found");
        Ok(())
    }

    fn window(&self, low: [f64; 2], side: f64) -> Result<usize> {
        let window = Rect::new(low, low.map(|v| v + side));
        let mut rows = Vec::new();
        let mut cursor = self.index.search(&SpatialQuery::Overlaps(window))?;
        cursor.next_rows(usize::MAX, &mut rows)?;
        Ok(rows.len())
    }

    fn nearest(&self, point: [f64; 2], count: usize) -> Result<usize> {
        let mut cursor = self.index.nearest(point)?;
        let mut found = 0;
        while found < count && cursor.next()?.is_some() {
            found += 1;
        }
        Ok(found)
    }
}

fn point(rng: &mut Rng) -> [f64; 2] {
    [0, 1].map(|_| rng.below(1 << 40) as f64 / (1_u64 << 40) as f64 * SIDE)
}

fn main() -> Result<()> {
    let entries = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let entries: u64 = entries.unwrap_or(100_000);
    let mut rng = Rng::new(1);
    let points: Vec<_> = (0..entries).map(|_| point(&mut rng)).collect();
    for is_loaded in [false, true] {
        let bench = filled(&points, is_loaded)?;
        let index = &bench.index;
        let side = SIDE * (100.0 / entries as f64).sqrt();
        bench.measure("window of 100", |low| bench.window(low, side))?;
        bench.measure("nearest 10", |from| bench.nearest(from, 10))?;
        let mut row = entries;
        bench.measure("insertion", |at| {
            row += 1;
            let key = index.encode(&at.map(Value::Double));
            index.add(&key, RowId(row)).map(usize::from)
        })?;
        let mut rng = Rng::new(3);
        bench.measure("removal", |_| {
            let row = rng.below(entries);
            let key = index.encode(&points[row as usize].map(Value::Double));
            index.retire(&key, RowId(row), CommitTs::ZERO)?;
            Ok(1)
        })?;
    }
    Ok(())
}
