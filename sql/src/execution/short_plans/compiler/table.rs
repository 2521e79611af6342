//! Reads of tables: an access path for the conditions that have one, and the others behind it.

use super::comparisons::Comparisons;
use super::demand::{Demand, First};
use super::{Compiler, texts};
use crate::execution::row_executor::{
    Comparison, Lookup, OrderBy, ROW_ID, SlotRef, Wanted, is_comparable,
};
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::{
    Bound, ByLookup, KeptRows, Returned, Scan, SmallTable, Stored,
};
use crate::execution::short_plans::run::ROWS_MAX;
use crate::planning::provider::returned_rows::ReturnedRows;
use crate::planning::provider::table::Table;
use crate::planning::provider::table_schema::fields;
use crate::planning::provider::value_rows::ValueRows;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableScan};
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::CompareOp;
use strandline_engine::catalog::TableDef;

/// About how many rows an earlier part returns.
const RETURNED_ROWS: usize = 10;

/// About how many rows pass the conditions of a scan.
const SCANNED_ROWS: usize = 10;

/// A read of a table.
struct Reading<'a> {
    scan: &'a TableScan,
    table: Arc<TableDef>,
    /// all columns of the table
    schema: DFSchema,
    /// positions in the table of the columns that the scan gives
    projection: Vec<usize>,
}

impl Compiler<'_> {
    /// The rows of a table for which all of `above` hold.
    pub(super) fn table(
        &mut self,
        scan: &TableScan,
        demand: &Demand,
        above: Vec<Expr>,
    ) -> Option<Node> {
        if let Some(node) = self.kept_rows(scan) {
            let conditions: Vec<Expr> = above.into_iter().chain(scan.filters.clone()).collect();
            return self.filtered(node, &scan.projected_schema, &conditions);
        }
        let reading = Reading::of(scan)?;
        let mut conditions = above;
        for part in scan.filters.iter().flat_map(split_conjunction) {
            if !conditions.contains(part) {
                conditions.push(part.clone());
            }
        }
        // Of the comparisons of one column the narrowest is the access path's.
        conditions.sort_by_key(|condition| !is_equality(condition));
        if let Some(found) = self.by_lookup(&reading, demand, &conditions) {
            return Some(found);
        }
        match self.small_table(&reading, &conditions) {
            None if demand.of_changed => self.scanned(&reading, &conditions),
            small => small,
        }
    }

    /// Rows that no table has: those that an earlier part has returned, or of VALUES.
    fn kept_rows(&mut self, scan: &TableScan) -> Option<Node> {
        let provider = source_as_provider(&scan.source).ok()?;
        let columns = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        if let Some(returned) = provider.downcast_ref::<ReturnedRows>() {
            let part = returned.part();
            return Some(self.node(Returned { part, columns }, RETURNED_ROWS));
        }
        let values = provider.downcast_ref::<ValueRows>()?;
        let rows = values.rows().project(&columns).ok()?;
        let estimate = rows.num_rows();
        (estimate <= ROWS_MAX).then(|| self.node(KeptRows { rows }, estimate))
    }

    fn by_lookup(
        &mut self,
        reading: &Reading<'_>,
        demand: &Demand,
        conditions: &[Expr],
    ) -> Option<Node> {
        let mut comparisons = Comparisons::default();
        let mut others = Vec::new();
        for condition in conditions {
            let compared = self.comparison(condition, &reading.schema);
            let is_added = compared.is_some_and(|compared| {
                let column = reading.column(&compared.column.name);
                column.is_some_and(|column| {
                    comparisons.add(column, compared.comparison, compared.computed)
                })
            });
            if !is_added {
                others.push(condition.clone());
            }
        }
        for condition in &others {
            let column = |name: &str| reading.column(name);
            self.add_implied(condition, &reading.schema, column, &mut comparisons);
        }
        let mut absorbed = Vec::new();
        for equal in &demand.equal {
            let Some((column, t)) = reading.given(&equal.column) else {
                continue;
            };
            let is_known = comparisons.found.iter().any(|(known, _)| *known == column);
            if !is_known && is_comparable(t, equal.slot.sql_type) {
                let comparison = Comparison::Equal(equal.slot);
                comparisons.found.push((column, comparison));
                absorbed.push(equal.slot.at);
            }
        }
        let stored = self.stored(reading, &others)?;
        let first = demand.first.as_ref().filter(|_| others.is_empty());
        let first = first.and_then(|first| reading.first(first));
        let (order, limit) = first.unwrap_or_default();
        let first_column = comparisons.found.first().map(|(column, _)| *column);
        let mut columns = stored.read.clone();
        if columns.is_empty() {
            // A row found must have a column to be counted.
            columns.extend(first_column);
        }
        let wanted = Wanted {
            comparisons: comparisons.found,
            order,
            limit,
            columns,
        };
        let lookup = Lookup::compile(&reading.table, wanted, self.uses_indexes)?;
        if lookup.counts() && self.is_small(&reading.table) {
            return None;
        }
        self.absorbed.extend(absorbed);
        let estimate = lookup.estimate();
        let operator = ByLookup {
            lookup,
            computed: comparisons.computed,
            stored,
        };
        Some(self.node(operator, estimate))
    }

    fn is_small(&self, table: &TableDef) -> bool {
        let rows = usize::try_from(self.db.statistics(table).rows);
        rows.is_ok_and(|rows| rows <= SmallTable::ROWS_MAX)
    }

    fn small_table(&mut self, reading: &Reading<'_>, conditions: &[Expr]) -> Option<Node> {
        if !self.is_small(&reading.table) {
            return None;
        }
        let rows = usize::try_from(self.db.statistics(&reading.table).rows).ok()?;
        let stored = self.stored(reading, conditions)?;
        Some(self.node(SmallTable { stored }, rows.max(1)))
    }

    /// A scan, if a column is compared for equality: few rows are expected to pass.
    fn scanned(&mut self, reading: &Reading<'_>, conditions: &[Expr]) -> Option<Node> {
        if self.db.statistics(&reading.table).rows > Scan::ROWS_MAX {
            return None;
        }
        let mut comparisons = Comparisons::default();
        for condition in conditions {
            if let Some(compared) = self.comparison(condition, &reading.schema)
                && let Some(column) = reading.column(&compared.column.name)
            {
                comparisons.add(column, compared.comparison, compared.computed);
            }
        }
        let is_equal = |(_, c): &(ColumnId, Comparison)| matches!(c, Comparison::Equal(_));
        if !comparisons.found.iter().any(is_equal) {
            return None;
        }
        let operator = Scan {
            bounds: bounds(&reading.table, &comparisons.found),
            computed: comparisons.computed,
            stored: self.stored(reading, conditions)?,
        };
        Some(self.node(operator, SCANNED_ROWS))
    }

    /// What is read of the table, and what is tested, for the columns that the scan gives.
    fn stored(&mut self, reading: &Reading<'_>, conditions: &[Expr]) -> Option<Stored> {
        let columns = &reading.table.columns;
        let given = reading.projection.iter().copied();
        let mut positions: Vec<usize> = given.filter(|at| *at < columns.len()).collect();
        for column in conditions.iter().flat_map(Expr::column_refs) {
            let at = columns.iter().position(|c| c.name == column.name)?;
            if !positions.contains(&at) {
                positions.push(at);
            }
        }
        let has_row_id = reading.projection.contains(&columns.len());
        if has_row_id {
            positions.insert(0, columns.len());
        }
        let all = reading.scan.source.schema();
        let fields = positions.iter().map(|at| all.fields().get(*at).cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?));
        let name = reading.scan.table_name.clone();
        let named = DFSchema::try_from_qualified_schema(name, &schema).ok()?;
        let read = positions.iter().map(|at| match columns.get(*at) {
            Some(column) => (column.id, column.sql_type),
            None => (ROW_ID, SqlType::BigInt),
        });
        let (read, types) = read.unzip();
        let place = |wanted: &usize| positions.iter().position(|at| at == wanted);
        let given = reading.projection.iter().map(place);
        Some(Stored {
            table: reading.table.clone(),
            read,
            types,
            has_row_id,
            read_schema: schema,
            conditions: self.expressions(conditions, &named)?,
            text: texts(conditions, ", "),
            given: given.collect::<Option<_>>()?,
        })
    }
}

impl<'a> Reading<'a> {
    /// None: not a table as of the statement's snapshot.
    fn of(scan: &'a TableScan) -> Option<Self> {
        let provider = source_as_provider(&scan.source).ok()?;
        let table = provider.downcast_ref::<Table>()?;
        let table = table.is_present().then(|| table.definition().clone())?;
        let projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        // The row's id comes behind the columns.
        if projection.iter().any(|at| *at > table.columns.len()) {
            return None;
        }
        let schema = Schema::new(fields(&table));
        let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &schema).ok()?;
        Some(Self {
            scan,
            table,
            schema,
            projection,
        })
    }

    fn column(&self, name: &str) -> Option<(ColumnId, SqlType)> {
        let column = self.table.column(name)?;
        Some((column.id, column.sql_type))
    }

    /// A column that the scan gives.
    fn given(&self, column: &datafusion::common::Column) -> Option<(ColumnId, SqlType)> {
        let at = self.scan.projected_schema.maybe_index_of_column(column)?;
        let column = self.table.columns.get(*self.projection.get(at)?)?;
        Some((column.id, column.sql_type))
    }

    /// The order and the number of the first rows, if a search can know the order.
    fn first(&self, first: &First) -> Option<(Vec<OrderBy>, Option<usize>)> {
        let order = first.order.iter().map(|by| {
            let (column, t) = self.given(&by.column)?;
            let is_known = !matches!(
                t,
                SqlType::Char(_) | SqlType::Json | SqlType::Point | SqlType::Box
            );
            is_known.then_some(OrderBy {
                column,
                descending: by.descending,
                nulls_first: by.nulls_first,
            })
        });
        Some((order.collect::<Option<_>>()?, Some(first.enough)))
    }
}

/// What blocks must have, of those comparisons whose values are exactly values of their columns.
fn bounds(table: &TableDef, comparisons: &[(ColumnId, Comparison)]) -> Vec<Bound> {
    let mut found = Vec::new();
    for (column, comparison) in comparisons {
        let t = table.column_by_id(*column).map(|column| column.sql_type);
        let mut add = |op, slot: SlotRef| {
            if let Some(t) = t.and_then(|t| bound_type(t, slot.sql_type)) {
                found.push(Bound {
                    column: *column,
                    op,
                    slot: slot.at,
                    sql_type: t,
                });
            }
        };
        match comparison {
            Comparison::Equal(slot) => add(CompareOp::Eq, *slot),
            Comparison::In(_) => {}
            Comparison::Within { lower, upper } => {
                let strict = |inclusive, op, or_equal| if inclusive { or_equal } else { op };
                if let Some((slot, inclusive)) = lower {
                    add(strict(*inclusive, CompareOp::Gt, CompareOp::Ge), *slot);
                }
                if let Some((slot, inclusive)) = upper {
                    add(strict(*inclusive, CompareOp::Lt, CompareOp::Le), *slot);
                }
            }
        }
    }
    found
}

/// The type in which a value of type `value` is exactly the bound of a column of type `t`.
fn bound_type(t: SqlType, value: SqlType) -> Option<SqlType> {
    let is_integer = |t| matches!(t, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let is_text = |t| matches!(t, SqlType::Text | SqlType::Varchar(_));
    match t {
        t if is_integer(t) && is_integer(value) => Some(t),
        t if is_text(t) && is_text(value) => Some(SqlType::Text),
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Uuid if t == value => {
            Some(t)
        }
        _ => None,
    }
}

fn is_equality(condition: &Expr) -> bool {
    matches!(
        condition,
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Eq,
            ..
        })
    )
}
