//! Checks of constraints that wait for the end of the transaction.
//!
//! A statement adds the checks of its deferred constraints. Each check reads the newest versions
//! when it runs: before the commit, or at SET CONSTRAINTS … IMMEDIATE.
//!
//! Invariants:
//! 1. A transaction commits only after every check in the list has passed. Later writes of the
//!    checked rows add checks of their own.
//! 2. A rollback to a savepoint drops the checks added since, and marks the earlier ones to run
//!    again: the changes that they examined may be undone.

use super::{Transaction, TxnState};
use crate::catalog::TableDef;
use crate::catalog::index::ConstraintTiming;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};

/// A check of one constraint.
pub(crate) trait DeferredCheck: Send {
    /// The constraint: its table and its name.
    fn constraint(&self) -> (TableId, &str);
    /// The table whose rows it checks.
    fn table(&self) -> TableId;
    /// Bytes of memory that only this check keeps.
    fn memory_bytes(&self) -> usize;
    /// The error if the constraint is violated.
    fn run(&self, transaction: &Transaction) -> Result<()>;
}

/// The modes that SET CONSTRAINTS has set so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConstraintModes {
    /// whether all constraints without an own mode are deferred
    all: Option<bool>,
    named: HashMap<(TableId, String), bool>,
}

struct Waiting {
    check: Box<dyn DeferredCheck>,
    has_passed: bool,
}

/// The checks of a transaction, oldest first.
#[derive(Default)]
pub(crate) struct DeferredChecks {
    waiting: Vec<Waiting>,
    /// bytes of the checks without the list
    bytes: usize,
    /// None: SET CONSTRAINTS was not used
    pub(super) modes: Option<Arc<ConstraintModes>>,
}

impl DeferredChecks {
    /// Number of checks so far, passed ones included.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the checks and their list.
    pub(super) fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting>() + self.bytes
    }

    /// Releases the list's unused capacity.
    pub(super) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// Restores the first `len` checks and `modes`.
    pub(super) fn go_back(&mut self, len: usize, modes: Option<Arc<ConstraintModes>>) {
        let undone = self.waiting.drain(len.min(self.waiting.len())..);
        let undone: usize = undone.map(|waiting| waiting.check.memory_bytes()).sum();
        self.bytes -= undone;
        for waiting in &mut self.waiting {
            waiting.has_passed = false;
        }
        self.modes = modes;
    }

    /// 55006 if a check of `table` is still to run, since its rows must stay where they are. `new`
    /// is the table's new definition; None: it is dropped.
    pub(super) fn refuse_change(&self, table: &TableDef, new: Option<&TableDef>) -> Result<()> {
        let is_pending = |w: &Waiting| !w.has_passed && w.check.table() == table.id;
        match self.waiting.iter().any(is_pending) {
            false => Ok(()),
            true => Err(Error::invalid(
                SqlState::OBJECT_IN_USE,
                format!(
                    "cannot {} \"{}\" because it has pending trigger events",
                    statement_between(table, new),
                    table.name
                ),
            )
            .with_hint("SET CONSTRAINTS ALL IMMEDIATE has deferred constraints checked now.")),
        }
    }
}

/// The name of the statement that changes a table to `new`.
fn statement_between(old: &TableDef, new: Option<&TableDef>) -> &'static str {
    let Some(new) = new else {
        return "DROP TABLE";
    };
    let is_table_same =
        new.columns == old.columns && new.keys == old.keys && new.foreign_keys == old.foreign_keys;
    match new.indexes.len().cmp(&old.indexes.len()) {
        _ if new.storage != old.storage => "TRUNCATE",
        _ if !is_table_same => "ALTER TABLE",
        Ordering::Greater => "CREATE INDEX",
        Ordering::Less => "DROP INDEX",
        Ordering::Equal => "ALTER TABLE",
    }
}

impl Transaction {
    /// Whether the checks of a constraint wait for the end of the transaction.
    pub(crate) fn is_deferred(&self, table: TableId, name: &str, timing: ConstraintTiming) -> bool {
        let initially = match timing {
            ConstraintTiming::Immediate => return false,
            ConstraintTiming::DeferrableImmediate => false,
            ConstraintTiming::Deferred => true,
        };
        let Some(modes) = self.state.lock().constraint_modes() else {
            return initially;
        };
        let own = || modes.named.get(&(table, name.to_string())).copied();
        let is_named = !modes.named.is_empty();
        let named = is_named.then(own).flatten();
        named.or(modes.all).unwrap_or(initially)
    }

    /// Adds `check`, which will run before the transaction commits.
    ///
    /// # Errors
    /// 53200 if open transactions keep too much memory and this one has to give way.
    pub(crate) fn defer(&self, check: Box<dyn DeferredCheck>) -> Result<()> {
        let has_passed = false;
        let mut state = self.state.lock();
        let deferred = &mut state.rare_work().deferred;
        deferred.bytes += check.memory_bytes();
        deferred.waiting.push(Waiting { check, has_passed });
        self.count_checks(&mut state)
    }

    /// SET CONSTRAINTS: sets whether the deferrable constraints of `names` are deferred from now
    /// on. `names` has tables and constraint names; None: all constraints. Checks of constraints
    /// that become immediate run at once.
    pub fn set_constraints(
        &self,
        names: Option<&[(TableId, String)]>,
        is_deferred: bool,
    ) -> Result<()> {
        let before = self.state.lock().constraint_modes();
        let mut modes = before.map_or_else(ConstraintModes::default, |modes| (*modes).clone());
        match names {
            None => {
                modes = ConstraintModes {
                    all: Some(is_deferred),
                    ..ConstraintModes::default()
                }
            }
            Some(names) => {
                for name in names {
                    modes.named.insert(name.clone(), is_deferred);
                }
            }
        }
        if !is_deferred {
            self.run_deferred(&|table, name| {
                names.is_none_or(|names| names.iter().any(|(t, n)| *t == table && n == name))
            })?;
        }
        self.state.lock().rare_work().deferred.modes = Some(Arc::new(modes));
        Ok(())
    }

    /// Runs the checks that have not passed yet, of the constraints that `wanted` selects. The
    /// transaction's state is unlocked in the meantime, since checks wait for other transactions.
    pub(super) fn run_deferred(&self, wanted: &dyn Fn(TableId, &str) -> bool) -> Result<()> {
        let mut checks = match &mut self.state.lock().rare {
            Some(rare) => std::mem::take(&mut rare.deferred.waiting),
            None => return Ok(()),
        };
        let mut outcome = Ok(());
        for waiting in checks.iter_mut().filter(|waiting| !waiting.has_passed) {
            let (table, name) = waiting.check.constraint();
            if wanted(table, name) {
                outcome = waiting.check.run(self);
                if outcome.is_err() {
                    break;
                }
                waiting.has_passed = true;
            }
        }
        self.state.lock().rare_work().deferred.waiting = checks;
        outcome
    }
}

impl TxnState {
    /// The modes that SET CONSTRAINTS has set so far; None if it was not used.
    fn constraint_modes(&self) -> Option<Arc<ConstraintModes>> {
        self.rare.as_ref()?.deferred.modes.clone()
    }
}
