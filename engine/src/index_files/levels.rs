//! The indexes in levels: an FD+tree each, over the blocks of a level file on the fast tier.
//!
//! Such an index logs nothing (docs/rfcs/3-fd-tree.md, "In the engine"). Its image may lack what
//! the log tells to add again, but it must not be ahead of the log: it lacks removed entries, and
//! what made them superfluous, a commit or a sweep's announcement, would be lost with the log.
//!
//! Invariants:
//! 1. When an image is written, the log is durable up to the records that were there when its
//!    content was gathered.
//! 2. An image tells which records of the log it *covers*: it has the entries of all commits up to
//!    there. While the index is *incomplete*, images cover what the newest image before covers: of
//!    a new index that is being filled nothing, of an opened one what the opened image covers,
//!    until the entries of the noted rows have been added.
//! 3. An index is opened only if its image covers what the manifest wants: a damaged newest image
//!    does not bring back an older one that lacks entries.
//! 4. A checkpoint leaves out an index only if the older image covers less than the newest one. Of
//!    two images that cover the same, the older one may lack entries of a transaction that was
//!    under way, and the checkpoint may cut off the log's record of its commit.
//!
//! ```text
//! image of a level file: u64 covered bytes of the log and 1, or 0: none; the tree's image
//! ```

use super::log::IndexLog;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::sync::{AtomicBool, AtomicU64, Ordering};
use strandline_base::{Error, Result};
use strandline_device::Device;
use strandline_index::{AccessMethod, FdIndex, FdIndexSettings};
use strandline_storage::level_blocks::{
    BlockQueue, FileBlocks, LevelBlocks, LevelFileId, level_file_name,
};
use strandline_storage::pages::PageLog;

/// Bytes of an image before the tree's.
const COVERS_BYTES: usize = size_of::<u64>();

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;

/// Blocks of entries that a head stands for: level i has at most 32 · 8^i blocks. The sizes of
/// levels depend on nothing that may change between two openings.
pub(super) const HEAD_BLOCKS: u64 = 32;

/// Steps of one index's compaction before those of the next.
const STEPS_IN_TURN: usize = 64;

/// The blocks of an index, with the log that its images may not be ahead of.
#[derive(Debug)]
struct LoggedBlocks {
    blocks: FileBlocks,
    log: Arc<IndexLog>,
    /// the index has the entries of all commits in the log
    is_complete: AtomicBool,
    /// the bytes of the log and 1 that the next image covers; 0: none
    next_covers: AtomicU64,
    /// those that the newest image covers
    covers: AtomicU64,
    /// those that the image before it covers; `u64::MAX`: unknown
    older_covers: AtomicU64,
}

impl LoggedBlocks {
    /// Whether the manifest's position tells the newest image from the one before it.
    fn is_newest_told(&self) -> bool {
        self.older_covers.load(Ordering::Acquire) < self.covers.load(Ordering::Acquire)
    }
}

impl LevelBlocks for LoggedBlocks {
    strandline_storage::forward_blocks!(blocks: block_bytes allocate read read_many write sync);
    strandline_storage::forward_blocks!(blocks: free used set_used);

    fn begin_image(&self) {
        let covers = match self.is_complete.load(Ordering::Acquire) {
            true => self.log.end().0.saturating_add(1),
            false => self.covers.load(Ordering::Acquire),
        };
        self.next_covers.store(covers, Ordering::Release);
    }
    fn put_image(&self, image: &[u8]) -> Result<()> {
        self.log.make_durable(self.log.end())?;
        let covers = self.next_covers.load(Ordering::Acquire);
        let bytes = [&covers.to_le_bytes(), image].concat();
        self.blocks.put_image(&bytes)?;
        let older = self.covers.swap(covers, Ordering::AcqRel);
        self.older_covers.store(older, Ordering::Release);
        Ok(())
    }
    fn image(&self) -> Result<Option<Vec<u8>>> {
        let image = self.blocks.image()?;
        Ok(image.map(|bytes| bytes.get(COVERS_BYTES..).unwrap_or_default().to_vec()))
    }
}

/// How much of the log the newest image covers.
fn covered(blocks: &FileBlocks) -> Result<Option<u64>> {
    let image = blocks.image()?;
    let position = image.as_deref().and_then(|bytes| bytes.first_chunk());
    Ok(position.map(|bytes| u64::from_le_bytes(*bytes)))
}

/// An index in levels that is in use.
pub(super) struct LevelIndex {
    pub index: Arc<FdIndex>,
    blocks: Arc<LoggedBlocks>,
    /// the bytes that it takes from the cache's share
    taken_bytes: Arc<Counter>,
    /// how many of them are counted
    counted: Counter,
}

impl LevelIndex {
    /// An empty index in new files, which are durable with their names on return.
    pub fn create(
        (device, queue): (&dyn Device, &Arc<BlockQueue>),
        log: &Arc<IndexLog>,
        id: LevelFileId,
        settings: FdIndexSettings,
    ) -> Result<Self> {
        let blocks = FileBlocks::open(device, &level_file_name(id), BLOCK_BYTES)?;
        let blocks = blocks.with_queue(queue.clone());
        let index = Self::of((blocks, 0), log, id, settings)?;
        index.index.checkpoint()?;
        Ok(index)
    }

    /// The index as of its newest image, which has to cover `wanted` of the log. It is incomplete.
    ///
    /// # Errors
    /// 58P01 if a file is missing, XX001 if it is damaged.
    pub fn open(
        (device, queue): (&dyn Device, &Arc<BlockQueue>),
        log: &Arc<IndexLog>,
        (id, wanted): (LevelFileId, u64),
        settings: FdIndexSettings,
    ) -> Result<Self> {
        let name = level_file_name(id);
        let blocks = FileBlocks::existing(device, &name, BLOCK_BYTES)?.with_queue(queue.clone());
        let covers = covered(&blocks)?.unwrap_or(0);
        if covers == 0 || covers < wanted {
            let what = format!("its image covers {covers} of the log, less than {wanted}");
            return Err(Error::corrupt(name, what));
        }
        Self::of((blocks, covers), log, id, settings)
    }

    fn of(
        (blocks, covers): (FileBlocks, u64),
        log: &Arc<IndexLog>,
        id: LevelFileId,
        mut settings: FdIndexSettings,
    ) -> Result<Self> {
        settings.tree.tree = u64::from(id.0);
        let taken_bytes = settings.memory.clone();
        let blocks = Arc::new(LoggedBlocks {
            blocks,
            log: log.clone(),
            is_complete: AtomicBool::new(false),
            next_covers: AtomicU64::new(0),
            covers: AtomicU64::new(covers),
            older_covers: AtomicU64::new(u64::MAX),
        });
        let index = Arc::new(FdIndex::open(blocks.clone(), settings)?);
        let index = Self {
            index,
            blocks,
            taken_bytes,
            counted: Counter::new(0),
        };
        index.count();
        Ok(index)
    }

    /// Counts its memory: the whole budget of its head, and the lists and filters of its levels as
    /// they are now.
    pub fn count(&self) {
        let now = self
            .index
            .memory_bytes()
            .max(self.index.tree().head_budget());
        let before = self.counted.swap(now, Relaxed);
        self.taken_bytes
            .fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// Modifications of its entries since the opening.
    pub fn changes(&self) -> u64 {
        self.index.tree().changes()
    }

    /// Bytes of its files; 0 if the device does not tell.
    pub fn file_bytes(&self) -> u64 {
        self.blocks.blocks.bytes().unwrap_or(0)
    }

    /// Makes all entries durable that are there now. Returns how much of the log the newest image
    /// covers.
    pub fn checkpoint(&self) -> Result<u64> {
        self.index.tree().shrink_head();
        if !self.index.is_saved() || !self.blocks.is_newest_told() {
            let stored = self.index.checkpoint();
            self.count();
            stored?;
        } else {
            // Lookups have read filters.
            self.count();
        }
        Ok(self.blocks.covers.load(Ordering::Acquire))
    }

    /// The index has the entries of all commits in the log: images cover them from now on.
    pub fn set_complete(&self) {
        self.blocks.is_complete.store(true, Ordering::Release);
    }

    /// The index has been filled: makes its entries durable.
    pub fn complete(&self) -> Result<()> {
        self.set_complete();
        self.index.checkpoint()
    }

    /// Does some steps of a compaction that is under way or due. Returns whether there are more.
    pub fn compact(&self) -> Result<bool> {
        let mut goes_on = true;
        for _ in 0..STEPS_IN_TURN {
            if !goes_on {
                break;
            }
            goes_on = self.index.compact_step()?;
        }
        self.count();
        Ok(goes_on)
    }

    /// Whether it can be made durable, now or later.
    ///
    /// # Errors
    /// The failure that lasts until it is opened again.
    pub fn check_usable(&self) -> Result<()> {
        self.blocks.blocks.check_usable()?;
        self.index.check_usable()
    }
}

impl Drop for LevelIndex {
    fn drop(&mut self) {
        let counted = self.counted.load(Relaxed);
        self.taken_bytes.fetch_sub(counted, Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
