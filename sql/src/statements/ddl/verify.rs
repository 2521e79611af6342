//! Verifies existing rows against a new constraint.
//!
//! It runs after the change of the catalog, when no other transaction can write the table. It reads
//! with a new statement, so that under read committed it sees all earlier commits. A transaction
//! with a fixed snapshot also reads the newest committed rows, because commits after its snapshot
//! count too.

use crate::parse;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::Expr;
use futures::StreamExt;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, ErrorKind, Result, SqlState, utc};
use strandline_engine::catalog::index::ForeignKeyDef;
use strandline_engine::catalog::{Catalog, KeyDef, TableDef};
use strandline_engine::{Isolation, TxnOptions};
use strandline_semantics::error::convert;

/// Checks that no row of `table` has NULL in `column`.
pub async fn not_null(context: &StatementContext, table: &TableDef, column: &str) -> Result<()> {
    // The definition may have NOT NULL already, and then IS NULL would be optimized to false.
    let sql = format!(
        "SELECT 1 FROM {} WHERE num_nulls({}) > 0 LIMIT 1",
        quoted(table),
        names::quote(column)
    );
    if first_row(context, &sql, table).await?.is_some() {
        return Err(Error::new(
            ErrorKind::Constraint,
            SqlState::NOT_NULL_VIOLATION,
            format!(
                "column \"{column}\" of relation \"{}\" contains null values",
                table.name
            ),
        )
        .with_subject(table.column_subject(column)));
    }
    Ok(())
}

/// Whether the texts of a column have at most so many characters.
#[derive(Clone, Copy, PartialEq)]
pub enum Fit {
    /// all of them
    All,
    /// all but for spaces at the end, which an assignment to a shorter type cuts
    WithoutSpaces,
    /// at least one is longer
    No,
}

/// Whether the texts in `column` fit into a type with this length.
pub async fn fit(
    context: &StatementContext,
    table: &TableDef,
    column: &str,
    length: u32,
) -> Result<Fit> {
    let column = names::quote(column);
    let sql = format!(
        "SELECT 1 + (char_length(rtrim({column}, ' ')) > {length})::int FROM {} \
         WHERE char_length({column}) > {length} ORDER BY 1 DESC LIMIT 1",
        quoted(table)
    );
    let row = first_row(context, &sql, table).await?;
    let longest = row.and_then(|row| crate::values::text::cell(row.column(0), 0));
    Ok(match longest.as_deref() {
        None => Fit::All,
        Some("1") => Fit::WithoutSpaces,
        Some(_) => Fit::No,
    })
}

/// No row of `table` makes the condition false.
pub async fn check(
    context: &StatementContext,
    table: &TableDef,
    name: &str,
    expression: &str,
) -> Result<()> {
    if first_row(context, &violations(table, expression, "1")?, table)
        .await?
        .is_some()
    {
        return Err(Error::new(
            ErrorKind::Constraint,
            SqlState::CHECK_VIOLATION,
            format!(
                "check constraint \"{name}\" of relation \"{}\" is violated by some row",
                table.name
            ),
        )
        .with_subject(table.constraint_subject(name)));
    }
    Ok(())
}

/// Checks that no two rows of `table` have the same key, and that no PRIMARY KEY has a NULL.
pub async fn key(context: &StatementContext, table: &TableDef, key: &KeyDef) -> Result<()> {
    let columns: Vec<&str> = key
        .columns
        .iter()
        .filter_map(|id| table.column_by_id(*id))
        .map(|c| c.name.as_str())
        .collect();
    if key.primary {
        for column in &columns {
            not_null(context, table, column).await?;
        }
    }
    let list = columns
        .iter()
        .map(|c| names::quote(c))
        .collect::<Vec<_>>()
        .join(", ");
    let is_present = |c: &&str| format!("{} IS NOT NULL", names::quote(c));
    let present = match key.nulls_not_distinct {
        true => "true".to_string(),
        false => columns
            .iter()
            .map(is_present)
            .collect::<Vec<_>>()
            .join(" AND "),
    };
    let sql = format!(
        "SELECT {list} FROM {} WHERE {} GROUP BY {list} HAVING count(*) > 1 LIMIT 1",
        quoted(table),
        present
    );
    let Some(row) = first_row(context, &sql, table).await? else {
        return Ok(());
    };
    let values: Vec<_> = row
        .columns()
        .iter()
        .map(|array| crate::values::text::cell(array, 0).unwrap_or_else(|| "null".to_string()))
        .collect();
    Err(Error::new(
        ErrorKind::Constraint,
        SqlState::UNIQUE_VIOLATION,
        format!("could not create unique index \"{}\"", key.name),
    )
    .with_subject(table.constraint_subject(&key.name))
    .with_detail(format!(
        "Key ({})=({}) is duplicated.",
        columns.join(", "),
        values.join(", ")
    )))
}

/// Checks that every row of `table` has the row that `key` references.
pub async fn foreign_key(
    context: &StatementContext,
    table: &TableDef,
    key: &ForeignKeyDef,
) -> Result<()> {
    let catalog = context.statement.transaction().catalog();
    let missing = || Error::internal("a referenced table is missing");
    let parent = catalog.tables.get(&key.parent).ok_or_else(missing)?;
    let list: Vec<String> = column_names(table, &key.columns)
        .iter()
        .map(|c| names::quote(c))
        .collect();
    let sql = format!("{} LIMIT 1", orphans(table, key, parent, &list.join(", ")));
    let Some(row) = first_row(context, &sql, table).await? else {
        return Ok(());
    };
    let error = Error::new(
        ErrorKind::Constraint,
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, key.name
        ),
    )
    .with_subject(table.constraint_subject(&key.name));
    let cells = row.columns().iter();
    let values: Vec<_> = cells
        .map(|array| crate::values::text::cell(array, 0))
        .collect();
    if values.iter().any(Option::is_none) {
        return Err(
            error.with_detail("MATCH FULL does not allow mixing of null and nonnull key values.")
        );
    }
    let values: Vec<String> = values.into_iter().flatten().collect();
    Err(error.with_detail(format!(
        "Key ({})=({}) is not present in table \"{}\".",
        column_names(table, &key.columns).join(", "),
        values.join(", "),
        parent.name
    )))
}

fn column_names(table: &TableDef, columns: &[ColumnId]) -> Vec<String> {
    let columns = columns.iter().filter_map(|id| table.column_by_id(*id));
    columns.map(|column| column.name.clone()).collect()
}

/// A query over the rows of `table` that violate `key`.
fn orphans(table: &TableDef, key: &ForeignKeyDef, parent: &TableDef, select: &str) -> String {
    let own = column_names(table, &key.columns);
    let pairs = own.iter().zip(column_names(parent, &key.parent_columns));
    let equal: Vec<String> = pairs
        .map(|(own, referenced)| {
            format!(
                "pk.{} = fk.{}",
                names::quote(&referenced),
                names::quote(own)
            )
        })
        .collect();
    // NULLs are counted even if the definition has none.
    let nulls = own.iter().map(|name| format!("fk.{}", names::quote(name)));
    let nulls = nulls.collect::<Vec<_>>().join(", ");
    let some = match key.match_full {
        true => format!("num_nonnulls({nulls}) > 0"),
        false => format!("num_nulls({nulls}) = 0"),
    };
    format!(
        "SELECT {select} FROM {} fk WHERE {some} AND NOT EXISTS (SELECT 1 FROM {} pk WHERE {})",
        quoted(table),
        quoted(parent),
        equal.join(" AND ")
    )
}

/// Every violated CHECK constraint and foreign key of every table, one line each.
pub async fn all(context: &StatementContext) -> Result<Vec<String>> {
    let mut violated = all_checks(context).await?;
    violated.extend(all_references(context).await?);
    Ok(violated)
}

/// Every violated foreign key of every table, one line each; NOT VALID ones are skipped.
async fn all_references(context: &StatementContext) -> Result<Vec<String>> {
    let mut violated = Vec::new();
    for table in context.catalog.tables.values() {
        for key in table.foreign_keys.iter().filter(|key| !key.not_valid) {
            let Some(parent) = context.catalog.tables.get(&key.parent) else {
                continue;
            };
            let count = count(context, &orphans(table, key, parent, "count(*)"), table).await?;
            if count != "0" {
                violated.push(format!(
                    "table \"{}\": {count} rows violate foreign key constraint \"{}\"",
                    table.name, key.name
                ));
            }
        }
    }
    Ok(violated)
}

async fn count(context: &StatementContext, sql: &str, table: &TableDef) -> Result<String> {
    Ok(match first_row(context, sql, table).await? {
        Some(row) => crate::values::text::cell(row.column(0), 0).unwrap_or_default(),
        None => "0".to_string(),
    })
}

/// Every violated CHECK constraint of every table, one line each.
async fn all_checks(context: &StatementContext) -> Result<Vec<String>> {
    let mut violated = Vec::new();
    for table in context.catalog.tables.values() {
        for check in &table.checks {
            let sql = violations(table, &check.expression, "count(*)")?;
            let count = count(context, &sql, table).await?;
            if count != "0" {
                violated.push(format!(
                    "table \"{}\": {count} rows violate check constraint \"{}\"",
                    table.name, check.name
                ));
            }
        }
    }
    Ok(violated)
}

/// A query over the rows that violate a condition. NULL passes, as in the standard.
fn violations(table: &TableDef, expression: &str, select: &str) -> Result<String> {
    let condition: Expr = parse::expression(expression)?;
    Ok(format!(
        "SELECT {select} FROM {} WHERE NOT ({condition})",
        quoted(table)
    ))
}

fn quoted(table: &TableDef) -> String {
    format!(
        "{}.{}",
        names::quote(&table.schema),
        names::quote(&table.name)
    )
}

/// The first row of `sql`, in the transaction itself and among other transactions' commits.
async fn first_row(
    context: &StatementContext,
    sql: &str,
    table: &TableDef,
) -> Result<Option<RecordBatch>> {
    let transaction = context.statement.transaction();
    let catalog = with_nulls(&transaction.catalog(), table);
    let own = context.system_over(transaction.begin_statement()?, catalog);
    if let Some(row) = first(&own, sql).await? {
        return Ok(Some(row));
    }
    if transaction.options().isolation == Isolation::ReadCommitted {
        return Ok(None);
    }
    let others = transaction.db().begin(TxnOptions {
        isolation: Isolation::ReadCommitted,
        read_only: true,
        ..transaction.options().clone()
    })?;
    let others_see = others.begin_statement()?;
    let since = own.statement.snapshot_ts();
    let found = match committed(&transaction.catalog(), &others.catalog(), table) {
        None => None,
        Some(catalog) => {
            let newest = context.system_over(others_see, catalog);
            newest_row(&newest, sql, table, since).await?
        }
    };
    others.rollback();
    match found {
        None => Ok(None),
        Some(_) => Err(Error::new(
            ErrorKind::Conflict,
            SqlState::SERIALIZATION_FAILURE,
            format!(
                "rows of table \"{}\" changed since this transaction began",
                table.name
            ),
        )
        .with_hint("Change the table under READ COMMITTED, or retry the transaction.")),
    }
}

/// The catalog with all columns of the table nullable, because unverified rows need not satisfy the
/// new definition.
fn with_nulls(catalog: &Catalog, table: &TableDef) -> Arc<Catalog> {
    let mut catalog = catalog.clone();
    if let Some(def) = catalog.tables.get(&table.id) {
        let mut def = TableDef::clone(def);
        def.columns
            .iter_mut()
            .for_each(|column| column.not_null = false);
        catalog.put_table(def);
    }
    Arc::new(catalog)
}

/// The transaction's definitions, under its names, of what others have committed: without the
/// tables and columns that it has made itself. None: `table` is one, whose rows nobody else has.
fn committed(own: &Catalog, others: &Catalog, table: &TableDef) -> Option<Arc<Catalog>> {
    let known = |def: &TableDef| {
        let before = others.tables.get(&def.id);
        before
            .filter(|before| before.storage == def.storage)
            .cloned()
    };
    known(table)?;
    let mut catalog = own.clone();
    for def in own.tables.values() {
        let Some(before) = known(def) else {
            catalog.tables.remove(&def.id);
            continue;
        };
        if def
            .columns
            .iter()
            .any(|column| before.column_by_id(column.id).is_none())
        {
            let mut def = TableDef::clone(def);
            def.columns
                .retain(|column| before.column_by_id(column.id).is_some());
            catalog.put_table(def);
        }
    }
    Some(with_nulls(&catalog, table))
}

/// As [`first`], of committed rows. What only this transaction knows is in none that it has seen
/// itself; of rows that others have written `since` its snapshot it cannot tell.
async fn newest_row(
    context: &StatementContext,
    sql: &str,
    table: &TableDef,
    since: CommitTs,
) -> Result<Option<RecordBatch>> {
    match first(context, sql).await {
        Err(error)
            if error.sqlstate() == SqlState::UNDEFINED_COLUMN
                || error.sqlstate() == SqlState::UNDEFINED_TABLE =>
        {
            let since = utc::format_utc(since.0);
            let newest = utc::format_utc(context.statement.snapshot_ts().0);
            let written = format!(
                "SELECT 1 FROM {} FOR SYSTEM_TIME BETWEEN '{since}' AND '{newest}' \
                 WHERE valid_from > '{since}' LIMIT 1",
                quoted(table)
            );
            first(context, &written).await
        }
        other => other,
    }
}

async fn first(context: &StatementContext, sql: &str) -> Result<Option<RecordBatch>> {
    let query = parse::query(sql)?;
    let plan = context.plan_query(&query).await?;
    let (_, mut stream) = context.run(plan).await?;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(convert)?;
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}
