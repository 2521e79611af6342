//! Two directories as one device: the *fast* tier for files that are written often or read when the
//! database is opened (log, manifest, unmerged runs), the *capacity* tier for files that are large
//! (chunks, pages of indexes, history).
//!
//! Invariants:
//! 1. A name is on one tier. `on_capacity` has the names of the capacity tier; every other name is
//!    the fast tier's. A directory's own files ([`is_own_file`]) are exceptions: this
//!    device reads and writes none of them.
//! 2. [`Device::sync_directory`] syncs every directory whose names have changed since the begin of
//!    its last successful sync. The first call syncs both: a killed process may have left names
//!    that are not durable.
//! 3. [`Device::lock`] locks both directories, then lists the capacity tier again: until then
//!    another process may have changed it.
//!
//! Lock order: `synced` of one directory is held during its sync; `on_capacity` is held with
//! nothing else, and only to look and to change. `removal_guard` is not held while the guard is
//! asked.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use strandline_base::sync::{AtomicU64, Mutex, Ordering};
use strandline_base::{Error, Result, SqlState};

use crate::{Device, File, Queue, RequestStats, is_own_file};

/// One of the two directories of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// log, manifest, unmerged runs, kept logs, SSD cache
    Fast,
    /// chunk files, page files of indexes, history
    Capacity,
}

/// How the opener of a database has come to its capacity tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacityChoice {
    /// by the path that the database records
    #[default]
    Recorded,
    /// the caller has named it, and it is recorded
    Named,
    /// the caller has named it for this opening, which records nothing
    NamedOnce,
}

/// A directory and its syncs.
#[derive(Debug)]
struct Directory {
    device: Arc<dyn Device>,
    /// changes of names so far, and one for those of an earlier process
    changes: AtomicU64,
    /// the changes that are durable
    synced: Mutex<u64>,
}

impl Directory {
    fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            changes: AtomicU64::new(1),
            synced: Mutex::new(0),
        }
    }

    /// Changes a name. A change that fails counts too, because it may have happened.
    fn change<R>(&self, change: impl FnOnce(&dyn Device) -> Result<R>) -> Result<R> {
        let changed = change(&*self.device);
        self.changes.fetch_add(1, Ordering::AcqRel);
        changed
    }

    fn sync(&self) -> Result<()> {
        let mut synced = self.synced.lock();
        let changes = self.changes.load(Ordering::Acquire);
        if *synced != changes {
            self.device.sync_directory()?;
            *synced = changes;
        }
        Ok(())
    }
}

/// Says whether files of the capacity tier may be removed.
pub trait RemovalGuard: Send + Sync + Debug {
    /// Asked before each removal.
    ///
    /// # Errors
    /// The file must stay, or whether it must is not known.
    fn check_removal(&self) -> Result<()>;
}

/// A device of two directories.
#[derive(Debug)]
pub struct TieredDevice {
    fast: Directory,
    capacity: Directory,
    /// the path of the capacity tier that the fast tier's role file records
    capacity_path: String,
    capacity_choice: CapacityChoice,
    on_capacity: Mutex<BTreeSet<String>>,
    removal_guard: Mutex<Option<Arc<dyn RemovalGuard>>>,
}

impl TieredDevice {
    /// The device of the directories `fast` and `capacity`. The database records `capacity_path`
    /// and finds the second directory there when it is opened without one.
    ///
    /// # Errors
    /// Those of listing `capacity`.
    pub fn new(
        fast: Arc<dyn Device>,
        capacity: Arc<dyn Device>,
        capacity_path: impl Into<String>,
    ) -> Result<Self> {
        let on_capacity = Mutex::new(names(&*capacity)?);
        Ok(Self {
            fast: Directory::new(fast),
            capacity: Directory::new(capacity),
            capacity_path: capacity_path.into(),
            capacity_choice: CapacityChoice::default(),
            on_capacity,
            removal_guard: Mutex::default(),
        })
    }

    /// The same device; `choice` says where the capacity tier comes from.
    #[must_use]
    pub fn chosen(mut self, choice: CapacityChoice) -> Self {
        self.capacity_choice = choice;
        self
    }

    /// How the caller has come to the capacity tier.
    pub fn capacity_choice(&self) -> CapacityChoice {
        self.capacity_choice
    }

    /// The device of one tier. Names may be changed through it only before the database is opened,
    /// or if they are exceptions of invariant 1.
    pub fn device_of(&self, tier: Tier) -> &Arc<dyn Device> {
        &self.directory(tier).device
    }

    /// From now on `guard` is asked before a file of the capacity tier is removed.
    pub fn guard_removals(&self, guard: Arc<dyn RemovalGuard>) {
        *self.removal_guard.lock() = Some(guard);
    }

    /// The tier of the file `name`; the fast tier for a name that does not exist.
    pub fn tier_of(&self, name: &str) -> Tier {
        match self.on_capacity.lock().contains(name) {
            true => Tier::Capacity,
            false => Tier::Fast,
        }
    }

    /// The path of the capacity tier that the database records.
    pub fn capacity_path(&self) -> &str {
        &self.capacity_path
    }

    /// Keeps invariant 1 when `name` is about to appear on the fast tier.
    fn refuse_on_capacity(&self, name: &str) -> Result<()> {
        match self.tier_of(name) {
            Tier::Fast => Ok(()),
            Tier::Capacity => Err(Error::internal(format!(
                "file \"{name}\" exists on the capacity tier already"
            ))),
        }
    }

    /// The error of a file that is on neither tier.
    fn missing(&self, name: &str) -> Error {
        let what = format!(
            "file \"{name}\" is neither in \"{}\" nor in \"{}\"",
            self.capacity.device.location(),
            self.fast.device.location()
        );
        Error::invalid(SqlState::UNDEFINED_FILE, what)
    }

    fn directory(&self, tier: Tier) -> &Directory {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Capacity => &self.capacity,
        }
    }
}

/// The files of one tier, without those that each directory has of its own.
fn names(device: &dyn Device) -> Result<BTreeSet<String>> {
    let names = device.list()?.into_iter();
    Ok(names.filter(|name| !is_own_file(name)).collect())
}

impl Device for TieredDevice {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create_on(Tier::Fast, name)
    }

    fn create_on(&self, tier: Tier, name: &str) -> Result<Arc<dyn File>> {
        if tier == Tier::Fast {
            self.refuse_on_capacity(name)?;
        }
        let file = self.directory(tier).change(|device| device.create(name))?;
        if tier == Tier::Capacity {
            self.on_capacity.lock().insert(name.to_owned());
        }
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let tier = self.tier_of(name);
        let opened = self.directory(tier).device.open(name);
        match opened {
            Err(error) if tier == Tier::Fast && error.sqlstate() == SqlState::UNDEFINED_FILE => {
                Err(self.missing(name))
            }
            opened => opened,
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let tier = self.tier_of(name);
        let guard = self.removal_guard.lock().clone();
        if let Some(guard) = guard.filter(|_| tier == Tier::Capacity) {
            guard.check_removal()?;
        }
        self.directory(tier).change(|device| device.remove(name))?;
        self.on_capacity.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let tier = self.tier_of(from);
        if tier == Tier::Fast {
            self.refuse_on_capacity(to)?;
        }
        self.directory(tier)
            .change(|device| device.rename(from, to))?;
        let mut on_capacity = self.on_capacity.lock();
        if on_capacity.remove(from) {
            on_capacity.insert(to.to_owned());
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = self.fast.device.list()?;
        names.extend(self.on_capacity.lock().iter().cloned());
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn sync_directory(&self) -> Result<()> {
        self.capacity.sync()?;
        self.fast.sync()
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let locks = (self.fast.device.lock()?, self.capacity.device.lock()?);
        *self.on_capacity.lock() = names(&*self.capacity.device)?;
        Ok(Box::new(locks))
    }

    fn may_fill_up(&self) -> bool {
        self.fast.device.may_fill_up() || self.capacity.device.may_fill_up()
    }

    fn queue(&self, tier: Tier, depth: usize) -> Result<Arc<dyn Queue>> {
        self.directory(tier).device.queue(tier, depth)
    }

    fn location(&self) -> String {
        self.fast.device.location()
    }

    fn is_written_once(&self, tier: Tier) -> bool {
        self.directory(tier).device.is_written_once(tier)
    }

    fn request_stats(&self) -> Vec<RequestStats> {
        self.capacity.device.request_stats()
    }

    fn tiers(&self) -> Option<&TieredDevice> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
