//! A DML statement as data: the actions on its rows, the conditions on new rows, and the meaning of
//! each input column.

use super::arbiter::Arbiter;
use super::row_set::ChangedRows;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use strandline_engine::catalog::TableDef;

/// The action on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// a new row of all columns
    Insert,
    /// new values for the columns at these positions
    Update(Vec<usize>),
    /// the row is deleted
    Delete,
    /// no change; the row is neither counted nor returned
    Nothing,
}

/// The treatment of a second change of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// the first change wins (UPDATE … FROM, DELETE … USING)
    Skipped,
    /// 21000, in the words of ON CONFLICT DO UPDATE
    UpsertError,
    /// 21000, in the words of MERGE
    MergeError,
}

/// A condition that new rows must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckColumn {
    /// the input column with its result; NULL passes
    pub index: usize,
    /// the constraint
    pub constraint: Constraint,
    /// whether it applies to the row before ON CONFLICT, so that every input row must meet it
    pub proposed: bool,
}

/// The constraint of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Constraint {
    /// the CHECK constraint of this name
    Check(String),
    /// NOT NULL of this column
    NotNull(String),
}

/// The positions of the input columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// the id of the existing row (UInt64)
    pub row_id: Option<usize>,
    /// the row's action, an index into [`Operation::actions`] (Int32); NULL: nothing. Without
    /// this column every row has action 0.
    pub action: Option<usize>,
    /// per column of the table the input column with its new value
    pub columns: Vec<Option<usize>>,
    /// the conditions
    pub checks: Vec<CheckColumn>,
}

/// A DML statement, ready to be applied.
#[derive(Debug)]
pub(super) struct Operation {
    /// `INSERT`, `UPDATE`, `DELETE` or `MERGE`
    pub tag: &'static str,
    /// the target
    pub table: Arc<TableDef>,
    /// the possible actions on a row
    pub actions: Vec<Action>,
    /// the treatment of a second change of a row
    pub repeated: Repeated,
    /// ON CONFLICT: the keys and indexes that decide whether a row conflicts
    pub arbiters: Vec<Arbiter>,
    /// the positions of the input columns
    pub layout: Layout,
}

impl Operation {
    /// Whether this is INSERT … ON CONFLICT.
    pub fn is_upsert(&self) -> bool {
        !self.arbiters.is_empty()
    }

    /// The operation's text in EXPLAIN.
    pub fn explain(&self) -> String {
        let mut text = format!("{} {}", self.tag, self.table.name);
        if let [Action::Update(columns)] = self.actions.as_slice() {
            text += &format!(" set=[{}]", self.column_names(columns));
        }
        if self.is_upsert() {
            let keys: Vec<_> = self
                .arbiters
                .iter()
                .map(|arbiter| arbiter.name(&self.table))
                .collect();
            let action = match self.actions.get(1) {
                Some(Action::Update(columns)) => format!("UPDATE [{}]", self.column_names(columns)),
                _ => "NOTHING".to_string(),
            };
            text += &format!(" on_conflict=[{}] do={action}", keys.join(", "));
        }
        text
    }

    fn column_names(&self, positions: &[usize]) -> String {
        let names: Vec<_> = positions
            .iter()
            .map(|p| self.table.columns[*p].name.as_str())
            .collect();
        names.join(", ")
    }
}

/// What a running statement knows of its changes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// rows changed so far
    pub(super) rows: AtomicU64,
    /// whether the whole input has been applied
    pub(super) complete: AtomicBool,
    changed: OnceLock<Arc<ChangedRows>>,
}

impl Tally {
    /// Makes the rows in `changed`, and those that join them, rows that are not changed again. To
    /// be called before the statement runs.
    pub(super) fn share(&self, changed: &Arc<ChangedRows>) {
        let _ = self.changed.set(changed.clone());
    }

    /// The rows that the statement does not change again.
    pub(super) fn changed(&self) -> Arc<ChangedRows> {
        self.changed.get_or_init(Arc::default).clone()
    }
}
