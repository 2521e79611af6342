//! I/Os of an operation by tier against Table 1 \[Indirection §5.1\], counted, not timed. As there,
//! inner nodes are in memory and leaves are not; log writes are not counted. `--nocapture` shows
//! the table.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use strandline_device::{Device, File, MemoryDevice, TieredDevice};

const ENTRIES: u64 = 40_000;
const OPERATIONS: u64 = 2_000;
/// Entries of a block.
const BLOCK: usize = 32;

/// Reads and writes.
#[derive(Debug, Default)]
struct Counts([AtomicUsize; 2]);

/// A device that counts the reads and writes of its files.
#[derive(Debug, Default)]
struct Counted {
    inner: MemoryDevice,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn File>,
    counts: Arc<Counts>,
}

impl Counted {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let counts = self.counts.clone();
        Arc::new(CountedFile { inner, counts })
    }
}

impl Device for Counted {
    strandline_device::forward!(inner: remove rename list sync_directory lock location);
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(name)?))
    }
}

impl File for CountedFile {
    strandline_device::forward!(inner: name sync len set_len);
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.counts.0[0].fetch_add(1, Relaxed);
        self.inner.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.counts.0[1].fetch_add(1, Relaxed);
        self.inner.write_all_at(buf, offset)
    }
}

/// An index in a store with memory for few pages.
struct Rig {
    store: Arc<PageStore>,
    index: Box<dyn AccessMethod>,
    tiers: [Arc<Counts>; 2],
}

/// I/Os per operation: reads and writes of the fast tier, then of the capacity tier.
type Ios = [f64; 4];

impl Rig {
    /// Loaded with entries of so many keys; without blocks if there is no kind.
    fn new(kind: Option<BlockKind>, keys: u64) -> Self {
        let devices = [Counted::default(), Counted::default()];
        let tiers = [devices[0].counts.clone(), devices[1].counts.clone()];
        let [fast, capacity] = devices.map(|device| Arc::new(device) as Arc<dyn Device>);
        let device = TieredDevice::new(fast, capacity, String::new()).expect("two devices");
        let store = store(Arc::new(device), Arc::default(), 8);
        let settings = settings(PAGE_BODY_BYTES, &Arc::default());
        let index: Box<dyn AccessMethod> = match kind {
            Some(kind) => {
                let made = LidIndex::create(store.clone(), FILES, settings, form(kind, BLOCK));
                Box::new(made.expect("created"))
            }
            None => {
                let made = PagedIndex::create(store.clone(), FILES.0, settings);
                Box::new(made.expect("created"))
            }
        };
        let mut load = index.bulk_load();
        for row in 0..ENTRIES {
            let v = (row % keys) as i64 * 2;
            load.push(&number(v), RowId(row), &mut Vec::new())
                .expect("pushed");
        }
        load.finish().expect("loaded");
        Self {
            store,
            index,
            tiers,
        }
    }

    fn counts(&self) -> [usize; 4] {
        let count = |at: usize| self.tiers[at / 2].0[at % 2].load(Relaxed);
        [0, 1, 2, 3].map(count)
    }

    /// The I/Os of one of many operations, those of the last checkpoint included.
    fn measure(&self, operations: u64, mut operate: impl FnMut(u64)) -> Ios {
        self.store.checkpoint().expect("stored");
        let before = self.counts();
        (0..operations).for_each(&mut operate);
        self.store.checkpoint().expect("stored");
        let after = self.counts();
        [0, 1, 2, 3].map(|at| (after[at] - before[at]) as f64 / operations as f64)
    }

    fn key(&self, v: u64) -> KeyBytes {
        self.index.encode(&number(v as i64))
    }

    /// Removes a loaded row that has this key.
    fn delete(&self, v: u64, keys: u64, rng: &mut Rng) {
        let row = RowId(v / 2 + keys * rng.below(ENTRIES / keys));
        let retired = self.index.retire(&self.key(v), row, CommitTs::ZERO);
        retired.expect("retired");
    }

    /// Random insertions between the loaded keys, unique searches, updates of the key, deletions.
    fn run(&self, keys: u64) -> [Ios; 4] {
        let index = &*self.index;
        let random = |seed: u64| {
            let mut rng = Rng::new(seed);
            move || rng.below(keys) * 2
        };
        let mut key_of = random(1);
        let insertion = self.measure(OPERATIONS, |no| {
            let added = index.add(&self.key(key_of()), RowId(ENTRIES + no));
            added.expect("added");
        });
        let mut key_of = random(2);
        let search = self.measure(OPERATIONS, |_| {
            let looked = index.lookup(&self.key(key_of()), &mut Vec::new());
            looked.expect("read");
        });
        let (mut key_of, mut rng) = (random(3), Rng::new(5));
        let update = self.measure(OPERATIONS, |no| {
            self.delete(key_of(), keys, &mut rng);
            let row = RowId(2 * ENTRIES + no);
            index.add(&self.key(key_of()), row).expect("added");
        });
        let mut key_of = random(4);
        let deletion = self.measure(OPERATIONS, |_| self.delete(key_of(), keys, &mut rng));
        [insertion, search, update, deletion]
    }
}

#[test]
fn capacity_ios_are_amortized_over_a_block() {
    let names = ["insertion", "search", "update", "deletion"];
    println!("| {ENTRIES} entries | fast reads | fast writes | capacity reads | writes |");
    println!("|---|---|---|---|---|");
    let print = |method: &str, ios: &[Ios; 4]| {
        for (name, [a, b, c, d]) in names.iter().zip(ios) {
            println!("| {method}: {name} | {a:.2} | {b:.2} | {c:.2} | {d:.2} |");
        }
    };
    let base = Rig::new(None, ENTRIES).run(ENTRIES);
    print("no blocks", &base);
    let sparse = Rig::new(Some(BlockKind::Sparse), ENTRIES).run(ENTRIES);
    print("sparse", &sparse);
    let (dense_keys, b) = (100, BLOCK as f64);
    let dense_base = Rig::new(None, dense_keys).run(dense_keys);
    print("no blocks, 400 rows a value", &dense_base);
    let dense = Rig::new(Some(BlockKind::Dense), dense_keys).run(dense_keys);
    print("dense, 400 rows a value", &dense);
    for (base, blocks) in [(base, sparse), (dense_base, dense)] {
        for at in [0, 2, 3] {
            let [fast_reads, fast_writes, reads, writes] = blocks[at];
            let slots = if at == 2 { 2.0 } else { 1.0 };
            assert!(fast_reads + fast_writes <= 2.0 * slots * (1.0 + 2.0 / b));
            // A block is moved when it is full, and then meets more leaves than one if its leaf was
            // divided since.
            assert!(
                reads <= 3.0 * slots / b && writes <= 3.0 * slots / b,
                "{at}: {blocks:?}"
            );
            assert!(
                base[at][2] + base[at][3] > 8.0 * (reads + writes),
                "{at}: {base:?}"
            );
        }
        assert!(
            blocks[1][2] <= base[1][2] + 0.1,
            "a search reads the same leaves"
        );
        assert!(blocks[1][0] <= 1.0, "and one page of blocks");
    }
}
