//! Opening: the directory in force is found, judged, and written anew in an epoch of its own.
//!
//! A cache that cannot be used is replaced by an empty one only if neither the marker nor the
//! directory says that it had blocks fresher than the capacity tier.

use std::collections::BTreeSet;
use std::sync::Arc;

use strandline_base::sync::{Condvar, Mutex};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, MemoryDevice};

use super::capacity::Capacity;
use super::core::{Maintenance, SsdCache};
use super::counters::Counters;
use super::directory::{DIRECTORY_FILE, Directory, Found, Head, Listed};
use super::marker::{MARKER_FILE, Marker};
use super::settings::{Mode, OnLoss, Settings};
use super::slots::{SLOTS_FILE, SlotFile, slots_for};
use super::state::State;
use crate::cache_counters::add;
use crate::cache_room::enlarge;

/// The cache's files as they were found.
pub(super) struct Remains {
    /// None if there is none or it is damaged
    pub marker: Option<Marker>,
    pub marker_damage: Option<Error>,
    pub directory: Option<Found>,
}

impl SsdCache {
    /// Opens the cache on the fast tier of `device`, or creates it. Reading it is possible at once;
    /// the caller then forgets the files that do not exist ([`SsdCache::files`]).
    ///
    /// # Errors
    /// XX001 if the cache is lost or damaged and had blocks fresher than the capacity tier; 22023
    /// for a wrong setting; 0A000 for files of another version; those of the devices.
    pub fn open(
        device: Arc<dyn Device>,
        capacity: Arc<dyn Capacity>,
        settings: Settings,
    ) -> Result<Self> {
        check_settings(&settings)?;
        let remains = Remains::find(&*device)?;
        let counters = Counters::default();
        let fault = remains.fault(&*device, &settings)?;
        if let Some(fault) = &fault {
            remains.refuse_loss(&*device, &settings, fault)?;
            add(&counters.replaced, 1);
        }
        let marker = remains.next_marker(&settings, fault.is_some());
        let has_files = !remains.is_empty();
        let (head, listed) = match remains.directory.filter(|_| fault.is_none()) {
            Some(found) => (found.head, found.entries.into_values().collect()),
            None => (None, Vec::new()),
        };
        if head.is_some() {
            // A crash may have come before the directory in force had its name.
            Directory::finish_publication(&*device, marker.epoch)?;
        }
        let cache = Self::assemble(device, capacity, settings, counters, marker, head, listed)?;
        match cache.settings.mode {
            Mode::Pc | Mode::Pc2 => cache.begin_first_epoch()?,
            Mode::Lc => cache.empty()?,
            Mode::Off if has_files => {
                cache.empty()?;
                cache.remove_files()?;
            }
            Mode::Off => {}
        }
        Ok(cache)
    }

    fn assemble(
        device: Arc<dyn Device>,
        capacity: Arc<dyn Capacity>,
        mut settings: Settings,
        counters: Counters,
        marker: Marker,
        head: Option<Head>,
        mut listed: Vec<Listed>,
    ) -> Result<Self> {
        if let Some(head) = head.filter(|head| head.slot_bytes != settings.slot_bytes) {
            match listed.iter().any(|listed| listed.is_fresh) {
                true => settings.slot_bytes = head.slot_bytes,
                false => listed.clear(),
            }
        }
        let slots = match settings.mode == Mode::Off && head.is_none() {
            // There is nothing to copy out, and no file is made.
            true => SlotFile::open(&MemoryDevice::new(), settings.identity, settings.slot_bytes),
            false => SlotFile::open(&*device, settings.identity, settings.slot_bytes),
        }?;
        let mut limit = match settings.mode {
            Mode::Off => 0,
            _ => settings.slots_of(settings.cache_bytes),
        };
        let mut allocated = slots.slots()?;
        if limit > allocated {
            limit = match enlarge(allocated, limit, &|limit| slots.set_slots(limit)) {
                Err(error) if error.sqlstate() == SqlState::DISK_FULL => allocated,
                enlarged => enlarged?,
            };
            allocated = limit;
        }
        let mut state = State::new(0, allocated, settings.admission);
        for listed in listed {
            state.restore(listed, slots_for(listed.block.len, settings.slot_bytes));
        }
        state.set_limit(limit);
        Ok(Self {
            device,
            capacity,
            settings,
            slots,
            state: Mutex::new(state),
            written: Condvar::new(),
            due: Condvar::new(),
            maintenance: Mutex::new(Maintenance {
                directory: None,
                is_broken: false,
                marker,
            }),
            counters,
        })
    }

    /// The epoch of this opening. On a full disk the directory in force stays as it is, and a later
    /// round begins the epoch: until then no change of the cache becomes durable.
    fn begin_first_epoch(&self) -> Result<()> {
        let mut maintenance = self.maintenance.lock();
        match self.begin_epoch(&mut maintenance) {
            Err(error) if error.sqlstate() == SqlState::DISK_FULL => maintenance.is_broken = true,
            begun => begun?,
        }
        Ok(())
    }

    /// Copies all fresh blocks out, durably, and goes on without any block. For modes that keep
    /// nothing over a crash.
    fn empty(&self) -> Result<()> {
        let mut maintenance = self.maintenance.lock();
        let fresh = self.state.lock().all_fresh();
        match self.copy_out(&fresh) {
            Err(error)
                if error.kind() == ErrorKind::Corrupt
                    && self.settings.on_loss == OnLoss::Discard => {}
            copied => copied.map_err(cannot_be_emptied)?,
        }
        let files = fresh.iter().map(|victim| victim.block.file);
        self.sync_capacity(files.collect())?;
        let mut state = self.state.lock();
        let (limit, allocated) = (state.limit, state.allocated);
        *state = State::new(0, allocated, self.settings.admission);
        state.set_limit(limit);
        drop(state);
        let mut marker = maintenance.marker.clone();
        marker.fresh_files.clear();
        self.write_marker(&mut maintenance, marker)?;
        self.begin_epoch(&mut maintenance)
    }

    /// All but the marker. A crash may come before the next checkpoint: the last one went through
    /// the cache, and without the marker the cache would pass for lost.
    fn remove_files(&self) -> Result<()> {
        Directory::remove(&*self.device)?;
        if self.device.list()?.iter().any(|name| name == SLOTS_FILE) {
            self.device.remove(SLOTS_FILE)?;
        }
        self.device.sync_directory()
    }

    /// The bytes of the cache's file of slots on `device`; 0: there is none.
    ///
    /// # Errors
    /// Those of the device.
    pub fn bytes_found(device: &dyn Device) -> Result<u64> {
        match device.list()?.iter().any(|name| name == SLOTS_FILE) {
            true => device.open(SLOTS_FILE)?.len(),
            false => Ok(0),
        }
    }

    /// Removes what an emptied cache has left: the marker, which says that nothing was fresh. Its
    /// owner knows no checkpoint through the cache any more.
    pub fn forget(device: &dyn Device) -> Result<()> {
        Marker::remove(device)?;
        device.sync_directory()
    }
}

impl Remains {
    pub fn find(device: &dyn Device) -> Result<Self> {
        let (marker, marker_damage) = match Marker::read(device) {
            Err(error) if error.kind() == ErrorKind::Corrupt => (None, Some(error)),
            marker => (marker?, None),
        };
        let epoch = marker.as_ref().map(|marker| marker.epoch);
        Ok(Self {
            directory: Directory::find(device, epoch)?,
            marker,
            marker_damage,
        })
    }

    fn is_empty(&self) -> bool {
        self.marker.is_none() && self.marker_damage.is_none() && self.directory.is_none()
    }

    /// Why the cache cannot be used; None if it can, or if there is none.
    pub fn fault(&self, device: &dyn Device, settings: &Settings) -> Result<Option<Error>> {
        let fault = |what: String| Ok(Some(Error::corrupt(format!("\"{DIRECTORY_FILE}\""), what)));
        if let Some(marker) = &self.marker
            && marker.identity != settings.identity
        {
            let what = "belongs to another database or copy";
            return Ok(Some(Error::corrupt(format!("\"{MARKER_FILE}\""), what)));
        }
        let Some(found) = &self.directory else {
            return match self.marker.is_some() || self.marker_damage.is_some() {
                true => fault("the file is missing".to_owned()),
                false => Ok(None),
            };
        };
        if let Some(damage) = &found.damage {
            return Ok(Some(damage.clone()));
        }
        let Some(head) = found.head else {
            return fault("no header".to_owned());
        };
        if head.identity != settings.identity {
            return fault("belongs to another database or copy".to_owned());
        }
        match &self.marker {
            Some(marker) if marker.epoch != head.epoch => {
                let (wanted, got) = (marker.epoch, head.epoch);
                return fault(format!(
                    "an old copy: epoch {got}, the capacity tier has epoch {wanted}"
                ));
            }
            None if self.marker_damage.is_none() => {
                return fault(format!("the capacity tier's \"{MARKER_FILE}\" is missing"));
            }
            _ => {}
        }
        self.slots_fault(device, settings, head)
    }

    /// Whether the slots of the entries are there.
    fn slots_fault(
        &self,
        device: &dyn Device,
        settings: &Settings,
        head: Head,
    ) -> Result<Option<Error>> {
        let entries = self
            .directory
            .iter()
            .flat_map(|found| found.entries.values());
        let ends = entries.map(|listed| {
            let slots = slots_for(listed.block.len, head.slot_bytes);
            listed.slot.saturating_add(slots)
        });
        let Some(end) = ends.max() else {
            return Ok(None);
        };
        let slots = SlotFile::existing(device, settings.identity, head.slot_bytes)?;
        let found = slots.map(|slots| slots.slots()).transpose()?;
        let what = match found {
            None => "the file is missing".to_owned(),
            Some(slots) if slots < end => {
                format!("the file was cut: it has {slots} slots, blocks lie in {end}")
            }
            Some(_) => return Ok(None),
        };
        Ok(Some(Error::corrupt(format!("\"{SLOTS_FILE}\""), what)))
    }

    /// The marker to go on from.
    fn next_marker(&self, settings: &Settings, is_replaced: bool) -> Marker {
        let head = self.directory.as_ref().and_then(|found| found.head);
        let epoch = head.map_or(0, |head| head.epoch);
        let mut marker = self.marker.clone().unwrap_or_else(|| Marker {
            identity: settings.identity,
            epoch,
            fresh_files: BTreeSet::new(),
        });
        if is_replaced {
            marker.identity = settings.identity;
            marker.epoch = marker.epoch.max(epoch);
            marker.fresh_files.clear();
        } else if self.marker.is_none()
            && let Some(found) = &self.directory
        {
            let fresh = found.entries.values().filter(|listed| listed.is_fresh);
            marker.fresh_files = fresh.map(|listed| listed.block.file).collect();
        }
        marker
    }
}

fn cannot_be_emptied(error: Error) -> Error {
    let error = error.context("the SSD cache cannot be emptied");
    match error.kind() {
        // A crash may have torn the slot; the log then has the block.
        ErrorKind::Corrupt => error.with_hint(
            "Open the database once in mode `pc`, so that recovery repairs the block and a \
             checkpoint writes it, then change the mode.",
        ),
        _ => error,
    }
}

fn check_settings(settings: &Settings) -> Result<()> {
    let slot_bytes = settings.slot_bytes;
    if slot_bytes > 0 && slot_bytes.is_multiple_of(512) {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("slots of the SSD cache cannot have {slot_bytes} bytes"),
    )
    .with_hint("Use a multiple of 512, such as 8704 for pages of 8 KiB."))
}
