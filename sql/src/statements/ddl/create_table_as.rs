//! CREATE TABLE … AS: the table gets the query's columns, and its rows by bulk load.

use super::{column, create_table};
use crate::parse::column_names::is_untyped;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::planning::provider::table_schema::arrow_schema;
use crate::values::summary::Summary;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::CreateTable;
use futures::StreamExt;
use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::TableDef;
use strandline_semantics::cast::{Mode, cast_array};
use strandline_semantics::error::convert;
use strandline_semantics::types;

/// Executes CREATE TABLE … AS.
pub async fn execute(context: &StatementContext, create: &CreateTable) -> Result<Summary> {
    let (schema, name) = create_table::target(context, create)?;
    if create_table::exists(context, &schema, &name, create.if_not_exists)? {
        return Ok(Summary::tag("CREATE TABLE"));
    }
    let query = create
        .query
        .as_deref()
        .ok_or_else(|| Error::internal("no query"))?;
    let plan = context.plan_query(query).await?;
    let (result, mut stream) = context.run(plan).await?;
    let mut table = define(create, &result, schema, name)?;
    let transaction = context.statement.transaction();
    transaction.change_catalog(&mut |catalog| {
        create_table::require_free(catalog, &table.schema, &table.name)?;
        table.id = catalog.new_table_id();
        table.storage = catalog.new_storage_id();
        catalog.put_table(table.clone());
        Ok(())
    })?;
    let catalog = transaction.catalog();
    let table = catalog
        .tables
        .get(&table.id)
        .ok_or_else(|| Error::internal("no new table"))?;
    let mut load = context.statement.bulk_insert(table)?;
    let target = arrow_schema(table);
    while let Some(batch) = stream.next().await {
        load.append(&fit(&batch.map_err(convert)?, table, &target)?)?;
    }
    let rows = load.finish()?;
    Ok(Summary::rows(format!("SELECT {rows}"), rows))
}

fn define(create: &CreateTable, result: &Schema, schema: String, name: String) -> Result<TableDef> {
    let mut table = TableDef::new(schema, name, Vec::new());
    table.history = create_table::options(create)?;
    create_table::set_key_index(&mut table, create)?;
    if create.columns.len() > result.fields().len() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "too many column names were specified",
        ));
    }
    if let Some(typed) = create.columns.iter().find(|c| !is_untyped(&c.data_type)) {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("column {} of CREATE TABLE … AS has a type", typed.name),
        )
        .with_hint("Write the names alone and cast in the query: SELECT x::bigint, …."));
    }
    for (i, field) in result.fields().iter().enumerate() {
        let name = match create.columns.get(i) {
            Some(given) => names::fold(&given.name),
            None => field.name().clone(),
        };
        names::check_column(&name)?;
        if table.column(&name).is_some() {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        let sql_type = match types::sql_type_of(field) {
            Some(sql_type) => sql_type,
            None => types::storable(&name, field.data_type()).map_err(convert)?,
        };
        let mut column = column::new_column(&name, sql_type, false, None);
        column.id = ColumnId(table.next_column);
        table.next_column += 1;
        table.columns.push(column);
    }
    Ok(table)
}

/// Casts a batch of the query to the table's types.
fn fit(batch: &RecordBatch, table: &TableDef, target: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(&table.columns)
        .map(|(array, column)| {
            cast_array(array, column.sql_type, Mode::Assignment).map_err(convert)
        })
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(target.clone(), columns, &options)
        .map_err(|error| strandline_semantics::error::from_arrow(&error))
}
