//! Transaction blocks: BEGIN, COMMIT, ROLLBACK, savepoints, isolation levels.

use super::Session;
use super::Settings;
use super::modes::{Modes, modes_of};
use crate::parse::names;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{Ident, TransactionMode};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::{Savepoint, Transaction, TxnOptions};

/// A transaction block.
pub struct OpenTransaction {
    pub(crate) transaction: Arc<Transaction>,
    /// Whether a statement has failed. Only the block's end is allowed then. The changes since the
    /// last savepoint are undone already; without a savepoint the transaction is rolled back.
    pub(crate) failed: bool,
    /// The value of `now()` throughout the block, in microseconds since the epoch.
    pub(crate) now_us: u64,
    savepoints: Vec<NamedSavepoint>,
    /// Whether the block has no BEGIN: several statements of one request ([`super::implicit`]).
    pub(super) implicit: bool,
    /// Whether a statement has run; then the isolation level is fixed.
    pub(crate) used: bool,
    /// The settings at the block's start; ROLLBACK restores them.
    before: Arc<Settings>,
    /// The settings after COMMIT, without the changes by SET LOCAL.
    pub(super) kept: Arc<Settings>,
}

/// A savepoint and the settings at its time.
struct NamedSavepoint {
    name: String,
    savepoint: Savepoint,
    settings: Arc<Settings>,
    kept: Arc<Settings>,
}

impl Session {
    /// The modes of a transaction whose BEGIN gives none.
    pub(crate) fn default_modes(&self) -> Modes {
        Modes {
            isolation: self.settings.default_isolation,
            read_only: self.settings.default_read_only,
            speculative: self.settings.speculative_reads,
        }
    }

    /// Begins an engine transaction with this session's settings.
    pub(crate) fn begin_engine(&self, modes: Modes) -> Result<Arc<Transaction>> {
        self.shared.db.begin(TxnOptions {
            isolation: modes.isolation,
            read_only: modes.read_only,
            synchronous_commit: self.settings.synchronous_commit,
            conflicts: self.settings.conflict_policy,
            speculative: modes.speculative,
            lock_timeout: self.settings.lock_timeout,
            cancel: self.cancel.flag().clone(),
        })
    }

    /// The value of `now()` in a transaction that begins now. It is not before the newest commit,
    /// so that AS OF `now()` shows everything acknowledged so far.
    pub(crate) fn now_us(&self) -> u64 {
        self.shared.db.now_us().max(self.shared.db.stable().0)
    }

    /// BEGIN or START TRANSACTION; `begin` selects the command tag.
    pub(super) fn begin(&mut self, modes: &[TransactionMode], begin: bool) -> Result<Summary> {
        let modes = self.default_modes().with(modes)?;
        let tag = if begin { "BEGIN" } else { "START TRANSACTION" };
        if self.make_explicit(modes)? {
            return Ok(Summary::tag(tag));
        }
        if self.open.is_some() {
            self.notice(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "there is already a transaction in progress",
            );
            return Ok(Summary::tag(tag));
        }
        self.open_block(modes)?;
        Ok(Summary::tag(tag))
    }

    pub(crate) fn open_block(&mut self, modes: Modes) -> Result<()> {
        let transaction = self.begin_engine(modes)?;
        self.open = Some(OpenTransaction {
            transaction,
            failed: false,
            now_us: self.now_us(),
            savepoints: Vec::new(),
            implicit: false,
            used: false,
            before: self.settings.clone(),
            kept: self.settings.clone(),
        });
        Ok(())
    }

    /// Gives the open block a new transaction with the present settings. No statement of the block
    /// has run.
    pub(super) fn begin_again(&mut self) -> Result<()> {
        match &self.open {
            Some(open) => self.begin_with(Modes {
                speculative: self.settings.speculative_reads,
                ..modes_of(&open.transaction)
            }),
            None => Ok(()),
        }
    }

    pub(super) fn begin_with(&mut self, modes: Modes) -> Result<()> {
        let transaction = self.begin_engine(modes)?;
        if let Some(open) = &mut self.open {
            for savepoint in &mut open.savepoints {
                savepoint.savepoint = transaction.savepoint();
            }
            std::mem::replace(&mut open.transaction, transaction).rollback();
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self, chain: bool) -> Result<Summary> {
        self.warn_if_implicit(chain)?;
        let Some(open) = self.open.take() else {
            self.no_block();
            return Ok(Summary::tag("COMMIT"));
        };
        let modes = modes_of(&open.transaction);
        let tag = if open.failed {
            open.transaction.rollback();
            self.restore(open.before);
            "ROLLBACK"
        } else {
            self.restore(open.before);
            self.cancel.start();
            // Deferred constraints are checked now.
            let timer = self.timer();
            let committed = self.commit_engine(&open.transaction);
            drop(timer);
            committed.map_err(|error| self.cancel.explain(error))?;
            self.restore(open.kept);
            "COMMIT"
        };
        if chain {
            self.open_block(modes)?;
        }
        Ok(Summary::tag(tag))
    }

    pub(crate) fn rollback(&mut self, chain: bool) -> Result<Summary> {
        self.warn_if_implicit(chain)?;
        match self.open.take() {
            Some(open) => {
                let modes = modes_of(&open.transaction);
                open.transaction.rollback();
                self.restore(open.before);
                if chain {
                    self.open_block(modes)?;
                }
            }
            None => self.no_block(),
        }
        Ok(Summary::tag("ROLLBACK"))
    }

    pub(super) fn no_block(&mut self) {
        self.notice(
            SqlState::NO_ACTIVE_SQL_TRANSACTION,
            "there is no transaction in progress",
        );
    }

    pub(super) fn savepoint(&mut self, name: &Ident) -> Result<Summary> {
        let settings = self.settings.clone();
        let open = self.block("SAVEPOINT")?;
        open.savepoints.push(NamedSavepoint {
            name: names::fold(name),
            savepoint: open.transaction.savepoint(),
            settings,
            kept: open.kept.clone(),
        });
        Ok(Summary::tag("SAVEPOINT"))
    }

    pub(super) fn release(&mut self, name: &Ident) -> Result<Summary> {
        let open = self.block("RELEASE SAVEPOINT")?;
        let at = position(open, name)?;
        open.savepoints.truncate(at);
        Ok(Summary::tag("RELEASE"))
    }

    /// ROLLBACK TO SAVEPOINT. The savepoint stays, and a failed block accepts statements again.
    pub(super) fn rollback_to(&mut self, name: &Ident) -> Result<Summary> {
        let open = self.block("ROLLBACK TO SAVEPOINT")?;
        let at = match position(open, name) {
            Ok(at) => at,
            Err(error) => {
                self.mark_failed();
                return Err(error);
            }
        };
        let target = &open.savepoints[at];
        open.transaction.rollback_to(&target.savepoint)?;
        let settings = target.settings.clone();
        open.kept = target.kept.clone();
        open.savepoints.truncate(at + 1);
        open.failed = false;
        self.restore(settings);
        Ok(Summary::tag("ROLLBACK"))
    }

    pub(super) fn set_transaction(
        &mut self,
        modes: &[TransactionMode],
        session: bool,
    ) -> Result<Summary> {
        if session {
            let modes = self.default_modes().with(modes)?;
            let set = |settings: &mut Arc<Settings>| {
                let settings = Arc::make_mut(settings);
                settings.default_isolation = modes.isolation;
                settings.default_read_only = modes.read_only;
            };
            set(&mut self.settings);
            if let Some(open) = &mut self.open {
                set(&mut open.kept);
            }
            return Ok(Summary::tag("SET"));
        }
        let Some(open) = &self.open else {
            self.notice(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            );
            return Ok(Summary::tag("SET"));
        };
        let old = modes_of(&open.transaction);
        let new = old.with(modes)?;
        if open.used && (new.isolation != old.isolation || new.read_only != old.read_only) {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION must be called before any query",
            ));
        }
        if !open.used {
            self.begin_with(new)?;
        }
        Ok(Summary::tag("SET"))
    }

    fn block(&mut self, what: &str) -> Result<&mut OpenTransaction> {
        let open = self.open.as_mut().filter(|open| !open.implicit);
        open.ok_or_else(|| {
            Error::invalid(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )
        })
    }

    /// Whether a block is open in which a statement has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.failed)
    }

    /// Whether the block has failed without a savepoint.
    pub(crate) fn has_lost_its_work(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.failed && open.savepoints.is_empty())
    }

    pub(crate) fn refuse_if_failed(&self) -> Result<()> {
        match self.has_failed() {
            true => Err(aborted()),
            false => Ok(()),
        }
    }

    /// 25P02 or 34000 unless `transaction` is the open block's transaction.
    pub(crate) fn refuse_outside(&self, transaction: &Arc<Transaction>) -> Result<()> {
        match &self.open {
            Some(open) if Arc::ptr_eq(&open.transaction, transaction) => self.refuse_if_failed(),
            _ => Err(Error::invalid(
                SqlState("34000"),
                "the rows left of this query ended with its transaction",
            )
            .with_hint("Read them before COMMIT or ROLLBACK.")),
        }
    }

    /// Marks the open block, if there is one, as failed. Its changes since the last savepoint
    /// (without one: all changes) are undone now and their locks end, so that waiting transactions
    /// need not wait for the client's ROLLBACK.
    pub(crate) fn mark_failed(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| !open.failed) else {
            return;
        };
        open.failed = true;
        let undone = match open.savepoints.last() {
            Some(last) => open.transaction.rollback_to(&last.savepoint).is_ok(),
            None => false,
        };
        if !undone {
            open.transaction.rollback();
        }
    }
}

/// 25P02.
pub(crate) fn aborted() -> Error {
    Error::invalid(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

fn position(open: &OpenTransaction, name: &Ident) -> Result<usize> {
    let name = names::fold(name);
    open.savepoints
        .iter()
        .rposition(|known| known.name == name)
        .ok_or_else(|| {
            Error::invalid(
                SqlState::INVALID_SAVEPOINT,
                format!("savepoint \"{name}\" does not exist"),
            )
        })
}
