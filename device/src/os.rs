//! The operating system's files: positioned reads and writes, fdatasync, space allocated ahead,
//! and an advisory lock that dies with its process.

use std::fs;
use std::io::{self, Read, Write};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_os = "linux")]
use rustix::fs::Advice;
use rustix::fs::{Access, FallocateFlags, FlockOperation};
use strandline_base::sync::OnceLock;
use strandline_base::{Error, Result, SqlState};

use crate::queue::os_queue;
use crate::{
    Descriptors, Device, File, LOCK_FILE, Queue, ReadAt, Tier, lock_held_error, path_error,
    short_read_error,
};

/// Zeros written at a time where the file system cannot allocate space by itself.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// A directory of the operating system.
#[derive(Debug)]
pub struct OsDevice {
    path: PathBuf,
    is_read_only: bool,
}

impl OsDevice {
    /// Opens the directory `path`, creating it (and its parents, all synced) if it is missing.
    ///
    /// # Errors
    /// 58P01 or 58030 naming the path if it cannot be created, 55000 if it is not a directory or
    /// cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match fs::metadata(path) {
            Ok(found) if !found.is_dir() => {
                return Err(Error::invalid(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("\"{}\" is a file, not a database directory", path.display()),
                )
                .with_hint("A database is a directory: give the path of one, or of a new one."));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => create_directory(path)?,
            Err(e) => return Err(path_error(path, &e)),
        }
        rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|e| path_error(path, &e.into()))?;
        Ok(Self {
            path: path.to_owned(),
            is_read_only: false,
        })
    }

    /// Opens the existing directory `path`, which may be on a medium that cannot be written: its
    /// files are opened for reading, and everything else fails.
    ///
    /// # Errors
    /// 58P01 or 58030 naming the path if it is not there.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        fs::read_dir(path).map_err(|e| path_error(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            is_read_only: true,
        })
    }

    fn check_writable(&self) -> Result<()> {
        if !self.is_read_only {
            return Ok(());
        }
        Err(path_error(
            &self.path,
            &io::ErrorKind::ReadOnlyFilesystem.into(),
        ))
    }

    fn full(&self, name: &str) -> PathBuf {
        debug_assert!(
            !name.is_empty() && name != "." && name != ".." && !name.contains('/'),
            "a file name has no separators"
        );
        self.path.join(name)
    }

    fn handle(&self, name: &str, file: fs::File) -> Arc<dyn File> {
        Arc::new(OsFile {
            file,
            direct: OnceLock::new(),
            name: name.to_owned(),
            path: self.full(name),
        })
    }

    fn error(&self, name: &str, e: &io::Error) -> Error {
        path_error(&self.full(name), e)
    }
}

/// Creates `path` with its missing parents and makes every new name durable.
fn create_directory(path: &Path) -> Result<()> {
    let mut parents_to_sync = Vec::new();
    for ancestor in path.ancestors() {
        if ancestor.as_os_str().is_empty() || ancestor.exists() {
            break;
        }
        let parent = match ancestor.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        parents_to_sync.push(parent);
    }
    fs::create_dir_all(path)
        .map_err(|e| path_error(path, &e).context("cannot create the database directory"))?;
    for parent in parents_to_sync.iter().rev() {
        let synced = fs::File::open(parent).and_then(|d| d.sync_all());
        if let Err(e) = synced {
            // Its name may be lost and still be seen: the next attempt must make it anew.
            let _ = fs::remove_dir(path);
            return Err(path_error(parent, &e));
        }
    }
    Ok(())
}

impl Device for OsDevice {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.check_writable()?;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.full(name))
            .map_err(|e| self.error(name, &e))?;
        Ok(self.handle(name, file))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(!self.is_read_only)
            .open(self.full(name))
            .map_err(|e| self.error(name, &e))?;
        Ok(self.handle(name, file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        fs::remove_file(self.full(name)).map_err(|e| self.error(name, &e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_writable()?;
        fs::rename(self.full(from), self.full(to)).map_err(|e| self.error(from, &e))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| path_error(&self.path, &e))? {
            let entry = entry.map_err(|e| path_error(&self.path, &e))?;
            let kind = entry
                .file_type()
                .map_err(|e| path_error(&entry.path(), &e))?;
            if !kind.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self) -> Result<()> {
        fs::File::open(&self.path)
            .and_then(|d| d.sync_all())
            .map_err(|e| path_error(&self.path, &e))
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let opened = fs::OpenOptions::new()
            .read(true)
            .write(!self.is_read_only)
            .create(!self.is_read_only)
            .truncate(false)
            .open(self.full(LOCK_FILE));
        let mut file = match opened {
            // Without the file nobody has ever written here.
            Err(e) if self.is_read_only && e.kind() == io::ErrorKind::NotFound => {
                return Ok(Box::new(()));
            }
            opened => opened.map_err(|e| self.error(LOCK_FILE, &e))?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // A holder that cannot be read is still a holder: the message then has no id.
                let _ = file.take(32).read_to_string(&mut holder);
                return Err(lock_held_error(
                    &self.location(),
                    holder.trim().parse().ok(),
                ));
            }
            Err(e) => return Err(self.error(LOCK_FILE, &e.into())),
        }
        if !self.is_read_only {
            // The id is for messages: on a full disk the lock holds without it.
            let id = format!("{}\n", std::process::id());
            let _ = file.set_len(0).and_then(|()| file.write_all(id.as_bytes()));
        }
        Ok(Box::new(OsLock { file }))
    }

    fn may_fill_up(&self) -> bool {
        true
    }

    fn queue(&self, _tier: Tier, depth: usize) -> Result<Arc<dyn Queue>> {
        os_queue(depth)
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    /// The directory's inode.
    fn directory_number(&self) -> Option<u64> {
        fs::metadata(&self.path).ok().map(|found| found.ino())
    }
}

/// The held lock; the kernel releases it with the last handle, also when the process is killed.
struct OsLock {
    file: fs::File,
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Only the message of a later opener depends on the content, never the lock itself.
        let _ = self.file.set_len(0);
    }
}

#[derive(Debug)]
struct OsFile {
    file: fs::File,
    /// the same file opened past the page cache; None inside where the file system refuses that
    direct: OnceLock<Option<fs::File>>,
    name: String,
    path: PathBuf,
}

impl OsFile {
    fn error(&self, e: &io::Error) -> Error {
        path_error(&self.path, e)
    }

    /// Opens the file once more, past the page cache. It goes by the descriptor, since the file may
    /// have been renamed.
    #[cfg(target_os = "linux")]
    fn open_direct(&self) -> Option<fs::File> {
        use rustix::fs::OFlags;
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn open_direct(&self) -> Option<fs::File> {
        None
    }

    /// Allocates `[from, to)` by writing zeros, where the file system has no other way.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0u8; ZERO_CHUNK_BYTES.min((to - from) as usize)];
        let mut at = from;
        while at < to {
            let n = ((to - at) as usize).min(zeros.len());
            self.file.write_all_at(&zeros[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }

    fn allocate(&self, from: u64, to: u64) -> io::Result<()> {
        use rustix::io::Errno;
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, to - from) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(from, to),
            Err(e) => Err(e.into()),
        }
    }
}

impl File for OsFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| {
            if e.kind() == io::ErrorKind::UnexpectedEof {
                let len = self.file.metadata().map_or(0, |m| m.len());
                short_read_error(
                    format!("\"{}\"", self.path.display()),
                    offset,
                    buf.len(),
                    len,
                )
            } else {
                self.error(&e)
            }
        })
    }

    /// The kernel is told of all reads first, and begins them at once; then each is waited for.
    fn read_batch(&self, reads: &mut [ReadAt<'_>]) -> Result<()> {
        #[cfg(target_os = "linux")]
        if reads.len() > 1 {
            for read in &*reads {
                let len = NonZeroU64::new(read.buf.len() as u64);
                // No more than a hint: where it is refused the reads go one by one.
                let _ = rustix::fs::fadvise(&self.file, read.offset, len, Advice::WillNeed);
            }
        }
        for read in reads {
            self.read_exact_at(read.buf, read.offset)?;
        }
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(buf, offset)
            .map_err(|e| self.error(&e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.error(&e))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| self.error(&e))?.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let old = self.len()?;
        if len <= old {
            return self.file.set_len(len).map_err(|e| self.error(&e));
        }
        self.allocate(old, len).map_err(|e| {
            // Give back what was allocated in part; the first error is the one to report.
            let _ = self.file.set_len(old);
            self.error(&e)
        })
    }

    fn descriptors(&self) -> Option<Descriptors<'_>> {
        let direct = self.direct.get_or_init(|| self.open_direct());
        Some(Descriptors {
            buffered: self.file.as_fd(),
            direct: direct.as_ref().map(AsFd::as_fd),
            path: &self.path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_access_is_explained() {
        let path = Path::new("/data/db");
        let explain = |kind: io::ErrorKind| path_error(path, &kind.into());
        let read_only = explain(io::ErrorKind::ReadOnlyFilesystem);
        assert!(
            read_only
                .message()
                .contains("\"/data/db\" is on a read-only file system")
        );
        let denied = explain(io::ErrorKind::PermissionDenied);
        assert!(
            denied
                .message()
                .contains("no permission to read and write \"/data/db\"")
        );
        assert_eq!(
            explain(io::ErrorKind::StorageFull).sqlstate(),
            SqlState::DISK_FULL
        );
        assert_eq!(
            explain(io::ErrorKind::NotFound).sqlstate(),
            SqlState::UNDEFINED_FILE
        );
    }

    #[test]
    fn space_is_allocated_by_zeros_where_it_cannot_be_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = OsFile {
            file: file.unwrap(),
            direct: OnceLock::new(),
            name: "a".to_owned(),
            path,
        };
        let end = 2 * ZERO_CHUNK_BYTES as u64 + 17;
        file.write_zeros(5, end).unwrap();
        assert_eq!(file.len().unwrap(), end);
    }
}
