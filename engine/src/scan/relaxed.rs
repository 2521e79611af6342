//! Reads at the newest moment that needs no tails: a query that may be slightly out of date reads
//! base chunks only.
//!
//! A range's base alone is correct from its last commit up to the first commit that it does not
//! have. The chosen moment is the newest that is correct for every range of every table of the
//! query, so the tables are consistent with each other. A range whose base is unchanged since the
//! search is read without its tails. A range that has been merged since is read like by any
//! snapshot of the past.
//!
//! The query keeps weak references to bases. A strong reference would keep every page that later
//! merges retire, for as long as the client reads.
//!
//! Invariant: the stable timestamp is read before the versions, so they have all commits at or
//! before the moment. The moment is registered as a snapshot before the check that no version it
//! sees has been dropped.
//!
//! Differences from the paper \[L-Store §4.1.3\]: there merges agree on a moment and take only the
//! commits before it, and a query consolidates the tails of ranges that are not merged up to it.
//! Here merges do not agree: each range is merged up to the stable timestamp of its checkpoint, and
//! the query looks for a moment common to all. If there is none within `max_staleness`, it reads
//! the present with the tails.

use crate::catalog::TableDef;
use crate::statement::Statement;
use crate::store::merged_bases::BaseOnlyRanges;
use std::sync::Arc;
use strandline_base::{CommitTs, Result};
use strandline_txn::{StartWord, Visibility};

/// Outcome of the search for a merged moment.
pub enum Relaxed {
    /// a statement of the same transaction that reads at an older moment
    Older(Arc<Statement>),
    /// all ranges are merged at the statement's own snapshot
    Newest,
    /// no moment since the given one is merged in all tables, or its versions are not kept
    Unmerged,
    /// the definitions have changed since the moment
    Redefined,
}

impl Statement {
    /// The newest moment, not before `floor` and not after this statement's snapshot, at which all
    /// ranges of `tables` are merged. For transactions that have written nothing.
    pub fn relaxed(&self, tables: &[Arc<TableDef>], floor: CommitTs) -> Result<Relaxed> {
        let db = self.transaction().db();
        let mut ranges = BaseOnlyRanges::new();
        // A speculative snapshot may be ahead of the finished commits.
        let finished = db.stable().min(self.snapshot_ts());
        let (mut from, mut newest) = (floor, finished);
        for table in tables {
            if ranges.contains_key(&table.storage) {
                continue;
            }
            let store = db.store(table.storage)?;
            let Some(bases) = store.merged_bases(&mut from, &mut newest) else {
                return Ok(Relaxed::Unmerged);
            };
            ranges.insert(table.storage, bases);
        }
        if newest == finished {
            return Ok(Relaxed::Newest);
        }
        self.at_merged(tables, newest, ranges)
    }

    fn at_merged(
        &self,
        tables: &[Arc<TableDef>],
        moment: CommitTs,
        ranges: BaseOnlyRanges,
    ) -> Result<Relaxed> {
        let transaction = self.transaction();
        let db = transaction.db();
        let snapshot = db.txns().snapshot(Some(moment))?;
        // From here on no version of that moment can be dropped.
        for table in tables {
            if db.store(table.storage)?.kept_from() > moment {
                return Ok(Relaxed::Unmerged);
            }
        }
        match db.catalog_at(moment) {
            Ok(catalog) if Arc::ptr_eq(&catalog, &transaction.catalog()) => {}
            _ => return Ok(Relaxed::Redefined),
        }
        let visibility = Visibility {
            ts: moment,
            own: StartWord(0),
            statement: 0,
        };
        let statement = Self::new(transaction.clone(), snapshot, visibility);
        Ok(Relaxed::Older(Arc::new(statement.over_merged(ranges))))
    }
}
