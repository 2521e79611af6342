//! The first step of a checkpoint: its timestamp, up to which every commit is finished and durable,
//! and the catalogs and storages that may still be read.

use crate::catalog::retention::TimeMap;
use crate::catalog::versions::{Version, kept_storages, storages_of};
use crate::db::Db;
use crate::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, Result, StorageId};

/// The moment that a checkpoint is of.
pub(super) struct Moment {
    /// replay starts here
    pub log_from: u64,
    pub through: CommitTs,
    /// when histories begin
    pub time: TimeMap,
    /// no snapshot is older
    pub oldest: CommitTs,
}

/// The catalogs of a checkpoint, and the storages they name.
pub(super) struct Named {
    pub catalogs: Vec<Version>,
    /// versions have gone since the last checkpoint
    pub pruned: bool,
    /// storages that may be asked for
    pub live: BTreeSet<StorageId>,
    /// storages that only versions name in which they may not be asked for any more
    pub forgotten: BTreeSet<StorageId>,
}

impl Db {
    /// The checkpoint's timestamp and log position; the log is durable up to it.
    pub(super) fn checkpoint_moment(&self) -> Result<Moment> {
        let (log_from, through) = {
            // Of the commits that these cover, the loaded ranges are stamped.
            let _nobody_is_completing = self.completing.write();
            (self.finished_lsn.load(Ordering::Acquire), self.stable())
        };
        // With relaxed commits stable may be ahead of the disk, and files must not be.
        self.wal.sync_all()?;
        Ok(Moment {
            log_from,
            through,
            time: self.retention.map(self.stable()),
            oldest: self.txns().oldest_snapshot().min(through),
        })
    }

    /// Whether a storage could not be restored, and the newest catalog has no table with it any
    /// more: dropping such a table gives its rows up, whatever its retention.
    fn is_given_up(&self, storage: StorageId, catalogs: &[Version]) -> bool {
        let is_closed_off = |store: Arc<Store>| store.check_restored().is_err();
        self.any_store(storage).is_ok_and(is_closed_off)
            && catalogs.last().is_some_and(|(_, newest)| {
                let mut tables = newest.tables.values();
                tables.all(|table| table.storage != storage)
            })
    }

    /// The storages that `catalogs` name and that may be asked for.
    pub(super) fn live_storages(
        &self,
        catalogs: &[Version],
        moment: &Moment,
    ) -> BTreeSet<StorageId> {
        let begins = |policy| moment.time.begin_of(policy);
        let mut live = kept_storages(catalogs, begins, moment.oldest);
        live.retain(|id| !self.is_given_up(*id, catalogs));
        live
    }

    /// The catalogs that may still be asked for, and the storages that they name.
    pub(super) fn named_at(&self, moment: &Moment) -> Named {
        let begins = |policy| moment.time.begin_of(policy);
        let pruned = self.catalogs.prune(begins, moment.oldest);
        // Later versions may not be in the log yet.
        let catalogs = self.catalogs.through(moment.through);
        let live = self.live_storages(&catalogs, moment);
        let forgotten = &storages_of(&catalogs) - &live;
        Named {
            catalogs,
            pruned,
            live,
            forgotten,
        }
    }
}
