//! A compiled statement: what [`compile`](super::compile) makes and [`run`](super::run) executes.

use super::arithmetic::Arithmetic;
use super::expressions::{ComputedValues, Expressions};
use super::search::Search;
use super::source::Source;
use crate::planning::locking::Lock;
use crate::planning::template::Template;
use crate::values::value_row::ValueColumns;
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::PointTable;
use strandline_engine::access::Privileges;
use strandline_engine::catalog::{Catalog, TableDef};
use strandline_semantics::aggregates::exact::Finish;

/// A compiled subquery of one value, of a type.
#[derive(Debug)]
pub(super) struct Subquery {
    pub statement: RowStatement,
    pub sql_type: SqlType,
}

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
    pub(super) table: Arc<TableDef>,
    pub(super) operation: Operation,
    /// RETURNING, of what writes
    pub(super) returning: Option<Projection>,
    /// subqueries of one value, inner ones first; they have none of their own
    pub(super) subqueries: Vec<Subquery>,
}

impl RowStatement {
    /// Whether it only reads.
    pub fn is_read_only(&self) -> bool {
        let reads = |operation: &Operation| {
            matches!(
                operation,
                Operation::Select(_)
                    | Operation::Search(_, _, None)
                    | Operation::Ends(_)
                    | Operation::Aggregates(_)
            )
        };
        self.parts().all(|part| reads(&part.operation))
    }

    /// The statement and its subqueries.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        let subqueries = self.subqueries.iter();
        std::iter::once(self).chain(subqueries.map(|subquery| &subquery.statement))
    }

    /// What running it asks of each table; reading a row's key is part of changing it.
    pub fn privileges(&self) -> impl Iterator<Item = (&Arc<TableDef>, &'static [Privileges])> {
        self.parts().map(Self::own_privileges)
    }

    fn own_privileges(&self) -> (&Arc<TableDef>, &'static [Privileges]) {
        const READ: Privileges = Privileges::SELECT;
        let wanted: &[Privileges] = match self.operation {
            Operation::Select(_)
            | Operation::Search(_, _, None)
            | Operation::Ends(_)
            | Operation::Aggregates(_) => &[READ],
            Operation::Search(_, _, Some(_)) => &[READ, Privileges::UPDATE],
            Operation::Update(_) => &[READ, Privileges::UPDATE],
            Operation::Delete(_) => &[READ, Privileges::DELETE],
            // Conflicts may make it an update, RETURNING a read.
            Operation::Insert(_) => &[READ, Privileges::INSERT, Privileges::UPDATE],
        };
        (&self.table, wanted)
    }

    /// Whether another transaction's commit may make an execution start over; a write by key looks
    /// at the newest row itself.
    pub fn may_start_over(&self) -> bool {
        self.parts().any(Self::may_start_over_itself)
    }

    fn may_start_over_itself(&self) -> bool {
        match &self.operation {
            Operation::Search(_, _, lock) => lock.is_some(),
            Operation::Update(update) => matches!(update.find, Find::Search(_)),
            Operation::Delete(find) => matches!(find, Find::Search(_)),
            Operation::Insert(insert) => insert.conflict.is_some() && insert.rows.len() > 1,
            Operation::Select(_) | Operation::Ends(_) | Operation::Aggregates(_) => false,
        }
    }

    /// The table, if the statement makes rows that its CHECK constraints must hold for.
    pub fn checked_table(&self) -> Option<&Arc<TableDef>> {
        let makes_rows = matches!(self.operation, Operation::Insert(_) | Operation::Update(_));
        (makes_rows && !self.table.checks.is_empty()).then_some(&self.table)
    }

    /// What EXPLAIN shows of it.
    pub fn text(&self) -> String {
        let mut text = format!("RowExecutor: {}", self.own_text());
        for (no, subquery) in self.subqueries.iter().enumerate() {
            let found = subquery.statement.own_text();
            text.push_str(&format!("; value {}: {found}", no + 1));
        }
        text
    }

    fn own_text(&self) -> String {
        let key = |key: &Key| format!("key={}", self.table.keys[key.index].name);
        let find = |find: &Find| match find {
            Find::Key(found) => key(found),
            Find::Search(search) => search.text(&self.table),
        };
        let (verb, found) = match &self.operation {
            Operation::Select(select) => ("select", key(&select.key)),
            Operation::Search(search, _, lock) => {
                let mut text = search.text(&self.table);
                if let Some(lock) = lock {
                    text.push_str(&format!(", {lock}"));
                }
                ("select", text)
            }
            Operation::Ends(ends) => {
                let searches = ends.searches.iter().map(|search| search.text(&self.table));
                ("ends", searches.collect::<Vec<_>>().join("; "))
            }
            Operation::Aggregates(query) => ("aggregate", query.search.text(&self.table)),
            Operation::Update(update) => ("update", find(&update.find)),
            Operation::Delete(found) => ("delete", find(found)),
            Operation::Insert(insert) => {
                let rows = insert.rows.len();
                let mut text = format!("rows={rows}");
                if let Some(conflict) = &insert.conflict {
                    let key = &self.table.keys[conflict.index].name;
                    text.push_str(&format!(", conflict={key}"));
                }
                ("insert", text)
            }
        };
        format!("{verb} {}, {found}", self.table.name)
    }
}

#[derive(Debug)]
pub(super) enum Operation {
    Select(Select),
    /// a query of the rows that a search finds, which it may lock
    Search(Box<Search>, Projection, Option<Lock>),
    Ends(Ends),
    Aggregates(Aggregates),
    Update(Update),
    Delete(Find),
    Insert(Insert),
}

/// The row that a statement is about.
#[derive(Debug)]
pub(super) struct Key {
    pub point: PointTable,
    /// index into `TableDef::keys`
    pub index: usize,
    /// per column of the key its type and the value it is compared with
    pub parts: Vec<(SqlType, Source)>,
}

#[derive(Debug)]
pub(super) struct Select {
    pub key: Key,
    pub columns: Projection,
}

/// MIN and MAX: of each the search whose first row has the value.
#[derive(Debug)]
pub(super) struct Ends {
    pub searches: Vec<Search>,
    pub result: Arc<ValueColumns>,
}

/// Aggregates of the rows that a search finds.
#[derive(Debug)]
pub(super) struct Aggregates {
    pub search: Search,
    pub calls: Vec<Aggregate>,
    pub result: Arc<ValueColumns>,
}

/// One aggregate.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub function: AggregateFunction,
    /// the place of its column among those that the search reads; 0 for `count(*)`
    pub place: usize,
}

#[derive(Debug)]
pub(super) enum AggregateFunction {
    /// `count(*)`
    Rows,
    /// `count(column)`
    Values,
    Total(Finish),
    /// `min` if its values are less than others, `max` if they are greater
    End(Ordering),
}

/// The rows that UPDATE or DELETE are about.
#[derive(Debug)]
pub(super) enum Find {
    Key(Key),
    Search(Box<Search>),
}

/// A result: some of the table's columns, or expressions over them.
#[derive(Debug)]
pub(super) struct Projection {
    /// the columns that are read
    pub ids: Vec<ColumnId>,
    /// their positions in the table
    pub positions: Vec<usize>,
    /// Some: the columns of the result, over those read
    pub computed: Option<Expressions>,
    /// of each column of the result the position in the table, if it is the table's
    pub sources: Vec<Option<usize>>,
    /// the columns of the result; their types only without expressions
    pub result: Arc<ValueColumns>,
}

#[derive(Debug)]
pub(super) struct Update {
    pub find: Find,
    pub set: SetList,
}

/// `SET …`, and the columns that its expressions and the CHECK constraints read.
#[derive(Debug)]
pub(super) struct SetList {
    /// what is read of the row; all columns in order, and perhaps more, if the new row as a whole
    /// is asked for
    pub reads: Vec<ColumnId>,
    /// (position in the table, new value)
    pub set: Vec<(usize, Scalar)>,
    /// the new values that are expressions, in the order of the list
    pub computed: Option<ComputedValues>,
    /// WHERE of ON CONFLICT DO UPDATE
    pub condition: Option<Expressions>,
}

#[derive(Debug)]
pub(super) struct Insert {
    /// per row the values of all columns in order
    pub rows: Vec<Vec<Source>>,
    /// the values that are expressions
    pub computed: Option<ComputedValues>,
    pub conflict: Option<Conflict>,
}

/// ON CONFLICT of one key.
#[derive(Debug)]
pub(super) struct Conflict {
    pub point: PointTable,
    /// index into `TableDef::keys`
    pub index: usize,
    /// positions of the key's columns in the table
    pub key: Vec<usize>,
    /// DO UPDATE
    pub update: Option<SetList>,
    /// the columns that DO UPDATE reads, then others: those of the key are there
    pub reads: Vec<ColumnId>,
    /// places of the key's columns among them
    pub places: Vec<usize>,
}

/// A new value.
#[derive(Debug)]
pub(super) enum Scalar {
    Constant(Source),
    /// a column of the row: its place among the columns read, and its type
    Column(usize, SqlType),
    /// a column of the row that an INSERT proposes
    Excluded(usize, SqlType),
    Arithmetic(Arithmetic, Box<Scalar>, Box<Scalar>),
    /// one of the list's expressions
    Computed(usize),
}
