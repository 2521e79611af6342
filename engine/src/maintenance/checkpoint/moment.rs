//! The first step of a checkpoint: its timestamp, up to which every commit is finished and durable,
//! and the catalogs and storages that may still be read.

use crate::catalog::retention::TimeMap;
use crate::catalog::storage_uses::StorageUses;
use crate::catalog::versions::Version;
use crate::db::Db;
use crate::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, Result, StorageId, TableId};

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
    /// the storages that they name
    pub storages: StorageUses,
    /// versions have gone since the last checkpoint
    pub pruned: bool,
    /// the tables that they name
    tables: BTreeSet<TableId>,
    /// tables from here on are of transactions that are not part of the checkpoint
    next_table: u32,
    /// storages that may be asked for
    pub live: BTreeSet<StorageId>,
    /// storages that only versions name in which they may not be asked for any more
    pub forgotten: BTreeSet<StorageId>,
}

impl Named {
    /// Whether a table has been dropped, and no moment before that may be asked for.
    pub fn is_gone(&self, table: TableId) -> bool {
        table.0 < self.next_table && !self.tables.contains(&table)
    }
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
    fn is_given_up(&self, storage: StorageId, storages: &StorageUses) -> bool {
        let is_closed_off = |store: Arc<Store>| store.check_restored().is_err();
        !storages.has_newest(storage) && self.any_store(storage).is_ok_and(is_closed_off)
    }

    /// Those of `storages` that may be asked for.
    pub(super) fn live_storages(
        &self,
        storages: &StorageUses,
        moment: &Moment,
    ) -> BTreeSet<StorageId> {
        let begins = |policy| moment.time.begin_of(policy);
        let mut live = storages.kept(begins, moment.oldest);
        live.retain(|id| !self.is_given_up(*id, storages));
        live
    }

    /// The catalogs that may still be asked for, and the storages that they name.
    pub(super) fn named_at(&self, moment: &Moment) -> Named {
        let begins = |policy| moment.time.begin_of(policy);
        let pruned = self.catalogs.prune(begins, moment.oldest);
        // Later versions may not be in the log yet.
        let catalogs = self.catalogs.through(moment.through);
        let storages = self.catalogs.storages(moment.through);
        let live = self.live_storages(&storages, moment);
        let forgotten = &storages.all() - &live;
        let newest = catalogs.last().map(|(_, newest)| newest.next_table);
        Named {
            catalogs,
            tables: storages.tables(),
            next_table: newest.unwrap_or(0),
            storages,
            pruned,
            live,
            forgotten,
        }
    }
}
