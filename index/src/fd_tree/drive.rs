//! Who drives a compaction, and the line of writers that wait for it. Rules D1 to D6 are in
//! docs/rfcs/3-fd-tree.md, "Writers and the compaction".
//!
//! * A *turn* is the right to use the compaction: for steps, or to hold it still. Callers get it in
//!   order of arrival; a writer takes it for a step if it is free.
//! * A writer that may not add to the head yet enters the line. Whoever drives admits the line's
//!   first writers after a step. If nobody drives, a writer of the line does.
//!
//! Lock order: a turn, then what a step takes; the line's lock, then the state's. The line's lock
//! is held for no step.

use super::budget::{Claim, Verdict};
use super::state::Shared;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::Result;
use strandline_base::sync::{AtomicUsize, Condvar, Mutex, Ordering};

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Steps,
    /// the compaction stands still: writers with room do not wait for it
    Hold,
}

/// A caller that waits for its turn.
#[derive(Debug)]
struct Caller {
    ticket: u64,
    purpose: Use,
    woken: Arc<Condvar>,
}

/// A writer that waits to be admitted.
#[derive(Debug)]
struct Writer {
    ticket: u64,
    claim: Claim,
    woken: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    /// whose turn it is, and what for
    turn: Option<(u64, Use)>,
    callers: VecDeque<Caller>,
    writers: VecDeque<Writer>,
    /// writers that were refused and do not know yet
    refused: Vec<u64>,
}

impl Line {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Admits the first writers, as long as their claims are met (D2).
    fn admit(&mut self, shared: &Shared) {
        if self.writers.is_empty() {
            return;
        }
        let has_steps = !matches!(self.turn, Some((_, Use::Hold)));
        let state = shared.state.lock();
        while let Some(first) = self.writers.front() {
            match first.claim.verdict(&shared.settings, &state, has_steps) {
                Verdict::Waits => break,
                Verdict::Admitted => {}
                Verdict::Refused => self.refused.push(first.ticket),
            }
            first.woken.notify_one();
            self.writers.pop_front();
        }
    }

    /// Ends the turn: it goes to the caller that has waited longest (D1). After a writer's step a
    /// caller that wants steps is only woken: until it runs, the next writer may do one.
    /// Whoever goes on admits writers first.
    fn pass_on(&mut self, was_writer: bool) {
        self.turn = None;
        let is_granted = |caller: &mut Caller| caller.purpose == Use::Hold || !was_writer;
        if let Some(caller) = self.callers.pop_front_if(is_granted) {
            self.turn = Some((caller.ticket, caller.purpose));
            caller.woken.notify_one();
        }
        self.rouse();
    }

    /// If nobody drives, the first writer or the first caller will (D3).
    fn rouse(&self) {
        if self.turn.is_none() {
            let writer = self.writers.front().map(|writer| &writer.woken);
            let caller = self.callers.front().map(|caller| &caller.woken);
            for woken in writer.into_iter().chain(caller) {
                woken.notify_one();
            }
        }
    }

    /// Whether a caller has the turn, or takes it now that nobody has one.
    fn is_called(&mut self, ticket: u64) -> bool {
        match self.turn {
            Some((turn, _)) => turn == ticket,
            None => {
                let is_first = |caller: &mut Caller| caller.ticket == ticket;
                self.callers.pop_front_if(is_first).is_some()
            }
        }
    }

    /// Whether a writer was admitted or refused; None while it waits.
    fn outcome(&self, ticket: u64) -> Option<bool> {
        let waits = self.writers.iter().any(|writer| writer.ticket == ticket);
        (!waits).then(|| !self.refused.contains(&ticket))
    }
}

/// Grants turns and admits writers.
#[derive(Debug, Default)]
pub(super) struct Drive {
    line: Mutex<Line>,
    /// writers in the line; changes under its lock
    waiting: AtomicUsize,
}

impl Drive {
    /// Waits for a turn.
    pub fn take<'a>(&'a self, shared: &'a Shared, purpose: Use) -> Turn<'a> {
        let mut line = self.line.lock();
        let ticket = line.ticket();
        if line.turn.is_some() || !line.callers.is_empty() {
            let woken = Arc::new(Condvar::new());
            line.callers.push_back(Caller {
                ticket,
                purpose,
                woken: woken.clone(),
            });
            while !line.is_called(ticket) {
                woken.wait(&mut line);
            }
        }
        if line.turn.is_none() {
            line.turn = Some((ticket, purpose));
        }
        line.admit(shared);
        self.count(&line);
        drop(line);
        Turn {
            drive: self,
            shared,
            is_writer: false,
        }
    }

    /// A turn for steps, if nobody has one.
    pub fn try_take<'a>(&'a self, shared: &'a Shared) -> Option<Turn<'a>> {
        let mut line = self.line.lock();
        if line.turn.is_some() {
            return None;
        }
        line.turn = Some((line.ticket(), Use::Steps));
        Some(Turn {
            drive: self,
            shared,
            is_writer: true,
        })
    }

    fn count(&self, line: &Line) {
        self.waiting.store(line.writers.len(), Ordering::Release);
    }

    /// Whether writers wait. One that is missed has not looked at the state yet: it sees what the
    /// caller has done under the state's lock.
    pub fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// How many writers wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits in the line until the claim is met. The writer drives steps if nobody does. Returns
    /// whether the claim was met; it was refused otherwise.
    ///
    /// # Errors
    /// Those of a step that the writer did itself, if it is not admitted nevertheless.
    pub fn admit(
        &self,
        shared: &Shared,
        claim: Claim,
        step: impl Fn(&Turn<'_>) -> Result<()>,
    ) -> Result<bool> {
        let woken = Arc::new(Condvar::new());
        let place = self.enter(claim, woken.clone());
        let mut line = self.line.lock();
        loop {
            line.admit(shared);
            self.count(&line);
            if let Some(is_admitted) = line.outcome(place.ticket) {
                return Ok(is_admitted);
            }
            if line.turn.is_some() {
                woken.wait(&mut line);
                continue;
            }
            line.turn = Some((place.ticket, Use::Steps));
            drop(line);
            let stepped = step(&Turn {
                drive: self,
                shared,
                is_writer: true,
            });
            line = self.line.lock();
            if let (Err(error), None) = (stepped, line.outcome(place.ticket)) {
                return Err(error);
            }
        }
    }

    fn enter(&self, claim: Claim, woken: Arc<Condvar>) -> Place<'_> {
        let mut line = self.line.lock();
        let ticket = line.ticket();
        line.writers.push_back(Writer {
            ticket,
            claim,
            woken,
        });
        self.count(&line);
        Place {
            drive: self,
            ticket,
        }
    }
}

/// A writer's place in the line, until it leaves.
#[derive(Debug)]
struct Place<'a> {
    drive: &'a Drive,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = self.drive.line.lock();
        line.writers.retain(|writer| writer.ticket != self.ticket);
        line.refused.retain(|refused| *refused != self.ticket);
        self.drive.count(&line);
        line.rouse();
    }
}

/// The right to use the compaction. Its end passes it on.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    drive: &'a Drive,
    shared: &'a Shared,
    is_writer: bool,
}

impl Turn<'_> {
    /// After a step: admits the writers that have waited for it.
    pub fn admit(&self) {
        if self.drive.has_waiting() {
            let mut line = self.drive.line.lock();
            line.admit(self.shared);
            self.drive.count(&line);
        }
    }

    /// From now on the turn does no steps (D5).
    pub fn hold(&self) {
        self.use_for(Use::Hold);
    }

    /// From now on the turn does steps.
    pub fn resume(&self) {
        self.use_for(Use::Steps);
    }

    fn use_for(&self, now: Use) {
        let mut line = self.drive.line.lock();
        if let Some((_, purpose)) = &mut line.turn {
            *purpose = now;
        }
        line.admit(self.shared);
        self.drive.count(&line);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut line = self.drive.line.lock();
        line.pass_on(self.is_writer);
    }
}
