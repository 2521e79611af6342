//! Changes of the caches on the fast tier while the database is open: their sizes, and what they
//! take. A change holds until the database is closed; the next opening has settings of its own.
//!
//! A smaller SSD cache empties itself by its background steps: pages beyond the size that are newer
//! than the capacity tier go there first, then the file is cut. A smaller block cache gives its
//! segments up at once. A size of 0 empties a cache, which may grow again. A cache that the
//! database was not opened with cannot be added: only an opening judges the files of an earlier
//! one.

use crate::db::{Db, closed};
use crate::settings::{CacheSettings, Settings};
use std::sync::atomic::Ordering;
use strandline_base::{Error, Result, SqlState};
use strandline_storage::block_cache::BlockCache;
use strandline_storage::ssd_cache::{Mode, SsdCache};

impl Db {
    /// The present settings of the caches.
    pub fn cache_settings(&self) -> CacheSettings {
        *self.caches.present.lock()
    }

    /// Changes settings of the caches. A change of one cache that has succeeded holds also if that
    /// of the other one fails.
    ///
    /// # Errors
    /// 57P01 if the database is closed; those of `change`; 22023 for settings that no opening would
    /// take; 55000 for a cache that the database was not opened with; 53100 without room on the
    /// fast tier; 58030 for a cache that has failed.
    pub fn change_caches(
        &self,
        change: impl FnOnce(&mut CacheSettings) -> Result<()>,
    ) -> Result<()> {
        let _changing = self.caches.changing.lock();
        if self.maintenance.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        let mut present = self.cache_settings();
        let mut caches = present;
        change(&mut caches)?;
        let wanted = self.settings.with_caches(caches);
        wanted.check()?;
        wanted.check_on(&*self.device)?;
        let ssd = (caches.ssd_cache_bytes, caches.ssd_cache_admission);
        if ssd != (present.ssd_cache_bytes, present.ssd_cache_admission) {
            self.change_ssd_cache(&wanted, present.ssd_cache_bytes)?;
            (present.ssd_cache_bytes, present.ssd_cache_admission) = ssd;
            *self.caches.present.lock() = present;
        }
        let block = (caches.block_cache_bytes, caches.block_cache_admission);
        if block != (present.block_cache_bytes, present.block_cache_admission) {
            let cache = self.opened_block_cache()?;
            if caches.block_cache_bytes != present.block_cache_bytes {
                let resized = cache.resize(caches.block_cache_bytes);
                resized.map_err(|error| not_resized("block_cache_bytes", error))?;
            }
            cache.set_admission(caches.block_cache_admission);
            (present.block_cache_bytes, present.block_cache_admission) = block;
            *self.caches.present.lock() = present;
        }
        Ok(())
    }

    fn change_ssd_cache(&self, wanted: &Settings, present_bytes: u64) -> Result<()> {
        let cache = self.opened_ssd_cache()?;
        if wanted.ssd_cache_bytes != present_bytes {
            let resized = self.index_files.resize_cache(wanted);
            resized.map_err(|error| not_resized("ssd_cache_bytes", error))?;
        }
        cache.set_admission(wanted.ssd_cache_admission);
        Ok(())
    }

    /// One line for each cache that is smaller than its setting, because the device has no room.
    pub(crate) fn small_caches(&self) -> Vec<String> {
        let wanted = self.cache_settings();
        let ssd = self.index_files.cache();
        let ssd = ssd.and_then(|cache| cache.smaller_than(wanted.ssd_cache_bytes));
        let block = self.shared.files.block_cache();
        let block = block.and_then(|cache| cache.smaller_than_wanted());
        let caches = [
            ("ssd_cache_bytes", wanted.ssd_cache_bytes, ssd),
            ("block_cache_bytes", wanted.block_cache_bytes, block),
        ];
        let line = |(name, wanted, bytes): (&str, u64, Option<u64>)| {
            let bytes = bytes?;
            Some(format!(
                "{name} is {wanted}, but the cache has {bytes} bytes: the fast directory's device \
                 has no room for more beside what stays free for the log. Free space there and \
                 open the database again, or make {name} smaller."
            ))
        };
        caches.into_iter().filter_map(line).collect()
    }

    /// The SSD cache that the settings of the opening ask for. One that is only kept because it
    /// could not be emptied takes no blocks.
    fn opened_ssd_cache(&self) -> Result<&SsdCache> {
        let mode = match self.settings.ssd_cache_bytes {
            0 => Mode::Off,
            _ => self.settings.ssd_cache_mode,
        };
        let cache = self.index_files.cache();
        let cache = cache.filter(|cache| mode != Mode::Off && cache.mode() == mode);
        cache.ok_or_else(|| not_opened("an SSD cache", "ssd_cache_bytes"))
    }

    fn opened_block_cache(&self) -> Result<&BlockCache> {
        let cache = self.shared.files.block_cache();
        let cache = cache.map(|cache| &**cache);
        cache.ok_or_else(|| not_opened("a block cache", "block_cache_bytes"))
    }
}

fn not_opened(what: &str, name: &str) -> Error {
    let message = format!("the database was opened without {what}");
    Error::invalid(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(format!(
        "Set {name} where the database is opened, and open it again. Later it can be changed at \
         any time."
    ))
}

fn not_resized(name: &str, error: Error) -> Error {
    let is_full = error.sqlstate() == SqlState::DISK_FULL;
    let error = error.context(format!("{name} cannot be changed"));
    match is_full {
        true => error.with_hint(
            "The fast directory's device has too little room: free space there, or ask for less.",
        ),
        false => error,
    }
}
