//! `information_schema`: the catalog as tables, with the columns of the SQL standard that mean
//! something here. They show the catalog of the statement's moment, AS OF included.

mod columns;
mod constraints;

use crate::catalogs::INFORMATION_SCHEMA;
use crate::catalogs::pg_catalog::ViewColumns;
use crate::parse::names;
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::catalog::Catalog;
use strandline_semantics::error::convert;

#[cfg(test)]
mod tests;

/// The tables there are.
pub const TABLES: &[&str] = &[
    "check_constraints",
    "columns",
    "constraint_column_usage",
    "key_column_usage",
    "referential_constraints",
    "schemata",
    "table_constraints",
    "tables",
    "views",
];

/// Whether `schema` belongs to the system.
pub fn is_system_schema(schema: &str) -> bool {
    schema == INFORMATION_SCHEMA
}

/// Whether the table `name` shows the columns of views.
pub fn shows_views(name: &str) -> bool {
    name == "columns"
}

/// The table `name` of `schema` over `catalog`; `view_columns` are those of the views if it shows
/// them.
pub fn table(
    schema: &str,
    name: &str,
    catalog: &Catalog,
    view_columns: &ViewColumns,
) -> Result<Option<Arc<dyn TableProvider>>> {
    if !is_system_schema(schema) {
        return Ok(None);
    }
    let rows = match name {
        "schemata" => schemata(catalog),
        "tables" => tables(catalog),
        "views" => views(catalog),
        "columns" => columns::columns(catalog, view_columns),
        "table_constraints" => constraints::table_constraints(catalog),
        "key_column_usage" => constraints::key_column_usage(catalog),
        "check_constraints" => constraints::check_constraints(catalog),
        "constraint_column_usage" => constraints::constraint_column_usage(catalog),
        "referential_constraints" => constraints::referential_constraints(catalog),
        _ => return Ok(None),
    };
    let batch = rows.into_batch()?;
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(convert)?;
    Ok(Some(Arc::new(table)))
}

/// A table of texts and numbers (columns whose name says so).
pub(crate) struct Rows {
    columns: &'static [&'static str],
    rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    fn new(columns: &'static [&'static str]) -> Self {
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    fn push(&mut self, row: Vec<Option<String>>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    fn is_number(column: &str) -> bool {
        matches!(
            column,
            "ordinal_position"
                | "character_maximum_length"
                | "numeric_precision"
                | "numeric_scale"
                | "numeric_precision_radix"
                | "character_octet_length"
                | "datetime_precision"
        )
    }

    fn into_batch(self) -> Result<RecordBatch> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (i, name) in self.columns.iter().enumerate() {
            let values = self.rows.iter().map(|row| row[i].as_deref());
            if Self::is_number(name) {
                fields.push(Field::new(*name, DataType::Int32, true));
                let numbers = values.map(|v| v.and_then(|text| text.parse().ok()));
                arrays.push(Arc::new(numbers.collect::<Int32Array>()));
            } else {
                fields.push(Field::new(*name, DataType::Utf8, true));
                arrays.push(Arc::new(values.collect::<StringArray>()));
            }
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| Error::internal(format!("information_schema: {error}")))
    }
}

fn text(value: impl Into<String>) -> Option<String> {
    Some(value.into())
}

fn yes_no(yes: bool) -> Option<String> {
    text(if yes { "YES" } else { "NO" })
}

fn schemata(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&["catalog_name", "schema_name", "schema_owner"]);
    let own = catalog.schemas.keys().map(String::as_str);
    for schema in own.chain([INFORMATION_SCHEMA]) {
        rows.push(vec![
            text(names::DATABASE),
            text(schema),
            text(names::DATABASE),
        ]);
    }
    rows
}

fn tables(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "table_catalog",
        "table_schema",
        "table_name",
        "table_type",
        "is_insertable_into",
        "comment",
    ]);
    let mut push = |schema: &str, name: &str, kind: &str, comment: Option<String>| {
        let insertable = yes_no(kind == "BASE TABLE");
        let database = text(names::DATABASE);
        rows.push(vec![
            database,
            text(schema),
            text(name),
            text(kind),
            insertable,
            comment,
        ]);
    };
    for table in catalog.tables.values() {
        push(
            &table.schema,
            &table.name,
            "BASE TABLE",
            table.comment.clone(),
        );
    }
    for view in &catalog.views {
        push(&view.schema, &view.name, "VIEW", view.comment.clone());
    }
    for table in TABLES {
        push(INFORMATION_SCHEMA, table, "VIEW", None);
    }
    rows
}

fn views(catalog: &Catalog) -> Rows {
    let mut rows = Rows::new(&[
        "table_catalog",
        "table_schema",
        "table_name",
        "view_definition",
        "check_option",
        "is_updatable",
    ]);
    for view in &catalog.views {
        rows.push(vec![
            text(names::DATABASE),
            text(&view.schema),
            text(&view.name),
            text(&view.query),
            text("NONE"),
            yes_no(false),
        ]);
    }
    rows
}
