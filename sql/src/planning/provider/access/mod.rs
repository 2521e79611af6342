//! Access paths: how a scan finds its rows, by reading the table or by asking its indexes.
//!
//! Conditions become sets of values per column ([`condition`], [`intervals`]), these become ranges
//! of an index's keys ([`ranges`]), and the entries in the ranges give *candidates*, row ids that
//! hold every row for which the conditions are true ([`candidates`]). The scan fetches the
//! candidates and applies all of its filters again. An index is used if that costs less than to
//! scan the table, which is decided by counting entries: a walk over an index ends once it has
//! found too many.
//!
//! Invariants:
//! 1. Candidates are complete for the statement's snapshot: an entry is added before the row's
//!    version commits, and leaves after the last snapshot that may find the row by it. Thus they
//!    may be gathered while the statement is planned and read when it runs.
//! 2. Whether an index is used changes no result. A set of values may be too large, never too
//!    small.
//!
//! Conditions and orders use an expression of an index like a column: both are *terms*
//! ([`terms`]). A partial index is used if the conditions that are known while the statement is
//! planned imply its predicate ([`predicates`]).
//!
//! An R-tree gives candidates for conditions on the places of points and boxes ([`places`]).
//!
//! The index of an ordered key is used like any other index; that of any key gives the rows of
//! whole keys. A scan of a moment before an index has been complete does not use it, and none of
//! the past uses the hash index of a key.
//!
//! If the parts of an index's key are all that a scan reads, the candidates keep their entries, and
//! the scan takes the values from these where they are certain
//! (`strandline_engine::Covering`). Such an index is preferred among those that restrict as many
//! parts.
//!
//! An index is used if it has at most one entry for each `ROWS_SCANNED_PER_FETCH` rows of the
//! table, or twice as many if it covers what is read. A walk ends there, which makes the count
//! exact, and is not begun if the index estimates many more. Candidates of several indexes are
//! united for OR and intersected for AND. They are gathered while the statement is planned, when
//! its values are known, and once more when a scan is first asked for rows and a join has told
//! which keys its smaller side has.

mod candidates;
mod condition;
mod intervals;
mod places;
mod predicates;
mod ranges;
mod terms;
mod walks;

pub use candidates::Candidates;
pub use walks::{OrderedTerm, Walk, WalkEntries};

use condition::Conjunction;
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use predicates::Given;
pub use predicates::is_implied_by;
use std::fmt;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, SqlType};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::{IndexDef, IndexId, IndexMethod, IndexState};
pub use terms::KeptTerms;
use terms::Terms;

/// To fetch a row by its id costs as much as to scan so many rows.
const ROWS_SCANNED_PER_FETCH: usize = 64;
/// So many rows are fetched from a table however small it is.
const FETCHED_MIN: usize = 16;

/// Which access paths a session's statements may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSettings {
    /// `enable_indexscan`
    pub indexes: bool,
    /// `enable_seqscan`: if off, tables are scanned only where no index serves
    pub scans: bool,
}

impl Default for AccessSettings {
    fn default() -> Self {
        Self {
            indexes: true,
            scans: true,
        }
    }
}

/// The indexes of a table that a scan may ask, and what it asks them.
pub struct Access {
    /// as of the moment that the scan reads
    table: Arc<TableDef>,
    /// as it is now, with its indexes
    indexed: Arc<TableDef>,
    statement: Arc<Statement>,
    indexes: Vec<IndexId>,
    terms: Arc<Terms>,
    /// keys whose whole values serve: of the table as it is now
    keys: Vec<usize>,
    condition: Conjunction,
    /// the columns that the scan reads
    read: Vec<ColumnId>,
    /// so many candidates are at most worth fetching
    limit: usize,
    /// what the conditions give that were known while the statement was planned
    planned: Option<Arc<Candidates>>,
}

impl Access {
    /// For a scan of `table`, which has about `rows` rows, with `filters` and for the columns
    /// `read`, at the statement's moment or `as_of`; None: no index can serve it, now or when the
    /// conditions of joins are known.
    pub fn new(
        table: &Arc<TableDef>,
        statement: &Arc<Statement>,
        as_of: Option<CommitTs>,
        (filters, read): (&[Expr], Vec<ColumnId>),
        rows: usize,
        state: &SessionState,
    ) -> Result<Option<Arc<Self>>> {
        let settings = state.config().get_extension::<AccessSettings>();
        let settings = settings.map(|settings| *settings).unwrap_or_default();
        let Some(indexed) = indexed(table, statement, as_of).filter(|_| settings.indexes) else {
            return Ok(None);
        };
        let moment = as_of.unwrap_or(statement.snapshot_ts());
        let serving = indexed.readable_indexes().map(AsRef::as_ref);
        let serving = serving.filter(|index| {
            serves(index, &indexed, table, moment) && statement.has_index(&indexed, index.id)
        });
        let serving: Vec<&IndexDef> = serving.collect();
        let terms = terms_of(table, &indexed, &serving, state)?;
        let condition = terms.values_of(filters);
        let mut given = None;
        let mut has_all = |index: &IndexDef| {
            if index.predicate.is_none() {
                return true;
            }
            let given = given.get_or_insert_with(|| Given::of(filters, &condition));
            terms.predicate(index.id).is_some_and(|p| given.implies(p))
        };
        let usable = serving.into_iter().filter(|index| has_all(index));
        let indexes: Vec<IndexId> = usable.map(|index| index.id).collect();
        let keys = match as_of {
            None => {
                let mut keys = keys_served(&indexed);
                keys.retain(|key| statement.has_key(&indexed, *key));
                keys
            }
            Some(_) => Vec::new(),
        };
        let mut access = Self {
            indexes,
            terms,
            keys,
            indexed,
            table: table.clone(),
            statement: statement.clone(),
            condition,
            read,
            limit: match settings.scans {
                true => FETCHED_MIN.max(rows / ROWS_SCANNED_PER_FETCH),
                false => usize::MAX,
            },
            planned: None,
        };
        if access.indexes.is_empty() && access.keys.is_empty() {
            return Ok(None);
        }
        access.planned = access
            .gather(&access.condition, access.limit)?
            .map(Arc::new);
        Ok(Some(Arc::new(access)))
    }

    /// The term that is computed by an expression over columns of `schema`, which are the table's.
    pub fn term(&self, expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<ColumnId> {
        self.terms.computed_by(expression, schema)
    }

    /// Whether any index has an order.
    pub fn is_ordered(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// The candidates that were found while the statement was planned.
    pub fn planned(&self) -> Option<&Arc<Candidates>> {
        self.planned.as_ref()
    }

    /// The candidates of a scan whose `filters` hold as well: fewer than those of the plan, or the
    /// same.
    pub fn narrowed(&self, filters: &[Arc<dyn PhysicalExpr>]) -> Result<Option<Arc<Candidates>>> {
        let mut condition = self.condition.clone();
        for filter in filters {
            condition.add_physical(filter, &self.table);
        }
        let limit = match &self.planned {
            // As many walks over an index as there are keys should save more than they cost.
            Some(planned) => planned.rows.len() / 2,
            None => self.limit,
        };
        let found = self.gather(&condition, limit)?.map(Arc::new);
        Ok(found.or_else(|| self.planned.clone()))
    }

    /// The definitions of the indexes that may be asked. One may have been dropped since.
    fn usable(&self) -> impl Iterator<Item = &Arc<IndexDef>> {
        self.indexed.readable_indexes().filter(|index| {
            self.indexes.contains(&index.id) && self.statement.has_index(&self.indexed, index.id)
        })
    }

    /// An R-tree over a term.
    fn over_place(&self, term: ColumnId) -> Option<&Arc<IndexDef>> {
        self.usable().find(|index| {
            let mut parts = index.parts.iter();
            index.method == IndexMethod::Spatial
                && parts.all(|part| self.terms.id_of(part) == Some(term))
        })
    }

    /// Those of them whose entries have an order.
    fn ordered(&self) -> impl Iterator<Item = &Arc<IndexDef>> {
        self.usable()
            .filter(|index| index.method == IndexMethod::Ordered)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({}, {:?})", self.table.name, self.condition)
    }
}

/// The terms of `table`, and the predicates of the partial ones of `serving`, which are indexes of
/// `indexed`.
fn terms_of(
    table: &Arc<TableDef>,
    indexed: &Arc<TableDef>,
    serving: &[&IndexDef],
    state: &SessionState,
) -> Result<Arc<Terms>> {
    if serving.iter().all(|index| index.is_plain()) {
        return Ok(Arc::new(Terms::of_columns(table)));
    }
    match state.config().get_extension::<KeptTerms>() {
        // A table of the past has other indexes, perhaps over other names.
        Some(kept) if Arc::ptr_eq(table, indexed) => kept.of(table, state),
        _ => Terms::of(table, serving.iter().copied(), state).map(Arc::new),
    }
}

/// The definition of `table` with the keys and indexes that there are now; None: it has none, or
/// its rows are others now.
fn indexed(
    table: &Arc<TableDef>,
    statement: &Statement,
    as_of: Option<CommitTs>,
) -> Option<Arc<TableDef>> {
    let now = match as_of {
        None => table.clone(),
        Some(_) => statement
            .transaction()
            .catalog()
            .tables
            .get(&table.id)?
            .clone(),
    };
    let has_any = !now.indexes.is_empty() || !now.keys.is_empty();
    (now.storage == table.storage && has_any).then_some(now)
}

/// The keys whose values are equal by their hashes' rules where they are by SQL's.
fn keys_served(table: &TableDef) -> Vec<usize> {
    let is_hashed_by_value = |id: &ColumnId| {
        let column = table.column_by_id(*id);
        column.is_some_and(|column| {
            use SqlType::{Box, Double, Interval, Json, Point, Real};
            !matches!(
                column.sql_type,
                Json | Real | Double | Interval | Point | Box
            )
        })
    };
    let keys = table.keys.iter().enumerate();
    let served = keys.filter(|(_, key)| key.columns.iter().all(is_hashed_by_value));
    served.map(|(at, _)| at).collect()
}

/// Whether an index of `indexed` has an entry for each row that `table` has at `moment`, and its
/// expressions mean in `table` what they mean in `indexed`.
fn serves(index: &IndexDef, indexed: &TableDef, table: &TableDef, moment: CommitTs) -> bool {
    let is_same = |id: &ColumnId| {
        let (now, then) = (indexed.column_by_id(*id), table.column_by_id(*id));
        now.zip(then).is_some_and(|(now, then)| {
            now.sql_type == then.sql_type && (index.is_plain() || now.name == then.name)
        })
    };
    index.state == IndexState::Valid
        && index.method != IndexMethod::Hash
        && index.complete_since <= moment
        && index.key_columns().iter().all(is_same)
}
