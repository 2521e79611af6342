//! The horizon of a table: the versions that merges, unions of runs and sweeps have to keep.

use crate::catalog::TableDef;
use crate::db::Db;
use crate::store::{Horizon, Store};
use strandline_base::CommitTs;

impl Db {
    /// Which versions of a storage may still be asked for.
    pub(super) fn horizon_of(
        &self,
        store: &Store,
        table: Option<&TableDef>,
        through: CommitTs,
    ) -> Horizon {
        self.horizon_from(store, self.kept_from(table, through))
    }

    /// From when on the history policy keeps every version, as of `through`.
    pub(super) fn kept_from(&self, table: Option<&TableDef>, through: CommitTs) -> CommitTs {
        let policy = table.map(|t| t.history).unwrap_or_default();
        self.history_begins()(policy).min(through)
    }

    /// The same of a storage whose history is kept from `kept_from` on.
    pub(super) fn horizon_from(&self, store: &Store, kept_from: CommitTs) -> Horizon {
        // In this order: who registers a snapshot too late to be seen here sees this.
        store.raise_kept_from(kept_from);
        let (txns, intervals) = (self.txns(), self.txns().held_intervals());
        Horizon::new(kept_from, txns.registered_snapshots(), intervals)
    }
}
