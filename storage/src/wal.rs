//! The write-ahead log: records in one endless stream of bytes, cut into preallocated files.
//! Waiting threads make it durable by group commit.
//!
//! # How
//! [`Wal::append`] copies a framed record into the active buffer under a short lock.
//! [`Wal::wait_durable`] returns when the log is durable up to a position. The first waiter becomes
//! the *leader*: it takes the whole buffer, writes it and syncs once, for all waiters. Waiters that
//! arrive meanwhile have their records in the next buffer, and one of them leads next. A lone
//! committer thus pays one write and one sync, without a hand-over to a log thread. The thread that
//! makes relaxed commits durable sleeps in [`Wal::wait_for_records`].
//!
//! Segments are allocated, filled with zeros and synced before the log reaches them, and recycled
//! by [`Wal::cut_before`]. A sync after overwriting is faster than one that also records a new
//! length or new space. [`Wal::prepare_next_segment`] does that ahead of need. An append without
//! room does it inline, *before* it accepts the record, so a full disk refuses the append and never
//! an accepted record.
//!
//! # Invariants
//! 1. The active buffer holds exactly the log positions [`end` − its length, `end`).
//! 2. `end` ≤ `limit`, the end of the last segment whose file, space and name are durable.
//! 3. At most one leader at a time; only it writes records to the files.
//! 4. Everything before `durable` is synced. `durable` only grows.
//! 5. After a failed write or sync nothing is ever written again: the state of the buffer is
//!    unknown and a later sync would not save it. Every later call returns the same `Closed` error.
//!
//! # Differences from the paper
//! * No ownership relaying yet \[L-Store §5.2\]: there the writers of a logged page share its
//!   latch, and the one with the highest LSN writes the page's LSN. Here no page has an LSN:
//!   records name rows, and pages in memory are not written back. It becomes necessary with the
//!   first page that several writers log (the index's blocks of logical ids).
//! * Merges are not in the log; see `strandline_table::lineage::merge`.
//!
//! # Lock order
//! `maintenance` → `segments` or `state`. `segments` and `state` are never held together, and
//! neither is held during I/O. The caller's `stamp` runs under `state` and must not call the log.

mod preparation;
mod recovery;
mod segment;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use strandline_base::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, yield_now};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, File};

use crate::frame::{PAYLOAD_BYTES_MAX, StreamId, frame_bytes, put_frame};
use crate::stream::Stream;
use segment::{SEGMENT_HEADER_BYTES, Segment};

/// The version of the segment and record format.
pub const WAL_FORMAT_VERSION: u32 = 1;
/// The log's number among a database's streams; manifest files count from 1.
const WAL_STREAM: u64 = 0;
/// Buffered bytes from which an append first writes them out.
const BUFFERED_BYTES_MAX: usize = 8 << 20;
/// The most times a leader that had to wait yields to threads that may join its group.
const GATHER_YIELDS_MAX: usize = 4;
/// Buffered bytes that are written at once. A buffer that grows further between two writes must be
/// copied as it grows, into memory that the operating system must clear first.
const WRITTEN_AT_BYTES: usize = 1 << 20;
/// Capacity beyond which a buffer frees its memory.
const BUFFER_KEPT_BYTES: usize = 2 * WRITTEN_AT_BYTES;

/// A position in the log: bytes since the log's beginning, over all segments, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// How the log uses its device.
#[derive(Clone, Debug)]
pub struct WalSettings {
    /// Bytes of one preallocated, recycled segment file: a multiple of 4096, at least 8192.
    pub segment_bytes: u64,
}

impl Default for WalSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
        }
    }
}

impl WalSettings {
    fn check(&self) -> Result<()> {
        if self.segment_bytes.is_multiple_of(4096) && self.segment_bytes >= 8192 {
            return Ok(());
        }
        Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!(
                "wal segment_bytes is {}, but must be a multiple of 4096 and at least 8192",
                self.segment_bytes
            ),
        ))
    }
}

/// The position of an appended record.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// End of the record: durable once `durable_lsn() >= end`.
    pub end: Lsn,
}

/// One file of the log, for inspection.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// File name.
    pub name: String,
    /// Log position of the first byte after the header.
    pub base: Lsn,
    /// File length in bytes.
    pub bytes: u64,
}

struct WalState {
    active: Vec<u8>,
    /// The other buffer, empty, while no leader uses it.
    spare: Vec<u8>,
    end: u64,
    limit: u64,
    leading: bool,
    /// Whether a caller's `stamp` runs. If a thread gets the lock and finds it set, the stamp has
    /// panicked, and may already have published the record's end.
    stamping: bool,
    /// Whether a thread waits for the next record.
    expected: bool,
    failure: Option<Error>,
}

impl WalState {
    fn check_usable(&mut self) -> Result<()> {
        if std::mem::take(&mut self.stamping) {
            self.failure.get_or_insert_with(panicked);
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// The log of one database, open for appending. All methods may be called from many threads.
pub struct Wal {
    device: Arc<dyn Device>,
    settings: WalSettings,
    stream: StreamId,
    state: Mutex<WalState>,
    progress: Condvar,
    /// Wakes the thread that waits for records: one has arrived, there are many, or the log has
    /// ended.
    arrivals: Condvar,
    durable: AtomicU64,
    syncs: AtomicU64,
    segments: Mutex<VecDeque<Segment>>,
    /// The number of the next segment file; held while segments are made or cut.
    maintenance: Mutex<u64>,
}

impl Wal {
    /// Creates an empty log at position 0 in a new database.
    ///
    /// # Errors
    /// 22023 for wrong settings; 53100 if there is no room for the first segment.
    pub fn create(
        device: Arc<dyn Device>,
        settings: WalSettings,
        database_id: u128,
    ) -> Result<Self> {
        settings.check()?;
        let log = Self::with(device, settings, database_id, Vec::new(), 0, 1);
        log.prepare_next_segment()?;
        Ok(log)
    }

    /// Opens the log and passes every whole record from `from` on to `replay`, in order, as (LSN of
    /// its end, payload). `from` is the beginning of the log or the end of a record. A torn tail is
    /// cut permanently. The found records are durable on return.
    ///
    /// # Errors
    /// XX001 with file and offset for damage before the last valid record, a missing segment, or a
    /// log that ends before `from` or `known_durable`; 0A000 for a newer format; the errors of
    /// `replay`.
    pub fn open(
        device: Arc<dyn Device>,
        settings: WalSettings,
        database_id: u128,
        from: Lsn,
        known_durable: Lsn,
        replay: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        settings.check()?;
        let found = recovery::recover(&device, database_id, from, known_durable, replay)?;
        Ok(Self::with(
            device,
            settings,
            database_id,
            found.segments,
            found.end,
            found.next_number,
        ))
    }

    fn with(
        device: Arc<dyn Device>,
        settings: WalSettings,
        database_id: u128,
        segments: Vec<Segment>,
        end: u64,
        next_number: u64,
    ) -> Self {
        let limit = segments.last().map_or(0, Segment::end);
        Self {
            device,
            settings,
            stream: StreamId {
                database_id,
                number: WAL_STREAM,
            },
            state: Mutex::new(WalState {
                active: Vec::new(),
                spare: Vec::new(),
                end,
                limit,
                leading: false,
                stamping: false,
                expected: false,
                failure: None,
            }),
            progress: Condvar::new(),
            arrivals: Condvar::new(),
            durable: AtomicU64::new(end),
            syncs: AtomicU64::new(0),
            segments: Mutex::new(segments.into()),
            maintenance: Mutex::new(next_number),
        }
    }

    /// Appends one record to the in-memory buffer. `stamp` runs under the log lock and gets the
    /// record's end and the payload, into which it can patch the commit timestamp. It runs exactly
    /// if the append will succeed, and can still refuse it: then nothing is appended.
    ///
    /// # Errors
    /// 53100 or 58030 if the log needs another segment and cannot get it (the log stays usable),
    /// 0A000 for a record of 4 GiB, `Closed` after a failed write or sync.
    pub fn append(
        &self,
        payload: &mut [u8],
        stamp: &mut dyn FnMut(&mut [u8], Lsn) -> Result<()>,
    ) -> Result<Appended> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::unsupported(format!(
                "the transaction's log record has {} bytes, the limit is {PAYLOAD_BYTES_MAX}",
                payload.len()
            ))
            .with_hint("Commit in smaller steps, or load in bulk with COPY or the appender."));
        }
        let needed = frame_bytes(payload.len());
        let mut state = self.state.lock();
        if state.active.len() > BUFFERED_BYTES_MAX {
            drop(state);
            self.write_out()?;
            state = self.state.lock();
        }
        loop {
            state.check_usable()?;
            if state.end + needed <= state.limit {
                break;
            }
            drop(state);
            self.ensure_room(needed)?;
            state = self.state.lock();
        }
        let start = state.end;
        let end = start + needed;
        state.stamping = true;
        let stamped = stamp(payload, Lsn(end));
        state.stamping = false;
        stamped?;
        let durable = self.durable.load(Ordering::Acquire);
        let before = state.active.len();
        put_frame(&mut state.active, self.stream, start, durable, payload);
        state.end = end;
        let are_many = before < WRITTEN_AT_BYTES && state.active.len() >= WRITTEN_AT_BYTES;
        if std::mem::take(&mut state.expected) || are_many {
            self.arrivals.notify_all();
        }
        Ok(Appended { end: Lsn(end) })
    }

    /// Waits for records that are not durable: until there are many, but at most `patience` after
    /// the first. False if the log has failed or was closed.
    pub fn wait_for_records(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        while self.durable.load(Ordering::Acquire) >= state.end && state.check_usable().is_ok() {
            state.expected = true;
            self.arrivals.wait(&mut state);
        }
        // The waker has seen many records, which may be written by now, or the end of the log.
        if state.active.len() < WRITTEN_AT_BYTES && state.check_usable().is_ok() {
            self.arrivals.wait_for(&mut state, patience);
        }
        state.check_usable().is_ok()
    }

    /// Returns when everything up to `lsn` is durable. A caller that finds no running sync becomes
    /// the leader, which writes and syncs for all (group commit, no extra thread).
    ///
    /// # Errors
    /// A failed write or sync poisons the log: every later call returns the same `Closed` error.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        if self.durable_lsn() >= lsn {
            return Ok(());
        }
        let mut state = self.state.lock();
        let mut waited = false;
        loop {
            if self.durable_lsn() >= lsn {
                return Ok(());
            }
            state.check_usable()?;
            if state.end < lsn.0 {
                return Err(Error::internal(format!(
                    "waiting for log position {}, but the log ends at {}",
                    lsn.0, state.end
                )));
            }
            if !state.leading {
                if waited {
                    state = self.gather(state);
                }
                return self.lead(state, true);
            }
            self.progress.wait(&mut state);
            waited = true;
        }
    }

    /// Becomes the leader, but first lets the committers that the last leader has released append
    /// their next records, as long as some do. With few clients that nearly doubles the commits per
    /// sync.
    fn gather<'a>(&self, mut state: MutexGuard<'a, WalState>) -> MutexGuard<'a, WalState> {
        state.leading = true;
        for _ in 0..GATHER_YIELDS_MAX {
            let end = state.end;
            MutexGuard::unlocked(&mut state, yield_now);
            if state.end == end {
                break;
            }
        }
        state
    }

    /// Makes everything appended so far durable.
    pub fn sync_all(&self) -> Result<()> {
        self.wait_durable(self.end_lsn())
    }

    /// Writes the buffer to the file without sync (background, `synchronous_commit = off`).
    pub fn write_out(&self) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            state.check_usable()?;
            if state.active.is_empty() {
                return Ok(());
            }
            if !state.leading {
                return self.lead(state, false);
            }
            self.progress.wait(&mut state);
        }
    }

    /// Takes the buffer, writes it and, if `sync`, makes the log durable up to its end.
    fn lead(&self, mut state: MutexGuard<'_, WalState>, sync: bool) -> Result<()> {
        state.leading = true;
        let spare = std::mem::take(&mut state.spare);
        let mut buffer = std::mem::replace(&mut state.active, spare);
        let end = state.end;
        drop(state);

        let leading = Leading(Some(self));
        let mut outcome = self.write(&buffer, end - buffer.len() as u64);
        if sync && outcome.is_ok() {
            outcome = self.sync_up_to(end);
        }
        buffer.clear();
        buffer.shrink_to(BUFFER_KEPT_BYTES);
        leading.has_ended();

        let mut state = self.state.lock();
        state.leading = false;
        state.spare = buffer;
        match outcome {
            Ok(()) if sync => self.durable.store(end, Ordering::Release),
            Ok(()) => {}
            Err(cause) => {
                state.failure = Some(poisoned(&cause));
                self.arrivals.notify_all();
            }
        }
        self.progress.notify_all();
        state.check_usable()
    }

    fn write(&self, bytes: &[u8], start: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (file, offset, room) = self.locate(start + done as u64)?;
            let n = (bytes.len() - done).min(room as usize);
            file.write_all_at(&bytes[done..done + n], offset)?;
            done += n;
        }
        Ok(())
    }

    fn sync_up_to(&self, end: u64) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let mut at = self.durable.load(Ordering::Acquire);
        while at < end {
            let (file, _, room) = self.locate(at)?;
            file.sync()?;
            at += room;
        }
        Ok(())
    }

    /// The file of log position `at`, the offset in it, and the bytes up to its end.
    fn locate(&self, at: u64) -> Result<(Arc<dyn File>, u64, u64)> {
        let segments = self.segments.lock();
        let segment = segments
            .iter()
            .find(|s| s.base <= at && at < s.end())
            .ok_or_else(|| Error::internal(format!("no log segment holds position {at}")))?;
        let offset = SEGMENT_HEADER_BYTES + (at - segment.base);
        Ok((Arc::clone(&segment.file), offset, segment.end() - at))
    }

    /// The position after the last appended record.
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.state.lock().end)
    }

    /// Passes the records in `from..to` to `visit` in order, as (LSN of its end, payload). Both are
    /// ends of records, the log is durable up to `to`, and the caller keeps the log from being cut
    /// meanwhile.
    ///
    /// # Errors
    /// XX001 with file and offset for damage, a missing segment; the errors of `visit`.
    pub fn read(
        &self,
        (from, to): (Lsn, Lsn),
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let extents: Vec<_> = {
            let segments = self.segments.lock();
            let wanted = segments
                .iter()
                .filter(|s| s.end() > from.0 && s.base < to.0);
            wanted.map(Segment::extent).collect()
        };
        if extents.first().is_none_or(|first| first.start > from.0) && from < to {
            let what = format!("no log segment holds position {}", from.0);
            return Err(Error::internal(what));
        }
        let mut stream = Stream::new(self.stream, extents);
        let mut position = from.0;
        while position < to.0 {
            let Some(frame) = stream.read(position)? else {
                return Err(Error::corrupt(stream.place(position), "damaged record"));
            };
            position = frame.end;
            visit(Lsn(position), frame.payload)?;
        }
        Ok(())
    }

    /// Bytes of buffered records in memory, and of the spare buffer.
    pub fn memory_bytes(&self) -> usize {
        let state = self.state.lock();
        state.active.capacity() + state.spare.capacity()
    }

    /// The number of syncs since the log was opened, each for a group of commits.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Everything before this position is durable.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Makes everything durable and refuses all later calls with `refusal`.
    ///
    /// # Errors
    /// The errors of [`Wal::sync_all`]; the log is closed in any case.
    pub fn close(&self, refusal: Error) -> Result<()> {
        loop {
            let synced = self.sync_all();
            let mut state = self.state.lock();
            let is_durable = self.durable_lsn().0 >= state.end;
            if is_durable || synced.is_err() {
                state.failure.get_or_insert(refusal);
                self.progress.notify_all();
                self.arrivals.notify_all();
                return synced;
            }
        }
    }

    /// The sticky error of a poisoned log.
    pub fn check_usable(&self) -> Result<()> {
        self.state.lock().check_usable()
    }
}

/// A running leader. If it panics, the log fails, because the extent of its writes is unknown.
struct Leading<'a>(Option<&'a Wal>);

impl Leading<'_> {
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if let Some(wal) = self.0 {
            let mut state = wal.state.lock();
            state.leading = false;
            state.failure.get_or_insert_with(panicked);
            wal.progress.notify_all();
            wal.arrivals.notify_all();
        }
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (end, durable) = (self.end_lsn(), self.durable_lsn());
        f.debug_struct("Wal")
            .field("end", &end)
            .field("durable", &durable)
            .finish_non_exhaustive()
    }
}

fn panicked() -> Error {
    poisoned(&Error::internal("the thread that was at it panicked"))
}

fn poisoned(cause: &Error) -> Error {
    Error::new(
        ErrorKind::Closed,
        SqlState::IO_ERROR,
        format!("the database refuses writes since the log could not be stored: {cause}"),
    )
    .with_hint("Check the device, then close and reopen the database.")
}

#[cfg(test)]
mod tests;
