//! VACUUM, ANALYZE and LOCK TABLE. Background work already merges tails and keeps statistics
//! current. VACUUM runs a checkpoint, which merges the ranges that are due (FULL: all ranges with
//! updates). ANALYZE has nothing to do.

use super::Session;
use crate::parse::names;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{Lock, LockTableMode, ObjectName};
use strandline_base::{Error, Result, SqlState};

impl Session {
    /// VACUUM. The checkpoint covers the whole database, also for a single `table`.
    pub(super) fn vacuum(&mut self, table: Option<&ObjectName>, full: bool) -> Result<Summary> {
        if self.open.is_some() {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "VACUUM cannot run inside a transaction block",
            ));
        }
        self.require_relation(table)?;
        self.shared.db.checkpoint(full)?;
        Ok(Summary::tag("VACUUM"))
    }

    /// ANALYZE of `table`, or of all tables.
    pub(super) fn analyze(&mut self, table: Option<&ObjectName>) -> Result<Summary> {
        self.require_relation(table)?;
        Ok(Summary::tag("ANALYZE"))
    }

    /// LOCK TABLE in ACCESS SHARE, the mode of plain reads. It blocks nothing here: a snapshot
    /// keeps a dropped table readable.
    pub(super) fn lock_tables(&self, lock: &Lock) -> Result<Summary> {
        if self.open.is_none() || self.is_implicit() {
            return Err(Error::invalid(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        if lock.lock_mode != Some(LockTableMode::AccessShare) {
            return Err(
                Error::unsupported("LOCK TABLE knows only the mode ACCESS SHARE").with_hint(
                    "SELECT … FOR UPDATE locks rows; definitions change only beside no writer.",
                ),
            );
        }
        for table in &lock.tables {
            self.require_relation(Some(&table.name))?;
        }
        Ok(Summary::tag("LOCK TABLE"))
    }

    fn require_relation(&self, name: Option<&ObjectName>) -> Result<()> {
        let Some(name) = name else {
            return Ok(());
        };
        let (schema, table) = names::qualified(name, &self.settings.search_path)?;
        let catalog = match &self.open {
            Some(open) => open.transaction.catalog(),
            None => self.shared.db.catalog(),
        };
        let exists =
            catalog.table(&schema, &table).is_some() || catalog.view(&schema, &table).is_some();
        match exists {
            true => Ok(()),
            false => Err(names::undefined_table(&schema, &table)),
        }
    }
}
