//! From when on indexes on pages have the entries of every version.
//!
//! A sweep removes entries of versions that no reader may ask for. The page file keeps that over a
//! crash. But the moment from which on versions are kept is in memory (`Store::kept_from`), and an
//! opening computes it anew from a history policy that may be longer by then. Then readers could
//! ask for versions whose entries are gone. So the moment is in the log before the sweep removes
//! entries, and in the manifest when a checkpoint cuts the log.
//!
//! Invariant: a moment is in `known` when it is in the log, and a checkpoint reads `known` after
//! the position from which on it keeps the log.
//!
//! Lock order: `known` → the database's storages and the log's locks.

use super::log::IndexLog;
use std::collections::BTreeMap;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Result, StorageId};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct SweptFrom {
    known: Mutex<BTreeMap<StorageId, CommitTs>>,
}

impl SweptFrom {
    /// Logs that sweeps of a storage's indexes remove entries of versions superseded before `from`.
    ///
    /// # Errors
    /// Those of the log; then nothing may be removed.
    pub fn announce(&self, log: &IndexLog, storage: StorageId, from: CommitTs) -> Result<()> {
        let mut known = self.known.lock();
        if known.get(&storage).is_none_or(|known| *known < from) {
            log.append_swept(storage, from)?;
            known.insert(storage, from);
        }
        Ok(())
    }

    /// The log or the manifest has this moment.
    pub fn recover(&self, storage: StorageId, from: CommitTs) {
        let mut known = self.known.lock();
        let known = known.entry(storage).or_default();
        *known = from.max(*known);
    }

    /// By storage from when on indexes have the entries of every version.
    pub fn all(&self) -> BTreeMap<StorageId, CommitTs> {
        self.known.lock().clone()
    }

    /// Forgets the storages that are not kept.
    pub fn retain(&self, is_kept: impl Fn(StorageId) -> bool) {
        self.known.lock().retain(|storage, _| is_kept(*storage));
    }
}
