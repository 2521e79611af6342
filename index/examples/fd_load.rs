//! What loads of many entries into an FD+tree cost:
//!
//! ```text
//! cargo run --release -p strandline-index --example fd_load -- PLACE [entries] [load] [loads]
//! ```
//!
//! PLACE: `memory`, or a directory on a disk. A tree of `entries` random entries takes `loads`
//! loads of `load` random entries each. Prints nanoseconds per entry of each load and blocks
//! written, for loads without and with a look for entries under the same key. Most time is the
//! merge of the levels that a load replaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_base::{Clock, Error, Result, SystemClock};
use strandline_device::OsDevice;
use strandline_index::{FdTree, FdTreeSettings};
use strandline_storage::level_blocks::{FileBlocks, LevelBlocks, MemoryBlocks};
use strandline_storage::pool::Pool;

const BLOCK_BYTES: usize = 4096;

/// Blocks that count what passes.
#[derive(Debug)]
struct Counted {
    inner: Box<dyn LevelBlocks>,
    read: AtomicU64,
    written: AtomicU64,
    syncs: AtomicU64,
}

impl LevelBlocks for Counted {
    strandline_storage::forward_blocks!(inner: block_bytes allocate free used set_used image);

    fn read(&self, block: u64) -> Result<Vec<u8>> {
        self.read.fetch_add(1, Relaxed);
        self.inner.read(block)
    }
    fn read_many(&self, blocks: &[u64]) -> Result<Vec<Vec<u8>>> {
        self.read.fetch_add(blocks.len() as u64, Relaxed);
        self.inner.read_many(blocks)
    }
    fn write(&self, blocks: &[(u64, Vec<u8>)]) -> Result<()> {
        self.written.fetch_add(blocks.len() as u64, Relaxed);
        self.inner.write(blocks)
    }
    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        self.inner.sync()
    }
    fn put_image(&self, image: &[u8]) -> Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        self.inner.put_image(image)
    }
}

/// The entry of a number: a permutation of all numbers as the key, the number as the row.
fn entry(number: u64) -> [u8; 17] {
    let mut entry = [1; 17];
    let key = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    entry[1..9].copy_from_slice(&key.to_be_bytes());
    entry[9..].copy_from_slice(&number.to_be_bytes());
    entry
}

fn load(tree: &FdTree, numbers: std::ops::Range<u64>, is_unique: bool) -> Result<u64> {
    let mut entries: Vec<_> = numbers.map(entry).collect();
    entries.sort_unstable();
    let entries: Vec<&[u8]> = entries.iter().map(<[u8; 17]>::as_slice).collect();
    let mut met = is_unique.then(Vec::new);
    let begin = SystemClock.elapsed_us();
    tree.load(&entries, met.as_mut())?;
    Ok((SystemClock.elapsed_us() - begin) * 1000 / entries.len().max(1) as u64)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| {
        let text = arguments.get(at).and_then(|text| text.parse().ok());
        text.unwrap_or(default)
    };
    let place = arguments.first().map_or("memory", String::as_str);
    let (entries, each, loads) = (number(1, 1_000_000), number(2, 100_000), number(3, 8));
    for is_unique in [false, true] {
        let inner: Box<dyn LevelBlocks> = match place {
            "memory" => Box::new(MemoryBlocks::new(BLOCK_BYTES)),
            directory => {
                let name = format!("fd-load-{is_unique}");
                Box::new(FileBlocks::open(
                    &OsDevice::open(directory)?,
                    &name,
                    BLOCK_BYTES,
                )?)
            }
        };
        if inner.image()?.is_some() {
            return Err(Error::internal("the directory has a tree already"));
        }
        let blocks = Arc::new(Counted {
            inner,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        });
        let settings = FdTreeSettings {
            head_blocks: 32,
            ..FdTreeSettings::default()
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(64 << 20))?;
        for first in (0..entries).step_by(1 << 20) {
            load(&tree, first..entries.min(first + (1 << 20)), false)?;
        }
        let counts = || [&blocks.read, &blocks.written, &blocks.syncs].map(|one| one.load(Relaxed));
        let before = counts();
        let mut each_ns = Vec::new();
        for nth in 0..loads {
            let first = entries + nth * each;
            each_ns.push(load(&tree, first..first + each, is_unique)?);
        }
        let mean = each_ns.iter().sum::<u64>() / loads.max(1);
        let after = counts();
        let [read, written, syncs] = [0, 1, 2].map(|at| after[at] - before[at]);
        println!(
            "{place} unique {is_unique} {entries} entries: {mean} ns/entry {each_ns:?}, blocks \
             read {read}, written {written}, syncs {syncs}, {:?}",
            tree.levels()
        );
    }
    Ok(())
}
