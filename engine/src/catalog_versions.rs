//! All versions of the catalog that may still be asked for.
//!
//! Invariant: timestamps grow; a version is valid from its timestamp to the next one's.

use crate::catalog::{Catalog, HistoryPolicy};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState, StorageId};

/// The versions.
pub struct CatalogVersions {
    current: ArcSwap<Catalog>,
    versions: Mutex<Vec<(CommitTs, Arc<Catalog>)>>,
}

impl CatalogVersions {
    /// Starts with versions from the manifest; there is at least one.
    pub fn new(versions: Vec<(CommitTs, Arc<Catalog>)>) -> Self {
        let current = versions.last().map(|(_, c)| c.clone()).unwrap_or_default();
        Self {
            current: ArcSwap::new(current),
            versions: Mutex::new(versions),
        }
    }
    /// The newest version.
    pub fn current(&self) -> Arc<Catalog> {
        self.current.load_full()
    }
    /// The version valid at `ts`.
    pub fn at(&self, ts: CommitTs) -> Result<Arc<Catalog>> {
        let versions = self.versions.lock();
        let after = versions.partition_point(|(from, _)| *from <= ts);
        match after.checked_sub(1) {
            Some(at) => Ok(versions[at].1.clone()),
            None => Err(too_old(ts, versions.first().map(|v| v.0))),
        }
    }
    /// Adds the version that a commit at `ts` made.
    pub fn publish(&self, ts: CommitTs, catalog: Arc<Catalog>) {
        self.versions.lock().push((ts, catalog.clone()));
        self.current.store(catalog);
    }
    /// All versions.
    pub fn all(&self) -> Vec<(CommitTs, Arc<Catalog>)> {
        self.versions.lock().clone()
    }
    /// Drops the versions that were superseded before the longest history of their tables starts,
    /// at wall-clock time `now_us`, and that no snapshot since `oldest` needs. Returns whether any
    /// was dropped.
    pub fn prune(&self, now_us: u64, oldest: CommitTs) -> bool {
        let mut versions = self.versions.lock();
        let before = versions.len();
        while versions.len() > 1 {
            let (superseded, catalog) = (versions[1].0, &versions[0].1);
            let from = catalog
                .tables
                .values()
                .map(|t| history_from(t.history, now_us))
                .min()
                .unwrap_or(now_us);
            if superseded.0 >= from || superseded > oldest {
                break;
            }
            versions.remove(0);
        }
        versions.len() != before
    }
    /// Every storage that some version names.
    pub fn storages(&self) -> BTreeSet<StorageId> {
        let versions = self.versions.lock();
        versions
            .iter()
            .flat_map(|(_, c)| c.tables.values().map(|t| t.storage))
            .collect()
    }
}

/// The wall-clock time from which a history policy keeps versions.
pub fn history_from(policy: HistoryPolicy, now_us: u64) -> u64 {
    match policy {
        HistoryPolicy::Forever => 0,
        HistoryPolicy::For(us) => now_us.saturating_sub(us),
        HistoryPolicy::None => now_us,
    }
}

/// 72000: the moment is older than what is kept.
pub fn too_old(ts: CommitTs, oldest: Option<CommitTs>) -> Error {
    let error = Error::new(
        ErrorKind::Invalid,
        SqlState::SNAPSHOT_TOO_OLD,
        format!(
            "snapshot too old: nothing is kept of the moment {} (microseconds)",
            ts.0
        ),
    );
    match oldest {
        Some(oldest) => error.with_detail(format!("The oldest moment kept is {}.", oldest.0)),
        None => error,
    }
}
