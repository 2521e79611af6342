//! Opening the block cache, or removing one that is not wanted any more.
//!
//! Invariant: a database goes on without the cache only when no file of one is there. A file that
//! stays would be used by a later opening, and by then the database may have given new files the
//! numbers that a newer cache knows (docs/rfcs/4-block-cache.md, "Numbers of files"). So a cache
//! that can be neither opened nor removed keeps the database closed.

use crate::db::cache_steps::CacheSteps;
use crate::settings::DbOptions;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use strandline_base::{Result, SqlState};
use strandline_device::Device;
use strandline_storage::block_cache::{BLOCK_CACHE_FILE, BlockCache, KnownFiles};
use strandline_storage::file::data_file::data_file_id;
use strandline_storage::run::run_file_id;

/// Opens the cache that the settings ask for, or that is there if the opening only looks.
/// `identity` is that of the database and its pair of directories; None: there is one directory,
/// which has no cache. `next_file` is the number of the next file in the durable manifest. A cache
/// that cannot be opened is removed, and `steps` tells.
///
/// # Errors
/// 55000 for a cache that is newer than the database and cannot be removed; those of the device if
/// a cache that is not used cannot be removed.
pub(super) fn open(
    options: &DbOptions,
    identity: Option<u128>,
    next_file: u64,
    taken_bytes: &Arc<AtomicUsize>,
    steps: &CacheSteps,
) -> Result<Option<Arc<BlockCache>>> {
    let device = &*options.device;
    let Some(identity) = identity else {
        return Ok(None);
    };
    let settings = match options.settings.only_looks {
        true => BlockCache::settings_found(device, identity)?,
        false => options.settings.block_cache(identity),
    };
    let Some(settings) = settings else {
        remove(device)?;
        return Ok(None);
    };
    let files = numbers(device)?;
    let known = KnownFiles {
        end: next_file,
        is_live: &|file| files.contains(&file),
    };
    match BlockCache::open(device, settings, known, taken_bytes) {
        Ok(cache) => Ok(Some(Arc::new(cache))),
        Err(newer) if newer.sqlstate() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => Err(newer),
        Err(failure) => {
            remove(device)?;
            steps.note(Err(&failure), options.clock.elapsed_us());
            Ok(None)
        }
    }
}

fn remove(device: &dyn Device) -> Result<()> {
    BlockCache::remove(device).map_err(|error| {
        error.context("removing the block cache").with_hint(format!(
            "Remove the file \"{BLOCK_CACHE_FILE}\" from the database's directory. It only has \
                 copies."
        ))
    })
}

/// The numbers of the files that may have blocks in the cache.
fn numbers(device: &dyn Device) -> Result<BTreeSet<u64>> {
    let names = device.list()?;
    let number = |name: &String| data_file_id(name).or_else(|| run_file_id(name));
    Ok(names.iter().filter_map(number).collect())
}
