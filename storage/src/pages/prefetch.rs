//! Pages that are read before they are asked for, many at the same time.
//!
//! A prefetch is a hint. It enters frames in the state *ahead* into the table, as a read does in
//! the state *loading*, and submits their reads; nobody waits. A thread that asks for such a page
//! handles the completions that have come, until its page is there. So no thread of its own is
//! needed.
//!
//! Invariants:
//! 1. A page that is in the table is not read ahead. So a prefetch never overtakes a page that is
//!    dirty, or that leaves.
//! 2. A page is not evicted, written or given to the SSD cache while its frame is ahead. So the
//!    place where its newest version was found is right when the read ends.
//! 3. A prefetch writes no page to make room: it gives up instead. Pages on their way take an
//!    eighth of the memory at most.
//! 4. An error leaves no frame: the later read of the page reports its own.
//!
//! Pages that the SSD cache has are not read ahead.

use std::sync::Arc;

use strandline_base::sync::Ordering;
use strandline_device::Request;

use super::file::PageFile;
use super::files::block_of;
use super::frame::Frame;
use super::read_ahead::Arrival;
use super::store::PageStore;
use super::{PageFileId, PageId, PageNumber, ReadAheadStats};

/// The most pages on their way.
const PAGES_MAX: usize = 256;
/// The most pages that have come and that nobody has used: of four readers.
const UNUSED_MAX: usize = 4 * PAGES_MAX;
/// The most adjacent pages of one request: 64 KiB.
const RUN_PAGES_MAX: usize = 8;

/// Adjacent pages of one request.
struct Run {
    first: PageNumber,
    frames: Vec<Arc<Frame>>,
    /// one for each
    buffers: Vec<Vec<u8>>,
}

impl PageStore {
    /// Begins to read pages that will be asked for soon. Returns how many of them it has dealt
    /// with, from the first one on: fewer than all if too many are on their way, or if all memory
    /// is in use. Waits for no read and reports no error.
    pub fn prefetch(&self, file: PageFileId, pages: &[PageNumber]) -> usize {
        self.handle_ready_arrivals();
        let Ok(file) = self.file(file) else { return 0 };
        if file.check_usable().is_err() {
            return 0;
        }
        let mut free = self.read_ahead.free(self.prefetched_pages_max());
        let mut runs: Vec<Run> = Vec::new();
        let mut dealt_with = 0;
        for &number in pages {
            if free == 0 {
                break;
            }
            match self.enter_ahead(&file, number) {
                Entered::Not => {}
                Entered::NoRoom => break,
                Entered::Ahead(frame) => {
                    free -= 1;
                    add(&mut runs, frame, self.buffers.take());
                }
            }
            dealt_with += 1;
        }
        let requests = runs.into_iter().map(|run| {
            let request = file.read_request(run.first, run.buffers);
            (request, run.frames)
        });
        let requests: Vec<(Request, Vec<Arc<Frame>>)> = requests.collect();
        if !requests.is_empty() {
            self.read_ahead.submit(requests);
        }
        dealt_with
    }

    fn enter_ahead(&self, file: &Arc<PageFile>, number: PageNumber) -> Entered {
        let id = PageId {
            file: file.id,
            number,
        };
        if u64::from(number.0) >= file.pages() {
            return Entered::Not;
        }
        let (frame, is_new) = self.enter(id, || Frame::ahead(id, Arc::clone(file)));
        if !is_new {
            return Entered::Not;
        }
        // Only now: the page cannot enter the cache any more (invariant 2), nor be freed.
        let is_cached = |cache: &crate::ssd_cache::SsdCache| cache.has(block_of(id.file, number));
        if self.cache.as_ref().is_some_and(is_cached) || file.is_unused(number) {
            self.give_up(&frame);
            return Entered::Not;
        }
        if !self.make_room_without_writes() {
            self.give_up(&frame);
            return Entered::NoRoom;
        }
        Entered::Ahead(frame)
    }

    /// Waits until the page is there, if it is read ahead.
    pub(super) fn await_ahead(&self, frame: &Frame) {
        if frame.is_ahead() {
            let is_done = || !frame.is_ahead();
            self.read_ahead
                .handle_until(is_done, |arrival| self.arrive(arrival));
        }
    }

    /// Takes pages that have come. They cannot be evicted before.
    pub(super) fn handle_ready_arrivals(&self) {
        self.read_ahead.handle_ready(|arrival| self.arrive(arrival));
    }

    fn arrive(&self, (frames, completion): Arrival) {
        let is_read = completion.result.is_ok();
        for (frame, bytes) in frames.into_iter().zip(completion.buffers) {
            let image = match is_read && frame.file.check_usable().is_ok() {
                true => frame.file.decode(frame.id.number, bytes).ok(),
                false => None,
            };
            let Some(image) = image else {
                self.give_up(&frame);
                continue;
            };
            self.note_read();
            self.read_ahead.pages.fetch_add(1, Ordering::Relaxed);
            frame.fill(image);
            self.clock.lock().push_unused(frame);
        }
    }

    /// The most pages on their way at the same time, an eighth of the memory at most. A reader that
    /// keeps more than one and a half times as many ahead of itself may find the first of them
    /// evicted.
    pub fn prefetched_pages_max(&self) -> usize {
        (self.frames_max() / 8).clamp(1, PAGES_MAX)
    }

    /// The most pages that have come, that nobody has used, and that are no victims yet: a quarter
    /// of the memory, so that a reader's next pages come while it uses the ones before.
    pub(super) fn unused_max(&self) -> usize {
        (self.frames_max() / 4).clamp(1, UNUSED_MAX)
    }

    /// Bytes that reads ahead take from the pool, beside the pages.
    pub fn read_ahead_bytes(&self) -> usize {
        self.read_ahead.taken_bytes()
    }

    /// Counts of the reads ahead since the start; None before the first one.
    pub fn read_ahead_stats(&self) -> Option<ReadAheadStats> {
        self.read_ahead.stats()
    }
}

/// What became of a page that is to be read ahead.
enum Entered {
    /// it need not or cannot be read
    Not,
    NoRoom,
    Ahead(Arc<Frame>),
}

fn add(runs: &mut Vec<Run>, frame: Arc<Frame>, buffer: Vec<u8>) {
    let number = frame.id.number;
    if let Some(run) = runs.last_mut() {
        let next = run.first.0 as usize + run.frames.len();
        if next == number.0 as usize && run.frames.len() < RUN_PAGES_MAX {
            run.frames.push(frame);
            run.buffers.push(buffer);
            return;
        }
    }
    runs.push(Run {
        first: number,
        frames: vec![frame],
        buffers: vec![buffer],
    });
}
