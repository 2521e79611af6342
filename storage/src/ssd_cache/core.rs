//! The cache's parts, and what its operations share: the lock of the state and its condition,
//! copies to the capacity tier, and the end after a failed sync.

use std::collections::BTreeSet;
use std::sync::Arc;

use strandline_base::sync::{Condvar, Mutex, MutexGuard};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Device;

use super::capacity::Capacity;
use super::clock::Victim;
use super::counters::{Counters, Stats};
use super::directory::Directory;
use super::marker::Marker;
use super::settings::{Admission, BlockKey, Mode, Settings};
use super::slots::SlotFile;
use super::state::State;
use crate::cache_counters::add;

/// The persistent second-level cache. See the module's header.
#[derive(Debug)]
pub struct SsdCache {
    pub(super) device: Arc<dyn Device>,
    pub(super) capacity: Arc<dyn Capacity>,
    pub(super) settings: Settings,
    pub(super) slots: SlotFile,
    pub(super) state: Mutex<State>,
    /// notified when a thread ends a write
    pub(super) written: Condvar,
    /// notified when a step is due
    pub(super) due: Condvar,
    pub(super) maintenance: Mutex<Maintenance>,
    pub(super) counters: Counters,
}

/// What rounds, checkpoints and changes of the size need; held by one thread at a time.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// the directory in force; None if the mode writes none
    pub directory: Option<Directory>,
    /// an append has failed: the directory is written anew before the next change
    pub is_broken: bool,
    pub marker: Marker,
}

impl SsdCache {
    /// Whether the SSD's content counts for nothing after a crash.
    pub(super) fn is_volatile(&self) -> bool {
        self.settings.mode == Mode::Lc
    }

    /// The mode in which it was opened.
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u64 {
        self.settings.slot_bytes.into()
    }

    /// The bytes of all slots, if the opening found no room for those of `wanted_bytes`.
    pub fn smaller_than(&self, wanted_bytes: u64) -> Option<u64> {
        let wanted = match self.settings.mode {
            Mode::Off => 0,
            _ => self.settings.slots_of(wanted_bytes),
        };
        let slots = self.state.lock().limit;
        (slots < wanted).then(|| u64::from(slots) * self.slot_bytes())
    }

    /// Slots that rounds keep free.
    pub(super) fn reserve(&self, state: &State) -> u32 {
        self.settings.free_slots.min(state.limit.div_ceil(4))
    }

    /// Waits until no thread writes the block's slot, nor, if `also_capacity`, its place on the
    /// capacity tier.
    pub(super) fn wait_for_writers(
        &self,
        state: &mut MutexGuard<'_, State>,
        block: BlockKey,
        also_capacity: bool,
    ) {
        loop {
            let is_writing = state.entry(block).is_some_and(|entry| entry.is_writing);
            let is_busy = also_capacity && state.capacity_busy.contains(&block.place());
            if !is_writing && !is_busy {
                return;
            }
            self.written.wait(state);
        }
    }

    /// Ends a thread's write of a slot.
    pub(super) fn end_write(&self, state: &mut State, slot: u32) {
        if let Some(entry) = state.entries.get_mut(&slot) {
            entry.is_writing = false;
        }
        self.written.notify_all();
    }

    /// Writes a block's place on the capacity tier. The caller has seen that nobody else does.
    /// Called and left with the state locked, unlocked meanwhile.
    pub(super) fn write_capacity(
        &self,
        state: &mut MutexGuard<'_, State>,
        block: BlockKey,
        bytes: &[u8],
    ) -> Result<()> {
        state.capacity_busy.insert(block.place());
        state.note_unsynced(block);
        let written = MutexGuard::unlocked(state, || self.capacity.write(block, bytes));
        state.capacity_busy.remove(&block.place());
        // Once more: a sync that ran meanwhile does not cover the write.
        state.note_unsynced(block);
        self.written.notify_all();
        written
    }

    /// Copies the fresh ones of `victims` to the capacity tier, durably unless the mode is
    /// volatile. A victim that no thread has written meanwhile is clean on return. A victim that
    /// cannot be copied stays fresh; the first error is returned after all others were copied.
    ///
    /// # Errors
    /// Those of the capacity tier; XX001 for damaged slots.
    pub(super) fn copy_out(&self, victims: &[Victim]) -> Result<()> {
        let mut failed = Ok(());
        let mut copied = Vec::new();
        for victim in victims.iter().filter(|victim| victim.is_fresh) {
            match self.copy_block(victim) {
                Ok(true) => copied.push(*victim),
                Ok(false) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        if !self.is_volatile() {
            let files = copied.iter().map(|victim| victim.block.file);
            self.sync_capacity(files.collect())?;
        }
        let mut state = self.state.lock();
        for victim in copied {
            let entry = state.living(victim.slot, victim.born);
            let is_same =
                entry.is_some_and(|entry| entry.version == victim.version && !entry.is_writing);
            if is_same {
                state.set_fresh(victim.slot, false);
            }
            add(&self.counters.copied_out, 1);
        }
        failed
    }

    /// Writes one block to the capacity tier; false if it has changed since it was chosen.
    fn copy_block(&self, victim: &Victim) -> Result<bool> {
        let bytes = self.slots.read(victim.slot, victim.block);
        let mut state = self.state.lock();
        let is_busy = state.capacity_busy.contains(&victim.block.place());
        let entry = state.living(victim.slot, victim.born);
        let Some(entry) =
            entry.filter(|entry| entry.version == victim.version && !entry.is_writing && !is_busy)
        else {
            return Ok(false);
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                entry.is_damaged = true;
                add(&self.counters.damaged_fresh, 1);
                return Err(damaged_fresh(error, victim.block));
            }
        };
        self.write_capacity(&mut state, victim.block, &bytes)
            .map(|()| true)
    }

    /// Makes the writes of `files` durable that are on the capacity tier so far. After a failure no
    /// write is accepted any more.
    pub(super) fn sync_capacity(&self, files: BTreeSet<u64>) -> Result<()> {
        for file in files {
            let mut state = self.state.lock();
            let Some(offsets) = state.unsynced.remove(&file) else {
                continue;
            };
            state.syncing = Some(file);
            add(&self.counters.capacity_syncs, 1);
            let synced = MutexGuard::unlocked(&mut state, || self.capacity.sync(file));
            state.syncing = None;
            self.written.notify_all();
            if let Err(error) = synced {
                state.unsynced.entry(file).or_default().extend(offsets);
                drop(state);
                return Err(self.fail(&error, &format!("file {file} of the capacity tier")));
            }
        }
        Ok(())
    }

    /// Files with writes that are not durable on the capacity tier.
    pub(super) fn unsynced_files(&self) -> BTreeSet<u64> {
        self.state.lock().unsynced.keys().copied().collect()
    }

    /// The error of all writes since a sync has failed.
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Ends all writing: what was written before the failed sync of `what` may be lost.
    pub(super) fn fail(&self, cause: &Error, what: &str) -> Error {
        let error = Error::new(
            ErrorKind::Closed,
            SqlState::IO_ERROR,
            format!("the SSD cache refuses writes since {what} could not be synced: {cause}"),
        )
        .with_hint("Check the device, then close and reopen the database.");
        let mut state = self.state.lock();
        state.failure.get_or_insert(error).clone()
    }

    /// Changes which blocks are taken from now on.
    pub fn set_admission(&self, admission: Admission) {
        self.state.lock().admission = admission;
    }

    /// Counts so far, and the present content.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            slots: u64::from(state.limit),
            free_slots: u64::from(state.free.count()),
            blocks: state.entries.len() as u64,
            fresh_blocks: state.fresh_count(),
            ..self.counters.read()
        }
    }

    /// The files with cached blocks. After an opening the caller forgets those that do not exist.
    pub fn files(&self) -> BTreeSet<u64> {
        self.state.lock().files()
    }

    /// Forgets all blocks of a file that is about to be removed. The directory follows with the
    /// next round; the file's number must not be used again.
    pub fn forget_file(&self, file: u64) {
        let mut state = self.state.lock();
        while state.is_busy_from((file, 0)) || state.syncing == Some(file) {
            self.written.wait(&mut state);
        }
        state.remove_from((file, 0));
        state.unsynced.remove(&file);
    }

    /// Forgets the blocks of a file from the offset of `first` on, where the file is about to be
    /// cut. The directory follows with the next round. A later block at such an offset must be in
    /// the caller's log until a checkpoint has ended.
    pub fn forget_from(&self, first: BlockKey) {
        let mut state = self.state.lock();
        while state.is_busy_from(first.place()) {
            self.written.wait(&mut state);
        }
        state.remove_from(first.place());
    }
}

/// The error for a block whose newest version is lost.
pub(super) fn damaged_fresh(error: Error, block: BlockKey) -> Error {
    error
        .context(format!(
            "the SSD cache has lost the newest version of the block at {block}"
        ))
        .with_hint(
            "The capacity tier has an older version only. If the file is an index's, REINDEX \
             builds the index again from the rows; `strandline check` names it. Else restore a \
             backup.",
        )
}
