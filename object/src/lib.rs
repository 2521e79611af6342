//! The capacity tier in an object store: [`ObjectDevice`] is a `Device` whose files are objects.
//!
//! A file is created, written from begin to end, and synced. Its object comes into being as a whole
//! at the sync and never changes. Chunk files and history are written so
//! ([`Device::is_written_once`](strandline_device::Device::is_written_once)); log, manifest, runs
//! that are not merged and page files stay in the database's directory.
//!
//! Invariants:
//! 1. An object is never overwritten. Small ones are created by a conditional put. Large ones are
//!    uploaded in parts, and are looked up before the upload is completed.
//! 2. A sync that returns Ok has stored the object with the bytes that were written. If the outcome
//!    of the last request is not known, the object is read back and compared.
//! 3. A file that was never synced leaves nothing that is listed. Parts of an upload that a crash
//!    has interrupted stay invisible; the store's rule for unfinished uploads removes them.
//! 4. Each operation ends: a request has a timeout, is repeated a bounded number of times, and all
//!    attempts together have a timeout ([`Options`]).
//! 5. Memory is bounded: a file that is written holds one part, all files together hold
//!    [`Options::parts_in_flight`] parts more, and read-ahead holds the windows of `read_ahead`.
//!    Reads that were started ([`File::start_read`](strandline_device::File::start_read)) hold what
//!    their caller asks for, which counts it.
//!
//! Asynchronous code runs on one thread of the device. Callers block until it answers, so the
//! crates above have none. No lock is held while a caller waits for a request, except the lock of
//! the file that is written.
//!
//! Differences from a directory: a removed object cannot be read through a handle that is still
//! open. Files are not renamed. [`Device::lock`](strandline_device::Device::lock) excludes other
//! users of the same device value only: between processes, the lock of the database's directory,
//! the role files of the two tiers and the owner token do (docs/operations.md, "An object store").
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `counters`, `executor`, `options` | numbers of requests; the thread; sizes and times |
//! | `requests` | one operation: attempts, timeouts, errors in the user's words |
//! | `read_ahead`, `upload` | windows of files read in order; the bytes of a file that is written |
//! | `file` | the file |
//! | `device` | the device |
//! | `url` | devices by their URL |

mod counters;
mod device;
mod executor;
mod file;
mod options;
mod read_ahead;
mod requests;
mod upload;
mod url;

pub use device::ObjectDevice;
pub use options::Options;
pub use url::{ObjectUrl, Place};

use object_store::ObjectStore;
use object_store::multipart::MultipartStore;

/// An object store that takes uploads in parts.
pub trait Store: ObjectStore + MultipartStore {}

impl<S: ObjectStore + MultipartStore> Store for S {}

#[cfg(test)]
mod tests;
