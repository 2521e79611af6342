//! Opening the page store of indexes, with the SSD cache if the settings have one.
//!
//! A cache that is lost together with newer versions of pages costs no data: an index can always be
//! built from the rows. So the files concerned are removed before the cache is replaced, and the
//! opening builds their indexes like those of missing files. The removal is durable first: a crash
//! in between finds the same loss again. An opening that only looks removes and replaces nothing.
//! It has no cache then and uses no page file, so that none gets newer than what a cache that is
//! put back has of it.
//!
//! A cache that was in use and is none any more is emptied: its fresh blocks are copied to the page
//! files. If a crash has torn one of them, or there is no room for the directory, it is kept for
//! this opening, takes no new blocks, and the next opening tries again.

use super::log::IndexLog;
use crate::settings::Settings;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Device;
use strandline_storage::pages::{
    PageFileId, PageSettings, PageStore, page_file_id, page_file_name,
};
use strandline_storage::ssd_cache::{
    Admission, DIRECTORY_FILE, Loss, MARKER_FILE, Mode, OnLoss, SLOTS_FILE,
    Settings as CacheSettings, SsdCache,
};
use tracing::{error, warn};

/// What a page store is opened with, beside the settings.
pub(super) struct Opening {
    pub device: Arc<dyn Device>,
    pub log: Arc<IndexLog>,
    pub pages: PageSettings,
    /// identifies the database and its pair of directories; None: there is one directory
    pub pair: Option<u128>,
    /// the last checkpoint went through a cache
    pub was_cached: bool,
}

/// The page files that were lost with the cache, and why the cache cannot be used.
pub(super) type LostFiles = (BTreeSet<PageFileId>, Error);

impl Opening {
    /// Opens the store. The second part has the files that are lost with the cache. They are
    /// removed, unless the opening only looks. `name` has the index of a file, for messages.
    ///
    /// # Errors
    /// 0A000 for a cache of another version; those of the device.
    pub fn open(
        self,
        settings: &Settings,
        name: &dyn Fn(PageFileId) -> String,
    ) -> Result<(Arc<PageStore>, Option<LostFiles>)> {
        let Some(pair) = self.pair else {
            return Ok((self.without_cache(), None));
        };
        let mut wanted = CacheSettings::new(pair, settings.ssd_cache_bytes);
        wanted.mode = match settings.ssd_cache_bytes {
            0 => Mode::Off,
            _ => settings.ssd_cache_mode,
        };
        wanted.admission = settings.ssd_cache_admission;
        let lost = self.find_lost(&wanted, settings.only_looks)?;
        if let Some((files, cause)) = &lost {
            let names: BTreeSet<String> = files.iter().map(|file| name(*file)).collect();
            let end = match settings.only_looks {
                true => "they cannot be used until an ordinary opening builds them from the rows",
                false => "they are built from the rows",
            };
            error!(
                indexes = Vec::from_iter(names).join(", "),
                sqlstate = cause.sqlstate().0,
                "the SSD cache is lost, and with it the newest pages of these indexes; {end}: \
                 {cause}"
            );
            if settings.only_looks {
                return Ok((self.without_cache(), lost));
            }
            self.remove(files)?;
            wanted.on_loss = OnLoss::Discard;
        }
        let store = match wanted.mode {
            Mode::Off => self.turned_off(wanted, lost.is_some())?,
            Mode::Lc => self.with_cache(wanted).or_else(|e| self.kept(wanted, e))?,
            Mode::Pc | Mode::Pc2 => self.with_cache(wanted)?,
        };
        Ok((store, lost))
    }

    fn without_cache(&self) -> Arc<PageStore> {
        PageStore::new(self.device.clone(), self.log.clone(), self.pages.clone())
    }

    fn with_cache(&self, cache: CacheSettings) -> Result<Arc<PageStore>> {
        let (device, log) = (self.device.clone(), self.log.clone());
        PageStore::with_cache(device, log, self.pages.clone(), cache)
    }

    /// The store without a cache: one that was there is emptied. The marker stays until the
    /// manifest is that of a checkpoint without a cache.
    fn turned_off(&self, off: CacheSettings, is_lost: bool) -> Result<Arc<PageStore>> {
        let names = self.device.list()?;
        let has = |file: &str| names.iter().any(|name| name == file);
        if (is_lost || has(SLOTS_FILE) || has(DIRECTORY_FILE))
            && let Some(kept) = self.emptied(off)?
        {
            return Ok(kept);
        }
        if !self.was_cached && has(MARKER_FILE) {
            SsdCache::forget(&*self.device)?;
        }
        Ok(self.without_cache())
    }

    /// Empties the cache and removes it. A store, if it has to be kept.
    fn emptied(&self, off: CacheSettings) -> Result<Option<Arc<PageStore>>> {
        match self.with_cache(off) {
            Ok(_) => Ok(None),
            Err(failure) => self.kept(off, failure).map(Some),
        }
    }

    /// The store with a cache that takes no new blocks, since `failure` kept it from being emptied.
    fn kept(&self, wanted: CacheSettings, failure: Error) -> Result<Arc<PageStore>> {
        let is_repaired_by_log = failure.kind() == ErrorKind::Corrupt;
        if !is_repaired_by_log && failure.sqlstate() != SqlState::DISK_FULL {
            return Err(failure);
        }
        warn!("the SSD cache is emptied by the next opening of the database: {failure}");
        self.with_cache(CacheSettings {
            mode: Mode::Pc,
            admission: Admission::Nothing,
            ..wanted
        })
    }

    /// The page files that are lost with the cache: those of which it had newer pages, or `all`.
    fn find_lost(&self, wanted: &CacheSettings, all: bool) -> Result<Option<LostFiles>> {
        let device = &*self.device;
        let Some(Loss { cause, files }) = SsdCache::find_loss(device, wanted, self.was_cached)?
        else {
            return Ok(None);
        };
        let found = device.list()?;
        let found = found.iter().filter_map(|name| page_file_id(name));
        let is_lost = |file: &PageFileId| {
            let files = files.as_ref().filter(|_| !all);
            files.is_none_or(|files| files.contains(&u64::from(file.0)))
        };
        Ok(Some((found.filter(is_lost).collect(), cause)))
    }

    /// Removes page files, durably.
    fn remove(&self, files: &BTreeSet<PageFileId>) -> Result<()> {
        for file in files {
            self.device.remove(&page_file_name(*file))?;
        }
        self.device.sync_directory()
    }
}
