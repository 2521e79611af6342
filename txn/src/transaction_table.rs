//! The transaction table: a slot per running transaction, addressed by its [`StartWord`].
//!
//! A slot packs generation, a *waited* bit and the phase into one atomic word, so that a single
//! read-modify-write ends a transaction and tells whether anybody waits for it. The commit
//! timestamp is a second word, written before the phase turns to committed.
//!
//! # Invariants
//!
//! 1. The state word changes: generation + 1 by the slot's new owner, who is alone with it; the
//!    waited bit only before the transaction has finished; the phase only forward, from *in
//!    progress* to *pre-committed*, and from either to *committed* or *aborted*. A finished state
//!    never changes until the next generation.
//! 2. A slot is on the free list, or owned by one transaction, or leaked; never two of them.
//! 3. The word of a finished transaction keeps its meaning until the slot's next `begin`.
//!
//! # Memory order
//!
//! `TransactionTable::status` is a sequence lock's read side: state, timestamp, state again. The
//! timestamp of a later generation is stored (release) after that generation's state; a reader who
//! loads it (acquire) therefore finds the new state in its second load and reports *stale*. The
//! first load (acquire) of *pre-committed* or *committed* sees the timestamp stored before it; both
//! have the same.
//!
//! The free list is a Treiber stack of slot numbers. Every change of its head is a
//! read-modify-write, so the pushes' release sequences are never broken and a pop sees everything
//! that preceded the push of the slot it gets. A 32-bit tag in the head, counted up by every
//! change, makes the compare-and-swap of a delayed pop fail (ABA).

use crate::start_word::{StartWord, TxnStatus};
use strandline_base::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState};

/// Slots of one block, allocated together on first use.
const BLOCK_SLOTS: usize = if cfg!(shuttle) { 2 } else { 1024 };
const BLOCKS: usize = 64;
/// Transactions that can run at the same time.
pub(crate) const SLOTS: usize = BLOCK_SLOTS * BLOCKS;

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const IN_PROGRESS: u64 = 0;
const COMMITTED: u64 = 1;
const ABORTED: u64 = 2;
const PRE_COMMITTED: u64 = 3;
const WAITED: u64 = 1 << PHASE_BITS;
const GENERATION_SHIFT: u32 = PHASE_BITS + 1;

/// One cache line per slot: neighbours belong to different threads.
#[repr(align(64))]
struct Slot {
    /// generation << 3 | waited << 2 | phase
    state: AtomicU64,
    commit_ts: AtomicU64,
    /// The next slot of the free list + 1, or 0.
    next_free: AtomicU32,
}

/// Outcome of [`TransactionTable::commit`] and [`TransactionTable::abort`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finish {
    /// Finished now, no transaction waits.
    Quiet,
    /// Finished now; waiters must be woken.
    Waited,
    /// It had finished before; nothing changed.
    Already,
}

/// All slots of a database.
pub(crate) struct TransactionTable {
    blocks: Box<[OnceLock<Box<[Slot]>>]>,
    /// Tag << 32 | the newest free slot + 1, or 0 in the lower half.
    free: FreeHead,
    /// Slots from here on have never been used.
    fresh: AtomicU32,
    limit: u32,
}

/// Alone on its cache line: every begin and every release changes it.
#[repr(align(128))]
struct FreeHead(AtomicU64);

impl TransactionTable {
    /// At most `limit` (up to [`SLOTS`]) slots.
    pub fn new(limit: usize) -> Self {
        Self {
            blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(),
            free: FreeHead(AtomicU64::new(0)),
            fresh: AtomicU32::new(0),
            limit: limit.min(SLOTS) as u32,
        }
    }

    /// Claims a slot in a new generation; 53200 if all are taken.
    pub fn begin(&self) -> Result<StartWord> {
        let index = match self.pop_free() {
            Some(index) => index,
            None => self.take_fresh()?,
        };
        let slot = self.slot(index as usize);
        // The pop (acquire) ordered this after the last change by the previous owner.
        let generation = (slot.state.load(Ordering::Relaxed) >> GENERATION_SHIFT) + 1;
        let generation = generation & StartWord::GENERATION_MASK;
        slot.state.store(
            (generation << GENERATION_SHIFT) | IN_PROGRESS,
            Ordering::Release,
        );
        Ok(StartWord::transaction(index, generation))
    }

    /// Resolves a word. Lock-free, wait-free.
    pub fn status(&self, word: StartWord) -> TxnStatus {
        let slot = self.slot(word.slot());
        let state = slot.state.load(Ordering::Acquire);
        if state >> GENERATION_SHIFT != word.generation() {
            return TxnStatus::Stale;
        }
        match state & PHASE_MASK {
            IN_PROGRESS => TxnStatus::InProgress,
            ABORTED => TxnStatus::Aborted,
            phase => {
                let ts = CommitTs(slot.commit_ts.load(Ordering::Acquire));
                let now = slot.state.load(Ordering::Acquire);
                if now >> GENERATION_SHIFT != state >> GENERATION_SHIFT {
                    TxnStatus::Stale
                } else if phase == PRE_COMMITTED {
                    TxnStatus::PreCommitted(ts)
                } else {
                    TxnStatus::Committed(ts)
                }
            }
        }
    }

    /// Whether somebody waits for the unfinished transaction.
    pub fn is_waited(&self, word: StartWord) -> bool {
        self.slot(word.slot()).state.load(Ordering::Acquire) & WAITED != 0
    }

    /// As [`TransactionTable::is_waited`], ordered with [`TransactionTable::mark_waited`]: of the
    /// two calls the later one sees everything that came before the earlier one.
    pub fn is_waited_ordered(&self, word: StartWord) -> bool {
        let slot = self.slot(word.slot());
        slot.state.fetch_or(0, Ordering::AcqRel) & WAITED != 0
    }

    /// Marks a transaction in progress pre-committed: if it commits, then at `ts`.
    pub fn pre_commit(&self, word: StartWord, ts: CommitTs) {
        let slot = self.slot(word.slot());
        slot.commit_ts.store(ts.0, Ordering::Release);
        Self::change(slot, word, |state| {
            (state & PHASE_MASK == IN_PROGRESS).then_some(state | PRE_COMMITTED)
        });
    }

    /// Marks an unfinished transaction committed at `ts`.
    pub fn commit(&self, word: StartWord, ts: CommitTs) -> Finish {
        let slot = self.slot(word.slot());
        slot.commit_ts.store(ts.0, Ordering::Release);
        Self::finish(slot, word, COMMITTED)
    }

    /// Marks an unfinished transaction aborted.
    pub fn abort(&self, word: StartWord) -> Finish {
        Self::finish(self.slot(word.slot()), word, ABORTED)
    }

    fn finish(slot: &Slot, word: StartWord, phase: u64) -> Finish {
        let before = Self::change(slot, word, |state| {
            is_unfinished(state).then_some((state & !PHASE_MASK) | phase)
        });
        match before {
            Some(state) if state & WAITED != 0 => Finish::Waited,
            Some(_) => Finish::Quiet,
            None => Finish::Already,
        }
    }

    /// Asks for [`Finish::Waited`] when the transaction finishes; false if it already has.
    pub fn mark_waited(&self, word: StartWord) -> bool {
        Self::change(self.slot(word.slot()), word, |state| {
            is_unfinished(state).then_some(state | WAITED)
        })
        .is_some()
    }

    /// Changes the state of the transaction of `word` as `next` decides, and returns the state
    /// before; None if `next` declines, or the slot has moved on.
    fn change(slot: &Slot, word: StartWord, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let is_same = |state: u64| state >> GENERATION_SHIFT == word.generation();
        let mut state = word.generation() << GENERATION_SHIFT;
        loop {
            let new = next(state)?;
            match slot
                .state
                .compare_exchange(state, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(state),
                Err(now) if is_same(now) => state = now,
                Err(_) => return None,
            }
        }
    }

    /// Gives the slot of a finished transaction back; its word is in no record any more.
    pub fn release(&self, word: StartWord) {
        let index = word.slot() as u32;
        let slot = self.slot(word.slot());
        let mut head = self.free.0.load(Ordering::Relaxed);
        loop {
            slot.next_free.store(head as u32, Ordering::Relaxed);
            let new = next_tag(head) | u64::from(index + 1);
            match self
                .free
                .0
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop_free(&self) -> Option<u32> {
        let mut head = self.free.0.load(Ordering::Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            let next = self.slot(index as usize).next_free.load(Ordering::Relaxed);
            let new = next_tag(head) | u64::from(next);
            match self
                .free
                .0
                .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    fn take_fresh(&self) -> Result<u32> {
        let claimed = self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < self.limit).then_some(next + 1)
            });
        let index = claimed.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                SqlState::OUT_OF_MEMORY,
                format!(
                    "no transaction slot is free: {} transactions are running",
                    self.limit
                ),
            )
            .with_hint("Commit or roll back other transactions, then try again.")
        })?;
        self.blocks[index as usize / BLOCK_SLOTS].get_or_init(|| {
            (0..BLOCK_SLOTS)
                .map(|_| Slot {
                    state: AtomicU64::new(0),
                    commit_ts: AtomicU64::new(0),
                    next_free: AtomicU32::new(0),
                })
                .collect()
        });
        Ok(index)
    }

    fn slot(&self, index: usize) -> &Slot {
        let block = self.blocks.get(index / BLOCK_SLOTS).and_then(OnceLock::get);
        &block.expect("transaction words come from begin, which allocates the block")
            [index % BLOCK_SLOTS]
    }
}

fn is_unfinished(state: u64) -> bool {
    matches!(state & PHASE_MASK, IN_PROGRESS | PRE_COMMITTED)
}

/// The tag of the next head, in place.
fn next_tag(head: u64) -> u64 {
    (head & !u64::from(u32::MAX)).wrapping_add(1 << 32)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn generations_of_a_slot_come_again() {
        let table = TransactionTable::new(1);
        let first = table.begin().expect("the slot");
        table.abort(first);
        table.release(first);
        // As if all generations but two had been used.
        let late = StartWord::GENERATION_MASK - 2;
        let state = late << GENERATION_SHIFT | COMMITTED;
        table.slot(0).state.store(state, Ordering::Relaxed);
        let mut words = vec![StartWord::transaction(0, late)];
        for _ in 0..5 {
            let word = table.begin().expect("free again");
            assert_eq!(table.status(word), TxnStatus::InProgress);
            assert!(word.is_txn() && word != StartWord::ABORTED);
            for before in &words {
                assert_eq!(table.status(*before), TxnStatus::Stale);
            }
            assert_eq!(table.commit(word, CommitTs(7)), Finish::Quiet);
            assert_eq!(table.status(word), TxnStatus::Committed(CommitTs(7)));
            table.release(word);
            words.push(word);
        }
        let generations: Vec<u64> = words.iter().map(|word| word.generation()).collect();
        assert_eq!(generations, [late, late + 1, late + 2, 0, 1, 2]);
    }
}
