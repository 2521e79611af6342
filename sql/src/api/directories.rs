//! The directories of a database: its own, and the capacity directory if it has one.
//!
//! A database records where its capacity directory is, so `capacity_dir` is needed once, and again
//! when the directory has moved. The engine checks that the two belong together.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, OsDevice, TieredDevice};
use strandline_engine::{Db, recorded_capacity_path};

/// The device of the database in `path`, and its capacity directory. Missing directories of a new
/// database are created; nothing else is written.
///
/// # Errors
/// 58P01 if there is no database but `must_exist`, or if a capacity directory is missing; 22023 if
/// the directories overlap; the errors of [`Db::exists`] and of the device.
pub fn open(
    path: &Path,
    capacity_dir: Option<&Path>,
    must_exist: bool,
) -> Result<(Arc<dyn Device>, Option<PathBuf>)> {
    if must_exist {
        // Opening the device would create the directory.
        path.metadata()
            .map_err(|error| Error::io(path.display(), &error))?;
    }
    if let Some(dir) = capacity_dir {
        refuse_overlap(path, dir)?;
    }
    let fast = Arc::new(OsDevice::open(path)?);
    let recorded = recorded_capacity_path(&*fast)?;
    // A directory that is not a database's, or its capacity directory, is refused here.
    if recorded.is_none() && !Db::exists(&*fast)? && must_exist {
        return Err(no_database(&*fast));
    }
    let dir = capacity_dir.map(Path::to_path_buf);
    let Some(dir) = dir.or_else(|| recorded.as_ref().map(PathBuf::from)) else {
        return Ok((fast, None));
    };
    if recorded.is_some() && !dir.exists() {
        return Err(missing(path, &dir));
    }
    let capacity = Arc::new(OsDevice::open(&dir)?);
    let dir = resolved(&dir);
    // A path that is not UTF-8 cannot be recorded: such a directory is always named by the caller.
    let device = TieredDevice::new(fast, capacity, dir.to_str().unwrap_or_default())?;
    Ok((Arc::new(device), Some(dir)))
}

/// The device of the database in `path`, which is only read.
///
/// # Errors
/// Those of the device.
pub fn open_read_only(path: &Path) -> Result<Arc<dyn Device>> {
    let fast = Arc::new(OsDevice::open_read_only(path)?);
    let Some(recorded) = recorded_capacity_path(&*fast)? else {
        return Ok(fast);
    };
    let dir = Path::new(&recorded);
    if !dir.exists() {
        return Err(missing(path, dir));
    }
    let capacity = Arc::new(OsDevice::open_read_only(dir)?);
    Ok(Arc::new(TieredDevice::new(fast, capacity, recorded)?))
}

/// 22023 if one of the directories, which may not exist yet, is the other or lies in it.
///
/// # Errors
/// See above.
pub fn refuse_overlap(path: &Path, capacity_dir: &Path) -> Result<()> {
    let (fast, capacity) = (resolved(path), resolved(capacity_dir));
    if !fast.starts_with(&capacity) && !capacity.starts_with(&fast) {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!(
            "capacity directory \"{}\" and database directory \"{}\" overlap",
            capacity_dir.display(),
            path.display()
        ),
    )
    .with_hint("Give a directory of its own, on another device."))
}

/// The canonical path of a directory that may not exist yet.
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

/// 58P01: there is no database on `device`.
pub fn no_database(device: &dyn Device) -> Error {
    Error::new(
        ErrorKind::Invalid,
        SqlState::UNDEFINED_FILE,
        format!("there is no database in \"{}\"", device.location()),
    )
}

fn missing(path: &Path, capacity_dir: &Path) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::UNDEFINED_FILE,
        format!(
            "capacity directory \"{}\" of the database in \"{}\" does not exist",
            capacity_dir.display(),
            path.display()
        ),
    )
    .with_hint("Mount its device, or set capacity_dir to where the directory is now.")
}
