//! The times of a hard disk with one actuator.
//!
//! A request takes seek + rotation + transfer:
//! * The seek over a distance of d bytes takes `track + (stroke - track) * sqrt(d / span)`, and
//!   nothing over no distance. Between two random places of the span that is on average
//!   `track + (stroke - track) * 8 / 15`.
//! * The rotation takes half a turn.
//! * A read that begins where the last request ended takes its transfer only, because the drive
//!   reads ahead.
//!
//! [`Actuator`] serves the requests that have arrived in the order of an elevator: upwards to the
//! last one above the head, then downwards. It is a state machine over given times, not a clock.
//!
//! Differences from a disk: the rotation is a constant instead of the angle to the sector; outer
//! tracks are as fast as inner ones; no request waits in the drive's write cache.

use std::collections::BTreeMap;

/// The parameters of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HddModel {
    /// for labels
    pub name: &'static str,
    /// seek to the next track, in nanoseconds
    pub track_ns: u64,
    /// seek over the whole span, in nanoseconds
    pub stroke_ns: u64,
    /// half a turn, in nanoseconds
    pub rotation_ns: u64,
    /// bytes per second
    pub transfer: u64,
    /// bytes over which the files are spread
    pub span: u64,
}

impl HddModel {
    /// A disk of 7,200 rpm: 8.5 ms of seek on average, 4.17 ms of rotation, 77 MB/s.
    pub const RPM_7200: Self = Self {
        name: "7,200 rpm disk",
        track_ns: 1_000_000,
        stroke_ns: 1_000_000 + 7_500_000 / 8 * 15,
        rotation_ns: 4_170_000,
        transfer: 77_000_000,
        span: 500_000_000_000,
    };

    /// The disk of the MaSM paper: 4.17 ms in all for a random access, 77 MB/s.
    pub const MASM: Self = Self {
        name: "MaSM disk",
        track_ns: 0,
        stroke_ns: 0,
        rotation_ns: 4_170_000,
        transfer: 77_000_000,
        span: 500_000_000_000,
    };

    /// Nanoseconds of a seek over `distance` bytes.
    pub fn seek_ns(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let share = (distance.min(self.span) as f64 / self.span as f64).sqrt();
        let beyond_a_track = self.stroke_ns.saturating_sub(self.track_ns) as f64;
        self.track_ns + (beyond_a_track * share) as u64
    }

    /// Nanoseconds of the transfer of `bytes`.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.transfer)) as u64
    }
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
struct Request {
    bytes: u64,
    at_ns: u64,
    /// it needs no rotation if it begins at the head
    may_stream: bool,
}

/// The head of a disk and the requests that wait for it.
#[derive(Debug)]
pub(super) struct Actuator {
    model: HddModel,
    /// how many times faster than the model
    time_scale: u64,
    head: u64,
    is_upward: bool,
    /// when the last request that was begun ends
    free_at_ns: u64,
    /// service times of all requests that were begun
    busy_ns: u64,
    /// by place, then by number
    waiting: BTreeMap<(u64, u64), Request>,
    next: u64,
}

impl Actuator {
    pub fn new(model: HddModel, time_scale: u64) -> Self {
        Self {
            model,
            time_scale: time_scale.max(1),
            head: 0,
            is_upward: true,
            free_at_ns: 0,
            busy_ns: 0,
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds a request that arrives at `at_ns`; its number.
    pub fn arrive(&mut self, at_ns: u64, place: u64, bytes: u64, may_stream: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let request = Request {
            bytes,
            at_ns,
            may_stream,
        };
        self.waiting.insert((place, number), request);
        number
    }

    /// When the head is free.
    pub fn free_at_ns(&self) -> u64 {
        self.free_at_ns
    }

    /// Service times of all requests that were begun.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Begins the next request if the head is free at `now_ns`: its number and when it ends.
    pub fn begin_next(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        if self.free_at_ns > now_ns {
            return None;
        }
        let key @ (place, number) = self.elevator()?;
        let request = self.waiting.remove(&key)?;
        let is_streaming = request.may_stream && place == self.head;
        let position_ns = match is_streaming {
            true => 0,
            false => self.model.seek_ns(place.abs_diff(self.head)) + self.model.rotation_ns,
        };
        let service_ns = position_ns + self.model.transfer_ns(request.bytes);
        let begun_ns = self.free_at_ns.max(request.at_ns);
        self.free_at_ns = begun_ns + service_ns / self.time_scale;
        self.busy_ns += service_ns / self.time_scale;
        self.head = place + request.bytes;
        Some((number, self.free_at_ns))
    }

    /// The next request in the direction of the head, else in the other one.
    fn elevator(&mut self) -> Option<(u64, u64)> {
        let mut above = self.waiting.range((self.head, 0)..);
        let mut below = self.waiting.range(..=(self.head, u64::MAX));
        let above = above.next().map(|(key, _)| *key);
        let below = below.next_back().map(|(key, _)| *key);
        let (ahead, behind) = match self.is_upward {
            true => (above, below),
            false => (below, above),
        };
        if ahead.is_none() && behind.is_some() {
            self.is_upward = !self.is_upward;
        }
        ahead.or(behind)
    }
}

#[cfg(test)]
mod tests;
