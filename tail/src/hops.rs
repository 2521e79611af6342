//! Counts the tail records that walks along chains look up, on the calling thread, so that a test
//! can bound them \[L-Store §2.2: at most two hops\]. Without debug assertions nothing is counted.

/// Counts one record.
#[inline]
pub(crate) fn note() {
    #[cfg(debug_assertions)]
    counter::add();
}

/// Records looked up by this thread since it began; None where they are not counted.
pub fn count() -> Option<u64> {
    #[cfg(debug_assertions)]
    return Some(counter::get());
    #[cfg(not(debug_assertions))]
    None
}

#[cfg(debug_assertions)]
mod counter {
    use std::cell::Cell;

    thread_local! {
        static HOPS: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn add() {
        HOPS.with(|hops| hops.set(hops.get() + 1));
    }

    pub(super) fn get() -> u64 {
        HOPS.with(Cell::get)
    }
}
