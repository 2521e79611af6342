//! Where the blocks of a level are: a list that grows at its end, in which lookups find a block
//! without a lock.
//!
//! Every lookup passes the lists of several levels. A lock for readers and writers was an eighth of
//! the time of a lookup in memory, since each reader writes to it.
//!
//! Invariants:
//! 1. One caller at a time changes the list, the one that has the compaction's turn.
//! 2. A place is published by the list's length, when all of it is set.
//! 3. A place changes from memory to the device. The last one may also become a longer block in
//!    memory, while the list is open. No place of a closed list changes.
//! 4. A frame is of a place that does not change any more: a frame that has been set stays.
//! 5. A block that is in memory only is in `memory` before its place has no number, and leaves it
//!    when the place has one.
//!
//! Places lie in pieces, of which each has twice as many as the one before, and which do not move.

use super::block::Block;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::sync::{AtomicBool, AtomicU64, OnceLock, Ordering, RwLock};
use strandline_storage::pool::{FrameHandle, Pool};

/// Where a block is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// its number; the handle of its frame, once a lookup has read it
    Stored(u64, Option<FrameHandle<Block>>),
    Memory(Arc<Block>),
}

/// Places of the first piece: a power of two.
const FIRST_PLACES: u64 = 16;
/// Pieces of a list, enough for 2^40 blocks.
const PIECES: usize = 37;
/// The number of a block that is not stored.
const NONE: u64 = u64::MAX;

/// What a list has of a block.
#[derive(Debug)]
struct Slot {
    number: AtomicU64,
    frame: OnceLock<FrameHandle<Block>>,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            number: AtomicU64::new(NONE),
            frame: OnceLock::new(),
        }
    }
}

/// The places of a level's blocks.
#[derive(Debug)]
pub(super) struct Places {
    pieces: [OnceLock<Box<[Slot]>>; PIECES],
    length: AtomicU64,
    /// places may change or be added
    is_open: AtomicBool,
    /// blocks that are not stored
    memory: RwLock<BTreeMap<u64, Arc<Block>>>,
}

/// The piece of a place, the number of places in it, and the place's position there.
fn piece_of(at: u64) -> (usize, u64, u64) {
    let moved = at + FIRST_PLACES;
    let piece = moved.ilog2() - FIRST_PLACES.ilog2();
    let places = FIRST_PLACES << piece;
    (piece as usize, places, moved - places)
}

impl Places {
    /// An open list of stored blocks.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let places = Self {
            pieces: std::array::from_fn(|_| OnceLock::new()),
            length: AtomicU64::new(0),
            is_open: AtomicBool::new(true),
            memory: RwLock::default(),
        };
        for (at, number) in (0..).zip(numbers) {
            places.set(at, Place::Stored(number, None));
        }
        places
    }

    pub fn len(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// From now on no place changes.
    pub fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Places may change again. Nobody looks for them meanwhile.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// A published place.
    fn slot(&self, at: u64) -> Option<&Slot> {
        if at >= self.len() {
            return None;
        }
        let (piece, _, position) = piece_of(at);
        self.pieces.get(piece)?.get()?.get(position as usize)
    }

    pub fn get(&self, at: u64) -> Option<Place> {
        let slot = self.slot(at)?;
        loop {
            match slot.number.load(Ordering::Acquire) {
                NONE => {
                    if let Some(block) = self.memory.read().get(&at) {
                        return Some(Place::Memory(block.clone()));
                    }
                    // It has been stored in between (invariant 5).
                }
                number => return Some(Place::Stored(number, slot.frame.get().cloned())),
            }
        }
    }

    /// The number of a block; None if it is not stored.
    pub fn number(&self, at: u64) -> Option<u64> {
        let number = self.slot(at)?.number.load(Ordering::Acquire);
        Some(number).filter(|number| *number != NONE)
    }

    /// What `look` finds in a block that is in memory; None if it is not. It must not look at
    /// blocks of this list.
    pub fn look<R>(&self, at: u64, look: impl FnOnce(&Block) -> R) -> Option<R> {
        let slot = self.slot(at)?;
        if let Some(frame) = slot.frame.get() {
            return frame.with(look);
        }
        if slot.number.load(Ordering::Acquire) != NONE {
            return None;
        }
        // None: it has been stored in between.
        let memory = self.memory.read();
        memory.get(&at).map(|block| look(block))
    }

    /// The handle of a stored block's frame; None of a place that may change.
    pub fn frame(&self, at: u64, pool: &Arc<Pool>) -> Option<FrameHandle<Block>> {
        // Before the number: a closed list, or one that has grown since, has the last one.
        let may_change = self.is_open.load(Ordering::Acquire) && at + 1 >= self.len();
        let slot = self.slot(at)?;
        if may_change || slot.number.load(Ordering::Acquire) == NONE {
            return None;
        }
        let frame = slot.frame.get_or_init(|| FrameHandle::new(pool));
        Some(frame.clone())
    }

    /// Sets a place, which may be the next one.
    pub fn set(&self, at: u64, place: Place) {
        debug_assert!(self.is_open.load(Ordering::Relaxed), "the list is open");
        debug_assert!(at <= self.len(), "blocks are added in order");
        let (piece, places, position) = piece_of(at);
        let Some(piece) = self.pieces.get(piece) else {
            return;
        };
        let slots = piece.get_or_init(|| (0..places).map(|_| Slot::default()).collect());
        let Some(slot) = slots.get(position as usize) else {
            return;
        };
        match place {
            Place::Memory(block) => {
                debug_assert!(
                    slot.frame.get().is_none(),
                    "a place with a frame does not change"
                );
                self.memory.write().insert(at, block);
                slot.number.store(NONE, Ordering::Release);
            }
            Place::Stored(number, frame) => {
                if let Some(frame) = frame {
                    slot.frame.get_or_init(|| frame);
                }
                slot.number.store(number, Ordering::Release);
                self.memory.write().remove(&at);
            }
        }
        self.length.fetch_max(at + 1, Ordering::AcqRel);
    }

    /// Bytes of the list, without blocks.
    pub fn memory_bytes(&self) -> usize {
        let slots = self.pieces.iter().filter_map(|piece| piece.get());
        slots.map(|slots| size_of_val(&**slots)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_tree::block::{Kind, Limits, OpenBlock};

    fn block(entry: &[u8]) -> Arc<Block> {
        let mut open = OpenBlock::new(Limits {
            bytes: 256,
            entries: 4,
        });
        open.push(entry, Kind::Insert);
        Arc::new(open.block())
    }

    #[test]
    fn places_lie_side_by_side_in_pieces() {
        let mut next = (0, FIRST_PLACES, 0);
        for at in 0..10_000 {
            assert_eq!(piece_of(at), next, "{at}");
            let (piece, places, position) = next;
            next = match position + 1 == places {
                true => (piece + 1, places * 2, 0),
                false => (piece, places, position + 1),
            };
        }
        assert!(piece_of((1 << 40) - 1).0 < PIECES);
        let list = Places::of(0..1_000);
        assert_eq!(list.len(), 1_000);
        assert!((0..1_000).all(|at| list.number(at) == Some(at)));
        assert!(list.get(1_000).is_none() && list.number(1_000).is_none());
    }

    /// The last place of an open list goes to the device and back; its frame would be of a block
    /// that changes.
    #[test]
    fn a_place_has_a_frame_when_it_does_not_change_any_more() {
        let (list, pool) = (Places::of([7]), Pool::new(1 << 20));
        let first = |at| list.look(at, |block| block.first_key().unwrap().to_vec());
        assert!(
            list.frame(0, &pool).is_none(),
            "the last one of an open list"
        );
        list.set(0, Place::Memory(block(b"longer")));
        assert_eq!((first(0), list.number(0)), (Some(b"longer".to_vec()), None));
        assert!(matches!(list.get(0), Some(Place::Memory(_))));
        list.set(1, Place::Memory(block(b"next")));
        assert!(list.frame(0, &pool).is_none(), "it is not stored");
        list.set(0, Place::Stored(8, None));
        assert_eq!((first(0), list.number(0)), (None, Some(8)));
        let frame = list.frame(0, &pool).unwrap();
        frame
            .get_or_load(|| Ok((Arc::unwrap_or_clone(block(b"read")), 64)))
            .unwrap();
        assert_eq!(first(0), Some(b"read".to_vec()));
        assert!(matches!(list.get(0), Some(Place::Stored(8, Some(_)))));
        list.set(1, Place::Stored(9, None));
        assert!(list.frame(1, &pool).is_none());
        assert!(list.memory.read().is_empty(), "stored blocks leave memory");
        list.close();
        assert!(list.frame(1, &pool).is_some());
    }
}
