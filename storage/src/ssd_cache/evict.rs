//! Blocks that leave the memory pool: admission, overwriting, or the way to the capacity tier
//! [SSD-DB §2.4.3, §2.4.5].
//!
//! Nothing here waits for a sync.
//!
//! Differences from the paper: the first dirty version of a block that is cached clean goes to
//! another slot instead of overwriting the clean one, so that a slot listed as clean always equals
//! the capacity tier.

use strandline_base::sync::MutexGuard;
use strandline_base::{Error, Result};

use super::core::SsdCache;
use super::free_slots::Run;
use super::settings::{Admission, BlockKey, Mode};
use super::slots::slots_for;
use super::state::{Entry, State};
use crate::cache_counters::add;
use crate::file::Access;

/// Where a block went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// a slot holds its bytes
    Cached,
    /// it was written to the capacity tier
    Written,
    /// it was clean and is not cached: the capacity tier has it
    Dropped,
}

/// Why a block is given to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Eviction(Access),
    /// It stays in memory: a checkpoint writes it.
    Checkpoint,
}

/// What is done with a block.
enum Plan {
    /// overwrite the slot of its entry
    Overwrite(u32),
    /// write into these slots; the clean entry that has the block now is replaced
    Admit(Run),
    /// write to the capacity tier, and remove the entry that has the block now
    Bypass,
    /// the capacity tier and the slot, which is clean then
    Through(u32),
}

impl SsdCache {
    /// Takes a block that leaves the memory pool, or that changed in it (`is_dirty`). Never waits
    /// for a sync.
    ///
    /// # Errors
    /// For dirty blocks only, which then stay the caller's: those of the capacity tier, and
    /// `Closed` (58030) since a sync has failed.
    pub fn evict(
        &self,
        block: BlockKey,
        bytes: &[u8],
        is_dirty: bool,
        access: Access,
    ) -> Result<Evicted> {
        match is_dirty {
            true => self.take_dirty(block, bytes, Cause::Eviction(access)),
            false => Ok(self.take_clean(block, bytes, access)),
        }
    }

    fn take_clean(&self, block: BlockKey, bytes: &[u8], access: Access) -> Evicted {
        let mut state = self.state.lock();
        if let Some(entry) = state.entry_mut(block) {
            entry.is_touched |= access == Access::Random;
            return Evicted::Cached;
        }
        // While its own write is not durable, a crash may leave the capacity tier an older version.
        let is_refused = state.failure.is_some() || state.is_unsynced(block);
        if is_refused || !self.qualifies(&state, access) {
            return Evicted::Dropped;
        }
        match self.free_run(&mut state, block) {
            None => Evicted::Dropped,
            Some(run) => match self.admit(&mut state, block, bytes, run, false) {
                Ok(()) => Evicted::Cached,
                Err(_) => Evicted::Dropped,
            },
        }
    }

    /// Takes a dirty block. A checkpoint calls it too.
    pub(super) fn take_dirty(
        &self,
        block: BlockKey,
        bytes: &[u8],
        cause: Cause,
    ) -> Result<Evicted> {
        if bytes.len() != block.len as usize {
            let got = bytes.len();
            return Err(Error::internal(format!("{got} bytes for {block}")));
        }
        let mut state = self.state.lock();
        state.check_usable()?;
        self.wait_for_writers(&mut state, block, false);
        if let Some(entry) = state.entry(block)
            && entry.block != block
        {
            let known = entry.block;
            return Err(Error::internal(format!("{block} overlaps cached {known}")));
        }
        match self.plan(&mut state, block, cause) {
            Plan::Overwrite(slot) => self.overwrite(state, slot, block, bytes),
            Plan::Admit(run) => match self.admit(&mut state, block, bytes, run, true) {
                Ok(()) => Ok(Evicted::Cached),
                Err(_) => self.bypass(state, block, bytes),
            },
            Plan::Bypass => self.bypass(state, block, bytes),
            Plan::Through(slot) => self.write_through(state, slot, block, bytes),
        }
    }

    fn plan(&self, state: &mut State, block: BlockKey, cause: Cause) -> Plan {
        let is_checkpoint = cause == Cause::Checkpoint;
        if let Some(&Entry { run, listed, .. }) = state.entry(block) {
            if self.is_volatile() && is_checkpoint {
                return Plan::Through(run.start);
            }
            if self.is_volatile() || listed != Some(false) {
                return Plan::Overwrite(run.start);
            }
            let other = self.free_run(state, block);
            return other.map_or(Plan::Bypass, Plan::Admit);
        }
        let may_be_taken = match cause {
            Cause::Eviction(access) => self.qualifies(state, access),
            Cause::Checkpoint => {
                let is_filling = state.free.count() > self.reserve(state);
                let is_open = state.admission != Admission::Nothing && !self.is_volatile();
                is_filling && is_open && self.settings.mode != Mode::Off
            }
        };
        let run = may_be_taken.then(|| self.free_run(state, block)).flatten();
        run.map_or(Plan::Bypass, Plan::Admit)
    }

    /// Whether a block that is not cached may be.
    fn qualifies(&self, state: &State, access: Access) -> bool {
        let is_wanted = match state.admission {
            Admission::Qualified => access == Access::Random,
            Admission::Everything => true,
            Admission::Nothing => false,
        };
        is_wanted && self.settings.mode != Mode::Off
    }

    /// Free slots for a block; a miss is counted, and the next step makes room.
    fn free_run(&self, state: &mut State, block: BlockKey) -> Option<Run> {
        let slots = slots_for(block.len, self.settings.slot_bytes);
        if slots > state.limit / 4 + 1 {
            return None;
        }
        let run = state.free.take(slots).map(|start| Run { start, slots });
        if run.is_none() {
            state.missed_run = state.missed_run.max(slots);
            add(&self.counters.refusals, 1);
        }
        self.wake_if_due(state);
        run
    }

    /// Writes a block into free slots. An entry that has it now is replaced, and stays if the write
    /// fails. The slots of a failed write are given up.
    fn admit(
        &self,
        state: &mut MutexGuard<'_, State>,
        block: BlockKey,
        bytes: &[u8],
        run: Run,
        is_fresh: bool,
    ) -> Result<()> {
        let slot = state.entry(block).map(|entry| entry.run.start);
        let replaced = slot.and_then(|slot| state.take_out(slot));
        let born = state.insert(block, run, is_fresh);
        if let Some(entry) = state.living(run.start, born) {
            entry.replaces = replaced.map(|entry| entry.run);
        }
        let written = MutexGuard::unlocked(state, || self.slots.write(run.start, block, bytes));
        match &written {
            Ok(()) => {
                add(&self.counters.admissions, 1);
                add(&self.counters.bytes_written, bytes.len() as u64);
                self.end_write(state, run.start);
            }
            Err(_) => {
                state.take_out(run.start);
                state.given_up.push(run);
                if let Some(entry) = replaced {
                    state.put(entry);
                }
                self.written.notify_all();
            }
        }
        written
    }

    /// Overwrites a slot in place. If that fails, the block goes to the capacity tier.
    fn overwrite(
        &self,
        mut state: MutexGuard<'_, State>,
        slot: u32,
        block: BlockKey,
        bytes: &[u8],
    ) -> Result<Evicted> {
        state.begin_write(slot, true);
        let written = MutexGuard::unlocked(&mut state, || self.slots.write(slot, block, bytes));
        self.end_write(&mut state, slot);
        if let Some(entry) = state.entries.get_mut(&slot) {
            entry.is_damaged = written.is_err();
        }
        if written.is_err() {
            return self.bypass(state, block, bytes);
        }
        add(&self.counters.overwrites, 1);
        add(&self.counters.bytes_written, bytes.len() as u64);
        Ok(Evicted::Cached)
    }

    /// Writes a block to the capacity tier. An entry that has it now is removed after that.
    fn bypass(
        &self,
        mut state: MutexGuard<'_, State>,
        block: BlockKey,
        bytes: &[u8],
    ) -> Result<Evicted> {
        self.wait_for_writers(&mut state, block, true);
        let slot = state.entry(block).map(|entry| entry.run.start);
        if let Some(entry) = state.entry_mut(block) {
            entry.is_writing = true;
        }
        let written = self.write_capacity(&mut state, block, bytes);
        if let Some(slot) = slot {
            self.end_write(&mut state, slot);
            if written.is_ok() {
                state.remove(slot);
            }
        }
        written?;
        add(&self.counters.bypasses, 1);
        Ok(Evicted::Written)
    }

    /// Writes a block to the capacity tier and into its slot.
    fn write_through(
        &self,
        mut state: MutexGuard<'_, State>,
        slot: u32,
        block: BlockKey,
        bytes: &[u8],
    ) -> Result<Evicted> {
        self.wait_for_writers(&mut state, block, true);
        let version_is_fresh = state.entry(block).is_some_and(|entry| entry.is_fresh);
        state.begin_write(slot, version_is_fresh);
        let written = self.write_capacity(&mut state, block, bytes);
        let cached = match written {
            Ok(()) => MutexGuard::unlocked(&mut state, || self.slots.write(slot, block, bytes)),
            Err(_) => Ok(()),
        };
        self.end_write(&mut state, slot);
        written?;
        match cached {
            Ok(()) => state.set_fresh(slot, false),
            Err(_) => state.remove(slot),
        }
        add(&self.counters.bypasses, 1);
        Ok(Evicted::Written)
    }
}
