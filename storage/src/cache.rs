//! The memory-bounded cache of decoded frames.
//!
//! A frame lives in a [`Slot`] owned by the structure it belongs to (a chunk, a run, a range's row
//! metadata), so that finding a cached frame costs one atomic load and no lookup. The [`Cache`]
//! knows all filled slots and empties cold ones when their bytes exceed the budget.
//!
//! Invariants:
//! 1. `used` is the sum of the bytes of all filled slots.
//! 2. Emptying a slot never invalidates a frame a reader holds: readers hold an `Arc`.
//! 3. A slot that is dropped gives its bytes back.
//! 4. The ring has one entry per filled slot, and at most as many again (or [`DROPPED_MIN`]) of
//!    slots that were dropped while filled: the drop that makes them more takes them all out.
//!
//! Replacement is second chance (clock): a slot read since the hand last passed is spared once. A
//! new frame enters unread, so that frames read once leave before those that are read again.
//!
//! Lock order: `loading` of a slot → `ring`; nothing is loaded or dropped by a reader under `ring`.
//! A slot may be dropped by `shrink`, under `ring`: a drop only tries to lock it.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::Result;

/// Entries of dropped slots that the ring may hold, however few slots are filled.
const DROPPED_MIN: isize = 64;

/// Of its budget the cache keeps one part in so many, whatever others take of it.
const OWN_PART: usize = 4;

/// The budget shared by all slots of one database.
#[derive(Debug)]
pub struct Cache {
    budget_bytes: usize,
    /// bytes that others hold of the budget
    taken_bytes: Arc<AtomicUsize>,
    /// bytes of the budget that are lent
    lent_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    misses: AtomicU64,
    ring: Mutex<VecDeque<Weak<dyn Evict>>>,
    /// filled slots
    filled: AtomicIsize,
    /// entries of the ring whose slots were dropped; briefly less than there are
    dropped: AtomicIsize,
}

trait Evict: Send + Sync + std::fmt::Debug {
    /// Empties the slot unless it was read since the last call; returns whether it was emptied.
    fn evict_if_cold(&self) -> bool;
}

/// A place for one frame of type `T`. Cheap while empty.
#[derive(Debug)]
pub struct Slot<T: Send + Sync + std::fmt::Debug + 'static> {
    inner: Arc<SlotInner<T>>,
}

#[derive(Debug)]
struct SlotInner<T> {
    cache: Arc<Cache>,
    frame: ArcSwapOption<T>,
    bytes: AtomicUsize,
    referenced: AtomicBool,
    /// Serializes loading, so that concurrent misses decode once.
    loading: Mutex<()>,
}

impl Cache {
    /// A cache that holds at most about `budget_bytes`.
    pub fn new(budget_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            taken_bytes: Arc::default(),
            lent_bytes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            misses: AtomicU64::new(0),
            ring: Mutex::new(VecDeque::new()),
            filled: AtomicIsize::new(0),
            dropped: AtomicIsize::new(0),
        })
    }
    /// Bytes that others hold of the budget, who cannot give them back: there is so much less room.
    /// A quarter of the budget stays the cache's.
    pub fn taken_bytes(&self) -> &Arc<AtomicUsize> {
        &self.taken_bytes
    }
    /// Lends `bytes` of the budget, all in all, to somebody who gives them back: there is so much
    /// less room, and cold frames go at once. A quarter of the budget stays the cache's.
    pub fn lend(&self, bytes: usize) {
        let before = self.lent_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.shrink();
        }
    }
    /// Bytes of all cached frames.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
    /// The bound on [`Cache::used_bytes`] now.
    pub fn budget_bytes(&self) -> usize {
        let own = self.budget_bytes / OWN_PART;
        let taken = self.taken_bytes.load(Ordering::Relaxed);
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        self.budget_bytes.saturating_sub(taken + lent).max(own)
    }
    /// Frames that had to be loaded since the start.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    fn shrink(&self) {
        let budget_bytes = self.budget_bytes();
        if self.used_bytes() <= budget_bytes {
            return;
        }
        let mut ring = self.ring.lock();
        // Two rounds at most: the first takes second chances away, the second evicts.
        let mut turns = ring.len() * 2;
        while self.used_bytes() > budget_bytes && turns > 0 {
            turns -= 1;
            let Some(weak) = ring.pop_front() else { break };
            let Some(slot) = weak.upgrade() else {
                self.dropped.fetch_sub(1, Ordering::Relaxed);
                continue;
            };
            if !slot.evict_if_cold() {
                ring.push_back(weak);
            }
        }
    }

    /// A filled slot was dropped: its entry stays in the ring until there are many of the kind.
    fn note_dropped(&self) {
        let filled = self.filled.fetch_sub(1, Ordering::Relaxed) - 1;
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped > filled.max(DROPPED_MIN)
            // Whoever holds the lock may be this thread; the next drop tries again.
            && let Some(mut ring) = self.ring.try_lock()
        {
            let before = ring.len();
            ring.retain(|slot| slot.strong_count() > 0);
            let removed = (before - ring.len()) as isize;
            self.dropped.fetch_sub(removed, Ordering::Relaxed);
            let room = ring.len() * 2;
            ring.shrink_to(room);
        }
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> Slot<T> {
    /// An empty slot.
    pub fn new(cache: &Arc<Cache>) -> Self {
        Self {
            inner: Arc::new(SlotInner {
                cache: cache.clone(),
                frame: ArcSwapOption::empty(),
                bytes: AtomicUsize::new(0),
                referenced: AtomicBool::new(false),
                loading: Mutex::new(()),
            }),
        }
    }

    /// The cached frame, if there is one.
    pub fn get(&self) -> Option<Arc<T>> {
        let frame = self.inner.frame.load_full()?;
        self.touch();
        Some(frame)
    }

    /// Runs `read` on the cached frame without taking a reference to it.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let guard = self.inner.frame.load();
        let frame = guard.as_ref()?;
        self.touch();
        Some(read(frame))
    }

    fn touch(&self) {
        if !self.inner.referenced.load(Ordering::Relaxed) {
            self.inner.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a frame is cached.
    pub fn is_filled(&self) -> bool {
        self.inner.frame.load().is_some()
    }

    /// The cached frame, or what `load` returns (the frame and its bytes in memory), cached.
    pub fn get_or_load(&self, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        if let Some(frame) = self.get() {
            return Ok(frame);
        }
        let loading = self.inner.loading.lock();
        if let Some(frame) = self.get() {
            return Ok(frame);
        }
        let cache = &self.inner.cache;
        cache.misses.fetch_add(1, Ordering::Relaxed);
        let (frame, bytes) = load()?;
        let frame = Arc::new(frame);
        // A frame as large as the whole cache would only push out everything else. While most of
        // the budget is lent there is place for one that is read again and again.
        let largest = (cache.budget_bytes / 2).min(cache.budget_bytes());
        if bytes <= largest {
            self.inner.bytes.store(bytes, Ordering::Relaxed);
            cache.used_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Only later reads earn a second chance: a scan of frames that are read once must not
            // push out those that are read again and again.
            self.inner.referenced.store(false, Ordering::Relaxed);
            self.inner.frame.store(Some(frame.clone()));
            cache.filled.fetch_add(1, Ordering::Relaxed);
            let evictable: Arc<dyn Evict> = self.inner.clone();
            cache.ring.lock().push_back(Arc::downgrade(&evictable));
        }
        drop(loading);
        cache.shrink();
        Ok(frame)
    }
}

impl<T: Send + Sync + std::fmt::Debug> Evict for SlotInner<T> {
    fn evict_if_cold(&self) -> bool {
        if self.referenced.swap(false, Ordering::Relaxed) {
            return false;
        }
        // A loader holds the lock while it fills the slot: leave it alone then.
        let Some(_loading) = self.loading.try_lock() else {
            return false;
        };
        if self.frame.swap(None).is_some() {
            let bytes = self.bytes.swap(0, Ordering::Relaxed);
            self.cache.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.cache.filled.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

impl<T> Drop for SlotInner<T> {
    fn drop(&mut self) {
        self.cache
            .used_bytes
            .fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
        if self.frame.load().is_some() {
            self.cache.note_dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two frames are read all the time while a scan loads ten times the budget, once each.
    #[test]
    fn stays_within_budget_and_spares_what_is_read() {
        let cache = Cache::new(1000);
        let slots: Vec<Slot<u32>> = (0..100).map(|_| Slot::new(&cache)).collect();
        for (i, slot) in slots.iter().enumerate() {
            let got = slot.get_or_load(|| Ok((i as u32, 100))).expect("load");
            assert_eq!(*got, i as u32);
            assert!(cache.used_bytes() <= 1000, "used {}", cache.used_bytes());
            assert!(slot.is_filled(), "the newest frame was evicted");
            for read in &slots[..2.min(i + 1)] {
                assert!(read.get().is_some(), "evicted at {i} although read");
            }
        }
        assert!(!slots[2].is_filled(), "a cold frame stayed");
        assert_eq!(cache.used_bytes(), 1000);
        assert_eq!(cache.misses(), 100);
        drop(slots);
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn a_frame_read_once_more_is_spared_once() {
        let cache = Cache::new(300);
        let slots: Vec<Slot<u32>> = (0..7).map(|_| Slot::new(&cache)).collect();
        let load = |at: usize| slots[at].get_or_load(|| Ok((0, 100))).map(drop);
        let filled = || -> Vec<usize> { (0..7).filter(|&i| slots[i].is_filled()).collect() };
        (0..3).for_each(|at| load(at).expect("load"));
        slots[0].get();
        load(3).expect("load");
        assert_eq!(filled(), [0, 2, 3]);
        (4..6).for_each(|at| load(at).expect("load"));
        assert_eq!(filled(), [0, 4, 5], "its turn has not come");
        load(6).expect("load");
        assert_eq!(filled(), [4, 5, 6], "not read again");
    }

    #[test]
    fn a_frame_larger_than_half_the_budget_is_not_kept() {
        let cache = Cache::new(100);
        let slot = Slot::new(&cache);
        assert_eq!(*slot.get_or_load(|| Ok((7u8, 51))).expect("load"), 7);
        assert!(!slot.is_filled());
        assert_eq!(cache.used_bytes(), 0);
    }

    /// Merges replace chunks, and with them slots, all the time, also where the cache is never
    /// full.
    #[test]
    fn the_ring_forgets_slots_that_are_dropped() {
        let cache = Cache::new(1 << 20);
        let kept: Vec<Slot<u8>> = (0..100).map(|_| Slot::new(&cache)).collect();
        let load = |slot: &Slot<u8>| slot.get_or_load(|| Ok((1, 1))).map(drop).expect("load");
        kept.iter().for_each(load);
        let entries = || cache.ring.lock().len();
        for round in 0..10_000 {
            load(&Slot::new(&cache));
            let entries = entries();
            assert!((100..=201).contains(&entries), "{entries} after {round}");
        }
        assert!(kept.iter().all(Slot::is_filled));
        // The last drops free what is left, with nothing loaded any more.
        drop(kept);
        assert!(entries() <= DROPPED_MIN as usize, "{}", entries());
        assert_eq!(cache.filled.load(Ordering::Relaxed), 0);
        assert_eq!(cache.dropped.load(Ordering::Relaxed), entries() as isize);
    }

    /// Slots that the hand finds dropped are counted once, whoever takes their entries out.
    #[test]
    fn the_hand_takes_dropped_slots_out() {
        let cache = Cache::new(100);
        for _ in 0..50 {
            let slot: Slot<u8> = Slot::new(&cache);
            slot.get_or_load(|| Ok((1, 1))).expect("load");
        }
        let slots: Vec<Slot<u8>> = (0..200).map(|_| Slot::new(&cache)).collect();
        for slot in &slots {
            slot.get_or_load(|| Ok((1, 1))).expect("load");
        }
        assert_eq!(cache.ring.lock().len(), 100);
        assert_eq!(cache.filled.load(Ordering::Relaxed), 100);
        assert_eq!(cache.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn others_take_of_the_budget() {
        let cache = Cache::new(1000);
        let slots: Vec<Slot<u8>> = (0..10).map(|_| Slot::new(&cache)).collect();
        let load = |slot: &Slot<u8>| slot.get_or_load(|| Ok((1, 100))).map(drop).expect("load");
        slots.iter().for_each(load);
        assert_eq!(cache.used_bytes(), 1000);
        for (bytes, left) in [(400, 600), (5000, 200), (0, 300)] {
            cache.taken_bytes().store(bytes, Ordering::Relaxed);
            load(&slots[0]);
            load(&Slot::new(&cache));
            assert!(
                cache.used_bytes() <= left,
                "{} of {left}",
                cache.used_bytes()
            );
        }
    }

    #[test]
    fn what_is_lent_is_given_at_once_and_comes_back() {
        let cache = Cache::new(1000);
        let slots: Vec<Slot<u8>> = (0..10).map(|_| Slot::new(&cache)).collect();
        let load = |slot: &Slot<u8>| slot.get_or_load(|| Ok((1, 100))).map(drop).expect("load");
        slots.iter().for_each(load);
        cache.lend(400);
        assert_eq!((cache.used_bytes(), cache.budget_bytes()), (600, 600));
        // Beside key indexes, and no more than the cache can do without.
        cache.taken_bytes().store(200, Ordering::Relaxed);
        cache.lend(500);
        assert_eq!((cache.used_bytes(), cache.budget_bytes()), (300, 300));
        cache.lend(5000);
        assert_eq!((cache.used_bytes(), cache.budget_bytes()), (200, 250));
        cache.lend(0);
        cache.taken_bytes().store(0, Ordering::Relaxed);
        slots.iter().for_each(load);
        assert_eq!(cache.used_bytes(), 1000);
    }

    #[test]
    fn a_failed_load_leaves_the_slot_empty() {
        let cache = Cache::new(100);
        let slot: Slot<u8> = Slot::new(&cache);
        assert!(
            slot.get_or_load(|| Err(strandline_base::Error::internal("x")))
                .is_err()
        );
        assert_eq!(*slot.get_or_load(|| Ok((1, 1))).expect("load"), 1);
    }
}
