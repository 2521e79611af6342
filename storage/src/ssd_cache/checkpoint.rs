//! Checkpoints: dirty blocks of the memory pool are written, and everything evicted so far becomes
//! durable. Nothing is copied from the SSD to the capacity tier [SSD-DB §2.4.6].

use strandline_base::Result;

use super::core::SsdCache;
use super::evict::{Cause, Evicted};
use super::settings::{BlockKey, Mode};

/// A checkpoint under way. Evictions go on beside it.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    cache: &'a SsdCache,
}

impl SsdCache {
    /// Begins a checkpoint.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        Checkpoint { cache: self }
    }
}

impl Checkpoint<'_> {
    /// Writes a dirty block that stays in memory: to a free slot while more are free than rounds
    /// keep, else in place if it is cached, else to the capacity tier.
    ///
    /// # Errors
    /// As [`SsdCache::evict`]; the block is then still dirty.
    pub fn write(&self, block: BlockKey, bytes: &[u8]) -> Result<Evicted> {
        if self.cache.needs_round(block) {
            let mut maintenance = self.cache.maintenance.lock();
            self.cache.state.lock().check_usable()?;
            // Without free slots the block goes to the capacity tier.
            let _ = self.cache.settle(&mut maintenance, false);
        }
        self.cache.take_dirty(block, bytes, Cause::Checkpoint)
    }

    /// Makes every block durable that was evicted or written before this call.
    ///
    /// # Errors
    /// Those of the devices. The caller must not cut its log then. `Closed` (58030) if a sync has
    /// failed, now or earlier.
    pub fn finish(self) -> Result<()> {
        let cache = self.cache;
        let mut maintenance = cache.maintenance.lock();
        cache.state.lock().check_usable()?;
        match cache.settings.mode {
            Mode::Off => return cache.sync_capacity(cache.unsynced_files()),
            Mode::Lc => {
                cache.settle(&mut maintenance, false)?;
                let fresh = cache.state.lock().all_fresh();
                cache.copy_out(&fresh)?;
                return cache.sync_capacity(cache.unsynced_files());
            }
            Mode::Pc | Mode::Pc2 => {}
        }
        cache.settle(&mut maintenance, true)?;
        let mut marker = maintenance.marker.clone();
        marker.fresh_files = cache.state.lock().fresh_files();
        cache.sync_capacity(cache.unsynced_files())?;
        if marker != maintenance.marker {
            cache.write_marker(&mut maintenance, marker)?;
        }
        Ok(())
    }
}

impl SsdCache {
    /// Whether the block is cached clean and there is no free slot for its dirty version.
    fn needs_round(&self, block: BlockKey) -> bool {
        let state = self.state.lock();
        let is_clean = state
            .entry(block)
            .is_some_and(|entry| entry.listed == Some(false));
        is_clean && state.free.count() == 0 && !self.is_volatile()
    }
}
