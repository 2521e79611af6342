//! Implicit transaction blocks: several statements of one request are one transaction without
//! BEGIN. A server opens one for a text of several statements and for a pipeline of the extended
//! protocol, and ends it at the request's end.
//!
//! As in PostgreSQL, BEGIN inside makes the block an ordinary one, COMMIT and ROLLBACK end it with
//! a warning, savepoints are refused, and the client sees no block at all.

use super::Session;
use super::modes::Modes;
use strandline_base::{Error, Result, SqlState};

impl Session {
    /// Opens an implicit block unless a block is open.
    pub(crate) fn begin_implicit(&mut self) -> Result<()> {
        if self.open.is_none() {
            self.open_block(self.default_modes())?;
            if let Some(open) = &mut self.open {
                open.implicit = true;
            }
        }
        Ok(())
    }

    /// Whether an implicit block is open.
    pub(crate) fn is_implicit(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.implicit)
    }

    /// Commits an implicit block if one is open.
    pub(crate) fn commit_implicit(&mut self) -> Result<()> {
        if self.leave_implicit() {
            self.commit(false)?;
        }
        Ok(())
    }

    /// Undoes an implicit block if one is open.
    pub(crate) fn rollback_implicit(&mut self) -> Result<()> {
        if self.leave_implicit() {
            self.rollback(false)?;
        }
        Ok(())
    }

    /// Makes an implicit block an ordinary one for BEGIN; false if there is none.
    pub(super) fn make_explicit(&mut self, modes: Modes) -> Result<bool> {
        if !self.leave_implicit() {
            return Ok(false);
        }
        if self.open.as_ref().is_some_and(|open| !open.used) {
            self.begin_with(modes)?;
        }
        Ok(true)
    }

    /// COMMIT and ROLLBACK in an implicit block.
    pub(super) fn warn_if_implicit(&mut self, chain: bool) -> Result<()> {
        if !self.is_implicit() {
            return Ok(());
        }
        if chain {
            return Err(Error::invalid(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "AND CHAIN can only be used in transaction blocks",
            ));
        }
        self.no_block();
        Ok(())
    }

    fn leave_implicit(&mut self) -> bool {
        let open = self.open.as_mut();
        open.is_some_and(|open| std::mem::replace(&mut open.implicit, false))
    }
}
