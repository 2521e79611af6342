//! The simulated object store: objects in memory, and faults of requests to come.
//!
//! Every call of the store is one request, numbered from 1. A test runs its workload once to learn
//! [`SimStore::requests`], then again with a fault at each number. Time is tokio's: on a runtime
//! whose clock is paused, delays and timeouts pass at once.
//!
//! Fault rules:
//! 1. An object is stored as a whole, and durable, or not at all. Parts of an upload that was not
//!    completed are not listed, and survive a crash.
//! 2. A request with a fault is carried out before its answer is lost, or not at all
//!    ([`StoreFault`]).
//! 3. At a crash ([`SimStore::crash_at`]) the request in flight is carried out or not, all later
//!    ones are not, and the disk of the same machine crashes too.
//!
//! Lock order: `state` is not held while a request waits; it is held while the disk crashes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::pending;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::disk::SimDisk;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// it fails, and is not carried out
    Refuse,
    /// it is carried out, and fails
    LoseAnswer,
    /// it is not carried out, and has no answer
    Hang,
    /// it is carried out, and has no answer
    HangAfter,
}

#[derive(Debug, Default)]
struct State {
    /// what was requested, in order
    log: Vec<String>,
    faults: BTreeMap<u64, StoreFault>,
    is_unreachable: bool,
    latency: Duration,
    crash: Option<Crash>,
    has_crashed: bool,
    uploads: BTreeMap<String, BTreeMap<usize, Bytes>>,
    uploads_begun: u64,
    parts: InFlight,
    gets: InFlight,
    /// reads of objects whose names begin so wait until so many are in flight at the same time
    gathered_gets: Option<(String, usize)>,
}

/// Requests of one kind that are served at the same time.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    now: usize,
    most: usize,
}

/// Selects the requests of one kind.
type Selected = fn(&mut State) -> &mut InFlight;

/// A request in flight, until it is dropped.
struct Entered<'a> {
    store: &'a SimStore,
    selected: Selected,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        (self.selected)(&mut self.store.state.lock()).now -= 1;
    }
}

#[derive(Debug)]
struct Crash {
    at: u64,
    is_carried_out: bool,
    disk: SimDisk,
}

/// A store that fails on demand, reproducibly. Clones share the objects.
#[derive(Clone, Debug)]
pub struct SimStore {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
    /// told when gathered reads may go on
    gathered: Arc<Notify>,
}

impl Default for SimStore {
    fn default() -> Self {
        Self::new()
    }
}

impl SimStore {
    /// An empty store.
    pub fn new() -> Self {
        Self {
            objects: Arc::default(),
            state: Arc::default(),
            gathered: Arc::default(),
        }
    }

    /// A runtime for the device over a store: its clock does not wait.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn runtime() -> std::io::Result<Runtime> {
        Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.state.lock().log.len() as u64
    }

    /// The requests since request number `from`, counted from 0: `<kind> <object>`.
    pub fn log(&self, from: u64) -> Vec<String> {
        self.state.lock().log[from as usize..].to_vec()
    }

    /// Request number `request` gets this fault.
    pub fn fault_at(&self, request: u64, fault: StoreFault) {
        self.state.lock().faults.insert(request, fault);
    }

    /// From now on all requests fail, and are not carried out; or they succeed again.
    pub fn set_unreachable(&self, is_unreachable: bool) {
        self.state.lock().is_unreachable = is_unreachable;
    }

    /// Each request takes so long.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// The machine, to which `disk` belongs, crashes at this request.
    pub fn crash_at(&self, request: u64, is_carried_out: bool, disk: &SimDisk) {
        let disk = disk.clone();
        self.state.lock().crash = Some(Crash {
            at: request,
            is_carried_out,
            disk,
        });
    }

    /// Whether the crash has happened.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().has_crashed
    }

    /// The store as the next process finds it: the same objects and unfinished uploads, no faults.
    pub fn after_crash(&self) -> Self {
        let state = self.state.lock();
        let kept = State {
            uploads: state.uploads.clone(),
            uploads_begun: state.uploads_begun,
            ..State::default()
        };
        Self {
            objects: Arc::new(self.objects.fork()),
            state: Arc::new(Mutex::new(kept)),
            gathered: Arc::default(),
        }
    }

    /// Uploads that are neither completed nor aborted.
    pub fn unfinished_uploads(&self) -> usize {
        self.state.lock().uploads.len()
    }

    /// The most requests for parts that were served at the same time.
    pub fn parts_in_flight_max(&self) -> usize {
        self.state.lock().parts.most
    }

    /// Reads of objects that are being served.
    pub fn gets_in_flight(&self) -> usize {
        self.state.lock().gets.now
    }

    /// The most reads of objects that were served at the same time.
    pub fn gets_in_flight_max(&self) -> usize {
        self.state.lock().gets.most
    }

    /// Reads of objects whose names begin with `kind` wait until `number` reads are in flight; then
    /// all go on, and later ones do not wait. On a runtime whose clock is paused they would time
    /// out.
    pub fn gather_gets(&self, kind: &str, number: usize) {
        self.state.lock().gathered_gets = Some((kind.to_owned(), number));
    }

    /// Counts a request as in flight.
    fn enter(&self, selected: Selected) -> Entered<'_> {
        let mut state = self.state.lock();
        let in_flight = selected(&mut state);
        in_flight.now += 1;
        in_flight.most = in_flight.most.max(in_flight.now);
        drop(state);
        Entered {
            store: self,
            selected,
        }
    }

    /// Waits until as many reads are in flight as [`SimStore::gather_gets`] asks for.
    async fn gather(&self, path: &Path) {
        let gathered = self.gathered.notified();
        let must_wait = {
            let mut state = self.state.lock();
            let now = state.gets.now;
            state.gathered_gets.take_if(|(_, number)| now >= *number);
            let name = path.filename().unwrap_or_default();
            let gathered = state.gathered_gets.as_ref();
            gathered.is_some_and(|(kind, _)| name.starts_with(kind))
        };
        match must_wait {
            true => gathered.await,
            false => self.gathered.notify_waiters(),
        }
    }

    /// The objects beside requests: to look, and to damage them.
    pub fn objects(&self) -> &InMemory {
        &self.objects
    }

    /// Numbers a request; its fault, if it gets one.
    fn count(&self, kind: &str, path: &Path) -> Option<StoreFault> {
        let mut state = self.state.lock();
        let name = path.filename().unwrap_or_default();
        state.log.push(format!("{kind} {name}"));
        let number = state.log.len() as u64;
        if state.has_crashed || state.is_unreachable {
            return Some(StoreFault::Refuse);
        }
        if let Some(crash) = &state.crash
            && crash.at == number
        {
            crash.disk.crash();
            let is_carried_out = crash.is_carried_out;
            state.has_crashed = true;
            return Some(match is_carried_out {
                true => StoreFault::LoseAnswer,
                false => StoreFault::Refuse,
            });
        }
        state.faults.remove(&number)
    }

    async fn request<T>(
        &self,
        kind: &str,
        path: &Path,
        serve: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let fault = self.count(kind, path);
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match fault {
            None => serve.await,
            Some(StoreFault::Refuse) => Err(injected("the store is unreachable")),
            Some(StoreFault::LoseAnswer) => {
                serve.await?;
                Err(injected("the answer is lost"))
            }
            Some(StoreFault::Hang) => pending().await,
            Some(StoreFault::HangAfter) => {
                serve.await?;
                pending().await
            }
        }
    }

    /// Changes the parts of an upload.
    fn upload<T>(
        &self,
        id: &MultipartId,
        change: impl FnOnce(&mut BTreeMap<usize, Bytes>) -> T,
    ) -> Result<T> {
        let mut state = self.state.lock();
        let parts = state.uploads.get_mut(id);
        parts.map(change).ok_or_else(|| Error::NotFound {
            path: id.clone(),
            source: "no such upload".into(),
        })
    }
}

fn injected(what: &str) -> Error {
    Error::Generic {
        store: "SimStore",
        source: format!("sim: {what}").into(),
    }
}

fn unsupported(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: "SimStore".to_owned(),
    }
}

impl fmt::Display for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStore")
    }
}

#[async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(
        &self,
        path: &Path,
        put: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let serve = self.objects.put_opts(path, put, options);
        self.request("put", path, serve).await
    }

    async fn put_multipart_opts(
        &self,
        _path: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("put_multipart_opts"))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let kind = match (options.head, &options.range) {
            (true, _) => "head".to_owned(),
            (false, Some(GetRange::Bounded(Range { start, end }))) => format!("get {start}..{end}"),
            (false, _) => "get".to_owned(),
        };
        let _entered = self.enter(|state| &mut state.gets);
        self.gather(path).await;
        let serve = self.objects.get_opts(path, options);
        self.request(&kind, path, serve).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |path: Result<Path>| {
            let store = store.clone();
            async move {
                let path = path?;
                let serve = store.objects.delete(&path);
                store.request("delete", &path, serve).await?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let serve = self.objects.list_with_delimiter(prefix);
        self.request("list", &Path::default(), serve).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("copy_opts"))
    }
}

#[async_trait]
impl MultipartStore for SimStore {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let serve = async {
            let mut state = self.state.lock();
            state.uploads_begun += 1;
            let id = format!("upload-{}", state.uploads_begun);
            state.uploads.insert(id.clone(), BTreeMap::new());
            Ok(id)
        };
        self.request("begin", path, serve).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        index: usize,
        part: PutPayload,
    ) -> Result<PartId> {
        let serve = async {
            self.upload(id, |parts| parts.insert(index, part.into()))?;
            let content_id = index.to_string();
            Ok(PartId { content_id })
        };
        let _entered = self.enter(|state| &mut state.parts);
        self.request(&format!("part {index}"), path, serve).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let serve = async {
            let stored = self.upload(id, |parts| parts.clone())?;
            let indexes = stored.keys().map(ToString::to_string);
            assert!(
                indexes.eq(parts.iter().map(|part| part.content_id.clone())),
                "an upload is completed with other parts than it has"
            );
            let whole: Vec<u8> = stored.into_values().flatten().collect();
            let result = self.objects.put(path, whole.into()).await?;
            self.state.lock().uploads.remove(id);
            Ok(result)
        };
        self.request("complete", path, serve).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let serve = async {
            self.state.lock().uploads.remove(id);
            Ok(())
        };
        self.request("abort", path, serve).await
    }
}
