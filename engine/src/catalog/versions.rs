//! All versions of the catalog that readers may still use.
//!
//! Invariants:
//! 1. Timestamps increase; a version is valid from its timestamp to the next one's.
//! 2. A version is in the list before the stable timestamp reaches its own: the commit that makes
//!    it adds it under the log's lock. So a snapshot's catalog is the version valid at the
//!    snapshot, whenever it is looked up. No reader uses a version that is later than every
//!    snapshot.
//! 3. A commit that fails after that removes its version before it leaves the commit queue.
//! 4. `last_catalog` is the address of the catalog of `last`. It is stored while the version before
//!    is still held, so a catalog at this address is always the last one.
//!
//! Lock order: the log's lock → `versions`, which is held only to look and to change. `changes` is
//! taken with nothing else held.

use crate::catalog::storage_uses::{StorageUses, VersionChanges};
use crate::catalog::{Catalog, HistoryPolicy};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::utc::format_utc;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState};

/// The versions.
pub struct CatalogVersions {
    /// the last of `versions`; nearly every transaction begins at or after it
    last: ArcSwap<Version>,
    /// only compared: a load of it costs less than a load of `last`
    last_catalog: AtomicPtr<Catalog>,
    versions: Mutex<Vec<Version>>,
    changes: Mutex<VersionChanges>,
}

/// A catalog and the timestamp from which on it is valid.
pub type Version = (CommitTs, Arc<Catalog>);

impl CatalogVersions {
    /// Starts with versions from the manifest; there is at least one.
    pub fn new(versions: Vec<Version>) -> Self {
        let last = versions.last().cloned().unwrap_or_default();
        Self {
            last_catalog: AtomicPtr::new(address(&last.1)),
            last: ArcSwap::from_pointee(last),
            versions: Mutex::new(versions),
            changes: Mutex::default(),
        }
    }
    /// The version valid at `ts`.
    pub fn at(&self, ts: CommitTs) -> Result<Arc<Catalog>> {
        let last = self.last.load();
        if last.0 <= ts {
            return Ok(last.1.clone());
        }
        let versions = self.versions.lock();
        let after = versions.partition_point(|(from, _)| *from <= ts);
        match after.checked_sub(1) {
            Some(at) => Ok(versions[at].1.clone()),
            None => Err(too_old(ts, versions.first().map(|v| v.0))),
        }
    }
    /// The timestamp of the last version, visible to all or not yet.
    pub fn newest(&self) -> CommitTs {
        self.last.load().0
    }
    /// Whether `catalog` is the last version, visible to all or not yet.
    #[inline]
    pub fn is_last(&self, catalog: &Arc<Catalog>) -> bool {
        self.last_catalog.load(Ordering::Acquire) == address(catalog)
    }
    fn set_last(&self, version: Version) {
        let catalog = address(&version.1);
        let _before = self.last.swap(Arc::new(version));
        self.last_catalog.store(catalog, Ordering::Release);
    }
    /// Adds the version of the commit at `ts`, before the stable timestamp reaches `ts`.
    pub fn add(&self, ts: CommitTs, catalog: Arc<Catalog>) {
        let mut versions = self.versions.lock();
        versions.push((ts, catalog.clone()));
        self.set_last((ts, catalog));
    }
    /// Removes the version of a failed commit at `ts`, which the stable timestamp has not reached.
    pub fn take_back(&self, ts: CommitTs) {
        let mut versions = self.versions.lock();
        versions.retain(|(from, _)| *from != ts);
        if let Some(last) = versions.last() {
            self.set_last(last.clone());
        }
    }
    /// The versions that are valid at or before `through`, oldest first.
    pub fn through(&self, through: CommitTs) -> Vec<Version> {
        let mut versions = self.versions.lock().clone();
        versions.retain(|(from, _)| *from <= through);
        versions
    }
    /// The storages that the versions valid at or before `through` name.
    pub fn storages(&self, through: CommitTs) -> StorageUses {
        let versions = self.versions.lock().clone();
        self.changes.lock().uses(&versions, through)
    }
    /// Drops the versions that were superseded before the longest history of their tables begins,
    /// unless a snapshot since `oldest` needs them. `begins` gives the begin of a policy's history.
    /// Returns whether any was dropped.
    pub fn prune(&self, begins: impl Fn(HistoryPolicy) -> CommitTs, oldest: CommitTs) -> bool {
        let mut versions = self.versions.lock();
        let before = versions.len();
        while versions.len() > 1 {
            let (superseded, catalog) = (versions[1].0, &versions[0].1);
            let tables = catalog.tables.values();
            let from = tables.map(|t| begins(t.history)).min();
            if superseded >= from.unwrap_or(CommitTs::MAX) || superseded > oldest {
                break;
            }
            versions.remove(0);
        }
        versions.len() != before
    }
}

fn address(catalog: &Arc<Catalog>) -> *mut Catalog {
    Arc::as_ptr(catalog).cast_mut()
}

/// 72000: the moment is older than the history.
pub fn too_old(ts: CommitTs, oldest: Option<CommitTs>) -> Error {
    let error = Error::new(
        ErrorKind::Invalid,
        SqlState::SNAPSHOT_TOO_OLD,
        format!(
            "snapshot too old: nothing is kept of the moment {}",
            format_utc(ts.0)
        ),
    );
    match oldest {
        Some(oldest) => error.with_detail(format!(
            "The oldest moment kept is {}.",
            format_utc(oldest.0)
        )),
        None => error,
    }
}
