//! The directories of a database: its own, and the capacity tier if it has one: a directory, or
//! objects in a store.
//!
//! A database records where its capacity tier is, so `capacity_dir` or `capacity_url` is needed
//! once, and again when the files have moved. The engine checks that the two belong together.

use std::path::Path;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{CapacityChoice, Device, OsDevice, TieredDevice, resolved};
use strandline_engine::{Db, recorded_capacity_path};
use strandline_object::{ObjectUrl, Options, Place};

/// The place that one of the settings names; None without either.
///
/// # Errors
/// 22023 if both are given, for a URL as `capacity_dir`, and those of [`Place::parse`].
pub fn place(capacity_dir: Option<&Path>, capacity_url: Option<&str>) -> Result<Option<Place>> {
    // A malformed URL is refused first: the message about both repeats the URL.
    let by_url = capacity_url.map(Place::parse).transpose()?;
    let Some(dir) = capacity_dir else {
        return Ok(by_url);
    };
    let invalid = |what: String| Error::invalid(SqlState::INVALID_PARAMETER_VALUE, what);
    // Not repeated, because it may have credentials.
    if looks_like_url(dir) {
        return Err(invalid("capacity_dir is a URL".to_owned())
            .with_hint("Set capacity_url instead, or write ./ before the name of a directory."));
    }
    if let Some(url) = capacity_url {
        let dir = dir.display();
        let what = format!("capacity_dir (\"{dir}\") and capacity_url (\"{url}\") are both set");
        return Err(invalid(what).with_hint("A database has one capacity tier: leave one out."));
    }
    Ok(Some(Place::Directory(dir.to_path_buf())))
}

fn looks_like_url(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    })
}

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// there must be one
    pub must_exist: bool,
    /// the database records a capacity tier that the caller names
    pub records_capacity: bool,
}

/// The device of the database in `path`, and its capacity tier: that of the caller, or the recorded
/// one. Missing directories of a new database are created; nothing else is written.
///
/// # Errors
/// 58P01 if there is no database but there must be one, or if a capacity directory is missing;
/// 22023 if the directories overlap; the errors of [`Db::exists`], [`Place::recorded`] and of the
/// device.
pub fn open(
    path: &Path,
    capacity: Option<Place>,
    opening: Opening,
) -> Result<(Arc<dyn Device>, Option<Place>)> {
    if opening.must_exist {
        // Opening the device would create the directory.
        path.metadata()
            .map_err(|error| Error::io(path.display(), &error))?;
    }
    if let Some(Place::Directory(dir)) = &capacity {
        refuse_overlap(path, dir)?;
    }
    let fast = Arc::new(OsDevice::open(path)?);
    let recorded = recorded_capacity_path(&*fast)?;
    // A directory that is not a database's, or its capacity directory, is refused here.
    if recorded.is_none() && !Db::exists(&*fast)? && opening.must_exist {
        return Err(no_database(&*fast));
    }
    let choice = match (&capacity, opening.records_capacity) {
        (None, _) => CapacityChoice::Recorded,
        (Some(_), true) => CapacityChoice::Named,
        (Some(_), false) => CapacityChoice::NamedOnce,
    };
    let dir = match (capacity, &recorded) {
        (None, None) => return Ok((fast, None)),
        (Some(Place::Objects(url)), _) => return with_objects(fast, url, choice),
        (Some(Place::Directory(dir)), _) => dir,
        (None, Some(recorded)) => match Place::recorded(recorded)? {
            Place::Objects(url) => return with_objects(fast, url, choice),
            Place::Directory(dir) => dir,
        },
    };
    let may_create = recorded.is_none() && opening.records_capacity;
    if !may_create && !dir.exists() {
        return Err(missing(path, &dir));
    }
    let capacity = Arc::new(OsDevice::open(&dir)?);
    let dir = resolved(&dir);
    let device = TieredDevice::new(fast, capacity, recordable(&dir))?.chosen(choice);
    Ok((Arc::new(device), Some(Place::Directory(dir))))
}

/// The device of a database whose capacity tier is at `url`.
fn with_objects(
    fast: Arc<OsDevice>,
    url: ObjectUrl,
    choice: CapacityChoice,
) -> Result<(Arc<dyn Device>, Option<Place>)> {
    let device = TieredDevice::new(fast, url.open(Options::default())?, url.to_string())?;
    Ok((Arc::new(device.chosen(choice)), Some(Place::Objects(url))))
}

/// The path as a database records it. One that is not UTF-8 cannot be recorded: such a directory is
/// always named by the caller.
pub fn recordable(dir: &Path) -> &str {
    dir.to_str().unwrap_or_default()
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
    let capacity: Arc<dyn Device> = match Place::recorded(&recorded)? {
        // The caller makes no request that changes objects.
        Place::Objects(url) => url.open(Options::default())?,
        Place::Directory(dir) if !dir.exists() => return Err(missing(path, &dir)),
        Place::Directory(dir) => Arc::new(OsDevice::open_read_only(&dir)?),
    };
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
