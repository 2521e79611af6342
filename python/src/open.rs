//! The databases that are open in this process, by directory. Connections to one directory share
//! one open database, which the last of them closes.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use strandline::{Database, DatabaseBuilder, Error, Result, Settings, SqlState};
use strandline_allocator::keep_freed_memory_for;
use strandline_device::MemoryDevice;

/// The open databases. The lock is held while one is opened or closed, so that no thread sees a
/// half-open one.
static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Opened>>>> = Mutex::new(None);

/// The settings that belong to a database, by name. All other settings belong to a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseSettings {
    numbers: Vec<(String, u64)>,
    /// the directory of chunk files and history
    pub capacity_dir: Option<PathBuf>,
    /// their URL instead
    pub capacity_url: Option<String>,
}

impl DatabaseSettings {
    /// Whether `name` is a setting of the database that is a number.
    pub fn knows_number(name: &str) -> bool {
        matches!(
            name,
            "memory_bytes" | "wal_segment_bytes" | "checkpoint_wal_bytes" | "query_threads"
        )
    }

    /// Adds a setting that [`DatabaseSettings::knows_number`].
    pub fn add(&mut self, name: String, value: u64) {
        self.numbers.push((name, value));
        self.numbers.sort();
    }

    fn build(&self, mut builder: DatabaseBuilder) -> Result<Database> {
        let mut settings = Settings::default();
        for (name, value) in &self.numbers {
            let bytes = usize::try_from(*value).unwrap_or(usize::MAX);
            match name.as_str() {
                "memory_bytes" => settings.memory_bytes = bytes,
                "wal_segment_bytes" => settings.wal_segment_bytes = *value,
                "checkpoint_wal_bytes" => settings.checkpoint_wal_bytes = *value,
                _ => builder = builder.query_threads(bytes),
            }
        }
        if let Some(dir) = &self.capacity_dir {
            builder = builder.capacity_dir(dir);
        }
        if let Some(url) = &self.capacity_url {
            builder = builder.capacity_url(url);
        }
        keep_freed_memory_for(settings.memory_bytes);
        builder.settings(settings).build()
    }
}

/// A database that connections of this process share.
pub struct Opened {
    pub database: Database,
    path: Option<PathBuf>,
    settings: DatabaseSettings,
}

impl Opened {
    /// A new database in memory.
    pub fn in_memory(settings: DatabaseSettings) -> Result<Arc<Self>> {
        let builder = Database::on_device(Arc::new(MemoryDevice::new()));
        Ok(Arc::new(Self {
            database: settings.build(builder)?,
            path: None,
            settings,
        }))
    }

    /// The database in the directory `path`; created if there is none and `create` is true.
    pub fn at(path: &Path, settings: DatabaseSettings, create: bool) -> Result<Arc<Self>> {
        let path = absolute(path)?;
        let mut open = OPEN.lock();
        let open = open.get_or_insert_default();
        if let Some(opened) = open.get(&path).and_then(Weak::upgrade) {
            if settings != DatabaseSettings::default() && settings != opened.settings {
                return Err(Error::invalid(
                    SqlState::OBJECT_IN_USE,
                    format!("\"{}\" is open with other settings", path.display()),
                )
                .with_hint("Settings of a database are given to its first connection."));
            }
            return Ok(opened);
        }
        let builder = Database::builder(&path);
        let builder = match create {
            true => builder,
            false => builder.must_exist(),
        };
        let opened = Arc::new(Self {
            database: settings.build(builder)?,
            path: Some(path.clone()),
            settings,
        });
        open.insert(path, Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Releases a database; the last release closes it.
    pub fn release(opened: Arc<Self>) -> Result<()> {
        let mut open = OPEN.lock();
        match Arc::into_inner(opened) {
            Some(last) => {
                if let (Some(path), Some(open)) = (&last.path, open.as_mut()) {
                    open.remove(path);
                }
                last.database.close()
            }
            None => Ok(()),
        }
    }
}

/// The canonical path of a directory that may not exist yet.
fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize();
    let parent = parent.map_err(|error| Error::io(format!("\"{}\"", path.display()), &error))?;
    Ok(parent.join(path.file_name().unwrap_or_default()))
}
