//! Runs SQL on plain DataFusion with this crate's semantics, for tests.

use super::sql::normalize;
use super::text::write_value;
use super::{configure, session_config};
use crate::error::convert;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use strandline_base::{Error, SqlState};

/// A context with PostgreSQL's semantics and no tables.
pub fn context() -> SessionContext {
    let builder = SessionStateBuilder::new().with_config(session_config());
    SessionContext::new_with_state(configure(builder).build())
}

/// Runs statements; returns the last one's rows, whose values are in their text form, joined by
/// `|`, with `NULL` for NULL.
pub fn rows(sql: &str) -> Result<Vec<String>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime of one thread");
    runtime.block_on(async {
        let context = context();
        let mut last = Vec::new();
        for statement in sql.split(";;") {
            last = run(&context, statement).await?;
        }
        Ok(last)
    })
}

async fn run(context: &SessionContext, sql: &str) -> Result<Vec<String>, Error> {
    let state = context.state();
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql)
        .map_err(|e| Error::invalid(SqlState::SYNTAX_ERROR, e.to_string()))?
        .pop()
        .expect("one statement");
    normalize(&mut statement)?;
    let statement = Statement::Statement(Box::new(statement));
    let plan = state.statement_to_plan(statement).await.map_err(convert)?;
    let frame = context.execute_logical_plan(plan).await.map_err(convert)?;
    let batches = frame.collect().await.map_err(convert)?;
    let mut rows = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let value = |column| {
                let text = write_value(column, row).expect("a printable type");
                text.unwrap_or_else(|| "NULL".to_string())
            };
            rows.push(
                batch
                    .columns()
                    .iter()
                    .map(value)
                    .collect::<Vec<_>>()
                    .join("|"),
            );
        }
    }
    Ok(rows)
}

/// The single value of a query.
pub fn value(sql: &str) -> String {
    match rows(sql) {
        Ok(rows) => rows.join("\n"),
        Err(error) => panic!("{sql}: {error:?}"),
    }
}

/// `SQLSTATE message` of a query that must fail.
pub fn failure(sql: &str) -> String {
    match rows(sql) {
        Ok(rows) => panic!("{sql} gave {rows:?}"),
        Err(error) => format!("{} {}", error.sqlstate().0, error.message()),
    }
}
