//! CREATE TABLE.

use super::column::{self, DeclaredColumn};
use super::constraint::{self, Declared};
use super::foreign_key::{self, ForeignKey};
use super::{history, relation_names};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{
    CreateTable, CreateTableLikeDefaults, CreateTableLikeKind, CreateTableOptions, Expr,
    HiveDistributionStyle, HiveIOFormat, SqlOption,
};
use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::{Catalog, HistoryPolicy, TableDef};

/// Executes CREATE TABLE with a list of columns.
pub async fn execute(context: &StatementContext, create: &CreateTable) -> Result<Summary> {
    let (schema, name) = target(context, create)?;
    if exists(context, &schema, &name, create.if_not_exists)? {
        return Ok(Summary::tag("CREATE TABLE"));
    }
    let (table, foreign_keys) = define(context, create, schema, name)?;
    let mut table = Some(table);
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let mut table = table
                .take()
                .ok_or_else(|| Error::internal("a catalog edit ran twice"))?;
            require_free(catalog, &table.schema, &table.name)?;
            for key in &table.keys {
                relation_names::require_free(catalog, &table.schema, &key.name)?;
            }
            table.id = catalog.new_table_id();
            table.storage = catalog.new_storage_id();
            for key in &foreign_keys {
                foreign_key::add(context, catalog, &mut table, key)?;
            }
            catalog.put_table(table);
            Ok(())
        })?;
    Ok(Summary::tag("CREATE TABLE"))
}

/// The schema and name of the new table; checks its clauses.
pub fn target(context: &StatementContext, create: &CreateTable) -> Result<(String, String)> {
    refuse_clauses(create)?;
    let (schema, name) = names::qualified(&create.name, &context.default_schema)?;
    if crate::catalogs::information_schema::is_system_schema(&schema) {
        return Err(Error::invalid(
            SqlState("42501"),
            format!("permission denied to create \"{schema}.{name}\""),
        ));
    }
    Ok((schema, name))
}

/// Whether a relation has the name and IF NOT EXISTS permits that.
pub fn exists(
    context: &StatementContext,
    schema: &str,
    name: &str,
    if_not_exists: bool,
) -> Result<bool> {
    let taken = require_free(&context.catalog, schema, name);
    match taken {
        Err(error) if error.sqlstate() == SqlState::DUPLICATE_TABLE => {
            context.skip(if_not_exists, error)?;
            Ok(true)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    }
}

/// An error unless `schema` exists and `name` is free in it.
pub fn require_free(catalog: &Catalog, schema: &str, name: &str) -> Result<()> {
    if !catalog.schemas.contains_key(schema) {
        return Err(names::undefined_schema(schema));
    }
    relation_names::require_free(catalog, schema, name)
}

/// The new table, and its foreign keys, which are added when the table has its id.
fn define(
    context: &StatementContext,
    create: &CreateTable,
    schema: String,
    name: String,
) -> Result<(TableDef, Vec<ForeignKey>)> {
    let mut table = TableDef::new(schema, name, Vec::new());
    table.history = options(create)?;
    set_key_index(&mut table, create)?;
    if let Some(like) = &create.like {
        copy_columns(context, &mut table, like)?;
    }
    let mut declared = Vec::new();
    for column in &create.columns {
        let DeclaredColumn {
            mut def,
            constraints,
        } = column::declare(context, column)?;
        if table.column(&def.name).is_some() {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", def.name),
            ));
        }
        def.id = ColumnId(table.next_column);
        table.next_column += 1;
        table.columns.push(def);
        declared.extend(constraints);
    }
    for written in &create.constraints {
        declared.push(constraint::declare(written)?);
    }
    let mut foreign_keys = Vec::new();
    for constraint in declared {
        match constraint {
            Declared::ForeignKey(key) => foreign_keys.push(key),
            other => constraint::add(context, &context.catalog, &mut table, &other)?,
        }
    }
    Ok((table, foreign_keys))
}

/// LIKE: copies the other table's columns with type and NOT NULL, and with defaults if requested.
fn copy_columns(
    context: &StatementContext,
    table: &mut TableDef,
    like: &CreateTableLikeKind,
) -> Result<()> {
    let (CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like)) = like;
    let defaults = matches!(like.defaults, Some(CreateTableLikeDefaults::Including));
    for from in &context.resolve_table(&like.name)?.columns {
        let mut column = column::new_column(&from.name, from.sql_type, from.not_null, None);
        column.default = from.default.clone().filter(|_| defaults);
        column.id = ColumnId(table.next_column);
        table.next_column += 1;
        table.columns.push(column);
    }
    Ok(())
}

/// The history policy in WITH (…).
pub fn options(create: &CreateTable) -> Result<HistoryPolicy> {
    let mut policy = HistoryPolicy::default();
    match &create.table_options {
        CreateTableOptions::None => {}
        CreateTableOptions::With(options) => {
            for option in options.iter().filter(|option| !is_key_index(option)) {
                policy = history_option(option)?.unwrap_or(policy);
            }
        }
        other => return Err(Error::unsupported(format!("{other} is not supported"))),
    }
    Ok(policy)
}

/// Notes the index of the table's keys in WITH (key_index = …); without it: hash.
pub fn set_key_index(table: &mut TableDef, create: &CreateTable) -> Result<()> {
    let CreateTableOptions::With(options) = &create.table_options else {
        return Ok(());
    };
    for option in options.iter().filter(|option| is_key_index(option)) {
        let SqlOption::KeyValue { value, .. } = option else {
            continue;
        };
        let word = text_of(value).to_lowercase();
        if !table.set_key_index(&word) {
            let message = format!("invalid value for key_index: \"{word}\"");
            return Err(Error::invalid(SqlState("22023"), message)
                .with_hint("Valid values are 'hash', 'ordered' and 'btree'."));
        }
    }
    Ok(())
}

fn is_key_index(option: &SqlOption) -> bool {
    matches!(option, SqlOption::KeyValue { key, .. } if names::fold(key) == "key_index")
}

/// Storage parameters of PostgreSQL without an effect here.
const WITHOUT_MEANING: &[&str] = &["fillfactor", "parallel_workers", "toast_tuple_target"];

/// The only storage option; None for an ignored parameter of PostgreSQL's.
pub fn history_option(option: &SqlOption) -> Result<Option<HistoryPolicy>> {
    let SqlOption::KeyValue { key, value } = option else {
        return Err(unrecognized(option));
    };
    match names::fold(key).as_str() {
        "history" => history::policy(&text_of(value)).map(Some),
        name if WITHOUT_MEANING.contains(&name) || name.starts_with("autovacuum_") => Ok(None),
        _ => Err(unrecognized(option)),
    }
}

fn unrecognized(option: &SqlOption) -> Error {
    let message = format!("unrecognized parameter {option}");
    Error::invalid(SqlState("22023"), message)
        .with_hint("The storage parameter is history: 'forever', 'none' or an interval.")
}

fn text_of(value: &Expr) -> String {
    let text = value.to_string();
    match text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text,
    }
}

fn refuse_clauses(create: &CreateTable) -> Result<()> {
    let refuse = |what: &str| Err(Error::unsupported(format!("{what} is not supported")));
    if create.temporary {
        return Err(Error::unsupported("temporary tables are not supported")
            .with_hint("A database in memory, or a table dropped by ROLLBACK, can serve."));
    }
    if create.or_replace {
        return refuse("CREATE OR REPLACE TABLE");
    }
    if create.external || create.location.is_some() {
        return Err(Error::unsupported("external tables are not supported")
            .with_hint("Query a file directly: SELECT * FROM 'file.parquet'."));
    }
    if create.clone.is_some() {
        return refuse("CREATE TABLE … CLONE");
    }
    if create.inherits.is_some() || create.partition_of.is_some() || create.partition_by.is_some() {
        return refuse("inheritance and partitioning of tables");
    }
    if create.hive_distribution != HiveDistributionStyle::NONE
        || create.order_by.is_some()
        || create.primary_key.is_some()
        || create.cluster_by.is_some()
        || create.clustered_by.is_some()
        || create.on_commit.is_some()
        || create.on_cluster.is_some()
        || create.without_rowid
    {
        return refuse("this clause of CREATE TABLE");
    }
    access_method(create)
}

/// Accepts `USING lineage`, the access method of every table.
fn access_method(create: &CreateTable) -> Result<()> {
    let Some(formats) = &create.hive_formats else {
        return Ok(());
    };
    if formats.row_format.is_some()
        || formats.location.is_some()
        || formats.serde_properties.is_some()
    {
        return Err(Error::unsupported(
            "this clause of CREATE TABLE is not supported",
        ));
    }
    match &formats.storage {
        None => Ok(()),
        Some(HiveIOFormat::Using { format }) => match names::fold(format).as_str() {
            "lineage" => Ok(()),
            "sorted" => Err(
                Error::unsupported("access method \"sorted\" is not supported")
                    .with_hint("Use lineage, the default."),
            ),
            other => Err(Error::invalid(
                SqlState::UNDEFINED_OBJECT,
                format!("access method \"{other}\" does not exist"),
            )
            .with_hint("Available: lineage.")),
        },
        Some(_) => Err(Error::unsupported("STORED AS is not supported")),
    }
}
