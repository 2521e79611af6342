//! Reads, admissions, dropped files.
//!
//! A file's number must never be used again once a block of the file is in the cache: a block of
//! the earlier file would pass for one of the later. The database takes numbers from a counter, and
//! a crash takes it back to its value in the manifest, so only files below that value are safe.
//! `files_end` is that value. The caller raises it when a later one is durable in the manifest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use strandline_base::sync::{Condvar, Mutex};

use super::counters::{Counters, Stats};
use super::layout::SegmentFile;
use super::settings::Admission;
use super::state::{Lookup, Room, SegmentSummary, State};
use crate::block_key::BlockKey;
use crate::cache_counters::add;

/// The writing of segments.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// the file has its header
    pub has_header: bool,
}

/// The block cache. All methods may be called from many threads.
#[derive(Debug)]
pub struct BlockCache {
    pub(super) file: SegmentFile,
    pub(super) writer: Mutex<Writer>,
    pub(super) state: Mutex<State>,
    /// notified when a segment waits to be written, and when the cache is closed
    pub(super) sealed: Condvar,
    pub(super) counters: Counters,
    /// the account of the memory
    pub(super) taken_bytes: Arc<AtomicUsize>,
    /// the cache's part of it; changed under `writer`
    pub(super) counted_bytes: AtomicUsize,
}

impl BlockCache {
    /// Fills `memory`, which has the block's length, if the block is cached. Else its content is
    /// not defined afterwards, and the block is to be read from the capacity tier. Never waits for
    /// a write.
    pub fn read(&self, block: BlockKey, memory: &mut [u8]) -> bool {
        debug_assert_eq!(memory.len(), block.len as usize);
        let found = self.state.lock().look_up(block);
        let is_hit = match found {
            None => false,
            Some(Lookup::Memory(bytes)) => {
                memory.copy_from_slice(&bytes);
                true
            }
            Some(Lookup::Stored {
                slot,
                number,
                place,
            }) => {
                let read = self.file.read_block(slot, place, memory);
                // A segment that is overwritten meanwhile is no damage.
                if read.is_err() && self.state.lock().remove_found(slot, number, place) {
                    add(&self.counters.damaged, 1);
                }
                read.is_ok()
            }
        };
        match is_hit {
            true => {
                add(&self.counters.hits, 1);
                add(&self.counters.bytes_read, u64::from(block.len));
            }
            false => add(&self.counters.misses, 1),
        }
        is_hit
    }

    /// Whether the block is cached now. It is no read: the block is not kept longer for it.
    pub fn has(&self, block: BlockKey) -> bool {
        self.state.lock().entry(block).is_some()
    }

    /// Bytes of the largest block that is admitted.
    pub fn block_bytes_max(&self) -> u32 {
        self.state.lock().settings.block_bytes_max()
    }

    /// Offers a block that was read from the capacity tier and has passed its reader's check. Never
    /// waits for a write.
    pub fn admit(&self, block: BlockKey, bytes: &[u8]) {
        debug_assert_eq!(bytes.len(), block.len as usize);
        let mut state = self.state.lock();
        if block.len == 0 || state.slots_wanted() == 0 || state.entry(block).is_some() {
            return;
        }
        let is_safe = block.file < state.files_end && block.len <= state.settings.block_bytes_max();
        if !is_safe {
            add(&self.counters.refusals, 1);
            return;
        }
        if state.settings.admission == Admission::SecondRead && !state.ghost.note(block) {
            return;
        }
        if state.paused > 0 {
            state.paused -= 1;
            add(&self.counters.refusals, 1);
            return;
        }
        drop(state);
        let (crc, bytes) = (self.file.block_checksum(block, bytes), Arc::from(bytes));
        let mut state = self.state.lock();
        if state.slots_wanted() == 0 || state.entry(block).is_some() {
            return;
        }
        match state.make_room(block.len) {
            Room::Found => {}
            Room::Sealed => drop(self.sealed.notify_all()),
            Room::Full => {
                add(&self.counters.refusals, 1);
                return;
            }
        }
        state.admit(block, crc, bytes);
        add(&self.counters.admissions, 1);
    }

    /// Removes the blocks of a file that was dropped and has no reader.
    pub fn forget_file(&self, file: u64) {
        let forgotten = self.state.lock().forget_file(file);
        add(&self.counters.forgotten, forgotten);
    }

    /// The manifest durably says that files get numbers from `files_end` on.
    pub fn raise_files_end(&self, files_end: u64) {
        let mut state = self.state.lock();
        state.files_end = state.files_end.max(files_end);
    }

    /// Bytes that the account of the memory has of this cache: as of the last write.
    pub fn counted_bytes(&self) -> usize {
        self.counted_bytes.load(Ordering::Relaxed)
    }

    /// The segments in the file, in the order of their writing.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        self.state.lock().segments()
    }

    /// The bytes of all segments, if there is no room for those that the settings ask for.
    pub fn smaller_than_wanted(&self) -> Option<u64> {
        let state = self.state.lock();
        let (slots, wanted) = (state.slots.len() as u32, state.slots_wanted());
        (slots < wanted).then(|| u64::from(slots) * u64::from(state.settings.segment_bytes))
    }

    /// The counts so far, and the present content.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        let (blocks, bytes) = state.content();
        Stats {
            cache_bytes: state.slots.len() as u64 * u64::from(state.settings.segment_bytes),
            blocks: blocks as u64,
            bytes,
            memory_bytes: state.memory_bytes() as u64,
            paused: state.paused,
            ..self.counters.read()
        }
    }
}
