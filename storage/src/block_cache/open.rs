//! Opening: the index is built from the heads of the segments.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use strandline_base::sync::{Condvar, Mutex};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Device;

use super::core::BlockCache;
use super::counters::Counters;
use super::layout::{BLOCK_CACHE_FILE, Found, Head, Header, SegmentFile};
use super::settings::Settings;
use super::state::{Slot, State};
use crate::cache_counters::add;

/// The files of the database.
#[derive(Clone, Copy)]
pub struct KnownFiles<'a> {
    /// the number of the next file, as the durable manifest says
    pub end: u64,
    /// whether a file of that number exists
    pub is_live: &'a dyn Fn(u64) -> bool,
}

impl BlockCache {
    /// Opens the cache on the fast tier of `device`, or makes an empty one. A file that is damaged,
    /// unreadable, of another version, database or size of segments is replaced. Without space for
    /// `settings.cache_bytes` the cache has the segments that are there. Memory is counted in
    /// `taken_bytes`.
    ///
    /// # Errors
    /// 55000 if the cache is newer than the database and cannot be removed: the database must not
    /// be opened beside it. Other errors are the device's, and leave a database without a cache.
    pub fn open(
        device: &dyn Device,
        settings: Settings,
        known: KnownFiles<'_>,
        taken_bytes: &Arc<AtomicUsize>,
    ) -> Result<Self> {
        let header = Header {
            identity: settings.identity,
            segment_bytes: settings.segment_bytes,
        };
        let counters = Counters::default();
        let mut state = State::new(settings, known.end);
        let found = SegmentFile::find(device)?;
        let is_replaced = found.is_some();
        let found = match found {
            Some(file) => match Header::read(&*file) {
                Ok(found) => (found == header).then(|| SegmentFile::new(file, header)),
                Err(error) if is_readable(&error) => None,
                Err(_) => {
                    Self::remove(device)?;
                    None
                }
            },
            None => None,
        };
        let found = match found {
            Some(file) if restore(device, &file, &mut state, known)? => Some(file),
            _ => None,
        };
        let has_header = found.is_some();
        let file = match found {
            Some(file) => file,
            None => {
                add(&counters.replaced, u64::from(is_replaced));
                SegmentFile::new(SegmentFile::replace(device)?, header)
            }
        };
        let cache = Self {
            file,
            writer: Mutex::default(),
            state: Mutex::new(state),
            sealed: Condvar::new(),
            counters,
            taken_bytes: taken_bytes.clone(),
            counted_bytes: AtomicUsize::new(0),
        };
        let mut writer = cache.writer.lock();
        writer.has_header = has_header;
        // A failure shows again when the first segment is written.
        if cache.prepare_file(&mut writer).is_err() {
            add(&cache.counters.failed_writes, 1);
        }
        cache.account();
        drop(writer);
        Ok(cache)
    }

    /// The settings that the cache on `device` was made with, for an opening that does not know
    /// them. None: there is no cache, or a damaged one, or one of another database.
    ///
    /// # Errors
    /// Those of the device.
    pub fn settings_found(device: &dyn Device, identity: u128) -> Result<Option<Settings>> {
        let Some(file) = SegmentFile::find(device)? else {
            return Ok(None);
        };
        let header = match Header::read(&*file) {
            Err(error) if is_readable(&error) => return Ok(None),
            header => header?,
        };
        let settings = Settings {
            segment_bytes: header.segment_bytes,
            ..Settings::new(identity, file.len()?)
        };
        Ok((header.identity == identity).then_some(settings))
    }

    /// Removes the file of a cache that is not used any more; durable on return.
    ///
    /// # Errors
    /// Those of the device.
    pub fn remove(device: &dyn Device) -> Result<()> {
        if SegmentFile::find(device)?.is_none() {
            return Ok(());
        }
        device.remove(BLOCK_CACHE_FILE)?;
        device.sync_directory()
    }
}

/// Whether the error is about the bytes that were read. Bytes that cannot be read now may be there
/// at a later opening, when the database has used the numbers of files that they know.
fn is_readable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

/// Fills slots, ring and index from the segments of `file`; segments beyond the present size are
/// cut off. False: the cache is newer than the database, or the device cannot read a head, and was
/// removed, durably.
fn restore(
    device: &dyn Device,
    file: &SegmentFile,
    state: &mut State,
    known: KnownFiles<'_>,
) -> Result<bool> {
    let slots = file.slots()?;
    let mut heads: Vec<(u32, Head)> = Vec::new();
    for slot in 0..slots {
        match file.read_head(slot) {
            Ok(Found::Segment(head)) => heads.push((slot, head)),
            Ok(Found::Nothing | Found::Damaged) => {}
            Err(_) => {
                BlockCache::remove(device)?;
                return Ok(false);
            }
        }
    }
    if heads.iter().any(|(_, head)| head.files_end > known.end) {
        // An operator has put an older copy of the database beside it. The database gives numbers
        // again that the cache knows.
        BlockCache::remove(device).map_err(newer_than_database)?;
        return Ok(false);
    }
    let wanted = state.slots_wanted();
    if slots > wanted {
        file.set_slots(wanted)?;
        heads.retain(|(slot, _)| *slot < wanted);
    }
    let slots = slots.min(wanted);
    state.slots.resize_with(slots as usize, Slot::default);
    heads.sort_unstable_by_key(|(_, head)| Reverse(head.number));
    for (slot, head) in &heads {
        state.restore(*slot, head, known.is_live);
        state.ring.push_front(*slot);
    }
    // Empty segments are taken first.
    for slot in (0..slots).rev() {
        if state.slots[slot as usize].number == 0 {
            state.ring.push_front(slot);
        }
    }
    Ok(true)
}

fn newer_than_database(cause: Error) -> Error {
    let message = format!(
        "file \"{BLOCK_CACHE_FILE}\" is newer than the database and cannot be removed: {}",
        cause.message()
    );
    Error::invalid(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(format!(
        "Remove the file \"{BLOCK_CACHE_FILE}\" from the database's directory. It only has copies."
    ))
}
