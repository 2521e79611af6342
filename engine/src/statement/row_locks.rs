//! Row locks of a transaction: SELECT ... FOR UPDATE and FOR SHARE.
//!
//! A lock stands in the row's chain like an uncommitted version (see the table crate's `write`), so
//! writers and lockers of other transactions meet it on the way to the newest version. It ends with
//! the transaction or with the savepoint it was taken after, and is not logged.

use crate::catalog::TableDef;
use crate::statement::{Statement, write_conflict};
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, RowId, SqlState};
use strandline_tail::change::{Change, RowLock, WriteOutcome};
use strandline_txn::Looks;

/// Behaviour at a row that another transaction has locked or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// wait for it (at once 40001 if the transaction never waits)
    Wait,
    /// 55P03
    NoWait,
    /// leave the row out
    SkipLocked,
}

impl Statement {
    /// Locks rows that this statement sees until the transaction ends. For each row whether it is
    /// locked now: not if it is gone, or was skipped. 40001 if a row has a version newer than the
    /// statement's snapshot: under read committed the caller runs the statement again.
    pub fn lock_rows(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        lock: RowLock,
        wait: LockWait,
    ) -> Result<Vec<bool>> {
        let target = self.writable(table)?;
        let change = Change::Lock(lock);
        let mut locked = Vec::with_capacity(rows.len());
        for &row in rows {
            self.transaction().admit_next_write()?;
            let mut looks = Looks::default();
            let mut busy_since = None;
            let is_locked = loop {
                match self.try_write(&target, row, change)? {
                    WriteOutcome::Done(_) => break true,
                    WriteOutcome::Gone => break false,
                    WriteOutcome::Conflict(_) => return Err(write_conflict(table)),
                    WriteOutcome::Wait(holder) => match wait {
                        LockWait::Wait => self.transaction().wait_for(holder, &mut looks)?,
                        LockWait::NoWait => return Err(not_available(table)),
                        LockWait::SkipLocked => break false,
                    },
                    WriteOutcome::Busy => self.transaction().wait_for_latch(&mut busy_since)?,
                }
            };
            locked.push(is_locked);
        }
        Ok(locked)
    }
}

fn not_available(table: &TableDef) -> Error {
    Error::new(
        ErrorKind::Cancelled,
        SqlState::LOCK_NOT_AVAILABLE,
        format!(
            "could not obtain lock on row in relation \"{}\"",
            table.name
        ),
    )
}
