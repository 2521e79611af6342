//! The objects of one prefix as files.
//!
//! Invariants:
//! 1. `names` has every object of the prefix that this device has listed, looked up or stored, with
//!    its length, and every file that is written. Objects are immutable, so lengths stay true.
//! 2. A file whose sync has not been tried has sent nothing that could become an object: removing
//!    it makes no request. Nor has one whose name another object has, which is not removed.
//!
//! Lock order: `names` is taken last, and never held during a request.

use std::collections::BTreeMap;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use strandline_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, File, Queue, RequestStats, ThreadQueue, Tier, lock_held_error};
use tokio::runtime::{Builder, Runtime};

use crate::counters::Kind;
use crate::executor::Executor;
use crate::file::{Names, ObjectFile, Reader};
use crate::read_ahead::ReadAhead;
use crate::requests::Requests;
use crate::upload::{PartBudget, Uploader};
use crate::{Options, Store};

/// What the device knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// a file that is written, or was given up before its sync, or whose name another object has
    Written,
    /// a file whose sync has begun, and has not succeeded: there may be an object
    Tried,
    /// an object of so many bytes
    Stored(u64),
}

#[derive(Debug, Default)]
struct KnownNames(Mutex<BTreeMap<String, Known>>);

impl Names for KnownNames {
    fn note_attempt(&self, name: &str) -> Result<()> {
        match self.0.lock().get_mut(name) {
            Some(known) => {
                *known = Known::Tried;
                Ok(())
            }
            None => Err(Error::invalid(
                SqlState::UNDEFINED_FILE,
                format!("file \"{name}\" was removed before it was stored"),
            )),
        }
    }

    fn note_refused(&self, name: &str) {
        if let Some(known) = self.0.lock().get_mut(name) {
            *known = Known::Written;
        }
    }

    fn note_stored(&self, name: &str, len: u64) {
        // A name that was removed meanwhile stays removed.
        if let Some(known) = self.0.lock().get_mut(name) {
            *known = Known::Stored(len);
        }
    }
}

/// A directory in an object store, see the crate's header.
#[derive(Debug)]
pub struct ObjectDevice {
    prefix: Path,
    uploader: Uploader,
    reader: Reader,
    names: Arc<KnownNames>,
    is_locked: Arc<AtomicBool>,
}

impl ObjectDevice {
    /// The objects of `store` whose names begin with `prefix` and a slash; with an empty prefix,
    /// those without a slash. `location` names the place in messages, as a URL.
    ///
    /// # Errors
    /// 58030 if the system refuses a thread.
    pub fn new(
        store: Arc<dyn Store>,
        prefix: Path,
        location: impl Into<String>,
        options: Options,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("the runtime of an object store", &e))?;
        Self::on_runtime(store, prefix, location, options, runtime)
    }

    /// [`ObjectDevice::new`] with the runtime on which requests run: a current-thread runtime with
    /// timers. Its clock is that of timeouts and pauses.
    ///
    /// # Errors
    /// Those of [`ObjectDevice::new`].
    pub fn on_runtime(
        store: Arc<dyn Store>,
        prefix: Path,
        location: impl Into<String>,
        options: Options,
        runtime: Runtime,
    ) -> Result<Self> {
        let executor = Arc::new(Executor::start(runtime)?);
        let budget = PartBudget::new(options.parts_in_flight);
        let requests = Arc::new(Requests::new(store, location.into(), options));
        Ok(Self {
            prefix,
            uploader: Uploader {
                executor: executor.clone(),
                requests: requests.clone(),
                budget,
            },
            reader: Reader {
                executor,
                requests,
                ahead: Arc::new(ReadAhead::default()),
            },
            names: Arc::default(),
            is_locked: Arc::default(),
        })
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn requests(&self) -> &Arc<Requests> {
        &self.reader.requests
    }

    /// Forgets a name, as if another process had stored it.
    #[cfg(test)]
    pub(crate) fn names_forget(&self, name: &str) {
        self.names.0.lock().remove(name);
    }

    fn object(&self, name: &str) -> String {
        self.requests().object(&self.path(name))
    }

    fn handle(&self, name: &str, len: u64) -> Arc<dyn File> {
        let names = self.names.clone();
        let (path, reader) = (self.path(name), self.reader.clone());
        Arc::new(ObjectFile::stored(name, path, len, reader, names))
    }
}

impl Device for ObjectDevice {
    /// Refuses a name that this device knows. An object of another process shows at the sync.
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut known = self.names.0.lock();
        if known.contains_key(name) {
            return Err(Error::new(
                ErrorKind::Invalid,
                SqlState::DUPLICATE_FILE,
                format!("{} exists already", self.object(name)),
            ));
        }
        known.insert(name.to_owned(), Known::Written);
        drop(known);
        let names = self.names.clone();
        let (path, reader) = (self.path(name), self.reader.clone());
        let uploader = self.uploader.clone();
        Ok(Arc::new(ObjectFile::created(
            name, path, uploader, reader, names,
        )))
    }

    /// Makes no request for a name that was listed.
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let known = self.names.0.lock().get(name).copied();
        match known {
            Some(Known::Stored(len)) => return Ok(self.handle(name, len)),
            Some(Known::Written | Known::Tried) => {
                return Err(Error::invalid(
                    SqlState::UNDEFINED_FILE,
                    format!("{} is not stored yet", self.object(name)),
                ));
            }
            None => {}
        }
        let (requests, path) = (self.requests().clone(), self.path(name));
        let len = self
            .reader
            .executor
            .run(async move { requests.len(&path).await })?;
        let Some(len) = len else {
            return Err(Error::invalid(
                SqlState::UNDEFINED_FILE,
                format!("{} does not exist", self.object(name)),
            ));
        };
        self.names
            .0
            .lock()
            .insert(name.to_owned(), Known::Stored(len));
        Ok(self.handle(name, len))
    }

    /// A missing object is no error: the request that removed it may have lost its answer.
    fn remove(&self, name: &str) -> Result<()> {
        if self.names.0.lock().get(name) != Some(&Known::Written) {
            let (requests, path) = (self.requests().clone(), self.path(name));
            self.reader.executor.run(async move {
                let delete = || requests.store.delete(&path);
                match requests.run(Kind::Delete, delete).await {
                    Ok(()) => Ok(()),
                    Err(failure) if failure.is_missing() => Ok(()),
                    Err(failure) => Err(requests.error(Kind::Delete, &path, &failure)),
                }
            })?;
        }
        self.names.0.lock().remove(name);
        self.reader.ahead.forget(name);
        Ok(())
    }

    /// 0A000: objects keep their names.
    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Err(Error::unsupported(format!(
            "{} cannot be renamed: objects keep their names",
            self.object(from)
        )))
    }

    /// The objects, and the files that are written. Lengths of objects are known from then on.
    fn list(&self) -> Result<Vec<String>> {
        let (requests, prefix) = (self.requests().clone(), self.prefix.clone());
        let found = self.reader.executor.run(async move {
            let list = || requests.store.list_with_delimiter(Some(&prefix));
            let listed = requests.run(Kind::List, list).await;
            listed.map_err(|failure| requests.error(Kind::List, &prefix, &failure))
        })?;
        let mut known = self.names.0.lock();
        known.retain(|_, known| !matches!(known, Known::Stored(_)));
        for object in found.objects {
            if let Some(name) = object.location.filename() {
                known.insert(name.to_owned(), Known::Stored(object.size));
            }
        }
        Ok(known.keys().cloned().collect())
    }

    /// Names are durable when their objects are.
    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    /// Excludes other users of this device value; see the crate's header.
    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        if self.is_locked.swap(true, Ordering::AcqRel) {
            return Err(lock_held_error(&self.location(), Some(std::process::id())));
        }
        Ok(Box::new(Lock(self.is_locked.clone())))
    }

    fn location(&self) -> String {
        self.requests().location.clone()
    }

    fn queue(&self, _tier: Tier, depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(ThreadQueue::new(depth)?))
    }

    /// Asks the store.
    fn is_stored(&self, name: &str) -> Result<bool> {
        let (requests, path) = (self.requests().clone(), self.path(name));
        let len = async move { requests.len(&path).await };
        Ok(self.reader.executor.run(len)?.is_some())
    }

    fn is_written_once(&self, _tier: Tier) -> bool {
        true
    }

    fn request_stats(&self) -> Vec<RequestStats> {
        self.requests().counters.stats()
    }
}

struct Lock(Arc<AtomicBool>);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
