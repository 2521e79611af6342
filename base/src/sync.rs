//! Synchronisation primitives of the concurrent protocols. Built with `--cfg shuttle` they are
//! shuttle's behind the same interface, so that the models explore interleavings of the very code
//! that ships. The interface is parking_lot's: `lock()` returns the guard itself, a panicking
//! holder does not poison, condition variables take the guard by `&mut`.
//!
//! Two properties of the models: every atomic operation is sequentially consistent, whatever its
//! `Ordering` says (arguments about weaker orderings belong into the module's header), and
//! [`Condvar::wait_for`] never times out, so that a lost wake-up shows as a deadlock.
//!
//! What the scheduler does not know must not wait for what it knows: no lock or cell of `std` or
//! parking_lot may be held over one of these operations. Hence [`OnceLock`] is here (an initializer
//! may count bytes), and spinning is: [`spin_loop`] and [`yield_now`] let the others go on.

pub use std::sync::Arc;

#[cfg(not(shuttle))]
pub use std::{hint::spin_loop, sync::OnceLock, thread::yield_now};

#[cfg(not(shuttle))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(not(shuttle))]
pub use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(shuttle)]
pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
#[cfg(shuttle)]
pub use shuttle::{hint::spin_loop, thread::yield_now};
#[cfg(shuttle)]
pub use shuttled::{Condvar, Mutex, MutexGuard, OnceLock, RwLock};

/// shuttle's locks behind parking_lot's interface.
#[cfg(shuttle)]
mod shuttled {
    use super::{AtomicBool, Ordering, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    /// A mutual-exclusion lock.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// Access to what a [`Mutex`] protects.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T> {
        held: Option<shuttle::sync::MutexGuard<'a, T>>,
        mutex: &'a Mutex<T>,
    }

    const HELD: &str = "empty only inside Condvar::wait and MutexGuard::unlocked";

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }
        /// Blocks until the lock is free.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard {
                held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
                mutex: self,
            }
        }
        /// The lock if it is free now.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let held = Some(self.0.try_lock().ok()?);
            Some(MutexGuard { held, mutex: self })
        }
        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> MutexGuard<'_, T> {
        /// Calls `work` without the lock.
        pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
            guard.held = None;
            let result = work();
            guard.held = guard.mutex.lock().held;
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.held.as_ref().expect(HELD)
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect(HELD)
        }
    }

    /// A condition variable.
    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// No waiters.
        pub fn new() -> Self {
            Self::default()
        }
        /// Releases the lock until notified.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect(HELD);
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
        /// Releases the lock until notified; never times out.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, t: Duration) -> WaitTimeoutResult {
            let held = guard.held.take().expect(HELD);
            let waited = self.0.wait_timeout(held, t);
            let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
            guard.held = Some(held);
            result
        }
        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
        /// Wakes every waiter.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A lock with many readers or one writer.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }
        /// Blocks until no writer holds the lock.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }
        /// Blocks until nobody holds the lock.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A cell that is written once.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
        setting: shuttle::sync::Mutex<()>,
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T: Clone> Clone for OnceLock<T> {
        fn clone(&self) -> Self {
            let copy = Self::new();
            if let Some(value) = self.get() {
                let _is_new = copy.set(value.clone());
            }
            copy
        }
    }

    impl<T> OnceLock<T> {
        /// An unset cell.
        pub const fn new() -> Self {
            Self {
                value: std::sync::OnceLock::new(),
                is_set: AtomicBool::new(false),
                setting: shuttle::sync::Mutex::new(()),
            }
        }
        /// The value, if it is set.
        pub fn get(&self) -> Option<&T> {
            let is_set = self.is_set.load(Ordering::Acquire);
            is_set.then(|| self.value.get().expect("set before the flag"))
        }
        /// Sets the value; gives it back if there is one already.
        pub fn set(&self, value: T) -> Result<(), T> {
            let mut given = Some(value);
            self.get_or_init(|| given.take().expect("an initializer runs once"));
            given.map_or(Ok(()), Err)
        }
        /// The value, which `init` gives if it is not set; others wait meanwhile.
        pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
            if let Some(value) = self.get() {
                return value;
            }
            let _setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.value.get().is_none() {
                let value = init();
                self.value.get_or_init(|| value);
                self.is_set.store(true, Ordering::Release);
            }
            self.value.get().expect("set above or by another thread")
        }
    }
}
