//! Where bytes live: a [`Device`] is one flat directory of files; everything above it reads and
//! writes through these two traits, so that a simulated device can tear, drop, fail and crash.
//!
//! Two devices are real: [`OsDevice`] (a directory of the operating system) and [`MemoryDevice`]
//! (a database that lives and dies with its process). [`TieredDevice`] makes one device of two
//! directories. This crate is the only place in the engine that calls `std::fs`.
//!
//! What durability means here, for every implementation:
//!
//! 1. Bytes written are durable once a [`File::sync`] of the same file that began after the write
//!    has returned; until then any part of them may be on the device or not.
//! 2. A name created, removed or renamed is durable once [`Device::sync_directory`] has returned.
//!    Syncing a file does not make its name durable, nor the other way round.
//! 3. After a failed sync nothing may be assumed about the writes before it, not even if a later
//!    sync succeeds, in this process or in the next one that reads them back: only what is written
//!    again and then synced is durable. The same holds for names and [`Device::sync_directory`],
//!    where [`FailStopDevice`] sees to it.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `queue` | requests to files, submission and completion apart |
//! | `tiered` | two directories as one device |
//! | `forward` | the macro for devices that wrap another one |
//! | `process`, `fail_stop`, `memory`, `os` | memory of the process; the devices |
//! | `emulated` | devices with the delays of a hard disk or with bounded bandwidth |
//! | `staged` | directories that come into being at once |

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};

mod emulated;
mod fail_stop;
mod forward;
mod memory;
mod os;
mod process;
mod queue;
mod staged;
mod tiered;

pub use emulated::{DelayClock, EmulatedHdd, HddModel, Limits, Load, Throttled, real_delays};
pub use fail_stop::FailStopDevice;
pub use memory::MemoryDevice;
pub use os::OsDevice;
pub use process::resident_bytes;
#[cfg(target_os = "linux")]
pub use queue::UringQueue;
pub use queue::{
    Completion, CountedQueue, DEPTH_MAX, InlineQueue, Queue, QueueStats, Request, ThreadQueue,
};
pub use staged::{StagedDirectory, resolved};
pub use tiered::{CapacityChoice, RemovalGuard, Tier, TieredDevice};

/// The file that carries the writer's lock of a directory.
pub const LOCK_FILE: &str = "lock";

/// The operator's file in a database's directory; the database itself never reads it.
pub const CONFIGURATION_FILE: &str = "strandline.toml";

/// The file of a directory that is one of a database's two: which one, and of which database.
pub const ROLE_FILE: &str = "tier";

/// [`ROLE_FILE`] while it is written.
pub const ROLE_FILE_STAGED: &str = "tier.tmp";

/// The file beside the superblock that says which owner token of an object store is this
/// directory's.
pub const OWNER_FILE: &str = "owner";

/// [`OWNER_FILE`] while it is written.
pub const OWNER_FILE_STAGED: &str = "owner.tmp";

/// The operator's file in a database's directory: its next opening takes the capacity tier over.
pub const TAKEOVER_FILE: &str = "takeover.signal";

/// The names of owner tokens in an object store begin so; a number follows.
pub const OWNER_TOKEN_PREFIX: &str = "owner-";

/// The files that each directory of a database has of its own, beside owner tokens.
const OWN_FILES: [&str; 6] = [
    LOCK_FILE,
    ROLE_FILE,
    ROLE_FILE_STAGED,
    OWNER_FILE,
    OWNER_FILE_STAGED,
    TAKEOVER_FILE,
];

/// Whether each directory of a database has a file `name` of its own.
pub fn is_own_file(name: &str) -> bool {
    OWN_FILES.contains(&name) || name.starts_with(OWNER_TOKEN_PREFIX)
}

/// A flat set of files: one directory, or two ([`TieredDevice`]). Names are plain file names
/// without separators.
pub trait Device: Send + Sync + Debug + 'static {
    /// Creates `name`, which must not exist. The name itself is durable only after
    /// [`Device::sync_directory`].
    fn create(&self, name: &str) -> Result<Arc<dyn File>>;
    /// [`Device::create`] on one of two tiers. A device of one directory ignores the tier. A device
    /// that wraps another one must forward this method.
    fn create_on(&self, _tier: Tier, name: &str) -> Result<Arc<dyn File>> {
        self.create(name)
    }
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Arc<dyn File>>;
    /// Removes a file. Open handles stay readable until dropped.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing `to` if it exists. Open handles follow the file but keep
    /// reporting the name they were opened by.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, removals and renames durable.
    fn sync_directory(&self) -> Result<()>;
    /// Takes the exclusive writer's lock on the whole directory for as long as the guard lives;
    /// an error (55006) names the holder's process id.
    fn lock(&self) -> Result<Box<dyn Send + Sync>>;
    /// Whether its space ends before the process's memory does.
    fn may_fill_up(&self) -> bool {
        false
    }
    /// Where this device is, for messages: a path or `memory`.
    fn location(&self) -> String;
    /// The number of the directory itself: it stays when the directory is renamed, and a copy has
    /// another one. None: the device cannot tell. A device that wraps another one may forward this
    /// method.
    fn directory_number(&self) -> Option<u64> {
        None
    }
    /// Whether there is a file `name` now, whoever has made or removed it. [`Device::open`] may go
    /// by what the device has seen before.
    ///
    /// # Errors
    /// Those of the device.
    fn is_stored(&self, name: &str) -> Result<bool> {
        Ok(self.list()?.iter().any(|listed| listed == name))
    }
    /// A queue of requests to files of one tier, as deep as `depth` if the device can. Requests to
    /// files of other devices are served, too. A device that wraps another one must forward this
    /// method or make a queue of its own.
    ///
    /// # Errors
    /// Those of [`ThreadQueue::new`].
    fn queue(&self, _tier: Tier, _depth: usize) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(InlineQueue::new()))
    }
    /// Whether files of `tier` are written once: from begin to end, and never after their first
    /// sync, at which they come into being as a whole. Structures that are overwritten in place
    /// stay off this tier. A device that wraps another one must forward this method.
    fn is_written_once(&self, _tier: Tier) -> bool {
        false
    }
    /// Requests over the network so far, by kind; empty for a device that makes none. A device that
    /// wraps another one must forward this method.
    fn request_stats(&self) -> Vec<RequestStats> {
        Vec::new()
    }
    /// The two tiers; None for a device of one directory.
    fn tiers(&self) -> Option<&TieredDevice> {
        None
    }
}

/// Requests of one kind that a device has made over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestStats {
    /// the kind: `get`, `put`, …
    pub kind: &'static str,
    /// requests sent, repeated ones included
    pub requests: u64,
    /// bytes of files, sent or received by requests that have succeeded
    pub bytes: u64,
    /// requests that repeat one that has failed
    pub retries: u64,
    /// requests without an answer in time
    pub timeouts: u64,
    /// operations that have failed in the end
    pub errors: u64,
}

/// Directory and name of a file of `device`, for messages. A missing data file belongs on the
/// capacity tier, where all are made but runs with pending records.
pub fn path_of(device: &dyn Device, name: &str) -> String {
    let directory = match device.tiers() {
        Some(tiers) => {
            let fast = tiers.device_of(Tier::Fast);
            let tier = match fast.is_stored(name) {
                Ok(false) => Tier::Capacity,
                _ => tiers.tier_of(name),
            };
            tiers.device_of(tier).location()
        }
        None => device.location(),
    };
    format!("{directory}/{name}")
}

/// One file. All methods may be called from many threads.
pub trait File: Send + Sync + Debug + 'static {
    /// The file's name on its device, for messages.
    fn name(&self) -> &str;
    /// Fills `buf` from `offset`; reading past the end is a corruption error naming both.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Starts to read `len` bytes from `offset`, without waiting for them. None: the file has no
    /// such reads, or not these bytes, which [`File::read_exact_at`] then says.
    fn start_read(&self, _offset: u64, _len: u64) -> Option<Box<dyn StartedRead>> {
        None
    }
    /// Fills the buffers of several reads, each as [`File::read_exact_at`] does. A device that can
    /// serves them at the same time, so they take about as long as one. After an error the content
    /// of all buffers means nothing. A file that wraps another one may forward this method; without
    /// it the reads go one by one.
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        for read in reads {
            self.read_exact_at(read.buf, read.offset)?;
        }
        Ok(())
    }
    /// Writes all of `buf` at `offset`, growing the file if needed.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Makes all earlier writes of this file durable (fdatasync).
    fn sync(&self) -> Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) the file to `len` bytes. Extending allocates the space, so
    /// that later writes inside it cannot fail for want of room; if there is no room the error is
    /// 53100 and the file keeps its length.
    fn set_len(&self, len: u64) -> Result<()>;
    /// The file of the operating system, if it is one. A file that wraps another one and changes
    /// reads, writes or syncs must not forward this method.
    fn descriptors(&self) -> Option<Descriptors<'_>> {
        None
    }
}

/// Bytes that a device has read, in its own memory.
pub type ReadBytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// A read that was started. It ends when it is dropped, unless it is done.
pub trait StartedRead: Send + Debug {
    /// Waits for the bytes, as many as were asked for.
    ///
    /// # Errors
    /// Those of [`File::read_exact_at`].
    fn wait(self: Box<Self>) -> Result<ReadBytes>;
}

/// One read of a batch, see [`File::read_batch`].
#[derive(Debug)]
pub struct ReadAt<'a> {
    /// bytes from the start of the file
    pub offset: u64,
    /// filled
    pub buf: &'a mut [u8],
}

/// A file of the operating system, for queues that pass requests to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors<'a> {
    /// reads and writes through the page cache
    pub buffered: BorrowedFd<'a>,
    /// reads past the page cache; None if the file system cannot
    pub direct: Option<BorrowedFd<'a>>,
    /// for messages
    pub path: &'a Path,
}

/// An I/O error at `path`; one for want of permission says so in the user's words.
fn path_error(path: &Path, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::Unavailable,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("no permission to read and write \"{}\"", path.display()),
        )
        .with_hint("Give this user read and write permission on the database directory."),
        io::ErrorKind::ReadOnlyFilesystem => Error::new(
            ErrorKind::Unavailable,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("\"{}\" is on a read-only file system", path.display()),
        )
        .with_hint("Copy the database to, or remount it on, a file system that can be written."),
        _ => Error::io(format!("\"{}\"", path.display()), e),
    }
}

/// The error for the second opener of a directory. `holder` is absent when the holder has not
/// written its process id yet.
pub fn lock_held_error(location: &str, holder: Option<u32>) -> strandline_base::Error {
    let holder = holder.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    );
    strandline_base::Error::new(
        strandline_base::ErrorKind::Unavailable,
        strandline_base::SqlState::OBJECT_IN_USE,
        format!("database directory \"{location}\" is in use by {holder}"),
    )
    .with_hint("One process writes a database at a time: end that process or connect through it.")
}

/// The error for a read that leaves the file: the file is shorter than its content says.
pub fn short_read_error(
    place: impl std::fmt::Display,
    offset: u64,
    wanted: usize,
    len: u64,
) -> strandline_base::Error {
    strandline_base::Error::corrupt(
        format!("{place} at offset {offset}"),
        format!("{wanted} bytes expected, but the file ends at {len}"),
    )
}

#[cfg(test)]
mod tests;
