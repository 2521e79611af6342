//! The row executor: statements on one row by its whole key, or on the few rows of one table that a
//! key or a secondary index leads to ([`search`]), MIN and MAX of indexed columns, and INSERTs of a
//! few rows, compiled once and run on the engine without DataFusion.
//!
//! A statement is compiled from its syntax tree ([`compile`]) for one version of the catalog, one
//! set of session settings and the types of its parameters. Statements outside these forms are not
//! compiled and take the full path.
//!
//! Invariants:
//! 1. The result is exactly the full path's. Unusual values and rows (an inexact cast, an overflow,
//!    a NULL or CHECK violation) are not decided here: the execution is [`Run::Undecided`], leaves
//!    nothing behind, and the full path runs the statement and words the error. Only the engine's
//!    own errors (duplicate keys, conflicts, deadlocks) come from here: they are the same on both
//!    paths.
//! 2. A compiled statement runs only in a transaction that uses the same catalog version it was
//!    compiled for; the engine's operations look once more.
//! 3. Under read committed a conflict undoes the statement and leaves it to the full path, which
//!    runs it again as often as it takes.

mod arithmetic;
mod compile;
mod compile_insert;
mod conditions;
mod constant;
mod ends;
mod find;
mod insert;
mod modify;
mod run;
mod search;
mod value;

use crate::planning::template::Template;
use crate::values::value_row::ValueColumns;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::PointTable;
use strandline_engine::access::Privileges;
use strandline_engine::catalog::{Catalog, TableDef};

use search::Search;

pub(crate) use compile::Compiler;
pub(crate) use constant::argument;
pub(crate) use run::{Execution, Run};

/// A statement for one version of the catalog and one state of the settings.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// the catalog it is good for
    pub catalog: Arc<Catalog>,
    /// the settings it is good for
    pub template: Arc<Template>,
    /// None: the statement takes the full path
    pub statement: Option<RowStatement>,
    /// whether an execution needs to know `now()`
    pub asks_now: bool,
}

/// A compiled statement.
#[derive(Debug)]
pub(crate) struct RowStatement {
    table: Arc<TableDef>,
    operation: Operation,
    /// RETURNING, of what writes
    returning: Option<Projection>,
}

impl RowStatement {
    /// Whether it only reads.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self.operation,
            Operation::Select(_) | Operation::Search(..) | Operation::Ends(_)
        )
    }

    /// What running it asks of the table; reading a row's key is part of changing it.
    pub fn privileges(&self) -> (&Arc<TableDef>, &'static [Privileges]) {
        const READ: Privileges = Privileges::SELECT;
        let wanted: &[Privileges] = match self.operation {
            Operation::Select(_) | Operation::Search(..) | Operation::Ends(_) => &[READ],
            Operation::Update(_) => &[READ, Privileges::UPDATE],
            Operation::Delete(_) => &[READ, Privileges::DELETE],
            // Conflicts may make it an update, RETURNING a read.
            Operation::Insert(_) => &[READ, Privileges::INSERT, Privileges::UPDATE],
        };
        (&self.table, wanted)
    }

    /// The table, if the statement makes rows that its CHECK constraints must hold for.
    pub fn checked_table(&self) -> Option<&Arc<TableDef>> {
        let makes_rows = matches!(self.operation, Operation::Insert(_) | Operation::Update(_));
        (makes_rows && !self.table.checks.is_empty()).then_some(&self.table)
    }

    /// What EXPLAIN shows of it; None: nothing.
    pub fn text(&self) -> Option<String> {
        let key = |key: &Key| format!("key={}", self.table.keys[key.index].name);
        let find = |find: &Find| match find {
            Find::Key(found) => key(found),
            Find::Search(search) => search.text(&self.table),
        };
        let (verb, found) = match &self.operation {
            Operation::Select(select) => ("select", key(&select.key)),
            Operation::Search(search, _) => ("select", search.text(&self.table)),
            Operation::Ends(ends) => {
                let searches = ends.searches.iter().map(|search| search.text(&self.table));
                ("ends", searches.collect::<Vec<_>>().join("; "))
            }
            Operation::Update(update) => ("update", find(&update.find)),
            Operation::Delete(found) => ("delete", find(found)),
            Operation::Insert(_) => return None,
        };
        Some(format!("RowExecutor: {verb} {}, {found}", self.table.name))
    }
}

#[derive(Debug)]
enum Operation {
    Select(Select),
    /// a query of the rows that a search finds
    Search(Box<Search>, Projection),
    Ends(Ends),
    Update(Update),
    Delete(Find),
    Insert(Insert),
}

/// The row that a statement is about.
#[derive(Debug)]
struct Key {
    point: PointTable,
    /// index into `TableDef::keys`
    index: usize,
    /// per column of the key its type and the value it is compared with
    parts: Vec<(SqlType, Source)>,
}

#[derive(Debug)]
struct Select {
    key: Key,
    columns: Projection,
}

/// MIN and MAX: of each the search whose first row has the value.
#[derive(Debug)]
struct Ends {
    searches: Vec<Search>,
    result: Arc<ValueColumns>,
}

/// The rows that UPDATE or DELETE are about.
#[derive(Debug)]
enum Find {
    Key(Key),
    Search(Box<Search>),
}

/// The columns of a result, which are some of the table's.
#[derive(Debug)]
struct Projection {
    ids: Vec<ColumnId>,
    /// in the table
    positions: Vec<usize>,
    result: Arc<ValueColumns>,
}

#[derive(Debug)]
struct Update {
    find: Find,
    set: SetList,
}

/// `SET …`, and the columns that its expressions and the CHECK constraints read.
#[derive(Debug)]
struct SetList {
    /// what is read of the row; all columns in order, and perhaps more, if the new row as a whole
    /// is asked for
    reads: Vec<ColumnId>,
    /// (position in the table, new value)
    set: Vec<(usize, Scalar)>,
}

#[derive(Debug)]
struct Insert {
    /// per row the values of all columns in order
    rows: Vec<Vec<Source>>,
    conflict: Option<Conflict>,
}

/// ON CONFLICT of one row and one key.
#[derive(Debug)]
struct Conflict {
    point: PointTable,
    /// index into `TableDef::keys`
    index: usize,
    /// positions of the key's columns in the table
    key: Vec<usize>,
    /// DO UPDATE
    update: Option<SetList>,
}

/// A new value.
#[derive(Debug)]
enum Scalar {
    Constant(Source),
    /// a column of the row: its place among the columns read, and its type
    Column(usize, SqlType),
    /// a column of the row that an INSERT proposes
    Excluded(usize, SqlType),
    Arithmetic(Arithmetic, Box<Scalar>, Box<Scalar>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// Where a value comes from that no row decides.
#[derive(Clone, Debug)]
enum Source {
    /// a parameter: its index, its type (None: its value's), whether it is negated
    Parameter(usize, Option<SqlType>, bool),
    /// a literal; strings have no type of their own
    Literal(ScalarValue),
    /// `now()`
    Now,
    /// the next value of the column's identity
    Identity,
}

/// A value with the type that it has in the statement.
struct Datum {
    value: ScalarValue,
    /// None: that of a literal that reads as the value; of a string none at all
    known: Option<SqlType>,
}
