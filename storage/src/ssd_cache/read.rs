//! Reads of cached blocks.
//!
//! A slot is read without a lock. If its entry has changed meanwhile, the reader looks again.

use strandline_base::Result;

use super::core::{SsdCache, damaged_fresh};
use super::settings::{BlockKey, Mode};
use crate::cache_counters::add;
use crate::file::Access;

impl SsdCache {
    /// The bytes of a block if it is cached; None if the capacity tier has its newest version.
    ///
    /// # Errors
    /// XX001 if the slot of a block that is fresher than the capacity tier is damaged, and device
    /// errors of such slots. Other damaged slots are removed, counted, and None.
    pub fn read(&self, block: BlockKey, access: Access) -> Result<Option<Vec<u8>>> {
        if self.settings.mode == Mode::Off {
            return Ok(None);
        }
        loop {
            let mut state = self.state.lock();
            self.wait_for_writers(&mut state, block, false);
            let Some(entry) = state.entry_mut(block) else {
                add(&self.counters.misses, 1);
                return Ok(None);
            };
            debug_assert_eq!(entry.block, block, "blocks are equal or do not overlap");
            // A scan does not keep a block from eviction.
            entry.is_touched |= access == Access::Random;
            let (slot, born, version) = (entry.run.start, entry.born, entry.version);
            drop(state);
            let bytes = self.slots.read(slot, block);
            let mut state = self.state.lock();
            let entry = state.living(slot, born);
            let Some(entry) = entry.filter(|entry| entry.version == version && !entry.is_writing)
            else {
                continue;
            };
            let error = match bytes {
                Ok(bytes) => {
                    // An earlier read may have failed.
                    entry.is_damaged = false;
                    add(&self.counters.hits, 1);
                    add(&self.counters.bytes_read, bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Err(error) => error,
            };
            if entry.is_fresh {
                entry.is_damaged = true;
                add(&self.counters.damaged_fresh, 1);
                return Err(damaged_fresh(error, block));
            }
            state.remove(slot);
            add(&self.counters.damaged_clean, 1);
            add(&self.counters.misses, 1);
            return Ok(None);
        }
    }

    /// Whether a block is cached, or about to be.
    pub fn has(&self, block: BlockKey) -> bool {
        self.settings.mode != Mode::Off && self.state.lock().entry(block).is_some()
    }

    /// The newest bytes of a block outside memory: from the cache, else from the capacity tier.
    ///
    /// # Errors
    /// Those of [`SsdCache::read`] and of the capacity tier.
    pub fn read_through(&self, block: BlockKey, access: Access) -> Result<Vec<u8>> {
        match self.read(block, access)? {
            Some(bytes) => Ok(bytes),
            None => self.capacity.read(block, access),
        }
    }
}
