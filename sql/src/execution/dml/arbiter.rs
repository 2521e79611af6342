//! The arbiters of INSERT … ON CONFLICT, which decide whether a row conflicts: a constraint's key,
//! or an index of CREATE UNIQUE INDEX.

use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::{IndexDef, IndexValue};

/// A key or a unique index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Arbiter {
    /// a position in `TableDef::keys`
    Key(usize),
    /// a position in `TableDef::indexes`
    Index(usize),
}

impl Arbiter {
    /// All arbiters of a table.
    pub fn all(table: &TableDef) -> Vec<Self> {
        let indexes = table.indexes.iter().enumerate();
        let unique = indexes.filter(|(_, index)| index.unique);
        (0..table.keys.len())
            .map(Self::Key)
            .chain(unique.map(|(at, _)| Self::Index(at)))
            .collect()
    }
    /// The constraint's or the index's name.
    pub fn name(self, table: &TableDef) -> &str {
        match self {
            Self::Key(at) => &table.keys[at].name,
            Self::Index(at) => &table.indexes[at].name,
        }
    }
    /// The columns whose values are unique in all rows; None for an index over expressions or with
    /// a predicate.
    pub fn columns(self, table: &TableDef) -> Option<Vec<ColumnId>> {
        match self {
            Self::Key(at) => Some(table.keys[at].columns.clone()),
            Self::Index(at) => plain_columns(&table.indexes[at]),
        }
    }
    /// An error if the constraint is deferrable.
    pub fn require_immediate(self, table: &TableDef) -> Result<()> {
        match self {
            Self::Key(at) if table.keys[at].is_deferrable() => Err(Error::invalid(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints \
                 as arbiters",
            )),
            _ => Ok(()),
        }
    }
    /// Whether two NULLs conflict.
    pub fn nulls_are_equal(self, table: &TableDef) -> bool {
        match self {
            Self::Key(at) => table.keys[at].nulls_not_distinct,
            Self::Index(at) => table.indexes[at].nulls_not_distinct,
        }
    }
}

fn plain_columns(index: &IndexDef) -> Option<Vec<ColumnId>> {
    if index.predicate.is_some() {
        return None;
    }
    let parts = index.parts.iter();
    let columns = parts.map(|part| match part.value {
        IndexValue::Column(id) => Some(id),
        IndexValue::Expression(_) => None,
    });
    columns.collect()
}
