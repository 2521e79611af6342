//! Writing segments. One thread at a time writes; readers and admissions go on.
//!
//! Nothing is synced. A crash may leave any part of what was written: a segment whose head does not
//! match its checksum is not there, a block that does not match is read from the capacity tier.
//!
//! A failed write loses the segment's blocks from the cache. Admission then pauses for a number of
//! blocks that doubles with each failure in a row.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use strandline_base::Result;

use super::core::{BlockCache, Writer};
use super::layout::Head;
use super::settings::{Admission, ENTRY_BYTES, GHOST_BYTES, SEGMENTS_IN_MEMORY};
use crate::cache_counters::add;
use crate::cache_room::enlarge;

/// Admissions that are refused after the first failed write.
const PAUSE_FIRST: u64 = 128;
/// The pause doubles this many times at most.
const PAUSE_DOUBLINGS: u32 = 15;

impl BlockCache {
    /// Waits until a segment is to be written. False: the cache was closed.
    pub fn wait_for_segment(&self) -> bool {
        let mut state = self.state.lock();
        while state.sealed.is_none() && !state.is_closed {
            self.sealed.wait(&mut state);
        }
        !state.is_closed
    }

    /// Ends the waiting of [`BlockCache::wait_for_segment`], now and later.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.sealed.notify_all();
    }

    /// Writes the segment that waits, if there is one. Whether there was one.
    ///
    /// # Errors
    /// Those of the device. The segment's blocks are no longer cached then.
    pub fn step(&self) -> Result<bool> {
        self.write_next(true)
    }

    /// Writes all blocks that are only in memory, as before an orderly end. The segment that the
    /// last ones overwrite goes with all its blocks, since there is no next one to put them into.
    ///
    /// # Errors
    /// As [`BlockCache::step`].
    pub fn flush(&self) -> Result<()> {
        self.write_next(true)?;
        self.state.lock().seal();
        self.write_next(false).map(drop)
    }

    fn write_next(&self, keeps_touched: bool) -> Result<bool> {
        let mut writer = self.writer.lock();
        if self.state.lock().sealed.is_none() {
            return Ok(false);
        }
        let written = self.write_waiting(&mut writer, keeps_touched);
        if written.is_err() {
            add(&self.counters.failed_writes, 1);
            let mut state = self.state.lock();
            state.end_write(0, &[]);
            state.paused = PAUSE_FIRST << state.failures.min(PAUSE_DOUBLINGS);
            state.failures += 1;
        }
        self.account();
        drop(writer);
        written.map(|()| true)
    }

    fn write_waiting(&self, writer: &mut Writer, keeps_touched: bool) -> Result<()> {
        self.prepare_file(writer)?;
        let mut state = self.state.lock();
        let slot = match state.waiting().is_empty() {
            // All its blocks were forgotten.
            true => None,
            false => state.ring.pop_front(),
        };
        let Some(slot) = slot else {
            state.end_write(0, &[]);
            return Ok(());
        };
        drop(state);
        if keeps_touched {
            self.keep_touched(slot);
        }
        let mut state = self.state.lock();
        let (places, blocks): (Vec<_>, Vec<_>) = state.waiting().into_iter().unzip();
        let evicted = state.clear_slot(slot);
        let mut head = Head {
            number: state.slots[slot as usize].number,
            files_end: state.files_end,
            places,
        };
        drop(state);
        add(&self.counters.evictions, evicted);
        let blocks = blocks.iter().map(Arc::as_ref);
        let written = self.file.write_segment(slot, &mut head, blocks);
        let mut state = self.state.lock();
        state.ring.push_back(slot);
        let bytes = written?;
        state.end_write(slot, &head.places);
        (state.failures, state.paused) = (0, 0);
        drop(state);
        add(&self.counters.writes, 1);
        add(&self.counters.bytes_written, bytes);
        Ok(())
    }

    /// Puts the touched blocks of a slot, which is about to be overwritten, into the segment that
    /// is being filled.
    fn keep_touched(&self, slot: u32) {
        let touched = self.state.lock().touched_of(slot);
        for place in touched {
            let mut bytes = vec![0; place.block.len as usize];
            let read = self.file.read_block(slot, place, &mut bytes);
            if read.is_ok() && self.state.lock().reinsert(slot, place, bytes.into()) {
                add(&self.counters.reinsertions, 1);
            }
        }
    }

    /// Writes the header and allocates the file, if an earlier attempt has failed. Without space
    /// the segments that are there are used, or as many are made as fit.
    pub(super) fn prepare_file(&self, writer: &mut Writer) -> Result<()> {
        if !writer.has_header {
            self.file.write_header()?;
            writer.has_header = true;
        }
        let state = self.state.lock();
        let (wanted, found) = (state.slots_wanted(), state.slots.len() as u32);
        drop(state);
        if found >= wanted {
            return Ok(());
        }
        let allocated = match found {
            0 => enlarge(0, wanted, &|slots| self.file.set_slots(slots)),
            _ => self.file.set_slots(wanted).map(|()| wanted),
        };
        if allocated.is_err() && found > 0 {
            add(&self.counters.failed_writes, 1);
            return Ok(());
        }
        self.state.lock().add_slots(allocated?);
        Ok(())
    }

    /// Changes the size. Less space: the blocks beyond it are gone. 0: nothing is cached until the
    /// size is changed again. Waits for a write under way; readers and admissions go on.
    ///
    /// # Errors
    /// Those of the device: without room for more (53100) the size is as before. A smaller size
    /// holds in any case; a file that could not be cut is cut by a later opening.
    pub fn resize(&self, cache_bytes: u64) -> Result<()> {
        let _writer = self.writer.lock();
        let state = self.state.lock();
        let settings = state.settings.resized(cache_bytes);
        let (wanted, found) = (settings.slots(), state.slots.len() as u32);
        drop(state);
        if wanted > found {
            self.file.set_slots(wanted)?;
        }
        let mut state = self.state.lock();
        let evicted = state.resize(settings);
        state.add_slots(wanted);
        drop(state);
        add(&self.counters.evictions, evicted);
        self.account();
        match wanted < found {
            true => self.file.set_slots(wanted),
            false => Ok(()),
        }
    }

    /// Changes which blocks are admitted from now on.
    pub fn set_admission(&self, admission: Admission) {
        self.state.lock().settings.admission = admission;
    }

    /// Brings the account of the memory up to date. The caller has `writer`.
    pub(super) fn account(&self) {
        let state = self.state.lock();
        let lists = state.content().0 * ENTRY_BYTES + state.ghost.len() * GHOST_BYTES;
        let segments = match state.slots_wanted() {
            0 => 0,
            _ => SEGMENTS_IN_MEMORY * state.settings.segment_bytes as usize,
        };
        drop(state);
        let bytes = lists + segments;
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.counted_bytes.swap(bytes, Ordering::Relaxed);
        self.taken_bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        let counted_bytes = *self.counted_bytes.get_mut();
        self.taken_bytes.fetch_sub(counted_bytes, Ordering::Relaxed);
    }
}
