//! Handles of frames.

use super::Pool;
use super::arbiter::Evict;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use strandline_base::Result;
use strandline_base::sync::Mutex;

/// The swizzled reference to one frame of type `T`: it points to the frame while the frame is in
/// memory. An empty handle is cheap.
#[derive(Debug)]
pub struct FrameHandle<T: Send + Sync + std::fmt::Debug + 'static> {
    inner: Arc<HandleInner<T>>,
}

#[derive(Debug)]
struct HandleInner<T> {
    pool: Arc<Pool>,
    frame: ArcSwapOption<T>,
    bytes: AtomicUsize,
    referenced: AtomicBool,
    /// Serializes loading, so that concurrent misses decode once.
    loading: Mutex<()>,
}

/// A clone refers to the same frame.
impl<T: Send + Sync + std::fmt::Debug + 'static> Clone for FrameHandle<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> FrameHandle<T> {
    /// An empty handle.
    pub fn new(pool: &Arc<Pool>) -> Self {
        Self {
            inner: Arc::new(HandleInner {
                pool: pool.clone(),
                frame: ArcSwapOption::empty(),
                bytes: AtomicUsize::new(0),
                referenced: AtomicBool::new(false),
                loading: Mutex::new(()),
            }),
        }
    }

    /// The frame, if it is in memory.
    pub fn get(&self) -> Option<Arc<T>> {
        let frame = self.inner.frame.load_full()?;
        self.touch();
        Some(frame)
    }

    /// Runs `read` on the frame without taking a reference to it.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let guard = self.inner.frame.load();
        let frame = guard.as_ref()?;
        self.touch();
        Some(read(frame))
    }

    /// As [`FrameHandle::with`], but the frame leaves as soon as one that nobody reads: for what
    /// can be made again of other frames.
    pub fn peek<R>(&self, read: impl FnOnce(&T) -> R) -> Option<R> {
        let guard = self.inner.frame.load();
        guard.as_ref().map(|frame| read(frame))
    }

    fn touch(&self) {
        if !self.inner.referenced.load(Ordering::Relaxed) {
            self.inner.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the frame is in memory.
    pub fn is_filled(&self) -> bool {
        self.inner.frame.load().is_some()
    }

    /// The frame, or the result of `load` (the frame and its bytes in memory), which is kept.
    pub fn get_or_load(&self, load: impl FnOnce() -> Result<(T, usize)>) -> Result<Arc<T>> {
        if let Some(frame) = self.get() {
            return Ok(frame);
        }
        let loading = self.inner.loading.lock();
        if let Some(frame) = self.get() {
            return Ok(frame);
        }
        let pool = &self.inner.pool;
        pool.misses.fetch_add(1, Ordering::Relaxed);
        let (frame, bytes) = load()?;
        let frame = Arc::new(frame);
        // A frame as large as the whole pool would only evict all others. While most of the budget
        // is lent there is room for one frame that is read repeatedly.
        let largest = (pool.budget_bytes / 2).min(pool.budget_bytes());
        if bytes <= largest {
            self.inner.bytes.store(bytes, Ordering::Relaxed);
            pool.frame_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Only later reads set the reference bit: a scan of frames that are read once must not
            // evict frames that are read repeatedly.
            self.inner.referenced.store(false, Ordering::Relaxed);
            self.inner.frame.store(Some(frame.clone()));
            pool.filled.fetch_add(1, Ordering::Relaxed);
            let evictable: Arc<dyn Evict> = self.inner.clone();
            pool.enter(&evictable);
        }
        drop(loading);
        pool.shrink();
        Ok(frame)
    }
}

impl<T: Send + Sync + std::fmt::Debug> Evict for HandleInner<T> {
    fn take_reference(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    fn empty(&self) -> bool {
        // A loader holds the lock while it fills the handle; it is skipped then.
        let Some(_loading) = self.loading.try_lock() else {
            return false;
        };
        if self.frame.swap(None).is_some() {
            let bytes = self.bytes.swap(0, Ordering::Relaxed);
            self.pool.frame_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.pool.filled.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

impl<T> Drop for HandleInner<T> {
    fn drop(&mut self) {
        self.pool
            .frame_bytes
            .fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
        if self.frame.load().is_some() {
            self.pool.note_dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its entry stands in the ring while the loader still holds the handle.
    #[test]
    fn a_handle_that_is_being_filled_is_spared_and_leaves_later() {
        let pool = Pool::new(300);
        let handles: [FrameHandle<u8>; 2] = [FrameHandle::new(&pool), FrameHandle::new(&pool)];
        for handle in &handles {
            handle.get_or_load(|| Ok((1, 100))).unwrap();
        }
        let evict = || pool.evict(None, &mut pool.two_rounds(None));
        let filled = || handles.each_ref().map(FrameHandle::is_filled);
        let loading = handles[0].inner.loading.lock();
        assert!(evict());
        assert_eq!(filled(), [true, false]);
        assert!(!evict(), "nothing else is left");
        drop(loading);
        assert!(evict());
        assert_eq!((filled(), pool.used_bytes()), ([false, false], 0));
    }
}
