//! The rival `foyer`: a hybrid cache of memory and disk, as a cache of reads in front of the
//! emulated disk. Compiled with the feature `foyer` only.
//!
//! The crate's traits for devices and engines cannot be implemented outside of it: their methods
//! take types that it does not export. So its files are in a directory of the operating system, on
//! tmpfs where there is one, as the other settings' devices are in memory. Its requests are counted
//! towards the bounds of the emulated SSD and not delayed by them, which favours it.
//!
//! Pages enter the cache when they are read and when they are written; writes go to the disk, too.
//! A key has the page's version, so no key ever gets another value: an upsert of foyer's may leave
//! the old one (foyer-rs/foyer #743). Versions are in memory, so the cache is empty after a crash.
//!
//! Its memory is taken from the page store's; what waits to be written to its files has
//! [`BUFFER_BYTES`] beside that. Pages are compressed: an entry takes multiples of 4 KiB, so that a
//! whole page of 8 KiB and its header would take 12.

use std::collections::HashMap;
use std::path::Path;

use foyer::{
    BlockEngineConfig, Compression, DeviceBuilder, FsDeviceBuilder, HybridCache,
    HybridCacheBuilder, PsyncIoEngineConfig, RecoverMode,
};
use strandline_base::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering};
use strandline_base::{Error, Result};
use strandline_device::{Device, File, ReadAt, forward};
use strandline_storage::pages::PAGE_BYTES;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::read_cache::{CachedReads, ReadCache, ReadCacheBytes, ReadCacheCounts};

/// Exactly the version of the dependency.
const VERSION: &str = "0.22.6";
/// The unit of eviction. Of the default, 16 MiB, the smallest cache would have one.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// A cache has so many blocks at least.
const BLOCKS_MIN: usize = 16;
/// Bytes that may wait to be written to the cache's files; more are dropped.
const BUFFER_BYTES: usize = 2 << 20;
/// A file system in memory.
const MEMORY_DIRECTORY: &str = "/dev/shm";

/// A page of a file: the file's number, the page's place and the version.
type PageKey = u128;

/// The files of `inner` behind an empty cache.
pub fn cache_reads(inner: Arc<dyn Device>, bytes: ReadCacheBytes) -> Result<CachedReads> {
    let device = Arc::new(CachedDevice::open(inner, bytes)?);
    Ok((device.clone(), device))
}

/// A device whose pages are read through a foyer cache.
#[derive(Debug)]
struct CachedDevice {
    inner: Arc<dyn Device>,
    pages: Arc<Pages>,
}

/// The cache, and the versions of pages.
#[derive(Debug)]
struct Pages {
    cache: HybridCache<PageKey, Vec<u8>>,
    runtime: Runtime,
    directory: TempDir,
    files: Mutex<HashMap<String, Arc<FileState>>>,
    files_made: AtomicU32,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct FileState {
    number: AtomicU32,
    /// of pages that were written since the opening
    versions: Mutex<HashMap<u64, u32>>,
}

impl CachedDevice {
    fn open(inner: Arc<dyn Device>, bytes: ReadCacheBytes) -> Result<Self> {
        let error = |e: &dyn std::fmt::Display| Error::internal(format!("foyer: {e}"));
        let in_memory = Path::new(MEMORY_DIRECTORY);
        let directory = match in_memory.is_dir() {
            true => TempDir::new_in(in_memory),
            false => TempDir::new(),
        };
        let directory = directory.map_err(|e| error(&e))?;
        let runtime = Builder::new_multi_thread().worker_threads(2).build();
        let runtime = runtime.map_err(|e| error(&e))?;
        let device = FsDeviceBuilder::new(directory.path()).with_capacity(bytes.ssd);
        let device = device.build().map_err(|e| error(&e))?;
        let engine = BlockEngineConfig::new(device)
            .with_block_size((bytes.ssd / BLOCKS_MIN).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES))
            .with_buffer_pool_size(BUFFER_BYTES)
            .with_submit_queue_size_threshold(BUFFER_BYTES);
        let builder = HybridCacheBuilder::<PageKey, Vec<u8>>::new()
            .memory(bytes.memory)
            .with_shards(1)
            .with_weighter(|_, page: &Vec<u8>| page.len())
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(engine)
            .with_compression(Compression::Lz4)
            .with_recover_mode(RecoverMode::None);
        let cache = runtime.block_on(builder.build()).map_err(|e| error(&e))?;
        let pages = Pages {
            cache,
            runtime,
            directory,
            files: Mutex::default(),
            files_made: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Ok(Self {
            inner,
            pages: Arc::new(pages),
        })
    }

    fn handle(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let mut files = self.pages.files.lock();
        let state = files.entry(inner.name().to_owned());
        let state = state.or_insert_with(|| {
            Arc::new(FileState {
                number: AtomicU32::new(self.pages.next_number()),
                versions: Mutex::default(),
            })
        });
        Arc::new(CachedFile {
            inner,
            state: state.clone(),
            pages: self.pages.clone(),
        })
    }
}

impl ReadCache for CachedDevice {
    fn label(&self) -> String {
        let directory = self.pages.directory.path().parent();
        let directory = directory.unwrap_or(Path::new("")).display();
        format!(
            "foyer {VERSION} on files in {directory}, its requests counted towards the SSD's \
             bounds and not delayed"
        )
    }

    fn counts(&self) -> ReadCacheCounts {
        let statistics = self.pages.cache.statistics();
        ReadCacheCounts {
            hits: self.pages.hits.load(Ordering::Relaxed),
            misses: self.pages.misses.load(Ordering::Relaxed),
            ssd_bytes: (statistics.disk_read_bytes() + statistics.disk_write_bytes()) as u64,
            ssd_requests: (statistics.disk_read_ios() + statistics.disk_write_ios()) as u64,
        }
    }
}

impl Pages {
    fn next_number(&self) -> u32 {
        self.files_made.fetch_add(1, Ordering::Relaxed)
    }

    /// Fills `page` if the cache has it.
    fn read(&self, key: PageKey, page: &mut [u8]) -> Result<bool> {
        let entry = self.runtime.block_on(async { self.cache.get(&key).await });
        let entry = entry.map_err(|e| Error::internal(format!("foyer: {e}")))?;
        let count = if entry.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        count.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = entry else { return Ok(false) };
        page.copy_from_slice(entry.value());
        Ok(true)
    }
}

impl FileState {
    /// The key of a page; None if the bytes are no page.
    fn key(&self, len: usize, offset: u64) -> Option<PageKey> {
        let page_bytes = PAGE_BYTES as u64;
        if len != PAGE_BYTES || !offset.is_multiple_of(page_bytes) {
            return None;
        }
        let place = offset / page_bytes;
        let version = self.versions.lock().get(&place).copied().unwrap_or(0);
        Some(self.key_of(place, version))
    }

    fn key_of(&self, place: u64, version: u32) -> PageKey {
        let number = self.number.load(Ordering::Relaxed);
        u128::from(number) << 96 | u128::from(place) << 32 | u128::from(version)
    }
}

impl Device for CachedDevice {
    forward!(inner: list sync_directory lock may_fill_up queue is_written_once);
    forward!(inner: directory_number is_stored request_stats);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.open(name)?))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.pages.files.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)?;
        let mut files = self.pages.files.lock();
        files.remove(to);
        if let Some(state) = files.remove(from) {
            files.insert(to.to_owned(), state);
        }
        Ok(())
    }

    fn location(&self) -> String {
        format!("{} ({})", self.inner.location(), self.label())
    }
}

#[derive(Debug)]
struct CachedFile {
    inner: Arc<dyn File>,
    state: Arc<FileState>,
    pages: Arc<Pages>,
}

impl File for CachedFile {
    forward!(inner: name sync len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_batch(&mut [ReadAt { offset, buf }])
    }

    /// A page enters the cache with the version from before its read. If it is written meanwhile
    /// it has another version then, and the entry is never found.
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        let mut keys = Vec::new();
        let mut missed = Vec::new();
        for read in reads {
            let key = self.state.key(read.buf.len(), read.offset);
            if let Some(key) = key
                && self.pages.read(key, read.buf)?
            {
                continue;
            }
            let ReadAt { offset, buf } = read;
            keys.push(key);
            missed.push(ReadAt {
                offset: *offset,
                buf,
            });
        }
        self.inner.read_batch(&mut missed)?;
        for (key, read) in keys.into_iter().zip(missed) {
            if let Some(key) = key {
                self.pages.cache.insert(key, read.buf.to_vec());
            }
        }
        Ok(())
    }

    /// Pages get their new versions after the write: a reader that finds one reads new bytes.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_all_at(buf, offset)?;
        let page_bytes = PAGE_BYTES as u64;
        let (first, end) = (
            offset / page_bytes,
            (offset + buf.len() as u64).div_ceil(page_bytes),
        );
        for place in first..end {
            let version = {
                let mut versions = self.state.versions.lock();
                let version = versions.entry(place).or_insert(0);
                *version += 1;
                *version
            };
            let cache = &self.pages.cache;
            cache.remove(&self.state.key_of(place, version - 1));
            let begin = (place * page_bytes).checked_sub(offset);
            let page = begin.and_then(|begin| buf.get(begin as usize..)?.get(..PAGE_BYTES));
            if let Some(page) = page {
                cache.insert(self.state.key_of(place, version), page.to_vec());
            }
        }
        Ok(())
    }

    /// All pages of the file leave the cache.
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)?;
        let number = self.pages.next_number();
        self.state.number.store(number, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_device::MemoryDevice;

    const PLACES: u64 = 40;

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE_BYTES]
    }

    #[test]
    fn reads_give_the_newest_pages_with_hits_and_misses() {
        let bytes = ReadCacheBytes {
            ssd: 8 << 20,
            memory: 2 * PAGE_BYTES,
        };
        let device = CachedDevice::open(Arc::new(MemoryDevice::new()), bytes).unwrap();
        let file = device.create("pages").unwrap();
        let offset = |place: u64| place * PAGE_BYTES as u64;
        for round in 0..4_u8 {
            for place in 0..PLACES {
                file.write_all_at(&page(round + place as u8), offset(place))
                    .unwrap();
            }
            for place in (0..PLACES).chain(0..PLACES) {
                let mut read = page(0);
                file.read_exact_at(&mut read, offset(place)).unwrap();
                assert!(read == page(round + place as u8), "page {place}");
            }
        }
        let counts = device.counts();
        assert_eq!(counts.hits + counts.misses, 4 * 2 * PLACES);
        assert!(counts.hits > 0, "{counts:?}");
        // A write that is no whole page, and a cut.
        file.write_all_at(&[9], offset(3) + 5).unwrap();
        let mut read = page(0);
        file.read_exact_at(&mut read, offset(3)).unwrap();
        assert_eq!(read[5], 9);
        file.set_len(offset(2)).unwrap();
        file.write_all_at(&page(77), offset(5)).unwrap();
        file.read_exact_at(&mut read, offset(3)).unwrap();
        assert!(read == page(0), "a page behind the cut");
    }
}
