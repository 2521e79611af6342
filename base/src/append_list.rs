//! A list that only grows and is read without a lock or a counted reference: segments of doubling
//! size that never move.
//!
//! Invariant: the first `len` elements are set, and no others.

use crate::sync::{AtomicUsize, Mutex, OnceLock, Ordering};
use std::fmt;

/// Elements of the first segment.
const FIRST: usize = 32;
/// Enough for as many elements as a `u32` counts.
const SEGMENTS: usize = 28;

type Segment<T> = Box<[OnceLock<T>]>;

/// See the module's documentation.
pub struct AppendList<T> {
    segments: [OnceLock<Segment<T>>; SEGMENTS],
    len: AtomicUsize,
    growing: Mutex<()>,
}

impl<T> Default for AppendList<T> {
    fn default() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            len: AtomicUsize::new(0),
            growing: Mutex::new(()),
        }
    }
}

impl<T> AppendList<T> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The element at `at`, if there are so many.
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        let (segment, offset) = place(at);
        self.segments.get(segment)?.get()?.get(offset)?.get()
    }
    /// The elements that are there now, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
    /// Adds an element behind the others and tells its place.
    ///
    /// # Panics
    /// If there are more than a `u32` counts.
    pub fn push(&self, element: T) -> usize {
        let _growing = self.growing.lock();
        let at = self.len();
        let (segment, offset) = place(at);
        let segment = self.segments[segment]
            .get_or_init(|| (0..FIRST << segment).map(|_| OnceLock::new()).collect());
        let mut element = Some(element);
        segment[offset].get_or_init(|| element.take().expect("the place behind the last is free"));
        self.len.store(at + 1, Ordering::Release);
        at
    }
}

impl<T: fmt::Debug> fmt::Debug for AppendList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The segment of an element and the place in it.
#[inline]
fn place(at: usize) -> (usize, usize) {
    let segment = ((at / FIRST) + 1).ilog2() as usize;
    (segment, at - FIRST * ((1 << segment) - 1))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_their_places() {
        let list = AppendList::default();
        assert_eq!(list.get(0), None);
        for n in 0..1_000 {
            assert_eq!(list.push(n), n);
            assert_eq!((list.get(n), list.get(n + 1)), (Some(&n), None));
        }
        assert_eq!(list.len(), 1_000);
        assert!(list.iter().copied().eq(0..1_000));
        assert_eq!(list.get(usize::MAX), None);
    }

    #[test]
    fn readers_see_whole_elements_while_others_are_added() {
        let list = AppendList::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while list.len() < 2_000 {
                        let len = list.len();
                        assert!(list.iter().count() >= len);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..1_000 {
                        list.push(vec![n; 3]);
                    }
                });
            }
        });
        assert!(list.iter().all(|element| element.len() == 3));
    }
}
