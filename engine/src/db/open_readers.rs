//! Prepared ranges of readers, which a checkpoint may release.
//!
//! A reader prepares a range once and returns its rows batch by batch. A prepared range holds tail
//! pages, a base that merges have since replaced, or a whole range version, and with it all memory
//! that later merges of the range retire. A reader whose client does not read stays between two
//! batches for an unbounded time. A reader therefore owns its prepared range only while it is at
//! work. After a checkpoint has merged ranges, it releases the prepared ranges of all readers
//! between batches. Such a reader prepares the range again at its position. It gets the same rows,
//! because its registered snapshot keeps all versions that it sees.
//!
//! Lock order: the list of readers, only to copy it; then one reader's lock. The checkpoint only
//! tries this lock: a reader at work keeps its range until the next merge.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;

/// All readers that may hold a prepared range.
#[derive(Default)]
pub(crate) struct OpenReaders(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    next: u64,
    readers: BTreeMap<u64, Weak<dyn Holder>>,
}

trait Holder: Send + Sync {
    /// Releases the prepared range, unless the reader is at work.
    fn let_go(&self);
}

impl<T: Send> Holder for Mutex<Option<T>> {
    fn let_go(&self) {
        let held = self.try_lock().and_then(|mut held| held.take());
        drop(held); // with nothing locked
    }
}

impl OpenReaders {
    /// Releases the prepared ranges of all readers between two batches.
    pub fn let_go(&self) {
        let readers: Vec<_> = self.0.lock().readers.values().cloned().collect();
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.let_go();
        }
    }

    /// The number of readers that may hold a prepared range.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().readers.len()
    }
}

/// What one reader has prepared; None after a release.
pub(crate) struct Prepared<T: Send + 'static> {
    held: Arc<Mutex<Option<T>>>,
    /// the list with this reader's number in it; None: the reader holds nothing
    registered: Option<(Arc<OpenReaders>, u64)>,
}

impl<T: Send + 'static> Prepared<T> {
    /// The state of a reader that has nothing to read.
    pub fn nothing() -> Self {
        Self {
            held: Arc::default(),
            registered: None,
        }
    }

    /// The state of a reader that is about to read.
    pub fn new(readers: &Arc<OpenReaders>, prepared: T) -> Self {
        let held = Arc::new(Mutex::new(Some(prepared)));
        let holder: Arc<dyn Holder> = held.clone();
        let mut registered = readers.0.lock();
        let id = registered.next;
        registered.next += 1;
        registered.readers.insert(id, Arc::downgrade(&holder));
        drop(registered);
        Self {
            held,
            registered: Some((readers.clone(), id)),
        }
    }

    /// The slot of the prepared range, to be locked while the reader is at work.
    pub fn place(&self) -> Arc<Mutex<Option<T>>> {
        self.held.clone()
    }
}

impl<T: Send + 'static> Drop for Prepared<T> {
    fn drop(&mut self) {
        if let Some((readers, id)) = &self.registered {
            readers.0.lock().readers.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readers_between_batches_let_go() {
        let readers = Arc::new(OpenReaders::default());
        let (idle, busy) = (Arc::new(()), Arc::new(()));
        let between = Prepared::new(&readers, idle.clone());
        let at_work = Prepared::new(&readers, busy.clone());
        let nothing = Prepared::<u8>::nothing();
        assert_eq!(readers.count(), 2);
        let place = at_work.place();
        let working = place.lock();
        readers.let_go();
        assert!(working.is_some() && between.place().lock().is_none());
        assert_eq!((Arc::strong_count(&idle), Arc::strong_count(&busy)), (1, 2));
        drop(working);
        readers.let_go();
        assert_eq!(Arc::strong_count(&busy), 1);
        drop((between, at_work, nothing));
        assert_eq!(readers.count(), 0);
    }
}
