//! Searches for [short plans](crate::execution::short_plans): rows of one table by values that an
//! execution has in numbered slots.

use super::conditions::{Condition, Limit, Test};
use super::execution::Execution;
use super::program::Compiled;
use super::search::{Asked, KeyPath, OrderColumn, Path, Search, Slice};
use super::source::Source;
use super::value::is_comparable;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{PartOrder, Statement};

/// A slot's number, and the type of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef {
    pub at: usize,
    pub sql_type: SqlType,
}

/// What a column is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Comparison {
    Equal(SlotRef),
    In(Vec<SlotRef>),
    /// bounds, and whether each belongs to the values within
    Within {
        lower: Option<(SlotRef, bool)>,
        upper: Option<(SlotRef, bool)>,
    },
}

impl Comparison {
    /// The slots that it reads.
    pub fn slots(&self) -> Vec<SlotRef> {
        match self {
            Self::Equal(slot) => vec![*slot],
            Self::In(slots) => slots.clone(),
            Self::Within { lower, upper } => {
                lower.iter().chain(upper).map(|(slot, _)| *slot).collect()
            }
        }
    }
}

/// A column of an ORDER BY.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderBy {
    pub column: ColumnId,
    pub descending: bool,
    pub nulls_first: bool,
}

/// What a lookup has to find.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// one comparison a column
    pub comparisons: Vec<(ColumnId, Comparison)>,
    pub order: Vec<OrderBy>,
    /// the slot of the number of rows that are enough
    pub limit: Option<usize>,
    pub columns: Vec<ColumnId>,
}

/// A compiled lookup.
#[derive(Debug)]
pub(crate) struct Lookup {
    table: Arc<TableDef>,
    search: Search,
}

impl Lookup {
    /// None: no key or index leads to the rows wanted.
    pub fn compile(table: &Arc<TableDef>, wanted: Wanted, uses_indexes: bool) -> Option<Self> {
        let source = |slot: SlotRef| Source::Parameter(slot.at, Some(slot.sql_type), false);
        let limit = |bound: Option<(SlotRef, bool)>| {
            bound.map(|(slot, inclusive)| Limit {
                source: source(slot),
                inclusive,
            })
        };
        let mut tests = Vec::with_capacity(wanted.comparisons.len());
        for (column, comparison) in wanted.comparisons {
            let sql_type = table.column_by_id(column)?.sql_type;
            let mut slots = comparison.slots().into_iter();
            if !slots.all(|slot| is_comparable(sql_type, slot.sql_type)) {
                return None;
            }
            let condition = match comparison {
                Comparison::Equal(slot) => Condition::Equal(source(slot)),
                Comparison::In(slots) => Condition::In(slots.into_iter().map(source).collect()),
                Comparison::Within { lower, upper } => Condition::Within {
                    lower: limit(lower),
                    upper: limit(upper),
                },
            };
            tests.push(Test {
                column,
                sql_type,
                condition,
            });
        }
        let order = wanted.order.iter().map(|by| OrderColumn {
            column: by.column,
            order: PartOrder {
                descending: by.descending,
                nulls_first: by.nulls_first,
            },
            skips_null: false,
        });
        let slice = Slice {
            limit: wanted
                .limit
                .map(|at| Source::Parameter(at, Some(SqlType::BigInt), false)),
            offset: None,
        };
        let asked = Asked {
            tests,
            rows: Vec::new(),
            order: order.collect(),
            slice,
            wanted: &wanted.columns,
        };
        let search = Search::of(table, asked, uses_indexes)?;
        Some(Self {
            table: table.clone(),
            search,
        })
    }

    /// About how many rows it finds, by its definition.
    pub fn estimate(&self) -> usize {
        const BY_KEY: usize = 1;
        const BY_INDEX: usize = 10;
        const BY_RANGE: usize = 100;
        let is_equal = |at: &usize| self.search.tests[*at].is_equal();
        match &self.search.path {
            Path::Key(KeyPath { parts, .. }) if parts.iter().all(is_equal) => BY_KEY,
            Path::Key(KeyPath { range: Some(_), .. }) => BY_RANGE,
            Path::Index(path) if path.points.is_empty() => BY_RANGE,
            Path::Key(_) | Path::Index(_) | Path::Either(_) => BY_INDEX,
        }
    }

    /// Whether it goes through the numbers of a range, which may have few rows.
    pub fn counts(&self) -> bool {
        matches!(&self.search.path, Path::Key(KeyPath { range: Some(_), .. }))
    }

    /// The number of columns of a row found: those wanted are the first of them.
    pub fn width(&self) -> usize {
        self.search.reads.len()
    }

    /// As EXPLAIN shows it.
    pub fn text(&self) -> String {
        format!("{}, {}", self.table.name, self.search.text(&self.table))
    }

    /// The rows, one after the other; None: they are many, or a value is not decided here.
    pub fn find(
        &self,
        compiled: &Compiled,
        statement: &Arc<Statement>,
        slots: &[ScalarValue],
    ) -> Result<Option<Vec<Value>>> {
        let execution = Execution {
            compiled,
            transaction: statement.transaction(),
            values: slots,
            now_us: 0,
            checks: None,
            begun: None,
            queried: Vec::new(),
        };
        execution.find(statement, &self.table, &self.search, None)
    }
}
