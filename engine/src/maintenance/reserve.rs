//! A full disk: space that is kept for freeing space.
//!
//! A file of [`Settings::reserve_bytes`](crate::Settings) is allocated beside the data of a device
//! that may fill up, one in each directory. When a disk is full the reserve is given up, and its
//! space serves the log records of transactions that only delete and drop, the manifest, and the
//! runs and chunks that let larger files go. Until it can be allocated again, transactions that
//! write rows are refused with 53100, which names the directory without room. `/health` tells as
//! long as the reserve is given up, and after a commit that found no room: until a commit finds
//! room, or a checkpoint has succeeded and the log has room for its next segment.
//!
//! Lock order: `changing` is taken with nothing else held but the checkpoint's lock.

use crate::db::Db;
use crate::redo;
use std::sync::atomic::Ordering;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Tier;
use tracing::{info, warn};

/// The file in the database's directory, and the one on its capacity tier.
const RESERVE_FILES: [(&str, Tier); 2] = [
    ("reserve", Tier::Fast),
    ("reserve-capacity", Tier::Capacity),
];

/// Whether `error` says that the disk is full.
pub(crate) fn is_full_disk(error: &Error) -> bool {
    error.sqlstate() == SqlState::DISK_FULL
}

impl Db {
    fn keeps_reserve(&self) -> bool {
        self.settings.reserve_bytes > 0 && self.device().may_fill_up()
    }

    /// Whether the disk was full and there is no room for the reserve yet.
    pub(crate) fn has_given_up_reserve(&self) -> bool {
        self.reserve.is_given_up.load(Ordering::Acquire)
    }

    /// Allocates the reserve of a database that has just been opened. Without room for it the
    /// database opens as one whose disk is full.
    ///
    /// # Errors
    /// Those of the device other than a full disk.
    pub(crate) fn open_reserve(&self) -> Result<()> {
        if !self.keeps_reserve() {
            return Ok(());
        }
        let names = self.device().list()?;
        let mut is_complete = true;
        for (name, _) in self.reserve_files() {
            is_complete &= names.iter().any(|found| found == name)
                && self.device().open(name)?.len()? == self.settings.reserve_bytes;
        }
        if is_complete {
            return Ok(());
        }
        let _ = self.remove_reserve();
        match self.allocate_reserve() {
            Err(error) if is_full_disk(&error) => {
                warn!("the disk is full: only what frees space is accepted: {error}");
                self.reserve.is_given_up.store(true, Ordering::Release);
                self.reserve.note_full(error);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn allocate_reserve(&self) -> Result<()> {
        let allocate = |(name, tier): &(&str, Tier)| {
            let file = self.device().create_on(*tier, name)?;
            let allocated = file.set_len(self.settings.reserve_bytes);
            let allocated = allocated.and_then(|()| file.sync());
            allocated.map_err(|error| self.in_directory(*tier, error))
        };
        let allocated = self.reserve_files().iter().try_for_each(allocate);
        let allocated = allocated.and_then(|()| self.device().sync_directory());
        if allocated.is_err() {
            // What cannot be removed now is replaced at the next open.
            let _ = self.remove_reserve();
        }
        allocated
    }

    /// The reserve's files, one in each directory that may fill up.
    fn reserve_files(&self) -> &'static [(&'static str, Tier)] {
        let device = self.device();
        match device.tiers().is_some() && !device.is_written_once(Tier::Capacity) {
            true => &RESERVE_FILES,
            false => &RESERVE_FILES[..1],
        }
    }

    /// Removes the reserve's files; the first error, if some stay.
    fn remove_reserve(&self) -> Result<()> {
        let removed = self.reserve_files().iter();
        let removed = removed.map(|(name, _)| self.device().remove(name));
        removed.fold(Ok(()), Result::and)
    }

    /// The error with the directory of a tier.
    fn in_directory(&self, tier: Tier, error: Error) -> Error {
        let device = self.device();
        let location = match device.tiers() {
            Some(tiers) => tiers.device_of(tier).location(),
            None => device.location(),
        };
        let name = match tier {
            Tier::Fast => "the database's directory",
            Tier::Capacity => "the capacity directory",
        };
        error.context(format!("{name} \"{location}\""))
    }

    /// Notes that the log has found no room. Returns the error with its directory.
    pub(crate) fn note_full_log(&self, error: Error) -> Error {
        let error = self.in_directory(Tier::Fast, error);
        self.reserve.note_full(error.clone());
        error
    }

    /// Gives the reserve up, since `cause` says that the disk is full. The log gets its next file
    /// first, which no transaction that writes rows may use by then. Whether there was a reserve.
    pub(crate) fn give_up_reserve(&self, cause: &Error) -> bool {
        let _changing = self.reserve.changing.lock();
        if !self.keeps_reserve() || self.has_given_up_reserve() {
            return false;
        }
        self.reserve.is_given_up.store(true, Ordering::Release);
        self.reserve.note_full(cause.clone());
        warn!(
            "the disk is full: only what frees space is accepted until there is room again: {cause}"
        );
        let removed = self.remove_reserve();
        // An append that finds no room tries again.
        let _ = removed.and_then(|()| self.wal.prepare_next_segment());
        true
    }

    /// Allocates the reserve again if it was given up.
    ///
    /// # Errors
    /// 53100 while there is no room.
    pub(crate) fn restore_reserve(&self) -> Result<()> {
        let _changing = self.reserve.changing.lock();
        if !self.has_given_up_reserve() {
            return Ok(());
        }
        if let Err(error) = self.allocate_reserve() {
            if is_full_disk(&error) {
                self.reserve.note_full(error.clone());
            }
            return Err(error.context("the disk is full, and has no room for the reserve"));
        }
        self.reserve.is_given_up.store(false, Ordering::Release);
        self.reserve.note_room();
        info!("the disk has room again");
        Ok(())
    }

    /// A checkpoint has succeeded: whether the log has room again, too.
    pub(crate) fn look_for_room(&self) {
        if !self.reserve.is_full() || self.has_given_up_reserve() {
            return;
        }
        match self.wal.prepare_next_segment() {
            Ok(()) => self.reserve.note_room(),
            Err(error) if is_full_disk(&error) => drop(self.note_full_log(error)),
            // The log refuses writes, which is told as such.
            Err(_) => {}
        }
    }

    /// Refuses a transaction that needs space while the disk is full. `record` is what it logs.
    ///
    /// # Errors
    /// 53100.
    pub(crate) fn check_space(&self, record: &[u8]) -> Result<()> {
        if !self.has_given_up_reserve() || only_frees(record) {
            return Ok(());
        }
        Err(self.full_disk())
    }

    /// 53100, with what has found no room and the way out.
    pub(crate) fn full_disk(&self) -> Error {
        let place = self.reserve.full();
        let place = place.map_or_else(String::new, |cause| format!(" ({})", cause.message()));
        Error::new(
            ErrorKind::Unavailable,
            SqlState::DISK_FULL,
            format!("the disk is full{place}: only statements that free space are accepted"),
        )
        .with_hint(
            "Free space on the device of that directory, DROP or TRUNCATE tables, or DELETE rows \
             and VACUUM. ALTER TABLE ... SET (history = 'none') before that also frees what is \
             kept as history.",
        )
    }
}

/// Whether a transaction's record deletes and drops only.
pub(crate) fn only_frees(record: &[u8]) -> bool {
    let decoded = redo::decode(record, "a transaction's record");
    decoded.is_ok_and(|(_, operations)| operations.iter().all(|redo| redo.operation.frees_space()))
}
