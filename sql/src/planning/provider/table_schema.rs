//! The schemas of a table's rows: in Arrow, and for planning CHECK conditions and the predicates
//! and expressions of indexes.

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use std::sync::Arc;
use strandline_base::{Result, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::convert;
use strandline_semantics::types;

/// The Arrow schema of a table's rows, in column order.
pub fn arrow_schema(def: &TableDef) -> SchemaRef {
    Arc::new(Schema::new(fields(def)))
}

/// The fields of a table's rows, in column order.
pub fn fields(def: &TableDef) -> Vec<Field> {
    def.columns
        .iter()
        .map(|c| arrow_field(&c.name, c.sql_type, !c.not_null))
        .collect()
}

/// The Arrow field of a column; its metadata has the SQL type if the Arrow type does not determine
/// it.
pub fn arrow_field(name: &str, sql_type: SqlType, nullable: bool) -> Field {
    types::field(name, sql_type, nullable)
}

/// The columns of `table`, qualified by its name.
pub fn condition_schema(table: &TableDef) -> Result<DFSchema> {
    DFSchema::try_from_qualified_schema(table.name.as_str(), &arrow_schema(table)).map_err(convert)
}
