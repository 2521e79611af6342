//! The tree: entries are added, removed and looked up here, and a compaction is driven.

use super::budget::{Claim, Trigger, Verdict, pays_ahead, trigger};
use super::check;
use super::compaction::Compaction;
use super::drive::{Drive, Turn, Use};
use super::estimate;
use super::filter_memory::FilterMemory;
use super::finalize::raise;
use super::head::Data;
use super::head_memory::Share;
use super::image;
use super::load;
use super::loaded::Loaded;
use super::lookup::Expected;
use super::plan::plan;
use super::progress::Work;
use super::scan::Scan;
use super::state::{Mode, Settings, Shared, State};
use crate::access_method::Direction;
use crate::entry::{EntryRange, ROW_BYTES, key_of};
use crate::key_hash::hash_bytes;
use std::sync::Arc;
use strandline_base::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::Pool;

const LATCHES: usize = 64;
/// A load of less than this part of what the head may have adds its entries one by one.
const FEW: usize = 8;
/// The most steps of [`FdTree::compact_step`] for writers that wait.
const STEPS_FOR_WRITERS: usize = 64;

/// The compaction under way, or why there is none any more.
#[derive(Debug)]
enum Compactor {
    Idle,
    Running(Box<Compaction>),
    Failed(Error),
}

/// An FD+tree of entries, which are the bytes of a key and a row id (`entry`).
#[derive(Debug)]
pub struct FdTree {
    pub(super) shared: Shared,
    pub(super) drive: Drive,
    /// used by the one who has the turn
    compactor: Mutex<Compactor>,
    latches: Vec<Mutex<()>>,
    gate: RwLock<()>,
    /// what its head has of a memory that heads share
    pub(super) share: Option<Share>,
}

impl FdTree {
    /// The tree of the newest image of `blocks`; empty without one. A compaction under way goes on.
    /// `pool` keeps the blocks that lookups read, within its budget.
    ///
    /// # Errors
    /// XX001 if the image or a block of the compaction is damaged.
    pub fn open(settings: Settings, blocks: Arc<dyn LevelBlocks>, pool: Arc<Pool>) -> Result<Self> {
        let mut state = State::default();
        let mut used = Vec::new();
        if let Some(bytes) = blocks.image()? {
            (state, used) = image::decode(&bytes, settings.tree)?;
        }
        raise(&settings, Arc::make_mut(&mut state.slots).as_mut_slice());
        state.head_budget = settings.head_bytes;
        blocks.set_used(&used);
        let shared = Shared {
            settings,
            blocks,
            pool,
            filters: Arc::new(FilterMemory::new(usize::MAX)),
            state: Mutex::new(state),
        };
        let compactor = match Compaction::resume(&shared)? {
            Some(compaction) => Compactor::Running(Box::new(compaction)),
            None => Compactor::Idle,
        };
        Ok(Self {
            shared,
            drive: Drive::default(),
            compactor: Mutex::new(compactor),
            latches: (0..LATCHES).map(|_| Mutex::new(())).collect(),
            gate: RwLock::new(()),
            share: None,
        })
    }

    /// The tree with filters in a shared memory; without it all its filters may be in memory. No
    /// filter has been read yet.
    #[must_use]
    pub fn with_filter_memory(mut self, memory: Arc<FilterMemory>) -> Self {
        self.shared.filters = memory;
        self
    }

    /// In mode `Xm` everybody waits for a compaction.
    fn pass_gate(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.shared.settings.mode == Mode::Xm).then(|| self.gate.read())
    }

    /// Held while an entry of a key is added or removed.
    fn latch(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.latches[hash_bytes(key) as usize % LATCHES].lock()
    }

    /// Whether there is the entry.
    pub fn contains(&self, entry: &[u8]) -> Result<bool> {
        let _gate = self.pass_gate();
        Ok(self.shared.find(entry, Expected::Present)?.0)
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

    /// Adds an entry unless it is there, and calls `each` with the other entries of its key that
    /// were there before: atomically, so that of two adders of one key one sees the other. `before`
    /// runs under the key's latch before the entry is added. Returns whether the entry is new.
    pub fn add_seeing(
        &self,
        entry: &[u8],
        before: impl FnOnce(),
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool> {
        self.make_room(entry.len())?;
        let _gate = self.pass_gate();
        let _latch = self.latch(key_of(entry));
        before();
        // First the addition: a load that begins before it looks into the head, and one that
        // begins later is seen here.
        let is_new = self.set_latched(entry, true, false)?;
        let seen = self.scan_entries(key_of(entry), Expected::Absent, |other| {
            if other != entry {
                each(other);
            }
            true
        });
        if let (Err(error), true) = (&seen, is_new) {
            self.put(&mut self.shared.state.lock(), entry, false, false);
            return Err(error.clone());
        }
        seen.map(|()| is_new)
    }

    /// Adds an entry unless it is there; `before` runs under the key's latch before. Returns
    /// whether it is new.
    pub fn add_after(&self, entry: &[u8], before: impl FnOnce()) -> Result<bool> {
        self.make_room(entry.len())?;
        let _gate = self.pass_gate();
        let _latch = self.latch(key_of(entry));
        before();
        self.set_latched(entry, true, false)
    }

    /// Waits for everybody who is adding or removing an entry.
    pub fn pass_latches(&self) {
        for latch in &self.latches {
            drop(latch.lock());
        }
    }

    /// Runs `work` while nobody adds or removes an entry of this entry's key, but for a load.
    pub fn with_latch<R>(&self, entry: &[u8], work: impl FnOnce() -> R) -> R {
        let _latch = self.latch(key_of(entry));
        work()
    }

    /// Removes an entry if it is there and `is_wanted`, which is called under the key's latch.
    /// Returns whether it has been removed.
    pub fn remove_if(&self, entry: &[u8], is_wanted: impl FnOnce() -> bool) -> Result<bool> {
        self.make_room(entry.len())?;
        let _gate = self.pass_gate();
        let _latch = self.latch(key_of(entry));
        Ok(is_wanted() && self.set_latched(entry, false, false)?)
    }

    fn set(&self, entry: &[u8], is_insert: bool, is_pending: bool) -> Result<bool> {
        self.make_room(entry.len())?;
        let _gate = self.pass_gate();
        let _latch = self.latch(key_of(entry));
        self.set_latched(entry, is_insert, is_pending)
    }

    fn set_latched(&self, entry: &[u8], is_insert: bool, is_pending: bool) -> Result<bool> {
        let expected = match is_insert {
            true => Expected::Absent,
            false => Expected::Present,
        };
        loop {
            let (is_present, loads) = self.shared.find(entry, expected)?;
            if is_present == is_insert {
                return Ok(false);
            }
            let mut state = self.shared.state.lock();
            // A load that has begun in between may have the entry.
            if state.loads == loads {
                self.put(&mut state, entry, is_insert, is_pending);
                return Ok(true);
            }
        }
    }

    fn put(&self, state: &mut State, entry: &[u8], is_insert: bool, is_pending: bool) {
        let data = Data {
            is_insert,
            is_pending,
        };
        let change = state.head.put(entry, data);
        state.count(change);
        state.changes += 1;
    }

    /// Calls `each` with the entries of a key until it returns false.
    pub fn scan_key(&self, key: &[u8], each: impl FnMut(&[u8]) -> bool) -> Result<()> {
        self.scan_entries(key, Expected::Present, each)
    }

    fn scan_entries(
        &self,
        key: &[u8],
        expected: Expected,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        if let Some(entries) = self.shared.entries_of(key, expected)? {
            let _all = entries.iter().all(|entry| each(entry));
            return Ok(());
        }
        let before = [key, &[u8::MAX; ROW_BYTES + 1]].concat();
        let mut scan = Scan::new(&self.shared, key, Some(&before), Direction::Forward);
        while let Some(entry) = scan.next()? {
            if !each(&entry) {
                break;
            }
        }
        Ok(())
    }

    /// Adds many entries, which are sorted and distinct, unless they are there. Appends to `met`
    /// those that may not be alone under their key, whether they were there or not.
    ///
    /// # Errors
    /// The device's; the entries that have been written stay.
    pub fn load(&self, entries: &[&[u8]], mut met: Option<&mut Vec<Vec<u8>>>) -> Result<()> {
        let bytes: usize = entries.iter().map(|entry| entry.len()).sum();
        if bytes * FEW < self.head_bytes_max() {
            for entry in entries {
                self.add(entry)?;
                if let Some(met) = met.as_deref_mut() {
                    met.push(entry.to_vec());
                }
            }
            return Ok(());
        }
        let loaded = self.begin_load(entries, met)?;
        self.end_load(&loaded)
    }

    /// Ends the compaction under way and begins the one that adds the entries.
    pub(super) fn begin_load(
        &self,
        entries: &[&[u8]],
        met: Option<&mut Vec<Vec<u8>>>,
    ) -> Result<Arc<Loaded>> {
        let turn = self.drive.take(&self.shared, Use::Steps);
        while self.advance(&turn)? {}
        turn.hold();
        let (loaded, compaction) = load::begin(&self.shared, entries, met)?;
        *self.compactor.lock() = Compactor::Running(Box::new(compaction));
        turn.resume();
        Ok(loaded)
    }

    /// Does the steps of a load's compaction until it is durable.
    fn end_load(&self, loaded: &Arc<Loaded>) -> Result<()> {
        let is_loading = || {
            let state = self.shared.state.lock();
            let present = state.old.as_ref().and_then(|old| old.loaded.as_ref());
            present.is_some_and(|present| Arc::ptr_eq(present, loaded))
        };
        while is_loading() {
            self.step(false)?;
        }
        // The image that makes the load durable, unless another caller has written it.
        let turn = self.drive.take(&self.shared, Use::Steps);
        let is_unsaved = match &*self.compactor.lock() {
            Compactor::Running(compaction) => compaction.is_installed(),
            Compactor::Idle => false,
            Compactor::Failed(error) => return Err(error.clone()),
        };
        if is_unsaved {
            self.advance(&turn)?;
        }
        Ok(())
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

    /// Waits until an entry of so many bytes may be added to the head, and pays for it; see
    /// `budget`.
    fn make_room(&self, entry_bytes: usize) -> Result<()> {
        let settings = &self.shared.settings;
        let (claim, verdict, is_due) = {
            let mut state = self.shared.state.lock();
            let mut claim = Claim::new(settings, &state, entry_bytes);
            let is_idle = pays_ahead(settings.mode) && state.old.is_none();
            let is_due = is_idle && self.is_due(&mut state);
            let mut verdict = claim.verdict(settings, &state, true);
            while verdict != Verdict::Admitted && self.grow_head(&mut state) {
                claim = Claim::new(settings, &state, entry_bytes);
                verdict = claim.verdict(settings, &state, true);
            }
            (claim, verdict, is_due)
        };
        if verdict == Verdict::Admitted && !self.drive.has_waiting() {
            if let (true, Some(turn)) = (is_due, self.drive.try_take(&self.shared)) {
                // An error stays with the compaction: this writer has room.
                let _stepped = self.step_in(&turn, false);
            }
            return Ok(());
        }
        let admit = |turn: &Turn<'_>| self.step_in(turn, true).map(|_| ());
        match self.drive.admit(&self.shared, claim, admit)? {
            true => Ok(()),
            false => Err(full_of_pending(self.head_budget())),
        }
    }

    /// Does a step of a compaction, which it begins if there should be one, and more of them as
    /// long as writers wait, up to 64. Returns whether there is more to do.
    ///
    /// # Errors
    /// The device's. A step that found no room, or whose read or write has failed, is done again by
    /// the next call. After any other failure the compaction fails until the tree is opened again;
    /// lookups go on, writers as long as the head has room.
    pub fn compact_step(&self) -> Result<bool> {
        let turn = self.drive.take(&self.shared, Use::Steps);
        let mut goes_on = self.step_in(&turn, false)?;
        for _ in 1..STEPS_FOR_WRITERS {
            turn.admit();
            if !goes_on || !self.drive.has_waiting() {
                break;
            }
            goes_on = self.step_in(&turn, false)?;
        }
        Ok(goes_on)
    }

    pub(super) fn step(&self, is_forced: bool) -> Result<bool> {
        let turn = self.drive.take(&self.shared, Use::Steps);
        self.step_in(&turn, is_forced)
    }

    /// A step of the compaction under way, or of one that is due or forced; in mode `Xm` all of its
    /// steps. Returns whether there is more to do.
    fn step_in(&self, turn: &Turn<'_>, is_forced: bool) -> Result<bool> {
        let is_exclusive = self.shared.settings.mode == Mode::Xm;
        let _gate = is_exclusive.then(|| self.gate.write());
        if let compactor @ Compactor::Idle = &mut *self.compactor.lock() {
            let mut state = self.shared.state.lock();
            if !is_forced && !self.is_due(&mut state) {
                return Ok(false);
            }
            let is_underflow = trigger(&state) == Some(Trigger::Underflow);
            let (settings, block_bytes) = (&self.shared.settings, self.shared.blocks.block_bytes());
            let plan = plan(settings, &state, block_bytes, is_underflow, None);
            let begun = Compaction::begin(&self.shared, &mut state, plan, None);
            *compactor = Compactor::Running(Box::new(begun));
        }
        while self.advance(turn)? {
            if !is_exclusive {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One step of the compaction under way; then writers that have waited for it are admitted.
    /// Returns whether there is more to do.
    fn advance(&self, turn: &Turn<'_>) -> Result<bool> {
        let stepped = {
            let mut compactor = self.compactor.lock();
            let stepped = match &mut *compactor {
                Compactor::Running(compaction) => compaction.step(&self.shared),
                Compactor::Failed(error) => Err(error.clone()),
                Compactor::Idle => Ok(false),
            };
            match &stepped {
                Ok(true) => {}
                Ok(false) => *compactor = Compactor::Idle,
                Err(error) => self.fail(&mut compactor, error),
            }
            stepped
        };
        turn.admit();
        stepped
    }

    /// A step has failed. The next caller does it again if the device may serve it by then: a step
    /// that finds no room, or whose read or write fails, changes nothing. Else the compaction has
    /// failed until the tree is opened again. Writers owe it nothing (D6).
    fn fail(&self, compactor: &mut Compactor, error: &Error) {
        if error.kind() != ErrorKind::Unavailable {
            *compactor = Compactor::Failed(error.clone());
        }
        if let Some(old) = &mut self.shared.state.lock().old {
            old.work = Work::default();
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
        let _turn = self.drive.take(&self.shared, Use::Hold);
        let mut compactor = self.compactor.lock();
        let compaction = match &mut *compactor {
            Compactor::Running(compaction) => compaction,
            Compactor::Idle => return image::save(&self.shared),
            Compactor::Failed(error) => return Err(error.clone()),
        };
        let saved = compaction.save(&self.shared);
        match &saved {
            Ok(()) if compaction.is_over() => *compactor = Compactor::Idle,
            Ok(()) => {}
            Err(error) => self.fail(&mut compactor, error),
        }
        saved
    }

    /// Whether an image that was written since the opening has every entry.
    pub fn is_saved(&self) -> bool {
        let is_idle = matches!(&*self.compactor.lock(), Compactor::Idle);
        let state = self.shared.state.lock();
        is_idle && state.saved == Some(state.changes)
    }

    /// Why compactions and checkpoints fail until the tree is opened again.
    ///
    /// # Errors
    /// That failure.
    pub fn check_usable(&self) -> Result<()> {
        match &*self.compactor.lock() {
            Compactor::Failed(error) => Err(error.clone()),
            Compactor::Idle | Compactor::Running(_) => Ok(()),
        }
    }

    /// Whether a compaction is under way.
    pub fn is_compacting(&self) -> bool {
        self.shared.state.lock().old.is_some()
    }

    /// Calls `each` with the entries of `from..before` until it returns false.
    pub fn scan(
        &self,
        from: &[u8],
        before: Option<&[u8]>,
        direction: Direction,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        let range = EntryRange {
            from: from.into(),
            before: before.map(Into::into),
        };
        let mut entries = self.entries(&range, direction);
        while let Some(entry) = entries.next()? {
            if !each(&entry) {
                break;
            }
        }
        Ok(())
    }

    /// The entries of a range, in order.
    pub(crate) fn entries(&self, range: &EntryRange, direction: Direction) -> Entries<'_> {
        let before = range.before.as_deref();
        Entries {
            tree: self,
            scan: Scan::new(&self.shared, &range.from, before, direction),
        }
    }

    /// About how many entries a range has; see `estimate`.
    pub(crate) fn estimate(&self, range: &EntryRange) -> Result<usize> {
        let _gate = self.pass_gate();
        estimate::estimate(&self.shared, range, self.len())
    }

    /// Verifies the tree, while compactions wait; appends the damage found, one line each.
    ///
    /// # Errors
    /// The device's; the error of a compaction that has failed.
    pub fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let _turn = self.drive.take(&self.shared, Use::Hold);
        let _gate = self.pass_gate();
        match &*self.compactor.lock() {
            Compactor::Running(running) => {
                running.finalize(&self.shared)?;
                check::check(&self.shared, running.processed(), damage)
            }
            Compactor::Idle => check::check(&self.shared, None, damage),
            Compactor::Failed(error) => Err(error.clone()),
        }
    }
}

/// The entries of a range, in order; between two calls it holds nothing.
pub(crate) struct Entries<'a> {
    tree: &'a FdTree,
    scan: Scan<'a>,
}

impl Entries<'_> {
    /// They go on behind those of a cursor that has ended.
    #[must_use]
    pub fn going_on(mut self) -> Self {
        self.scan = self.scan.going_on();
        self
    }

    /// The next entry.
    pub fn next(&mut self) -> Result<Option<Box<[u8]>>> {
        let _gate = self.tree.pass_gate();
        self.scan.next()
    }
}

fn full_of_pending(head_bytes: usize) -> Error {
    let message = format!("the index's head of {head_bytes} bytes is full of uncommitted entries");
    Error::new(ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY, message)
        .with_hint("Commit smaller transactions, or give the head more memory.")
}
