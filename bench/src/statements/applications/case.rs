//! A statement of an application, and the SQL that differs between servers and SQLite.

use crate::script::{Draw, Step};

/// A statement that is measured.
pub struct Statement {
    pub name: &'static str,
    /// the text and values on servers and in our own process
    pub step: Step,
    /// SQLite's text; None: SQLite has no such statement
    pub sqlite: Option<String>,
    /// makes the rows that the runs from `{first}` to `{last}` use up; `{numbers}` is a relation of
    /// their numbers `n`
    pub refill: Option<&'static str>,
}

/// A statement that gives so many rows, or as many as depends on the values. SQLite has it too.
pub fn statement(
    name: &'static str,
    sql: &str,
    values: Vec<Draw>,
    rows: impl Into<Option<usize>>,
) -> Statement {
    Statement {
        name,
        step: Step {
            sql: sql.to_string(),
            values,
            times: 1,
            rows: rows.into(),
        },
        sqlite: Some(sql.to_string()),
        refill: None,
    }
}

impl Statement {
    /// With SQLite's own spelling.
    pub fn sqlite(mut self, sql: &str) -> Self {
        self.sqlite = Some(sql.to_string());
        self
    }

    /// Without a counterpart in SQLite.
    pub fn not_sqlite(mut self) -> Self {
        self.sqlite = None;
        self
    }

    /// With rows that are used up.
    pub fn refill(mut self, sql: &'static str) -> Self {
        self.refill = Some(sql);
        self
    }

    /// Whether the rows come in an order.
    pub fn is_ordered(&self) -> bool {
        self.step.sql.contains("ORDER BY")
    }
}

/// SQL as servers, ours in process included, or SQLite write it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dialect {
    Server,
    Sqlite,
}

impl Dialect {
    /// A relation of the numbers `n` from the first to the last.
    pub fn numbers(self, first: i64, last: i64) -> String {
        match self {
            Self::Server => format!("generate_series({first}, {last}) AS g (n)"),
            Self::Sqlite => format!(
                "(WITH RECURSIVE g (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM g WHERE n < \
                 {last}) SELECT n FROM g)"
            ),
        }
    }

    /// A statement's refill for so many runs.
    pub fn refill(self, sql: &str, first: i64, runs: i64) -> String {
        let last = first + runs - 1;
        sql.replace("{numbers}", &self.numbers(first, last))
    }
}
