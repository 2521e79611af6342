//! Busy-polls the socket before blocking, for up to `client_poll_time`, where that is quicker.
//!
//! A client with short statements sends the next one some microseconds after its answer. Blocking
//! the session's thread for that time and waking it may cost more than the statement. A virtual
//! machine returns an idle processor to the host, and needs up to 0.1 ms to get it back. So a
//! session with a quick client polls its socket before it blocks, and yields to other threads
//! between polls.
//!
//! It may be the other way round: a session that blocks leaves its processor to its client, and the
//! two take turns on it without an idle one to be woken. Which way is quicker depends on the
//! machine, on its load and on where the scheduler puts the client. So a session measures: after
//! [`FIRST_WAITS`] it waits [`TRIAL_WAITS`] times in the way that it does not prefer. The next
//! trial comes after as many waits, or after twice as many if the trial has changed nothing.
//!
//! Invariants:
//! 1. At most all processors but one poll at a time; a machine with one processor never polls.
//! 2. After an answer a session polls for `client_poll_time` at most. A session with a slow client
//!    polls once in [`PROBE_WAITS`] waits.
//! 3. Polling only delays the start of a read: timeouts, ends of sessions and errors come from the
//!    read.

use crate::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of waits after which a slow client's session polls again.
const PROBE_WAITS: u8 = 64;
/// The change of the score when a message arrives during polling, and when none does.
const GAIN: u8 = 1;
const LOSS: u8 = 4;
const SCORE_MAX: u8 = 16;

/// A quick client's waits before the first trial and, at most, before each further one.
const FIRST_WAITS: u32 = 4_096;
const MOST_WAITS: u32 = 1 << 20;
/// The waits of a trial. Only the last quarter is measured: an idle processor takes hundreds of
/// waits until it expects to be woken soon.
const TRIAL_WAITS: u32 = 512;
/// The weight of a wait in the average is 1 / this.
const AVERAGED: u32 = 8;
/// Polling is given up only for blocking that is quicker by this part of its time.
const CLEAR_PART: u32 = 8;

/// Limits the number of polling sessions of a server and the time of each poll.
#[derive(Debug)]
pub(crate) struct PollBudget {
    running: AtomicUsize,
    most: usize,
    /// the time of each poll
    time: Duration,
}

impl PollBudget {
    /// The budget for this machine's processors, with `time` for each poll; zero: no polling.
    pub fn new(time: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        match time.is_zero() {
            true => Self::of_processors(1, time),
            false => Self::of_processors(processors, time),
        }
    }
    fn of_processors(processors: usize, time: Duration) -> Self {
        Self {
            running: AtomicUsize::new(0),
            most: processors.saturating_sub(1),
            time,
        }
    }
    fn enter(&self) -> Option<PollPermit<'_>> {
        let permit = PollPermit(self);
        match self.running.fetch_add(1, Ordering::Relaxed) < self.most {
            true => Some(permit),
            false => None,
        }
    }
}

/// The permission of one session to poll, returned when it is dropped.
struct PollPermit<'a>(&'a PollBudget);

impl Drop for PollPermit<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session's estimate of its client's pace.
#[derive(Debug)]
pub(crate) struct Pace {
    poll_budget: Arc<PollBudget>,
    /// above 0: polling is worthwhile
    score: u8,
    /// waits since the last poll
    waits: u8,
    way: Way,
    /// the average time until the next message, by way; None: not known
    averages: [Option<Duration>; 2],
    /// waits since the last trial
    round: u32,
    /// waits before the next trial
    until_trial: u32,
    /// the beginning of the wait, if its end tells the client's pace
    begun: Option<Instant>,
}

/// How a session waits for a quick client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Poll,
    Block,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Poll => Self::Block,
            Self::Block => Self::Poll,
        }
    }
}

impl Pace {
    /// The pace of an unknown client.
    pub fn new(poll_budget: Arc<PollBudget>) -> Self {
        Self {
            poll_budget,
            score: LOSS,
            waits: 0,
            way: Way::Poll,
            averages: [None; 2],
            round: 0,
            until_trial: FIRST_WAITS,
            begun: None,
        }
    }

    /// Returns when `transport` has input, or after the poll time; then the next read may block.
    pub fn poll(&mut self, transport: &dyn Transport) {
        self.waits = self.waits.saturating_add(1);
        if self.score == 0 && self.waits < PROBE_WAITS {
            return;
        }
        let Some(_permit) = self.poll_budget.enter() else {
            return;
        };
        self.waits = 0;
        let begin = Instant::now();
        self.begun = Some(begin);
        if self.tried() == Way::Block {
            return;
        }
        loop {
            if transport.has_input() {
                self.score = (self.score + GAIN).min(SCORE_MAX);
                return;
            }
            if begin.elapsed() >= self.poll_budget.time {
                self.score = self.score.saturating_sub(LOSS);
                return;
            }
            std::thread::yield_now();
        }
    }

    /// A message has arrived.
    pub fn arrived(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.note(begun.elapsed());
        }
    }

    /// The way of this wait.
    fn tried(&self) -> Way {
        match self.round < self.until_trial {
            true => self.way,
            false => self.way.other(),
        }
    }

    /// A wait has ended after so long.
    fn note(&mut self, waited: Duration) {
        let way = self.tried();
        let is_quick = waited <= self.poll_budget.time;
        // A poll has settled the score itself.
        if way == Way::Block {
            self.score = match is_quick {
                true => (self.score + GAIN).min(SCORE_MAX),
                false => self.score.saturating_sub(LOSS),
            };
        }
        // A client that thinks says nothing about the two ways.
        if !is_quick {
            return;
        }
        let settled = match way == self.way {
            true => 0,
            false => self.until_trial + TRIAL_WAITS / 4 * 3,
        };
        if self.round >= settled {
            let average = &mut self.averages[way as usize];
            *average = Some(match *average {
                Some(known) => known - known / AVERAGED + waited / AVERAGED,
                None => waited,
            });
        }
        self.round += 1;
        if self.round == self.until_trial + TRIAL_WAITS {
            self.round = 0;
            self.choose();
        }
    }

    fn choose(&mut self) {
        let [Some(poll), Some(block)] = self.averages else {
            return;
        };
        let way = match poll - poll / CLEAR_PART > block {
            true => Way::Block,
            false => Way::Poll,
        };
        self.until_trial = match way == self.way {
            true => (2 * self.until_trial).min(MOST_WAITS),
            false => FIRST_WAITS,
        };
        self.way = way;
        // What is tried next is measured anew.
        self.averages[self.way.other() as usize] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{self, Read, Write};

    const TIME: Duration = Duration::from_micros(1);

    /// A transport that has input at poll number `input_at`, and counts the polls.
    struct Script {
        input_at: usize,
        looks: Cell<usize>,
    }

    impl Read for Script {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Transport for Script {
        fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }
        fn has_input(&self) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.looks.get() >= self.input_at
        }
    }

    fn script(input_at: usize) -> Script {
        let looks = Cell::new(0);
        Script { input_at, looks }
    }

    fn pace(processors: usize) -> Pace {
        Pace::new(Arc::new(PollBudget::of_processors(processors, TIME)))
    }

    /// Whether `pace` polls a client that does not answer.
    fn polls(pace: &mut Pace) -> bool {
        let silent = script(usize::MAX);
        pace.poll(&silent);
        silent.looks.get() > 0
    }

    #[test]
    fn input_ends_a_poll() {
        let quick = script(3);
        let poll_budget = PollBudget::of_processors(2, Duration::from_secs(3600));
        Pace::new(Arc::new(poll_budget)).poll(&quick);
        assert_eq!(quick.looks.get(), 3);
    }

    #[test]
    fn a_slow_client_is_polled_now_and_then() {
        let mut pace = pace(2);
        assert!(polls(&mut pace), "nothing is known of it");
        for _ in 0..3 {
            let until_next = (1..).find(|_| polls(&mut pace));
            assert_eq!(until_next, Some(usize::from(PROBE_WAITS)));
        }
        // One quick answer to a probe is not enough to keep polling.
        for _ in 1..PROBE_WAITS {
            assert!(!polls(&mut pace));
        }
        pace.poll(&script(1));
        assert!(polls(&mut pace));
        assert!(!polls(&mut pace));
    }

    #[test]
    fn a_quick_client_may_be_slow_at_times() {
        let mut pace = pace(2);
        for _ in 0..100 {
            pace.poll(&script(1));
        }
        for _ in 0..SCORE_MAX / LOSS {
            assert!(polls(&mut pace));
        }
        assert!(!polls(&mut pace));
    }

    /// The ways of so many waits, each of which lasts as long as `waited` says of its way.
    fn ways(pace: &mut Pace, waits: usize, waited: impl Fn(Way) -> Duration) -> Vec<Way> {
        let wait = |_| {
            let way = pace.tried();
            pace.note(waited(way));
            way
        };
        (0..waits).map(wait).collect()
    }

    #[test]
    fn the_quicker_way_is_taken_and_the_other_one_tried() {
        let budget = PollBudget::of_processors(2, Duration::from_secs(1));
        let mut pace = Pace::new(Arc::new(budget));
        let (first, trial) = (FIRST_WAITS as usize, TRIAL_WAITS as usize);
        let quick = Duration::from_micros(20);
        let polls_slowly = |way| if way == Way::Poll { 2 * quick } else { quick };
        let waits = ways(&mut pace, first + trial, polls_slowly);
        assert!(waits[..first].iter().all(|way| *way == Way::Poll));
        assert!(waits[first..].iter().all(|way| *way == Way::Block));
        let waits = ways(&mut pace, first + trial, polls_slowly);
        assert!(waits[..first].iter().all(|way| *way == Way::Block));
        assert!(waits[first..].iter().all(|way| *way == Way::Poll));
        // The trial has changed nothing: the next one comes later. Then polling is as quick.
        let alike = |_| quick;
        let waits = ways(&mut pace, 2 * first + trial, alike);
        assert!(waits[..2 * first].iter().all(|way| *way == Way::Block));
        assert_eq!((pace.way, pace.until_trial), (Way::Poll, FIRST_WAITS));
        // Nearly as quick is not enough to give polling up.
        let nearly = |way| {
            if way == Way::Poll {
                quick
            } else {
                quick * 19 / 20
            }
        };
        ways(&mut pace, 3 * (first + trial), nearly);
        assert_eq!(pace.way, Way::Poll);
    }

    #[test]
    fn a_client_that_thinks_tells_nothing_of_the_ways() {
        let mut pace = pace(2);
        for _ in 0..3 * FIRST_WAITS {
            pace.note(2 * TIME);
        }
        assert_eq!((pace.way, pace.averages), (Way::Poll, [None; 2]));
        assert_eq!(pace.round, 0);
    }

    #[test]
    fn one_processor_is_left_to_others() {
        assert!(!polls(&mut pace(1)));
        let never = Arc::new(PollBudget::new(Duration::ZERO));
        assert!(!polls(&mut Pace::new(never)));
        let polls_of_three = PollBudget::of_processors(3, TIME);
        let (first, second) = (polls_of_three.enter(), polls_of_three.enter());
        assert!(first.is_some() && second.is_some() && polls_of_three.enter().is_none());
        drop(first);
        assert!(polls_of_three.enter().is_some());
    }
}
