//! Requests to files with submission and completion apart, and an explicit queue depth: the number
//! of requests that a device serves at the same time.
//!
//! `UringQueue` passes requests to the kernel of Linux. [`ThreadQueue`] has a thread per request in
//! service, for any device. [`InlineQueue`] serves a request when it is submitted, so that a
//! simulation repeats its operations in their order. [`CountedQueue`] counts what passes through
//! another queue.
//!
//! Invariants:
//! 1. Each accepted request has exactly one completion, with its tag, unless the queue is dropped.
//! 2. At most `depth` requests are in service at the same time. Requests in service have no order
//!    among each other: a [`Request::Sync`] covers a write only if the write's completion was taken
//!    before the sync was submitted.
//! 3. The buffers of a request are the queue's until its completion, which gives them back.
//! 4. Dropping a queue waits for the requests in service. It drops the requests that wait.
//!
//! Lock order: `state` is the only lock, and no request is served under it.

mod counted;
mod inline;
#[cfg(target_os = "linux")]
mod ring_queue;
mod thread;
#[cfg(target_os = "linux")]
mod uring;

pub use counted::{CountedQueue, QueueStats};
pub use inline::InlineQueue;
#[cfg(target_os = "linux")]
pub use ring_queue::UringQueue;
pub use thread::{DEPTH_MAX, ThreadQueue};

use crate::File;
use std::fmt::Debug;
use strandline_base::Result;
use strandline_base::sync::Arc;

/// A request to one file.
#[derive(Clone, Debug)]
pub enum Request {
    /// Fills the buffers one after the other from adjacent bytes, as one read of the device (a
    /// `UringQueue` reads pieces of 64 KiB).
    Scatter {
        /// the file
        file: Arc<dyn File>,
        /// of the first byte
        offset: u64,
        /// filled up to their lengths
        buffers: Vec<Vec<u8>>,
    },
    /// Writes the buffers one after the other to adjacent bytes, as one write of the device (a
    /// `UringQueue` writes pieces of 64 KiB).
    Gather {
        /// the file
        file: Arc<dyn File>,
        /// of the first byte
        offset: u64,
        /// left as they are
        buffers: Vec<Vec<u8>>,
    },
    /// Makes the file's earlier writes durable.
    Sync {
        /// the file
        file: Arc<dyn File>,
    },
}

/// A request that has been served.
#[derive(Debug)]
pub struct Completion {
    /// the tag of its submission
    pub tag: u64,
    /// the buffers of the request; after an error of a scatter their content means nothing
    pub buffers: Vec<Vec<u8>>,
    /// the outcome
    pub result: Result<()>,
}

/// A queue of requests. All methods may be called from many threads, which share the completions.
pub trait Queue: Send + Sync + Debug + 'static {
    /// Requests that are served at the same time.
    fn depth(&self) -> usize;
    /// How requests are served, for messages: `io_uring`, `threads` or `inline`.
    fn kind(&self) -> &'static str;
    /// Accepts a batch. Returns without waiting for a device, except in an [`InlineQueue`].
    fn submit(&self, batch: Vec<(u64, Request)>);
    /// Takes completions: at least `min`, or all that are outstanding if there are fewer. Waits for
    /// them. With `min` 0 it takes what is there.
    fn complete(&self, min: usize) -> Vec<Completion>;
    /// Accepted requests whose completions were not taken.
    fn outstanding(&self) -> usize;
    /// Bytes of memory that the queue keeps for transfers, beside the buffers of requests.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// The queue for files of the operating system: of io_uring, or of threads where the kernel does
/// not have or allow it.
///
/// # Errors
/// Those of [`ThreadQueue::new`].
pub(crate) fn os_queue(depth: usize) -> Result<Arc<dyn Queue>> {
    #[cfg(target_os = "linux")]
    let uring = UringQueue::new(depth).map(|queue| -> Arc<dyn Queue> { Arc::new(queue) });
    #[cfg(not(target_os = "linux"))]
    let uring = Err(std::io::ErrorKind::Unsupported.into());
    or_threads(uring, depth)
}

fn or_threads(queue: std::io::Result<Arc<dyn Queue>>, depth: usize) -> Result<Arc<dyn Queue>> {
    match queue {
        Ok(queue) => Ok(queue),
        Err(_) => Ok(Arc::new(ThreadQueue::new(depth)?)),
    }
}

impl Request {
    /// The file.
    fn file(&self) -> &Arc<dyn File> {
        match self {
            Self::Scatter { file, .. } | Self::Gather { file, .. } | Self::Sync { file } => file,
        }
    }

    /// The place of the first byte; 0 for a sync.
    fn offset(&self) -> u64 {
        match self {
            Self::Scatter { offset, .. } | Self::Gather { offset, .. } => *offset,
            Self::Sync { .. } => 0,
        }
    }

    /// Bytes of all buffers.
    fn bytes(&self) -> usize {
        match self {
            Self::Scatter { buffers, .. } | Self::Gather { buffers, .. } => {
                buffers.iter().map(Vec::len).sum()
            }
            Self::Sync { .. } => 0,
        }
    }

    fn into_buffers(self) -> Vec<Vec<u8>> {
        match self {
            Self::Scatter { buffers, .. } | Self::Gather { buffers, .. } => buffers,
            Self::Sync { .. } => Vec::new(),
        }
    }

    /// Serves the request on the calling thread.
    fn serve(self, tag: u64) -> Completion {
        let (buffers, result) = match self {
            Self::Scatter {
                file,
                offset,
                mut buffers,
            } => {
                let result = scatter(&*file, offset, &mut buffers);
                (buffers, result)
            }
            Self::Gather {
                file,
                offset,
                buffers,
            } => {
                let result = match buffers.as_slice() {
                    [one] => file.write_all_at(one, offset),
                    many => file.write_all_at(&many.concat(), offset),
                };
                (buffers, result)
            }
            Self::Sync { file } => (Vec::new(), file.sync()),
        };
        Completion {
            tag,
            buffers,
            result,
        }
    }
}

fn scatter(file: &dyn File, offset: u64, buffers: &mut [Vec<u8>]) -> Result<()> {
    if let [one] = buffers {
        return file.read_exact_at(one, offset);
    }
    let mut whole = vec![0; buffers.iter().map(Vec::len).sum()];
    file.read_exact_at(&mut whole, offset)?;
    let mut rest = whole.as_slice();
    for buffer in buffers {
        let (piece, behind) = rest.split_at(buffer.len());
        buffer.copy_from_slice(piece);
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
