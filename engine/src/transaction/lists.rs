//! Memory of the lists that a transaction keeps until it ends: its part of the log record, its
//! writes, its index entries with their keys, and its deferred checks. The key checks that a
//! running statement makes at its end count too.
//!
//! All open transactions together may keep [`Settings::list_bytes`](crate::Settings::list_bytes).
//! Above this bound, the transaction that holds the most of the tails is refused at its next write.
//! Once a reserve is used up, every large one is. Small transactions always continue.
//!
//! The counted bytes are those reserved. A list of a large transaction grows by an eighth instead
//! of doubling, so that reserved bytes exceed used bytes by little.

use super::backpressure::RESERVE_PART;
use super::{Transaction, TxnState};
use crate::db::Db;
use crate::db::backpressure::SMALL_BYTES;
use crate::db::memory_account::HeldBytes;
use strandline_base::{Error, ErrorKind, Result, SqlState};

/// Spare capacity of a large list, in items.
const ROOM: usize = 64;

impl TxnState {
    /// Bytes that the lists have reserved.
    fn list_bytes(&self) -> usize {
        fn reserved<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        let rare = self.rare.as_ref();
        let rare = rare.map_or(0, |rare| rare.memory_bytes());
        reserved(&self.redo) + reserved(&self.written) + self.entries.memory_bytes() + rare
    }
}

/// Reserves capacity for at least `more` items, an eighth of the list's length at a time.
fn make_room<T>(list: &mut Vec<T>, more: usize) {
    let more = more + ROOM;
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.capacity() / 8));
    }
}

/// Releases the lists' unused capacity after a rollback to a savepoint.
pub(super) fn shrink_lists(state: &mut TxnState) {
    if state.footprint.lists.is_none() {
        return;
    }
    state.redo.shrink_to_fit();
    state.written.shrink_to_fit();
    state.entries.shrink();
    if let Some(rare) = &mut state.rare {
        rare.shrink();
    }
    let bytes = state.list_bytes();
    if let Some(held) = &mut state.footprint.lists {
        held.set(bytes);
    }
}

impl Db {
    /// Whether the lists of open transactions are within the bound.
    #[inline]
    pub(crate) fn has_room_for_lists(&self) -> bool {
        self.list_memory.used() <= self.settings.list_bytes()
    }
}

impl Transaction {
    /// Counts the lists of a large transaction that is about to log a change of `bytes`.
    #[inline(never)]
    pub(super) fn count_lists(&self, state: &mut TxnState, bytes: usize) {
        make_room(&mut state.redo, bytes);
        make_room(&mut state.written, 0);
        if !state.entries.is_empty() {
            state.entries.make_room(ROOM);
        }
        if let Some(rare) = &mut state.rare
            && rare.moved.len() > 0
        {
            rare.moved.make_room(ROOM);
        }
        self.hold_lists(state);
    }

    /// Counts the bytes that the lists have reserved.
    fn hold_lists(&self, state: &mut TxnState) {
        let bytes = state.list_bytes();
        let held = &mut state.footprint.lists;
        let held = held.get_or_insert_with(|| self.db.list_memory.share());
        if held.bytes() != bytes {
            held.set(bytes);
        }
    }

    /// Counts the deferred checks once they are many, and refuses them like a write.
    pub(super) fn count_checks(&self, state: &mut TxnState) -> Result<()> {
        let checks = state.rare_work().deferred.memory_bytes();
        if checks >= SMALL_BYTES || state.footprint.lists.is_some() {
            self.hold_lists(state);
            self.admit_lists_of(state, 0)?;
        }
        Ok(())
    }

    /// Counts the key checks of a statement, which keep `bytes`, and refuses them like a write.
    pub(crate) fn hold_checks(&self, held: &mut Option<HeldBytes>, bytes: usize) -> Result<()> {
        let held = held.get_or_insert_with(|| self.db.list_memory.share());
        if held.bytes() == bytes {
            return Ok(());
        }
        held.set(bytes);
        match self.db().has_room_for_lists() {
            true => Ok(()),
            false => self.admit_lists_of(&self.state.lock(), bytes),
        }
    }

    /// Refuses a write if the lists exceed the bound and this transaction has to give way.
    pub(super) fn admit_to_lists(&self) -> Result<()> {
        if self.db().has_room_for_lists() {
            return Ok(());
        }
        self.admit_lists_of(&self.state.lock(), 0)
    }

    /// `beside` is the number of bytes that the transaction keeps besides its lists.
    fn admit_lists_of(&self, state: &TxnState, beside: usize) -> Result<()> {
        let db = self.db();
        if db.has_room_for_lists() {
            return Ok(());
        }
        let held = state.footprint.lists.as_ref();
        let own = held.map_or(0, |held| held.bytes()) + beside;
        let changed = state.footprint.bytes;
        let (used, limit) = (db.list_memory.used(), db.settings.list_bytes());
        let others = db.backpressure.others(&state.footprint.shown);
        let gives_way = changed >= others.largest || used > limit + limit / RESERVE_PART;
        match own >= SMALL_BYTES && gives_way {
            true => Err(no_memory(used, limit, own)),
            false => Ok(()),
        }
    }
}

#[cold]
fn no_memory(used: usize, limit: usize, own: usize) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::OUT_OF_MEMORY,
        format!(
            "open transactions keep {used} bytes until they end, 3/8 of memory_bytes are {limit}"
        ),
    )
    .with_detail(format!(
        "This transaction keeps {own} bytes: its log record, the list of its writes, that of its \
         index entries, and the checks of its constraints that are to come."
    ))
    .with_hint("Change fewer rows in one transaction, or raise memory_bytes.")
}
