//! Reclamation by succession: an immutable state is replaced by the next. Memory that only readers
//! of the old state may need is released when the last of them drops it (the paper's epoch-based
//! de-allocation \[L-Store §4.1.1 step 5\], with reference counts as epochs).
//!
//! A state owns a [`Successor`]: the state that replaced it and what to release when this one goes.
//! Because a state holds its successor alive, releases happen in order: as long as some reader has
//! an old state, nothing that any later state retired is released either.
//!
//! Invariant: what state n retires is released after states 0..=n are gone.

use strandline_base::sync::{Arc, Mutex};

/// A state's record of its replacement.
#[derive(Debug)]
pub struct Successor<S: Succeeded>(Mutex<Retired<S>>);

#[derive(Debug)]
struct Retired<S: Succeeded> {
    next: Option<Arc<S>>,
    release: Vec<S::Release>,
}

/// A state that is replaced as a whole.
pub trait Succeeded: Sized + std::fmt::Debug {
    /// Something to release when no reader has this or an earlier state any more.
    type Release: std::fmt::Debug;
    /// The state's own link.
    fn successor(&self) -> &Successor<Self>;
    /// Releases it.
    fn release(released: Self::Release);
}

impl<S: Succeeded> Default for Successor<S> {
    fn default() -> Self {
        Self(Mutex::new(Retired {
            next: None,
            release: Vec::new(),
        }))
    }
}

impl<S: Succeeded> Successor<S> {
    /// Sets the replacement, and the memory to release when the owner is dropped.
    pub fn retire(&self, next: &Arc<S>, release: Vec<S::Release>) {
        let mut retired = self.0.lock();
        retired.next = Some(next.clone());
        retired.release = release;
    }

    fn take(&self) -> (Option<Arc<S>>, Vec<S::Release>) {
        let mut retired = self.0.lock();
        (retired.next.take(), std::mem::take(&mut retired.release))
    }
}

impl<S: Succeeded> Drop for Successor<S> {
    fn drop(&mut self) {
        let (mut next, mut release) = self.take();
        loop {
            release.into_iter().for_each(S::release);
            // A loop instead of recursion: a long reader may leave a long chain of states.
            let Some(state) = next.and_then(Arc::into_inner) else {
                break;
            };
            (next, release) = state.successor().take();
        }
    }
}
