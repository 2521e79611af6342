//! A device with the delays of a hard disk.
//!
//! Invariants:
//! 1. A read returns when the wrapped device has read and the emulated disk has served the request,
//!    whichever is later. Nothing is cached: every read goes to the disk.
//! 2. A write goes to the wrapped device at once and is charged by the next sync of its handle, as
//!    by an operating system that writes behind: adjacent writes are one request.
//! 3. A sync of the directory is one request at place 0.
//! 4. A file lies in one piece. Its place is drawn from its name, so that it is the same whenever
//!    the database is opened.
//!
//! Lock order: the disk's state is held with nothing else, and never while a thread waits.

use std::collections::BTreeMap;

use strandline_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use strandline_base::{Result, checksum};

use super::DelayClock;
use super::hdd_model::{Actuator, HddModel};
use crate::{Device, File, Queue, ReadAt, ThreadQueue, Tier};

/// The unit of places and of requests for the directory, in bytes.
const SECTOR_BYTES: u64 = 4_096;

/// The disk that all files of a device share.
#[derive(Debug)]
struct Disk {
    model: HddModel,
    clock: Arc<dyn DelayClock>,
    is_on: AtomicBool,
    state: Mutex<DiskState>,
}

#[derive(Debug)]
struct DiskState {
    actuator: Actuator,
    /// when requests end that have begun and are waited for
    ends: BTreeMap<u64, u64>,
}

impl Disk {
    /// A request that arrives now; None while the emulation is off.
    fn arrive(&self, place: u64, bytes: u64, may_stream: bool) -> Option<u64> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        Some(state.actuator.arrive(now_ns, place, bytes, may_stream))
    }

    /// Waits for the end of a request.
    fn wait(&self, request: Option<u64>) {
        let Some(request) = request else {
            return;
        };
        loop {
            let now_ns = self.clock.now_ns();
            let mut state = self.state.lock();
            let DiskState { actuator, ends } = &mut *state;
            while let Some((begun, end_ns)) = actuator.begin_next(now_ns) {
                ends.insert(begun, end_ns);
            }
            let until_ns = match ends.get(&request).copied() {
                Some(end_ns) if end_ns <= now_ns => {
                    ends.remove(&request);
                    return;
                }
                Some(end_ns) => end_ns,
                None => actuator.free_at_ns(),
            };
            drop(state);
            self.clock.wait_until(until_ns);
        }
    }

    /// The place of a file.
    fn place_of(&self, name: &str) -> u64 {
        let drawn = u128::from(checksum(&[], name.as_bytes()));
        let place = (drawn * u128::from(self.model.span)) >> 32;
        place as u64 / SECTOR_BYTES * SECTOR_BYTES
    }
}

/// A device whose files are on an emulated hard disk.
#[derive(Debug)]
pub struct EmulatedHdd {
    inner: Arc<dyn Device>,
    disk: Arc<Disk>,
    time_scale: u64,
}

impl EmulatedHdd {
    /// The files of `inner` on a disk of `model` that is `time_scale` times faster.
    pub fn new(
        inner: Arc<dyn Device>,
        model: HddModel,
        time_scale: u64,
        clock: Arc<dyn DelayClock>,
    ) -> Self {
        let state = DiskState {
            actuator: Actuator::new(model, time_scale),
            ends: BTreeMap::new(),
        };
        let disk = Disk {
            model,
            clock,
            is_on: AtomicBool::new(true),
            state: Mutex::new(state),
        };
        Self {
            inner,
            disk: Arc::new(disk),
            time_scale,
        }
    }

    /// Switches the delays on or off, for data that is loaded before a measurement.
    pub fn set_delays(&self, is_on: bool) {
        self.disk.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Nanoseconds for which the disk has served requests so far, on its own time scale.
    pub fn busy_ns(&self) -> u64 {
        self.disk.state.lock().actuator.busy_ns()
    }

    /// What is emulated, for results.
    pub fn label(&self) -> String {
        let Self {
            disk, time_scale, ..
        } = self;
        format!("emulated {}, time scale {time_scale}", disk.model.name)
    }

    fn handle(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HddFile {
            place: self.disk.place_of(inner.name()),
            inner,
            disk: self.disk.clone(),
            unsynced: Mutex::default(),
        })
    }
}

impl Device for EmulatedHdd {
    crate::forward!(inner: remove rename list lock may_fill_up is_written_once request_stats);
    crate::forward!(inner: directory_number is_stored);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.handle(self.inner.open(name)?))
    }

    fn sync_directory(&self) -> Result<()> {
        let request = self.disk.arrive(0, SECTOR_BYTES, false);
        let synced = self.inner.sync_directory();
        self.disk.wait(request);
        synced
    }

    fn queue(&self, _tier: Tier, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(ThreadQueue::new(depth)?))
    }

    fn location(&self) -> String {
        format!("{} ({})", self.inner.location(), self.label())
    }
}

#[derive(Debug)]
struct HddFile {
    inner: Arc<dyn File>,
    disk: Arc<Disk>,
    place: u64,
    /// written and not synced: offset and length of each piece
    unsynced: Mutex<Vec<(u64, u64)>>,
}

impl File for HddFile {
    crate::forward!(inner: name len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let place = self.place + offset;
        let request = self.disk.arrive(place, buf.len() as u64, true);
        let read = self.inner.read_exact_at(buf, offset);
        self.disk.wait(request);
        read
    }

    /// The disk has all requests before it serves the first.
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        let arrive = |read: &ReadAt<'_>| {
            let place = self.place + read.offset;
            self.disk.arrive(place, read.buf.len() as u64, true)
        };
        let requests: Vec<_> = reads.iter().map(arrive).collect();
        let read = self.inner.read_batch(reads);
        requests
            .into_iter()
            .for_each(|request| self.disk.wait(request));
        read
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_all_at(buf, offset)?;
        self.unsynced.lock().push((offset, buf.len() as u64));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        let arrive = |(offset, bytes)| self.disk.arrive(self.place + offset, bytes, false);
        let requests: Vec<_> = united(unsynced).into_iter().map(arrive).collect();
        let synced = self.inner.sync();
        requests
            .into_iter()
            .for_each(|request| self.disk.wait(request));
        synced
    }
}

/// Pieces in order, adjacent and overlapping ones as one.
fn united(mut pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pieces.sort_unstable();
    let mut united: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in pieces {
        match united.last_mut() {
            Some((from, len)) if *from + *len >= offset => {
                *len = (*len).max(offset + bytes - *from);
            }
            _ => united.push((offset, bytes)),
        }
    }
    united
}
