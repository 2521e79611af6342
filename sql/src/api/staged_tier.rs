//! The capacity tier of a database that is being restored. It stays if [`StagedTier::publish`]
//! succeeds; dropped before that, it leaves nothing.
//!
//! Invariants:
//! 1. What is there is neither overwritten nor removed. A directory must not exist; below a prefix
//!    of a store there must be no object. Objects that somebody else stores there meanwhile stay.
//! 2. Objects have their names from their sync on, since a store renames nothing. Until the
//!    database's own directory appears they belong to no database. A process that is killed leaves
//!    them.

use crate::api::directories;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, File, StagedDirectory, Tier, resolved};
use strandline_object::{ObjectUrl, Options, Place};

/// A capacity tier in the making.
pub enum StagedTier {
    /// a directory, under a temporary name, and its final path
    Directory(StagedDirectory, PathBuf),
    /// objects, and their URL
    Objects(StagedObjects, ObjectUrl),
}

impl StagedTier {
    /// Starts to make the capacity tier at `place`.
    ///
    /// # Errors
    /// 58P02 if it exists; those of [`StagedDirectory::begin`] and of the store.
    pub fn begin(place: Place) -> Result<Self> {
        match place {
            Place::Directory(dir) => {
                let staged = StagedDirectory::begin(&dir)?;
                Ok(Self::Directory(staged, resolved(&dir)))
            }
            Place::Objects(url) => {
                let staged = StagedObjects::begin(url.open(Options::default())?)?;
                Ok(Self::Objects(staged, url))
            }
        }
    }

    /// Where its files are made.
    pub fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Directory(staged, _) => staged.device(),
            Self::Objects(staged, _) => staged.device.clone(),
        }
    }

    /// The path or the URL that the database records.
    pub fn recorded(&self) -> String {
        match self {
            Self::Directory(_, dir) => directories::recordable(dir).to_owned(),
            Self::Objects(_, url) => url.to_string(),
        }
    }

    /// Makes it stay.
    ///
    /// # Errors
    /// Those of [`StagedDirectory::publish`].
    pub fn publish(self) -> Result<()> {
        match self {
            Self::Directory(staged, _) => staged.publish(),
            Self::Objects(mut staged, _) => {
                staged.is_published = true;
                Ok(())
            }
        }
    }
}

/// Objects that are removed unless they are published.
pub struct StagedObjects {
    device: Arc<CreatedFiles>,
    is_published: bool,
}

impl StagedObjects {
    fn begin(objects: Arc<dyn Device>) -> Result<Self> {
        if let Some(name) = objects.list()?.first() {
            let what = format!(
                "\"{}\" has objects already (\"{name}\")",
                objects.location()
            );
            return Err(
                Error::new(ErrorKind::Invalid, SqlState::DUPLICATE_FILE, what).with_hint(
                    "Nothing is overwritten: give a prefix without objects. A restore that was \
                     killed leaves objects, which can be removed.",
                ),
            );
        }
        Ok(Self {
            device: Arc::new(CreatedFiles {
                inner: objects,
                created: Mutex::default(),
            }),
            is_published: false,
        })
    }
}

impl Drop for StagedObjects {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        let created = std::mem::take(&mut *self.device.created.lock());
        for name in created {
            // What stays is named by the next attempt.
            let _ = self.device.inner.remove(&name);
        }
    }
}

/// A device that remembers the files that were created on it.
#[derive(Debug)]
struct CreatedFiles {
    inner: Arc<dyn Device>,
    created: Mutex<BTreeSet<String>>,
}

impl Device for CreatedFiles {
    strandline_device::forward!(inner: open rename list sync_directory lock location queue);
    strandline_device::forward!(inner: may_fill_up is_written_once request_stats);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create_on(Tier::Capacity, name)
    }

    fn create_on(&self, tier: Tier, name: &str) -> Result<Arc<dyn File>> {
        let file = self.inner.create_on(tier, name)?;
        self.created.lock().insert(name.to_owned());
        Ok(file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        self.created.lock().remove(name);
        Ok(())
    }
}
