//! The SQL core against the real engine, one module per topic.

mod activity;
mod appender;
mod applications;
mod as_of;
mod bad_statements;
mod cancel;
mod capacity_urls;
mod catalog;
mod check;
mod ddl;
mod describe;
mod directories;
mod errors;
mod explain;
mod failed_block;
mod files;
mod locking;
mod long_texts;
mod maintenance;
mod parameter_values;
mod plan_cache;
mod prepared;
mod queries;
mod roles;
mod row_dml;
mod row_executor;
mod row_id;
mod row_search;
mod rows;
mod scan_filters;
mod scripts;
mod settings;
mod shape_changes;
mod shapes;
mod short_changes;
mod short_plans;
mod skipped_objects;
mod slow_log;
mod staleness;
mod statistics;
mod transactions;
mod views;
mod wide_rows;

use std::sync::Arc;
use strandline::{Connection, Database, Error, QueryResult, Settings, SqlState};
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;

/// A database in memory without background work.
fn database() -> Database {
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    Database::on_device(Arc::new(MemoryDevice::new()))
        .settings(settings)
        .build()
        .expect("opens")
}

/// A database whose clock the test moves, starting at 2024-01-01 00:00:00 UTC.
fn database_with_clock() -> (Database, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_704_067_200_000_000));
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::on_device(Arc::new(MemoryDevice::new()))
        .settings(settings)
        .clock(clock.clone())
        .build()
        .expect("opens");
    (database, clock)
}

/// Runs statements that must succeed.
fn run(connection: &mut Connection, statements: &[&str]) {
    for sql in statements {
        if let Err(error) = connection.execute(sql, ()) {
            panic!("{sql}\n{error:?}");
        }
    }
}

/// A query's rows as text: cells by `|`, NULL as `NULL`.
fn rows(connection: &mut Connection, sql: &str) -> Vec<String> {
    match connection.query(sql, ()) {
        Ok(result) => lines(&result),
        Err(error) => panic!("{sql}\n{error:?}"),
    }
}

fn lines(result: &QueryResult) -> Vec<String> {
    result
        .rows()
        .map(|row| {
            (0..row.len())
                .map(|i| {
                    row.text(i)
                        .expect("a column")
                        .unwrap_or_else(|| "NULL".to_string())
                })
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect()
}

/// The error of a statement that must fail.
fn error(connection: &mut Connection, sql: &str) -> Error {
    match connection.query(sql, ()) {
        Ok(result) => panic!("{sql} gave {:?}", lines(&result)),
        Err(error) => error,
    }
}

/// Asserts the SQLSTATE of a statement that must fail and returns its message.
fn fails(connection: &mut Connection, sql: &str, state: SqlState) -> String {
    let error = error(connection, sql);
    assert_eq!(error.sqlstate(), state, "{sql}\n{error:?}");
    error.message().to_string()
}
