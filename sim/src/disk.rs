//! The simulated disk: files, the directory, the operation counter and the faults to come.
//!
//! Every mutating call (create, remove, rename, directory sync, write, set_len, sync) is one
//! operation, numbered from 1. A test runs its workload once to learn [`SimDisk::operations`],
//! then again for each number with [`SimDisk::crash_at`]: that operation and all later ones fail,
//! a write or directory change in flight may have happened. [`SimDisk::after_crash`] then draws,
//! from a seed, one of the disks that could be found after the crash; it can be called many times.
//! A machine may have several disks ([`SimDisk::beside`]), which count and crash together.
//!
//! Lock order: a disk's state → the clock.
//!
//! State after a crash (fault rules):
//! 1. Synced bytes and names always survive.
//! 2. Of unsynced writes every 512-byte sector survives, vanishes or tears on its own, independent
//!    of the order of the writes.
//! 3. An unsynced change of length or name happens or not, each on its own.
//! 4. A failed sync decides at once, by rules 2 and 3, which of its writes survive. The lost writes
//!    are *readable, not durable, clean*, as in a kernel that marks pages clean which it could not
//!    write: reads return them, later syncs succeed without writing them, a crash takes them away.
//!    Only bytes that are written again, and synced, become durable. The kernel's own writing may
//!    fail in the same way before any sync ([`SimDisk::lose_unsynced`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use strandline_base::rng::Rng;
use strandline_base::{Error, Result, SqlState};

use crate::crash_clock::{CrashClock, Outcome, crashed_error, injected_error};
use crate::crash_style::CrashStyle;
use crate::inode::Inode;

/// A change of the directory that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Create { name: String, inode: usize },
    Remove { name: String },
    Rename { from: String, to: String },
}

impl NameChange {
    /// Applies the change as far as the names it starts from are there.
    fn apply(self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Create { name, inode } => {
                names.insert(name, inode);
            }
            NameChange::Remove { name } => {
                names.remove(&name);
            }
            NameChange::Rename { from, to } => {
                if let Some(inode) = names.remove(&from) {
                    names.insert(to, inode);
                }
            }
        }
    }
}

pub(crate) struct DiskState {
    pub inodes: Vec<Inode>,
    pub names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    clock: Arc<Mutex<CrashClock>>,
    writes: u64,
    syncs: u64,
    fail_write_at: Option<u64>,
    fail_sync_at: Option<u64>,
    unreadable: BTreeSet<String>,
    unwritable: BTreeSet<String>,
    directory_syncs: u64,
    fail_directory_sync_at: Option<u64>,
    capacity_bytes: Option<u64>,
    rng: Rng,
    pub locked: bool,
    /// of the directory, see [`SimDisk::copied`]
    pub number: u64,
}

/// A disk that crashes, tears and fails on demand, reproducibly. Clones share the disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<DiskState>>);

impl SimDisk {
    /// An empty disk; `seed` determines what failed syncs leave.
    pub fn new(seed: u64) -> Self {
        Self::with(Vec::new(), BTreeMap::new(), Rng::new(seed))
    }

    /// Another empty disk of the same machine: operations of both are numbered together, and both
    /// crash at the same one. What a crash leaves is drawn for each disk by itself.
    pub fn beside(&self, seed: u64) -> Self {
        let disk = Self::new(seed);
        disk.state().clock = self.clock();
        disk
    }

    /// Puts this disk, with what is on it, into the machine of `other`, as [`SimDisk::beside`] does
    /// with an empty one: for the disks that one crash has left.
    pub fn join(&self, other: &SimDisk) {
        let clock = other.clock();
        self.state().clock = clock;
    }

    fn clock(&self) -> Arc<Mutex<CrashClock>> {
        self.state().clock.clone()
    }

    fn with(inodes: Vec<Inode>, names: BTreeMap<String, usize>, rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(DiskState {
            inodes,
            durable_names: names.clone(),
            names,
            pending_names: Vec::new(),
            clock: Arc::default(),
            writes: 0,
            syncs: 0,
            fail_write_at: None,
            fail_sync_at: None,
            unreadable: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            directory_syncs: 0,
            fail_directory_sync_at: None,
            capacity_bytes: None,
            rng,
            locked: false,
            number: 1,
        })))
    }

    /// Mutating operations of the machine so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.clock().lock().operations
    }

    /// File syncs so far, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Writes so far, failed ones included.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Crashes at operation number `operation` (counted from 1 since the disk was made).
    pub fn crash_at(&self, operation: u64) {
        self.clock().lock().crash_at = Some(operation);
    }

    /// Crashes now.
    pub fn crash(&self) {
        self.clock().lock().has_crashed = true;
    }

    /// Whether the crash has happened.
    pub fn has_crashed(&self) -> bool {
        self.clock().lock().has_crashed
    }

    /// The `n`-th write from now (1 is the next) fails with an I/O error, part of it possibly done.
    pub fn fail_write(&self, n: u64) {
        let mut state = self.state();
        state.fail_write_at = Some(state.writes + n);
    }

    /// The `n`-th file sync from now (1 is the next) fails with an I/O error.
    pub fn fail_sync(&self, n: u64) {
        let mut state = self.state();
        state.fail_sync_at = Some(state.syncs + n);
    }

    /// The `n`-th mutating operation from now (1 is the next), of whatever kind, fails with an I/O
    /// error; nothing of it is done.
    pub fn fail_operation(&self, n: u64) {
        let clock = self.clock();
        let mut clock = clock.lock();
        clock.fail_at = Some(clock.operations + n);
    }

    /// Reads of `name` fail with an I/O error from now on.
    pub fn fail_reads(&self, name: &str) {
        self.state().unreadable.insert(name.to_owned());
    }

    /// All files can be read again.
    pub fn mend_reads(&self) {
        self.state().unreadable.clear();
    }

    /// Writes to `name` fail with an I/O error from now on; nothing of them is done.
    pub fn fail_writes(&self, name: &str) {
        self.state().unwritable.insert(name.to_owned());
    }

    /// All files can be written again.
    pub fn mend_writes(&self) {
        self.state().unwritable.clear();
    }

    /// The `n`-th directory sync from now (1 is the next) fails with an I/O error.
    pub fn fail_directory_sync(&self, n: u64) {
        let mut state = self.state();
        state.fail_directory_sync_at = Some(state.directory_syncs + n);
    }

    /// The kernel fails to write what is not synced, and tells nobody: all of it is readable, not
    /// durable and clean from now on (rule 4). Names are left as they are.
    pub fn lose_unsynced(&self) {
        let mut state = self.state();
        let DiskState { inodes, rng, .. } = &mut *state;
        for inode in inodes {
            inode.settle(rng, CrashStyle::DropAll);
        }
    }

    /// The kernel drops the pages that are clean: reads return what is on the disk, and what is
    /// still to be written to it.
    pub fn drop_clean_pages(&self) {
        self.state().inodes.iter_mut().for_each(Inode::drop_clean);
    }

    /// Lets all files together hold at most `bytes`; beyond that writes and allocations fail with
    /// 53100. `None` lifts the limit.
    pub fn limit_capacity(&self, bytes: Option<u64>) {
        self.state().capacity_bytes = bytes;
    }

    /// The bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// The content of `name` as a running process sees it; `None` if there is no such file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state
            .names
            .get(name)
            .map(|&inode| state.inodes[inode].current.clone())
    }

    /// Damages the durable content: flips the bits of `mask` in the byte of `name` at `offset`.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bits(&self, name: &str, offset: u64, mask: u8) {
        let mut state = self.state();
        let inode = state.names[name];
        state.inodes[inode].flip(offset, mask);
    }

    /// The disk as found after a crash at this moment: one of the possible outcomes, drawn by
    /// `seed`. Seeds 0 and 1 are the extremes (everything unsynced lost, everything kept), others
    /// are random. This disk is left as it is.
    pub fn after_crash(&self, seed: u64) -> SimDisk {
        let style = match seed {
            0 => CrashStyle::DropAll,
            1 => CrashStyle::KeepAll,
            _ => CrashStyle::Random,
        };
        let state = self.state();
        let mut rng = Rng::new(seed);
        let mut names = state.durable_names.clone();
        for change in &state.pending_names {
            if style.survives(&mut rng) {
                change.clone().apply(&mut names);
            }
        }
        let mut inodes = state.inodes.clone();
        for inode in &mut inodes {
            inode.settle(&mut rng, style);
            inode.current = inode.durable.clone();
        }
        let number = state.number;
        let found = Self::with(inodes, names, rng);
        found.state().number = number;
        found
    }

    /// A copy of all files in another directory, made while the disk is in use; the two are of
    /// different machines.
    pub fn copied(&self) -> SimDisk {
        let number = self.state().number + 1;
        let copy = self.after_kill();
        copy.state().number = number;
        copy
    }

    /// The disk as found by a new process after the old one was killed: everything written is
    /// there, but what was not synced is still not durable.
    pub fn after_kill(&self) -> SimDisk {
        let state = self.state();
        let disk = Self::with(state.inodes.clone(), state.names.clone(), state.rng.clone());
        {
            let mut found = disk.state();
            found.durable_names = state.durable_names.clone();
            found.pending_names = state.pending_names.clone();
            found.capacity_bytes = state.capacity_bytes;
            found.number = state.number;
        }
        disk
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("SimDisk")
            .field("clock", &state.clock)
            .field("files", &state.names.keys())
            .finish_non_exhaustive()
    }
}

impl DiskState {
    /// Fails once the disk has crashed. Reads call it as well.
    pub fn check_running(&self) -> Result<()> {
        self.clock.lock().check_running()
    }

    /// Fails if reads of `name` are to fail.
    pub fn check_readable(&self, name: &str) -> Result<()> {
        self.check_running()?;
        match self.unreadable.contains(name) {
            true => Err(injected_error(name, "read")),
            false => Ok(()),
        }
    }

    fn count(&self) -> Result<Outcome> {
        self.clock.lock().count()
    }

    /// Whether the disk's space is limited.
    pub fn has_limit(&self) -> bool {
        self.capacity_bytes.is_some()
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .map(|&i| self.inodes[i].current.len() as u64)
            .sum()
    }

    /// How far inode `inode` may grow towards `end`.
    fn room(&self, inode: usize, end: u64) -> u64 {
        let len = self.inodes[inode].current.len() as u64;
        match self.capacity_bytes {
            Some(capacity) if end > len => {
                end.min(len + capacity.saturating_sub(self.used_bytes()))
            }
            _ => end,
        }
    }

    pub fn find(&self, name: &str) -> Result<usize> {
        self.names.get(name).copied().ok_or_else(|| {
            Error::invalid(SqlState::UNDEFINED_FILE, format!("sim: no file \"{name}\""))
        })
    }

    pub fn create(&mut self, name: &str) -> Result<usize> {
        self.check_running()?;
        if self.names.contains_key(name) {
            let what = format!("sim: file \"{name}\" exists already");
            return Err(Error::invalid(SqlState::IO_ERROR, what));
        }
        let inode = self.inodes.len();
        let outcome = self.count()?;
        self.inodes.push(Inode::default());
        self.change_name(
            outcome,
            NameChange::Create {
                name: name.to_owned(),
                inode,
            },
        )?;
        Ok(inode)
    }

    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.find(name)?;
        let outcome = self.count()?;
        self.change_name(
            outcome,
            NameChange::Remove {
                name: name.to_owned(),
            },
        )
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.find(from)?;
        let outcome = self.count()?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.change_name(outcome, NameChange::Rename { from, to })
    }

    fn change_name(&mut self, outcome: Outcome, change: NameChange) -> Result<()> {
        change.clone().apply(&mut self.names);
        self.pending_names.push(change);
        finish(outcome)
    }

    pub fn sync_directory(&mut self) -> Result<()> {
        let outcome = self.count()?;
        self.directory_syncs += 1;
        finish(outcome)?;
        if self.fail_directory_sync_at == Some(self.directory_syncs) {
            for change in std::mem::take(&mut self.pending_names) {
                if CrashStyle::Random.survives(&mut self.rng) {
                    change.apply(&mut self.durable_names);
                }
            }
            return Err(injected_error(".", "directory sync"));
        }
        for change in std::mem::take(&mut self.pending_names) {
            change.apply(&mut self.durable_names);
        }
        Ok(())
    }

    pub fn write(&mut self, name: &str, inode: usize, bytes: &[u8], offset: u64) -> Result<()> {
        let outcome = self.count()?;
        self.writes += 1;
        if self.unwritable.contains(name) {
            return Err(injected_error(name, "write"));
        }
        if self.fail_write_at == Some(self.writes) {
            let kept = self.rng.below(bytes.len() as u64 + 1) as usize;
            self.inodes[inode].write(&bytes[..kept], offset);
            return Err(injected_error(name, "write"));
        }
        let end = self.room(inode, offset + bytes.len() as u64);
        let fits = end.saturating_sub(offset) as usize;
        self.inodes[inode].write(&bytes[..fits], offset.min(end));
        finish(outcome)?;
        if fits < bytes.len() {
            Err(full_error(name))
        } else {
            Ok(())
        }
    }

    pub fn set_len(&mut self, name: &str, inode: usize, len: u64) -> Result<()> {
        let outcome = self.count()?;
        if self.room(inode, len) < len {
            return Err(full_error(name));
        }
        self.inodes[inode].set_len(len);
        finish(outcome)
    }

    pub fn sync(&mut self, name: &str, inode: usize) -> Result<()> {
        let outcome = self.count()?;
        self.syncs += 1;
        finish(outcome)?;
        if self.fail_sync_at == Some(self.syncs) {
            let DiskState { inodes, rng, .. } = self;
            inodes[inode].settle(rng, CrashStyle::Random);
            return Err(injected_error(name, "sync"));
        }
        self.inodes[inode].sync();
        Ok(())
    }
}

fn finish(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::InFlight => Err(crashed_error()),
    }
}

fn full_error(name: &str) -> Error {
    Error::io(
        format!("sim: \"{name}\""),
        &std::io::ErrorKind::StorageFull.into(),
    )
}
