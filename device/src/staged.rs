//! A directory that comes into being at once: it is filled under the name `<target>.tmp` and
//! renamed when it is complete.
//!
//! Invariants:
//! 1. `target` does not exist before [`StagedDirectory::publish`], and nothing is ever overwritten.
//! 2. An attempt removes the directory that a killed attempt has left under the temporary name, if
//!    it gets that directory's lock. The lock is on the directory itself: the lock file in it
//!    belongs to a database that is opened there before it is published.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use strandline_base::{Error, ErrorKind, Result, SqlState};

use crate::{Device, LOCK_FILE, OsDevice, Tier, lock_held_error, path_error};

/// A directory in the making; dropped before it is published, it is removed.
pub struct StagedDirectory {
    device: Arc<OsDevice>,
    staged: PathBuf,
    target: PathBuf,
    is_published: bool,
    /// the directory, locked as long as it is filled
    _lock: fs::File,
}

impl StagedDirectory {
    /// Starts to make the directory `target`.
    ///
    /// # Errors
    /// 58P02 if it exists, 55006 if another process is making it, those of the operating system.
    pub fn begin(target: &Path) -> Result<Self> {
        if fs::symlink_metadata(target).is_ok() {
            return Err(exists(target));
        }
        let mut staged = target.as_os_str().to_owned();
        staged.push(".tmp");
        let staged = PathBuf::from(staged);
        let device = Arc::new(OsDevice::open(&staged)?);
        let lock = fs::File::open(&staged).map_err(|e| path_error(&staged, &e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            rustix::io::Errno::WOULDBLOCK => lock_held_error(&device.location(), None),
            e => path_error(&staged, &e.into()),
        })?;
        remove_files(&device)?;
        Ok(Self {
            device,
            staged,
            target: target.to_owned(),
            is_published: false,
            _lock: lock,
        })
    }

    /// Starts to make the directory `target` for a copy of the files on `source`.
    ///
    /// # Errors
    /// 22023 if it would lie in a directory of `source`; those of [`StagedDirectory::begin`].
    pub fn begin_copy(source: &dyn Device, target: &Path) -> Result<Self> {
        match source.tiers() {
            None => refuse_inside(source, target)?,
            Some(tiers) => [Tier::Fast, Tier::Capacity]
                .into_iter()
                .try_for_each(|tier| refuse_inside(&**tiers.device_of(tier), target))?,
        }
        Self::begin(target)
    }

    /// Where its files are made.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Gives the directory its name, for good on return. Its files are durable already.
    ///
    /// # Errors
    /// 58P02 if somebody else has made `target` meanwhile; those of the operating system.
    pub fn publish(mut self) -> Result<()> {
        if self.device.list()?.iter().any(|name| name == LOCK_FILE) {
            self.device.remove(LOCK_FILE)?;
        }
        self.device.sync_directory()?;
        renameat_with(CWD, &self.staged, CWD, &self.target, RenameFlags::NOREPLACE).map_err(
            |e| match e {
                rustix::io::Errno::EXIST => exists(&self.target),
                e => path_error(&self.target, &e.into()),
            },
        )?;
        self.is_published = true;
        let parent = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let synced = fs::File::open(parent).and_then(|directory| directory.sync_all());
        synced.map_err(|e| {
            // The name may be lost and still be seen: nobody may take it for published.
            let taken_back =
                renameat_with(CWD, &self.target, CWD, &self.staged, RenameFlags::NOREPLACE);
            self.is_published = taken_back.is_err();
            path_error(parent, &e)
        })
    }
}

impl Drop for StagedDirectory {
    fn drop(&mut self) {
        if !self.is_published {
            // What stays is removed by the next attempt.
            let _ = fs::remove_dir_all(&self.staged);
        }
    }
}

/// Removes what an earlier attempt has left. A directory with directories in it is no attempt's.
fn remove_files(device: &OsDevice) -> Result<()> {
    for name in device.list()? {
        device.remove(&name)?;
    }
    Ok(())
}

/// The canonical path of a directory that may not exist yet, without links.
pub fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let existing = absolute.ancestors().find_map(|ancestor| {
        let canonical = ancestor.canonicalize().ok()?;
        let missing = absolute.strip_prefix(ancestor).ok()?;
        Some(missing.components().fold(canonical, below))
    });
    existing.unwrap_or(absolute)
}

/// The path of `component` in `directory`, without a link in the way: `..` leads to the parent.
fn below(mut directory: PathBuf, component: Component<'_>) -> PathBuf {
    match component {
        Component::ParentDir => {
            directory.pop();
        }
        component => directory.push(component),
    }
    directory
}

/// 22023 if `target` would lie in the directory of `device`; one that does not fill up has none.
fn refuse_inside(device: &dyn Device, target: &Path) -> Result<()> {
    let directory = device.location();
    if !device.may_fill_up() || !resolved(target).starts_with(resolved(Path::new(&directory))) {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!(
            "\"{}\" is in the directory \"{directory}\" of the database that is copied",
            target.display()
        ),
    )
    .with_hint("Give a directory outside the database's own ones, on another device if possible."))
}

fn exists(target: &Path) -> Error {
    Error::new(
        ErrorKind::Invalid,
        SqlState::DUPLICATE_FILE,
        format!("\"{}\" exists already", target.display()),
    )
    .with_hint("Nothing is overwritten: give a directory that does not exist yet.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(staged: &StagedDirectory, name: &str) {
        let file = staged.device().create(name).expect("create");
        file.write_all_at(b"x", 0).expect("write");
    }

    #[test]
    fn a_directory_is_there_when_it_is_published_and_not_before() {
        let home = tempfile::tempdir().expect("directory");
        let target = home.path().join("copy");
        let staged = StagedDirectory::begin(&target).expect("begin");
        write(&staged, "superblock");
        assert!(!target.exists());
        staged.publish().expect("publish");
        assert!(target.join("superblock").exists());
        assert!(!home.path().join("copy.tmp").exists());
        let refused = StagedDirectory::begin(&target).err().expect("it exists");
        assert_eq!(refused.sqlstate(), SqlState::DUPLICATE_FILE);
    }

    #[test]
    fn a_copy_lies_outside_the_directories_of_its_source() {
        let home = tempfile::tempdir().expect("directory");
        let open = |name: &str| Arc::new(OsDevice::open(home.path().join(name)).expect("open"));
        let (fast, capacity) = (open("db"), open("db-big"));
        let tiers = crate::TieredDevice::new(fast.clone(), capacity, "").expect("tiers");
        let link = home.path().join("link");
        std::os::unix::fs::symlink(home.path().join("db-big"), &link).expect("link");
        let begin = |source: &dyn Device, name: &str| {
            StagedDirectory::begin_copy(source, &home.path().join(name)).map(drop)
        };
        for name in [
            "db/copy",
            "db/a/b",
            "db-big/copy",
            "link/copy",
            "x/../db/copy",
        ] {
            let refused = begin(&tiers, name).expect_err(name);
            assert_eq!(refused.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
            assert!(refused.message().contains("/db") && refused.hint().is_some());
        }
        assert_eq!(tiers.list().expect("list"), Vec::<String>::new());
        begin(&*fast, "db/copy").expect_err("one directory");
        for name in ["copy", "db-copy", "db/../copy"] {
            begin(&tiers, name).expect(name);
        }
        begin(&*fast, "db-big/copy").expect("of another database, for all it knows");
        begin(&crate::MemoryDevice::new(), "memory").expect("memory has no directory");
    }

    #[test]
    fn what_was_given_up_or_left_is_removed() {
        let home = tempfile::tempdir().expect("directory");
        let target = home.path().join("copy");
        let temporary = home.path().join("copy.tmp");
        drop(StagedDirectory::begin(&target).expect("begin"));
        assert!(!temporary.exists());
        fs::create_dir(&temporary).expect("left by a process that was killed");
        fs::write(temporary.join("chunks-1"), "half").expect("write");
        let staged = StagedDirectory::begin(&target).expect("begin again");
        let other = StagedDirectory::begin(&target).err().expect("it is locked");
        assert_eq!(other.sqlstate(), SqlState::OBJECT_IN_USE);
        staged.publish().expect("publish");
        assert_eq!(fs::read_dir(&target).expect("list").count(), 0);
    }

    #[test]
    fn a_directory_that_came_meanwhile_is_not_replaced() {
        let home = tempfile::tempdir().expect("directory");
        let target = home.path().join("copy");
        let staged = StagedDirectory::begin(&target).expect("begin");
        fs::create_dir(&target).expect("somebody else's");
        fs::write(target.join("mine"), "").expect("write");
        let refused = staged.publish().expect_err("it exists");
        assert_eq!(refused.sqlstate(), SqlState::DUPLICATE_FILE);
        assert!(target.join("mine").exists());
    }
}
