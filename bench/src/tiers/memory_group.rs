//! A control group of Linux that bounds the memory of processes, the page cache of what they read
//! included. Without it a peer's "cold" data would be in the memory of the operating system.

use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Memory beyond an engine's own limit, for its program and the buffers that it does not count.
pub const PROGRAM_BYTES: u64 = 192 << 20;

const PREFIX: &str = "strandline-bench-";
/// The file of a group's processes.
const MEMBERS: &str = "cgroup.procs";

/// A control group below this process's own. When it is dropped its members return there, and the
/// group is removed.
pub struct MemoryGroup {
    path: PathBuf,
    home: PathBuf,
}

impl MemoryGroup {
    /// A group whose members have `bytes` together.
    ///
    /// # Errors
    /// If the system has no control groups for memory, or does not let this user make one.
    pub fn new(name: &str, bytes: u64) -> Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let (home, limit) = home(&groups).ok_or("no control group for memory")?;
        remove_left(&home);
        let path = home.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self { path, home };
        fs::write(group.path.join(limit), bytes.to_string())?;
        Ok(group)
    }

    fn remove(&self) -> Result<()> {
        for process in fs::read_to_string(self.path.join(MEMBERS))?.lines() {
            move_to(&self.home, process.parse()?)?;
        }
        Ok(fs::remove_dir(&self.path)?)
    }

    /// Makes a process a member. Memory that it has already stays with its former group.
    pub fn join(&self, process: u32) -> Result<()> {
        move_to(&self.path, process)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{}: {error}", self.path.display());
        }
    }
}

/// The group of this process and the name of the file of a limit.
fn home(groups: &str) -> Option<(PathBuf, &'static str)> {
    let of = |controllers: &str| {
        let mut lines = groups.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        });
        let found = lines.find(|(names, _)| names.split(',').any(|name| name == controllers));
        found.map(|(_, path)| path.trim_start_matches('/').to_string())
    };
    let first = of("memory").map(|path| {
        let root = Path::new("/sys/fs/cgroup/memory");
        (root.join(path), "memory.limit_in_bytes")
    });
    let second = || {
        let path = of("")?;
        Some((Path::new("/sys/fs/cgroup").join(path), "memory.max"))
    };
    first.or_else(second)
}

fn move_to(group: &Path, process: u32) -> Result<()> {
    Ok(fs::write(group.join(MEMBERS), process.to_string())?)
}

/// Removes the groups of killed benchmarks.
fn remove_left(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let number = number.and_then(|rest| rest.split('-').next());
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // A group with members cannot be removed: it is not ours then.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_in_both_versions() {
        let first = "8:pids:/\n4:cpu,memory:/a/b\n0::/\n";
        let found = home(first).unwrap();
        let expected = Path::new("/sys/fs/cgroup/memory/a/b").to_path_buf();
        assert_eq!(found, (expected, "memory.limit_in_bytes"));
        let found = home("0::/user.slice\n").unwrap();
        let expected = Path::new("/sys/fs/cgroup/user.slice").to_path_buf();
        assert_eq!(found, (expected, "memory.max"));
        assert_eq!(home("3:cpuset:/\n"), None);
    }
}
