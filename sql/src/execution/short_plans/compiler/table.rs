//! Reads of tables: an access path for the conditions that have one, and the others behind it.

use super::comparisons::Comparisons;
use super::demand::{Demand, First};
use super::{Compiler, texts};
use crate::execution::row_executor::{Comparison, Lookup, OrderBy, Wanted, is_comparable};
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::{ByLookup, SmallTable, Stored};
use crate::planning::provider::table::Table;
use crate::planning::provider::table_schema::fields;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableScan};
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::TableDef;

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
        let reading = Reading::of(scan)?;
        let mut conditions = above;
        for part in scan.filters.iter().flat_map(split_conjunction) {
            if !conditions.contains(part) {
                conditions.push(part.clone());
            }
        }
        // Of the comparisons of one column the narrowest is the access path's.
        conditions.sort_by_key(|condition| !is_equality(condition));
        match self.by_lookup(&reading, demand, &conditions) {
            Some(found) => Some(found),
            None => self.small_table(&reading, &conditions),
        }
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

    /// What is read of the table, and what is tested, for the columns that the scan gives.
    fn stored(&mut self, reading: &Reading<'_>, conditions: &[Expr]) -> Option<Stored> {
        let mut positions = reading.projection.clone();
        for column in conditions.iter().flat_map(Expr::column_refs) {
            let columns = &reading.table.columns;
            let at = columns.iter().position(|c| c.name == column.name)?;
            if !positions.contains(&at) {
                positions.push(at);
            }
        }
        let all = fields(&reading.table);
        let fields = positions.iter().map(|at| all.get(*at).cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?));
        let name = reading.scan.table_name.clone();
        let named = DFSchema::try_from_qualified_schema(name, &schema).ok()?;
        let columns = positions.iter().map(|at| reading.table.columns.get(*at));
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some(Stored {
            table: reading.table.clone(),
            read: columns.iter().map(|column| column.id).collect(),
            types: columns.iter().map(|column| column.sql_type).collect(),
            read_schema: schema,
            conditions: self.expressions(conditions, &named)?,
            text: texts(conditions, ", "),
            wanted: reading.projection.len(),
        })
    }
}

impl<'a> Reading<'a> {
    /// None: not a table as of the statement's snapshot, or more than its columns.
    fn of(scan: &'a TableScan) -> Option<Self> {
        let provider = source_as_provider(&scan.source).ok()?;
        let table = provider.downcast_ref::<Table>()?;
        let table = table.is_present().then(|| table.definition().clone())?;
        let projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        let is_stored = |at: &usize| *at < table.columns.len();
        if !projection.iter().all(is_stored) {
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
            let is_known = !matches!(t, SqlType::Char(_) | SqlType::Json);
            is_known.then_some(OrderBy {
                column,
                descending: by.descending,
                nulls_first: by.nulls_first,
            })
        });
        Some((order.collect::<Option<_>>()?, Some(first.enough)))
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
