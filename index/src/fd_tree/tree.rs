//! The tree: entries are added, removed and looked up here, and a compaction is driven.

use super::check;
use super::compaction::Compaction;
use super::head::Data;
use super::image;
use super::scan::Scan;
use super::state::{Mode, Settings, Shared, State};
use crate::access_method::Direction;
use crate::key_hash::hash_bytes;
use std::sync::Arc;
use strandline_base::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_storage::level_blocks::LevelBlocks;

const LATCHES: usize = 64;
/// An underflow needs at least so many deletes.
const DELETES_MIN: u64 = 16;

/// The compaction under way, or why there is none any more.
#[derive(Debug)]
enum Compactor {
    Idle,
    Running(Box<Compaction>),
    Failed(Error),
}

/// An FD+tree of entries, which are bytes of any length up to 1,032.
#[derive(Debug)]
pub struct FdTree {
    pub(super) shared: Shared,
    compactor: Mutex<Compactor>,
    latches: Vec<Mutex<()>>,
    gate: RwLock<()>,
}

impl FdTree {
    /// The tree of the newest image of `blocks`; empty without one. A compaction under way goes on.
    ///
    /// # Errors
    /// XX001 if the image or a block of the compaction is damaged.
    pub fn open(settings: Settings, blocks: Arc<dyn LevelBlocks>) -> Result<Self> {
        let mut state = State::default();
        let mut used = Vec::new();
        if let Some(bytes) = blocks.image()? {
            (state, used) = image::decode(&bytes, settings.tree)?;
        }
        blocks.set_used(&used);
        let shared = Shared {
            settings,
            blocks,
            state: Mutex::new(state),
        };
        let compactor = match Compaction::resume(&shared)? {
            Some(compaction) => Compactor::Running(Box::new(compaction)),
            None => Compactor::Idle,
        };
        Ok(Self {
            shared,
            compactor: Mutex::new(compactor),
            latches: (0..LATCHES).map(|_| Mutex::new(())).collect(),
            gate: RwLock::new(()),
        })
    }

    /// In mode `Xm` everybody waits for a compaction.
    fn pass_gate(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.shared.settings.mode == Mode::Xm).then(|| self.gate.read())
    }

    pub(super) fn latch(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.latches[hash_bytes(key) as usize % LATCHES].lock()
    }

    /// Whether there is the entry.
    pub fn contains(&self, entry: &[u8]) -> Result<bool> {
        let _gate = self.pass_gate();
        self.shared.contains(entry)
    }

    /// Adds an entry unless it is there. Returns whether it is new.
    pub fn add(&self, entry: &[u8]) -> Result<bool> {
        self.set(entry, true, false)
    }

    /// As [`FdTree::add`], of an entry that is not committed durably: it enters no level and no
    /// image before [`FdTree::settle`].
    pub fn add_pending(&self, entry: &[u8]) -> Result<bool> {
        self.set(entry, true, true)
    }

    /// Removes an entry if it is there. Returns whether it was.
    pub fn remove(&self, entry: &[u8]) -> Result<bool> {
        self.set(entry, false, false)
    }

    fn set(&self, entry: &[u8], is_insert: bool, is_pending: bool) -> Result<bool> {
        self.make_room(entry.len())?;
        let _gate = self.pass_gate();
        let _latch = self.latch(entry);
        if self.shared.contains(entry)? == is_insert {
            return Ok(false);
        }
        let data = Data {
            is_insert,
            is_pending,
        };
        let mut state = self.shared.state.lock();
        let change = state.head.put(entry, data);
        state.count(change);
        Ok(true)
    }

    /// A pending entry is committed durably.
    pub fn settle(&self, entry: &[u8]) {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let old = state.old.as_mut().map(|old| &mut old.head);
        for head in std::iter::once(&mut state.head).chain(old) {
            if let Some(data) = head.data.get_mut(entry) {
                data.is_pending = false;
            }
        }
    }

    /// Bytes of the head's budget that writers may take now.
    fn room(&self, state: &State) -> usize {
        let budget = self.shared.settings.head_bytes;
        let reserve = budget / 8;
        let old_bytes = state.old.as_ref().map_or(0, |old| old.head.bytes());
        let (limit, taken) = match (self.shared.settings.mode, &state.old) {
            (Mode::FcNoSharing, Some(_)) => (budget / 2, state.head.bytes()),
            _ => (budget - reserve, state.head.bytes() + old_bytes),
        };
        limit.saturating_sub(taken)
    }

    /// Runs a compaction's steps while the head is full.
    fn make_room(&self, entry_bytes: usize) -> Result<()> {
        let is_full = |state: &State| {
            let has_data = state.head.data_bytes() > 0 || state.old.is_some();
            has_data && self.room(state) < entry_bytes
        };
        let mut ended = 0;
        while is_full(&self.shared.state.lock()) {
            ended += usize::from(!self.step(true)?);
            let state = self.shared.state.lock();
            let mut data = state.head.data.values();
            // Two whole compactions have left nothing but pending entries.
            if ended > 1
                && state.old.is_none()
                && data.all(|data| data.is_pending)
                && is_full(&state)
            {
                return Err(full_of_pending(self.shared.settings.head_bytes));
            }
        }
        Ok(())
    }

    /// Whether a compaction should begin; and whether because of an underflow (I5).
    fn trigger(&self, state: &State) -> Option<bool> {
        let budget = self.shared.settings.head_bytes;
        let is_underflow = state.deletes * 3 > state.inserts && state.deletes >= DELETES_MIN;
        let share = (budget / 2).saturating_sub(state.head.fence_bytes());
        let is_overflow = state.head.data_bytes() >= share.max(budget / 8);
        (is_underflow || is_overflow).then_some(is_underflow)
    }

    /// Does one step of a compaction, which it begins if there should be one. Returns whether
    /// there is more to do.
    ///
    /// # Errors
    /// The device's. A compaction that has failed stays so until the tree is opened again; lookups
    /// go on, writers as long as the head has room.
    pub fn compact_step(&self) -> Result<bool> {
        self.step(false)
    }

    fn step(&self, is_forced: bool) -> Result<bool> {
        let is_exclusive = self.shared.settings.mode == Mode::Xm;
        let _gate = is_exclusive.then(|| self.gate.write());
        let mut compactor = self.compactor.lock();
        if let Compactor::Idle = &*compactor {
            let trigger = self.trigger(&self.shared.state.lock());
            if trigger.is_none() && !is_forced {
                return Ok(false);
            }
            let begun = Compaction::begin(&self.shared, trigger.unwrap_or_default());
            *compactor = Compactor::Running(Box::new(begun));
        }
        loop {
            let stepped = match &mut *compactor {
                Compactor::Running(compaction) => compaction.step(&self.shared),
                Compactor::Failed(error) => Err(error.clone()),
                Compactor::Idle => Ok(false),
            };
            match stepped {
                Ok(true) if !is_exclusive => return Ok(true),
                Ok(true) => {}
                Ok(false) => {
                    *compactor = Compactor::Idle;
                    return Ok(false);
                }
                Err(error) => {
                    *compactor = Compactor::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// Runs a compaction, or ends the one under way.
    pub fn compact(&self) -> Result<()> {
        while self.step(true)? {}
        Ok(())
    }

    /// Makes everything durable that is not pending. A compaction in mode `Ds` ends first.
    pub fn checkpoint(&self) -> Result<()> {
        if self.shared.settings.mode == Mode::Ds && self.is_compacting() {
            self.compact()?;
        }
        match &mut *self.compactor.lock() {
            Compactor::Running(compaction) => compaction.save(&self.shared),
            Compactor::Idle => image::save(&self.shared),
            Compactor::Failed(error) => Err(error.clone()),
        }
    }

    /// Whether a compaction is under way.
    pub fn is_compacting(&self) -> bool {
        self.shared.state.lock().old.is_some()
    }

    /// Entries.
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.inserts.saturating_sub(state.deletes) as usize
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks of levels, those included that are reclaimed and not freed yet.
    pub fn blocks(&self) -> usize {
        self.shared.blocks.used()
    }

    /// Number, blocks, and whether it has only fences, of every level; top down.
    pub fn levels(&self) -> Vec<(u32, u64, bool)> {
        let state = self.shared.state.lock();
        let slots = state.slots.iter();
        slots
            .map(|slot| (slot.number, slot.blocks(), slot.level.only_fences))
            .collect()
    }

    /// Calls `each` with the entries of `from..before` until it returns false.
    pub fn scan(
        &self,
        from: &[u8],
        before: Option<&[u8]>,
        direction: Direction,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let _gate = self.pass_gate();
        let mut scan = Scan::new(&self.shared, from, before, direction);
        while let Some(entry) = scan.next()? {
            if !each(&entry) {
                break;
            }
        }
        Ok(())
    }

    /// Verifies the tree, while compactions wait; appends the damage found, one line each.
    ///
    /// # Errors
    /// The device's; the error of a compaction that has failed.
    pub fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let _gate = self.pass_gate();
        match &*self.compactor.lock() {
            Compactor::Running(running) => check::check(&self.shared, running.processed(), damage),
            Compactor::Idle => check::check(&self.shared, None, damage),
            Compactor::Failed(error) => Err(error.clone()),
        }
    }

    /// Reclaimed blocks that are not freed yet.
    pub fn unfreed_blocks(&self) -> usize {
        self.shared.state.lock().unfreed()
    }
}

fn full_of_pending(head_bytes: usize) -> Error {
    let message = format!("the index's head of {head_bytes} bytes is full of uncommitted entries");
    Error::new(ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY, message)
        .with_hint("Commit smaller transactions, or give the head more memory.")
}
