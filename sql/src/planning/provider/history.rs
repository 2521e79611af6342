//! `strandline_history('t', key…)`: every version within the retention of the row with that primary
//! key, with the times from and to which it was valid.

use crate::backends::acting::Acting;
use crate::parse::names;
use crate::planning::provider::table_schema::{arrow_field, arrow_schema};
use crate::values::value;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use datafusion::scalar::ScalarValue;
use std::fmt;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::Statement;
use strandline_engine::access::Privileges;
use strandline_engine::catalog::{Catalog, TableDef};
use strandline_semantics::error::raise;

/// The table function, bound to one statement.
pub struct HistoryFunction {
    statement: Arc<Statement>,
    catalog: Arc<Catalog>,
    /// the user whose privileges are checked; None: a superuser
    acting: Option<Arc<Acting>>,
}

impl HistoryFunction {
    /// Its name in SQL.
    pub const NAME: &'static str = "strandline_history";

    /// A function that reads with `statement`.
    pub fn new(
        statement: Arc<Statement>,
        catalog: Arc<Catalog>,
        acting: Option<Arc<Acting>>,
    ) -> Self {
        Self {
            statement,
            catalog,
            acting,
        }
    }

    fn rows(&self, arguments: &[Expr], default_schema: &str) -> Result<RecordBatch> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match argument {
                Expr::Literal(value, _) => values.push(value),
                other => {
                    return Err(Error::invalid(
                        SqlState::INVALID_PARAMETER_VALUE,
                        format!("{} takes constants, not {other}", Self::NAME),
                    ));
                }
            }
        }
        let (name, key) = values.split_first().ok_or_else(usage)?;
        let table = self.table(name, default_schema)?;
        if let Some(acting) = &self.acting {
            acting.require_on(&table, Privileges::SELECT)?;
        }
        let columns = table
            .primary_key()
            .map(|k| k.columns.clone())
            .ok_or_else(|| {
                Error::invalid(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("table \"{}\" has no primary key", table.name),
                )
                .with_hint(format!("{} finds a row by its primary key.", Self::NAME))
            })?;
        if columns.len() != key.len() {
            return Err(Error::invalid(
                SqlState::UNDEFINED_FUNCTION,
                format!(
                    "the primary key of table \"{}\" has {} columns, {} values were given",
                    table.name,
                    columns.len(),
                    key.len()
                ),
            ));
        }
        let key = columns
            .iter()
            .zip(key)
            .map(|(id, value)| {
                let column = table.column_by_id(*id).expect("a key's columns exist");
                value::from_scalar(value, column.sql_type)
            })
            .collect::<Result<Vec<_>>>()?;
        let rows = self.statement.history(&table, &key)?;
        rows.with_schema(Arc::new(schema(&table)))
            .map_err(|error| Error::internal(format!("history columns: {error}")))
    }

    fn table(&self, name: &ScalarValue, default_schema: &str) -> Result<Arc<TableDef>> {
        let text = match name {
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)) => text,
            _ => return Err(usage()),
        };
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (schema, table),
            None => (default_schema, text.as_str()),
        };
        let found = self.catalog.table(schema, table);
        found
            .cloned()
            .ok_or_else(|| names::undefined_table(schema, table))
    }
}

fn usage() -> Error {
    Error::invalid(
        SqlState::UNDEFINED_FUNCTION,
        "strandline_history takes a table's name and the values of its primary key",
    )
    .with_hint("For example: SELECT * FROM strandline_history('accounts', 42)")
}

/// The table's columns, all nullable, then `valid_from` and `valid_to`.
fn schema(table: &TableDef) -> Schema {
    let mut fields: Vec<_> = arrow_schema(table)
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_nullable(true))
        .collect();
    fields.push(arrow_field("valid_from", SqlType::TimestampTz, true));
    fields.push(arrow_field("valid_to", SqlType::TimestampTz, true));
    Schema::new(fields)
}

impl fmt::Debug for HistoryFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl TableFunctionImpl for HistoryFunction {
    fn call_with_args(
        &self,
        args: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let default_schema = args
            .session()
            .config_options()
            .catalog
            .default_schema
            .clone();
        let rows = self.rows(args.exprs(), &default_schema).map_err(raise)?;
        Ok(Arc::new(MemTable::try_new(
            rows.schema(),
            vec![vec![rows]],
        )?))
    }
}
