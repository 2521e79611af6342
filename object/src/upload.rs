//! The bytes of a file that is written: buffered up to one part, then uploaded part by part.
//!
//! Invariants:
//! 1. `sent` bytes have left the buffer; the buffer has the bytes after them and at most one part.
//! 2. Every part but the last has [`Options::part_bytes`](crate::Options) bytes, as stores demand.
//! 3. An upload in parts that is not completed is aborted, at the latest when it is dropped.

use std::collections::VecDeque;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, PutMode, PutOptions, PutPayload};
use strandline_base::sync::{Arc, Condvar, Mutex};
use strandline_base::{Checksum, Error, Result, SqlState};

use crate::counters::{Kind, add};
use crate::executor::{Executor, Pending};
use crate::requests::{Content, Requests};

/// Bounds the parts in flight of all files of a device.
#[derive(Debug)]
pub(crate) struct PartBudget {
    free: Mutex<usize>,
    freed: Condvar,
}

impl PartBudget {
    pub fn new(parts: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new(parts.max(1)),
            freed: Condvar::new(),
        })
    }

    /// Waits until a part may be in flight. Parts end by themselves, so the wait does.
    fn take(self: &Arc<Self>) -> PartPermit {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        *free -= 1;
        PartPermit(self.clone())
    }
}

/// The right to have one part in flight.
struct PartPermit(Arc<PartBudget>);

impl Drop for PartPermit {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

/// What an upload needs of its device.
#[derive(Debug, Clone)]
pub(crate) struct Uploader {
    pub executor: Arc<Executor>,
    pub requests: Arc<Requests>,
    pub budget: Arc<PartBudget>,
}

/// A file that is written from begin to end.
#[derive(Debug)]
pub(crate) struct Upload {
    uploader: Uploader,
    path: Path,
    buffer: Vec<u8>,
    sent: u64,
    checksum: Checksum,
    /// None until the buffer has been full
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    id: MultipartId,
    in_flight: VecDeque<Pending<Result<PartId>>>,
    done: Vec<PartId>,
}

impl Upload {
    /// An empty file.
    pub fn new(uploader: Uploader, path: Path) -> Self {
        Self {
            uploader,
            path,
            buffer: Vec::new(),
            sent: 0,
            checksum: Checksum::of_identity(&[]),
            parts: None,
        }
    }

    /// Bytes written.
    pub fn len(&self) -> u64 {
        self.sent + self.buffer.len() as u64
    }

    /// Appends bytes; waits while too many parts are in flight.
    ///
    /// # Errors
    /// Those of the store; the file is lost then.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        let part_bytes = self.part_bytes();
        while !bytes.is_empty() {
            // A full buffer is sent once more bytes come: the last part is never empty.
            if self.buffer.len() == part_bytes {
                self.send_part()?;
            }
            let n = bytes.len().min(part_bytes - self.buffer.len());
            let (now, later) = bytes.split_at(n);
            self.checksum.update(now);
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Appends zeros up to a length of `len` bytes.
    ///
    /// # Errors
    /// Those of [`Upload::append`].
    pub fn extend_to(&mut self, len: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.len() < len {
            let n = (len - self.len()).min(ZEROS.len() as u64);
            self.append(&ZEROS[..n as usize])?;
        }
        Ok(())
    }

    fn part_bytes(&self) -> usize {
        self.uploader.requests.options.part_bytes.max(1)
    }

    /// Starts the upload of the buffer as the next part.
    fn send_part(&mut self) -> Result<()> {
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        let bytes = part.len() as u64;
        let id = self.begin()?;
        let Some(parts) = &mut self.parts else {
            return Err(Error::internal("an upload has no parts"));
        };
        // Finished parts leave the queue, so that a failure is seen early.
        while parts.in_flight.len() >= self.uploader.requests.options.parts_in_flight.max(1) {
            parts.take_oldest()?;
        }
        let index = parts.done.len() + parts.in_flight.len();
        let permit = self.uploader.budget.take();
        let (requests, path) = (self.uploader.requests.clone(), self.path.clone());
        let put = async move {
            let put = requests.run(Kind::PutPart, || {
                let payload = PutPayload::from(part.clone());
                requests.store.put_part(&path, &id, index, payload)
            });
            let put = put.await;
            drop(permit);
            if put.is_ok() {
                add(&requests.counters.of(Kind::PutPart).bytes, bytes);
            }
            put.map_err(|failure| requests.error(Kind::PutPart, &path, &failure))
        };
        parts.in_flight.push_back(self.uploader.executor.spawn(put));
        self.sent += bytes;
        Ok(())
    }

    /// The id of the upload in parts, which begins if it has not.
    fn begin(&mut self) -> Result<MultipartId> {
        if let Some(parts) = &self.parts {
            return Ok(parts.id.clone());
        }
        let (requests, path) = (self.uploader.requests.clone(), self.path.clone());
        let id = self.uploader.executor.run(async move {
            let begin = || requests.store.create_multipart(&path);
            let begun = requests.run(Kind::BeginUpload, begin).await;
            begun.map_err(|failure| requests.error(Kind::BeginUpload, &path, &failure))
        })?;
        let parts = Parts {
            id,
            in_flight: VecDeque::new(),
            done: Vec::new(),
        };
        Ok(self.parts.insert(parts).id.clone())
    }

    /// Makes the object of all bytes; it is durable on return.
    ///
    /// # Errors
    /// 58P02 if there is another object of the name; then this file has become none. Those of the
    /// store; whether the object comes into being later is not known then.
    pub fn finish(mut self) -> Result<()> {
        let content = Content {
            len: self.len(),
            checksum: self.checksum.finish(),
        };
        if self.parts.is_none() {
            return self.put(content);
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        let Some(parts) = &mut self.parts else {
            return Err(Error::internal("an upload has no parts"));
        };
        while !parts.in_flight.is_empty() {
            parts.take_oldest()?;
        }
        let (id, done) = (parts.id.clone(), parts.done.clone());
        let (requests, path) = (self.uploader.requests.clone(), self.path.clone());
        self.uploader
            .executor
            .run(async move { complete(&requests, &path, &id, &done, content).await })?;
        self.parts = None;
        Ok(())
    }

    /// Stores the buffer, which is the whole file.
    fn put(&mut self, content: Content) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let (requests, path) = (self.uploader.requests.clone(), self.path.clone());
        self.uploader.executor.run(async move {
            let put = requests.run(Kind::Put, || {
                let payload = PutPayload::from(bytes.clone());
                let create = PutOptions::from(PutMode::Create);
                requests.store.put_opts(&path, payload, create)
            });
            let Err(failure) = put.await else {
                add(&requests.counters.of(Kind::Put).bytes, content.len);
                return Ok(());
            };
            let error = requests.error(Kind::Put, &path, &failure);
            if !failure.is_uncertain {
                return Err(error);
            }
            // An earlier attempt may have stored the object although its answer was lost.
            match requests.has(&path, content).await {
                Ok(true) => Ok(()),
                // 58P02 would say that the object is another's, which is not known.
                Err(unread) if error.sqlstate() == SqlState::DUPLICATE_FILE => Err(unread),
                Ok(false) | Err(_) => Err(error),
            }
        })
    }
}

/// Completes an upload in parts.
async fn complete(
    requests: &Requests,
    path: &Path,
    id: &MultipartId,
    parts: &[PartId],
    content: Content,
) -> Result<()> {
    // Stores complete without a condition.
    if requests.len(path).await?.is_some() {
        return Err(requests.exists(path));
    }
    let completed = requests.run(Kind::CompleteUpload, || {
        requests.store.complete_multipart(path, id, parts.to_vec())
    });
    let Err(failure) = completed.await else {
        return Ok(());
    };
    if failure.is_uncertain && requests.has(path, content).await.unwrap_or(false) {
        return Ok(());
    }
    Err(requests.error(Kind::CompleteUpload, path, &failure))
}

impl Parts {
    /// Waits for the part that has been in flight the longest.
    fn take_oldest(&mut self) -> Result<()> {
        if let Some(oldest) = self.in_flight.pop_front() {
            self.done.push(oldest.wait()??);
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        for part in &parts.in_flight {
            part.cancel();
        }
        let (requests, path) = (self.uploader.requests.clone(), self.path.clone());
        // In the background: nobody waits for it. If it fails, or the device is closed meanwhile,
        // the store's own rule for unfinished uploads removes the parts.
        let abort = async move {
            let abort = || requests.store.abort_multipart(&path, &parts.id);
            let _ = requests.run(Kind::AbortUpload, abort).await;
        };
        drop(self.uploader.executor.spawn(abort));
    }
}
