//! A file that is an object, or becomes one at its sync.
//!
//! States: *written* (an [`Upload`]) → *stored* (its length is known, and nothing changes any more)
//! or *lost* (a request has failed: every later use returns its error).
//!
//! Lock order: `writing` is held while the file's own requests run. Reads of a stored file do not
//! take it.

use std::sync::OnceLock;

use bytes::Bytes;
use object_store::path::Path;
use strandline_base::sync::{Arc, Mutex};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{File, ReadAt, ReadBytes, StartedRead, short_read_error};

use crate::executor::{Executor, Pending};
use crate::read_ahead::{ReadAhead, WINDOW_BYTES_MIN};
use crate::requests::Requests;
use crate::upload::{Upload, Uploader};

/// Bytes of one request of a long read; several are under way at the same time.
const PIECE_BYTES: u64 = 4 << 20;
/// Pieces of one read that are requested at the same time.
const PIECES: usize = 4;

/// What files tell their device.
pub(crate) trait Names: Send + Sync + std::fmt::Debug {
    /// The file `name` is about to become an object.
    ///
    /// # Errors
    /// 58P01 if it has been removed.
    fn note_attempt(&self, name: &str) -> Result<()>;
    /// The file `name` has become an object of `len` bytes.
    fn note_stored(&self, name: &str, len: u64);
    /// The file `name` has become no object, because there is another one of the name.
    fn note_refused(&self, name: &str);
}

/// What a file needs to read.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub executor: Arc<Executor>,
    pub requests: Arc<Requests>,
    pub ahead: Arc<ReadAhead>,
}

#[derive(Debug)]
enum Writing {
    /// bytes so far, and the length that was asked for in advance
    Open { upload: Upload, len: u64 },
    /// the file is an object
    Stored,
    /// a request has failed with this error
    Lost(Error),
}

/// A file of an object store.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    name: Arc<str>,
    path: Path,
    reader: Reader,
    names: Arc<dyn Names>,
    /// the length of a stored file
    stored: OnceLock<u64>,
    writing: Mutex<Writing>,
}

impl ObjectFile {
    /// A file that is written from now on.
    pub fn created(
        name: &str,
        path: Path,
        uploader: Uploader,
        reader: Reader,
        names: Arc<dyn Names>,
    ) -> Self {
        let upload = Upload::new(uploader, path.clone());
        Self {
            name: name.into(),
            path,
            reader,
            names,
            stored: OnceLock::new(),
            writing: Mutex::new(Writing::Open { upload, len: 0 }),
        }
    }

    /// The file of an object of `len` bytes.
    pub fn stored(name: &str, path: Path, len: u64, reader: Reader, names: Arc<dyn Names>) -> Self {
        Self {
            name: name.into(),
            path,
            reader,
            names,
            stored: OnceLock::from(len),
            writing: Mutex::new(Writing::Stored),
        }
    }

    /// Changes a file that is not stored yet; an error loses the file.
    fn change(&self, change: impl FnOnce(&mut Upload, &mut u64) -> Result<()>) -> Result<()> {
        let mut writing = self.writing.lock();
        let changed = match &mut *writing {
            Writing::Open { upload, len } => change(upload, len),
            Writing::Stored => return Err(self.refused("it is stored")),
            Writing::Lost(error) => return Err(error.clone()),
        };
        if let Err(error) = &changed {
            *writing = Writing::Lost(error.clone());
        }
        changed
    }

    /// The length of a stored file; waits for a sync that is under way.
    fn stored_len(&self) -> Result<u64> {
        if let Some(len) = self.stored.get() {
            return Ok(*len);
        }
        match &*self.writing.lock() {
            Writing::Open { .. } => Err(self.refused("it is read before its first sync")),
            Writing::Stored => Ok(self.stored.get().copied().unwrap_or_default()),
            Writing::Lost(error) => Err(error.clone()),
        }
    }

    fn object(&self) -> String {
        self.reader.requests.object(&self.path)
    }

    /// The error for a use that files of an object store do not have.
    fn refused(&self, why: &str) -> Error {
        Error::new(
            ErrorKind::Internal,
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("{} cannot be used so: {why}", self.object()),
        )
        .with_hint("Objects are written once, from begin to end. This is a bug in Strandline.")
    }

    /// Requests one piece of a read.
    fn request(&self, (start, len): (u64, u64)) -> Pending<Result<Bytes>> {
        let (requests, path) = (self.reader.requests.clone(), self.path.clone());
        let read = async move { requests.read(&path, start, len).await };
        self.reader.executor.spawn(read)
    }

    /// The end of a read; an error if it is beyond the file, which has `len` bytes.
    fn end_of_read(&self, offset: u64, bytes: usize, len: u64) -> Result<u64> {
        let end = offset.checked_add(bytes as u64).filter(|&end| end <= len);
        end.ok_or_else(|| short_read_error(self.object(), offset, bytes, len))
    }

    /// The bytes of `range`, in pieces that are requested at the same time.
    fn fetch(&self, start: u64, end: u64) -> Result<Vec<Bytes>> {
        let pieces: Vec<(u64, u64)> = pieces(start, end).collect();
        self.fetch_pieces(&pieces)
    }

    /// Pieces, by offset and length, of which [`PIECES`] are requested at the same time.
    fn fetch_pieces(&self, pieces: &[(u64, u64)]) -> Result<Vec<Bytes>> {
        let mut fetched = Vec::with_capacity(pieces.len());
        for group in pieces.chunks(PIECES) {
            let pending: Vec<_> = group.iter().map(|piece| self.request(*piece)).collect();
            for piece in pending {
                fetched.push(piece.wait()??);
            }
        }
        Ok(fetched)
    }
}

/// Offsets and lengths of the requests for the bytes from `start` to `end`.
fn pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (start..end).step_by(PIECE_BYTES as usize);
    starts.map(move |at| (at, PIECE_BYTES.min(end - at)))
}

/// A read whose pieces are all requested. Dropped, it ends the requests that are under way.
#[derive(Debug)]
struct RequestedPieces(Vec<Pending<Result<Bytes>>>);

impl StartedRead for RequestedPieces {
    fn wait(mut self: Box<Self>) -> Result<ReadBytes> {
        let (mut fetched, mut len) = (Vec::with_capacity(self.0.len()), 0);
        for piece in &self.0 {
            let bytes = piece.wait()??;
            len += bytes.len();
            fetched.push(bytes);
        }
        self.0.clear();
        if let [whole] = &*fetched {
            return Ok(Box::new(whole.clone()));
        }
        let mut bytes = Vec::with_capacity(len);
        fetched
            .iter()
            .for_each(|piece| bytes.extend_from_slice(piece));
        Ok(Box::new(bytes))
    }
}

impl Drop for RequestedPieces {
    fn drop(&mut self) {
        self.0.iter().for_each(Pending::cancel);
    }
}

impl File for ObjectFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = self.stored_len()?;
        let end = self.end_of_read(offset, buf.len(), len)?;
        if buf.is_empty() {
            return Ok(());
        }
        let Some(range) = self.reader.ahead.read(&self.name, len, buf, offset) else {
            return Ok(());
        };
        let pieces = self.fetch(range.start, range.end)?;
        let mut rest = &mut *buf;
        for piece in &pieces {
            let n = piece.len().min(rest.len());
            rest[..n].copy_from_slice(&piece[..n]);
            rest = &mut rest[n..];
        }
        if range.end > end
            && let [window] = &*pieces
        {
            self.reader
                .ahead
                .keep(&self.name, range.start, window.clone());
        }
        Ok(())
    }

    /// Requests all pieces at once, past the windows of files that are read in order.
    fn start_read(&self, offset: u64, len: u64) -> Option<Box<dyn StartedRead>> {
        let end = offset.checked_add(len)?;
        if len == 0 || end > *self.stored.get()? {
            return None;
        }
        let requested = pieces(offset, end).map(|piece| self.request(piece));
        Some(Box::new(RequestedPieces(requested.collect())))
    }

    /// Several reads begin no window, except at the begin of the file: they are of single rows.
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        if let [one] = reads {
            return self.read_exact_at(one.buf, one.offset);
        }
        let len = self.stored_len()?;
        let mut missing = Vec::with_capacity(reads.len());
        for read in reads {
            self.end_of_read(read.offset, read.buf.len(), len)?;
            let is_single = read.offset < WINDOW_BYTES_MIN || read.buf.len() as u64 > PIECE_BYTES;
            if is_single {
                self.read_exact_at(read.buf, read.offset)?;
            } else if !read.buf.is_empty()
                && !self
                    .reader
                    .ahead
                    .read_kept(&self.name, read.buf, read.offset)
            {
                missing.push(read);
            }
        }
        let pieces = missing
            .iter()
            .map(|read| (read.offset, read.buf.len() as u64));
        let pieces: Vec<(u64, u64)> = pieces.collect();
        for (read, piece) in missing.into_iter().zip(self.fetch_pieces(&pieces)?) {
            read.buf.copy_from_slice(&piece);
        }
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        self.change(|upload, len| {
            if offset < upload.len() {
                return Err(self.refused("bytes are written twice"));
            }
            upload.extend_to(offset)?;
            upload.append(buf)?;
            *len = upload.len().max(*len);
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        let mut writing = self.writing.lock();
        let open = std::mem::replace(&mut *writing, Writing::Stored);
        let (mut upload, len) = match open {
            Writing::Open { upload, len } => (upload, len),
            Writing::Stored => return Ok(()),
            Writing::Lost(error) => {
                *writing = Writing::Lost(error.clone());
                return Err(error);
            }
        };
        let stored = self.names.note_attempt(&self.name);
        let stored = stored.and_then(|()| upload.extend_to(len));
        if let Err(error) = stored.and_then(|()| upload.finish()) {
            if error.sqlstate() == SqlState::DUPLICATE_FILE {
                self.names.note_refused(&self.name);
            }
            *writing = Writing::Lost(error.clone());
            return Err(error);
        }
        self.names.note_stored(&self.name, len);
        // Set once: the state leaves `Open` under the lock.
        let _ = self.stored.set(len);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        if self.stored.get().is_none()
            && let Writing::Open { len, .. } = &*self.writing.lock()
        {
            return Ok(*len);
        }
        self.stored_len()
    }

    /// Extends the file; the bytes are zeros unless they are written before the sync.
    fn set_len(&self, len: u64) -> Result<()> {
        if self.stored.get() == Some(&len) {
            return Ok(());
        }
        self.change(|upload, current| {
            if len < upload.len() {
                return Err(self.refused("it is cut"));
            }
            *current = len;
            Ok(())
        })
    }
}
