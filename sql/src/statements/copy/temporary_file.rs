//! Files that replace their target only when they are complete.
//!
//! Rows go into a temporary file beside the target. It is renamed over the target when its content
//! is durable. So a reader never sees a partial file, and an error leaves the old file unchanged. A
//! symbolic link is kept: its target is replaced. Devices and pipes (`/dev/stdout`) cannot be
//! replaced and are written directly.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{Error, Result, SqlState};

/// A number that makes the names of temporary files unique within a process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary file, which is removed unless it is published.
pub(super) struct TemporaryFile {
    file: File,
    /// its own path; `None` for a device that is written directly, and after publication
    path: Option<PathBuf>,
    target: PathBuf,
}

impl TemporaryFile {
    /// A new file in the directory of `target`, or `target` itself if that is no regular file.
    pub fn beside(target: &Path) -> Result<Self> {
        if target.is_dir() {
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{}\" is a directory", target.display()),
            ));
        }
        if is_special(target) {
            return Ok(Self {
                file: special(target).map_err(|e| not_opened(target, &e))?,
                path: None,
                target: target.to_path_buf(),
            });
        }
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let name = target.file_name().ok_or_else(|| {
            Error::invalid(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("\"{}\" is not the name of a file", target.display()),
            )
        })?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!(
            ".{}.{}-{number}.tmp",
            name.to_string_lossy(),
            std::process::id()
        );
        let path = target.with_file_name(own);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        Ok(Self {
            file: file.map_err(|e| not_opened(&target, &e))?,
            path: Some(path),
            target,
        })
    }

    /// Makes the content durable and renames the file to its target.
    pub fn publish(mut self) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let renamed = self
            .file
            .sync_all()
            .and_then(|()| std::fs::rename(path, &self.target));
        renamed.map_err(|e| {
            let what = format!("could not write file \"{}\"", self.target.display());
            Error::io(what, &e)
        })?;
        self.path = None;
        Ok(())
    }

    /// The path of the target.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // An error of the removal cannot be handled here.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether the target exists and is a device, a pipe or another process's stream.
fn is_special(target: &Path) -> bool {
    let stream = target.starts_with("/dev") || target.starts_with("/proc");
    std::fs::metadata(target).is_ok_and(|found| stream || !found.is_file())
}

/// Opens a special file. Standard output and error share the file position of the process's own
/// streams.
fn special(target: &Path) -> std::io::Result<File> {
    let stream = match target.to_str() {
        Some("/dev/stdout" | "/dev/fd/1") => std::io::stdout().as_fd().try_clone_to_owned(),
        Some("/dev/stderr" | "/dev/fd/2") => std::io::stderr().as_fd().try_clone_to_owned(),
        _ => return OpenOptions::new().append(true).open(target),
    };
    stream.map(File::from)
}

fn not_opened(target: &Path, error: &std::io::Error) -> Error {
    let what = format!("could not open file \"{}\" for writing", target.display());
    Error::io(what, error)
}
