//! The directory of the demo's database, and the size of its files.

use crate::session::{Error, Result, SqlState};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files whose names start with this are the log.
const LOG_PREFIX: &str = "wal-";

/// The directory of the database.
pub enum Place {
    Given(PathBuf),
    /// Removed at the end of the demo.
    Temporary(tempfile::TempDir),
}

impl Place {
    /// The directory `path`, or a temporary one. An error if `path` is not empty.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            let directory = tempfile::Builder::new()
                .prefix("strandline-demo-")
                .tempdir();
            let directory = directory.map_err(|e| Error::io("temporary directory", &e))?;
            return Ok(Self::Temporary(directory));
        };
        let empty = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(Error::io(path.display(), &error)),
        };
        if !empty {
            let message = format!("{} is not empty", path.display());
            return Err(Error::invalid(SqlState::OBJECT_IN_USE, message)
                .with_hint("The demo makes a database of its own: give it a new directory."));
        }
        Ok(Self::Given(path.to_path_buf()))
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

/// Bytes of a database's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// chunks, runs, manifest
    pub data: u64,
    /// the log's segments, which are allocated in advance
    pub log: u64,
}

impl OnDisk {
    /// Measures the files in `path`.
    pub fn measure(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path.display(), &error);
        let mut on_disk = Self::default();
        for entry in fs::read_dir(path).map_err(io)? {
            let entry = entry.map_err(io)?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // A checkpoint has removed the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io(error)),
            };
            if metadata.is_file() {
                let is_log = entry.file_name().to_string_lossy().starts_with(LOG_PREFIX);
                *(if is_log {
                    &mut on_disk.log
                } else {
                    &mut on_disk.data
                }) += metadata.len();
            }
        }
        Ok(on_disk)
    }
}

impl fmt::Display for OnDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (and {} of log)",
            megabytes(self.data),
            megabytes(self.log)
        )
    }
}

/// The size as `12.3 MB`, with 10^6 bytes per MB.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_counted_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("chunks-1"), [0; 10]).expect("written");
        fs::write(directory.path().join("wal-1"), [0; 20]).expect("written");
        fs::create_dir(directory.path().join("spill")).expect("created");
        let on_disk = OnDisk::measure(directory.path()).expect("readable");
        assert_eq!(on_disk, OnDisk { data: 10, log: 20 });
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(Place::new(Some(directory.path())).is_ok());
        fs::write(directory.path().join("letter"), "dear").expect("written");
        assert!(Place::new(Some(directory.path())).is_err());
    }
}
