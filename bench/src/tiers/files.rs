//! What the groups do with files beside the databases: forget their page cache, copy directories,
//! count what processes read.

use crate::Result;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;

/// Empties the page cache of all files below `path`, after their bytes are on the device.
pub fn forget(path: &Path) -> Result<()> {
    if !path.is_dir() {
        let file = File::open(path)?;
        file.sync_all()?;
        return Ok(fadvise(&file, 0, None, Advice::DontNeed)?);
    }
    for entry in fs::read_dir(path)? {
        forget(&entry?.path())?;
    }
    Ok(())
}

/// Copies a directory with all that is below it; `to` must not exist.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::copy(from, to)?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Input and output of a process since its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// bytes that came from devices, which the page cache did not have
    pub read_bytes: u64,
    /// calls of the system that read
    pub reads: u64,
    /// bytes on their way to devices
    pub written_bytes: u64,
}

impl ProcessIo {
    /// The counts of the process with this number, or of `self`.
    pub fn of(process: &str) -> Result<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/io"))?;
        Self::parse(&text).ok_or_else(|| format!("/proc/{process}/io has other lines").into())
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        Some(Self {
            read_bytes: field("read_bytes")?,
            reads: field("syscr")?,
            written_bytes: field("write_bytes")?,
        })
    }

    /// What has been counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes - before.read_bytes,
            reads: self.reads - before.reads,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_process() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
                    cancelled_write_bytes: 7\n";
        let io = ProcessIo::parse(text).unwrap();
        assert_eq!((io.read_bytes, io.reads, io.written_bytes), (5, 3, 6));
        let before = ProcessIo { reads: 1, ..io };
        let since = io.since(before);
        assert_eq!((since.read_bytes, since.reads), (0, 2));
        assert_eq!(ProcessIo::parse("rchar: 1\n"), None);
    }

    #[test]
    fn a_copy_has_all_files() {
        let directory = tempfile::tempdir().unwrap();
        let from = directory.path().join("from");
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/a"), "bytes").unwrap();
        let to = directory.path().join("x/to");
        copy(&from, &to).unwrap();
        forget(&to).unwrap();
        assert_eq!(fs::read(to.join("below/a")).unwrap(), b"bytes");
    }
}
