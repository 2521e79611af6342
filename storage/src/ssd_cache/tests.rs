//! Tests of the cache on two simulated disks of one machine.

mod admission;
mod crash_cases;
mod damage;
mod failures;
mod loss;
mod model;
mod modes;
mod races;
mod size;
mod threads;

use std::sync::Arc;

use strandline_base::Result;
use strandline_device::{Device, File, Tier, TieredDevice};
use strandline_sim::SimDisk;

use super::*;
use crate::file::Access;

const IDENTITY: u128 = 0xab_cdef;
/// Slots of the tests; a small block takes one.
const SLOT_BYTES: u32 = 512;
/// Bytes of the blocks of most tests.
const LEN: u32 = 100;
/// Blocks of a file.
const FILE_BLOCKS: u64 = 64;
/// Distance of two blocks.
const STRIDE: u64 = 2_048;

/// The files of the capacity tier: `pages-<file>`.
#[derive(Debug)]
struct Files(Arc<dyn Device>);

impl Files {
    fn file(&self, file: u64) -> Result<Arc<dyn File>> {
        self.0.open(&format!("pages-{file}"))
    }
}

impl Capacity for Files {
    fn read(&self, block: BlockKey, _: Access) -> Result<Vec<u8>> {
        let mut bytes = vec![0; block.len as usize];
        self.file(block.file)?
            .read_exact_at(&mut bytes, block.offset)?;
        Ok(bytes)
    }

    fn write(&self, block: BlockKey, bytes: &[u8]) -> Result<()> {
        self.file(block.file)?.write_all_at(bytes, block.offset)
    }

    fn sync(&self, file: u64) -> Result<()> {
        self.file(file)?.sync()
    }
}

/// A machine with a fast disk and a large one.
#[derive(Clone)]
struct Machine {
    fast: SimDisk,
    large: SimDisk,
}

impl Machine {
    /// Files 1 to `files` exist with version 0 of all blocks, durably.
    fn new(files: u64) -> Self {
        let fast = SimDisk::new(1);
        let large = fast.beside(2);
        let device = large.device();
        for file in 1..=files {
            let handle = device.create(&format!("pages-{file}")).unwrap();
            let mut whole = vec![0; (FILE_BLOCKS * STRIDE) as usize];
            for n in 0..FILE_BLOCKS {
                let block = block(file, n);
                // A longer block has the same bytes, and more.
                let bytes = content(
                    BlockKey {
                        len: 1_900,
                        ..block
                    },
                    0,
                );
                whole[block.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            handle.write_all_at(&whole, 0).unwrap();
            handle.sync().unwrap();
        }
        device.sync_directory().unwrap();
        Self { fast, large }
    }

    fn device(&self) -> Arc<TieredDevice> {
        let (fast, large) = (self.fast.device(), self.large.device());
        Arc::new(TieredDevice::new(fast, large, "/large").unwrap())
    }

    fn open_with(&self, settings: Settings) -> Result<SsdCache> {
        let (fast, large) = (self.fast.device(), self.large.device());
        let device = Arc::new(TieredDevice::new(fast, large, "/large")?);
        let files = device.device_of(Tier::Capacity).clone();
        SsdCache::open(device, Arc::new(Files(files)), settings)
    }

    fn open(&self, slots: u32) -> SsdCache {
        self.open_with(settings(slots)).unwrap()
    }

    /// The machine after a crash; seeds as in [`SimDisk::after_crash`].
    fn after_crash(&self, fast_seed: u64, large_seed: u64) -> Self {
        let fast = self.fast.after_crash(fast_seed);
        let large = self.large.after_crash(large_seed);
        large.join(&fast);
        Self { fast, large }
    }

    /// The machine as a new process finds it after the old one was killed.
    fn after_kill(&self) -> Self {
        let (fast, large) = (self.fast.after_kill(), self.large.after_kill());
        large.join(&fast);
        Self { fast, large }
    }

    /// The version of a block on the capacity tier.
    fn on_capacity(&self, block: BlockKey) -> Option<u64> {
        let files = Files(self.large.device());
        version(block, &files.read(block, Access::Random).unwrap())
    }
}

fn settings(slots: u32) -> Settings {
    Settings {
        slot_bytes: SLOT_BYTES,
        free_slots: 2,
        batch: 4,
        ..Settings::new(IDENTITY, u64::from(slots) * u64::from(SLOT_BYTES))
    }
}

fn block(file: u64, n: u64) -> BlockKey {
    let offset = n * STRIDE;
    BlockKey {
        file,
        offset,
        len: LEN,
    }
}

/// The bytes of a version of a block: the version, then bytes that depend on all of it.
fn content(block: BlockKey, version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    let fill = |i: u32| {
        let mixed = (version + 1).wrapping_mul(0x9e37_79b9)
            ^ block.file.wrapping_mul(31)
            ^ (block.offset / STRIDE)
            ^ u64::from(i);
        mixed as u8
    };
    bytes.extend((8..block.len).map(fill));
    bytes
}

/// The version that `bytes` are; None if they are none.
fn version(block: BlockKey, bytes: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (content(block, version) == bytes).then_some(version)
}

fn evict_clean(cache: &SsdCache, block: BlockKey, version: u64) -> Evicted {
    let bytes = content(block, version);
    cache.evict(block, &bytes, false, Access::Random).unwrap()
}

fn evict_dirty(cache: &SsdCache, block: BlockKey, version: u64) -> Evicted {
    let bytes = content(block, version);
    cache.evict(block, &bytes, true, Access::Random).unwrap()
}

/// The version that is cached.
fn cached(cache: &SsdCache, block: BlockKey) -> Option<u64> {
    let bytes = cache.read(block, Access::Random).unwrap()?;
    Some(version(block, &bytes).expect("a version of the block"))
}

/// The newest version outside memory.
fn newest(cache: &SsdCache, block: BlockKey) -> u64 {
    let bytes = cache.read_through(block, Access::Random).unwrap();
    version(block, &bytes).expect("a version of the block")
}

/// Steps until nothing more is due.
fn run_steps(cache: &SsdCache) {
    while cache.step().unwrap() {}
}

fn checkpoint(cache: &SsdCache) {
    cache.checkpoint().finish().unwrap();
}
