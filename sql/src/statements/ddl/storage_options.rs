//! The storage options of a table: WITH (…) of CREATE TABLE, SET (…) of ALTER TABLE.

use super::{history, ordered_keys};
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{Expr, SqlOption};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::{HistoryPolicy, TableDef};

/// Storage parameters of PostgreSQL without an effect here.
const WITHOUT_MEANING: &[&str] = &["fillfactor", "parallel_workers", "toast_tuple_target"];

/// The options that a statement gives.
#[derive(Default)]
pub struct StorageOptions {
    history: Option<HistoryPolicy>,
    key_index: Option<String>,
}

impl StorageOptions {
    /// The options of a list; the last one of a name counts.
    ///
    /// # Errors
    /// 22023 for an unknown option, or a wrong value of `history`.
    pub fn read(options: &[SqlOption]) -> Result<Self> {
        let mut read = Self::default();
        for option in options {
            let SqlOption::KeyValue { key, value } = option else {
                return Err(unrecognized(option));
            };
            match names::fold(key).as_str() {
                "history" => read.history = Some(history::policy(&text_of(value))?),
                "key_index" => read.key_index = Some(text_of(value).to_lowercase()),
                name if WITHOUT_MEANING.contains(&name) || name.starts_with("autovacuum_") => {}
                _ => return Err(unrecognized(option)),
            }
        }
        Ok(read)
    }

    /// Changes the definition of a table, and of its keys, to these options.
    ///
    /// # Errors
    /// Those of [`ordered_keys::set_key_index`].
    pub fn apply(&self, table: &mut TableDef) -> Result<()> {
        table.history = self.history.unwrap_or(table.history);
        match &self.key_index {
            Some(word) => ordered_keys::set_key_index(table, word),
            None => Ok(()),
        }
    }
}

fn unrecognized(option: &SqlOption) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("unrecognized parameter {option}"),
    )
    .with_hint(
        "The storage parameters are history: 'forever', 'none' or an interval, and key_index: \
         'hash', 'ordered', 'btree' or 'fdtree'.",
    )
}

fn text_of(value: &Expr) -> String {
    let text = value.to_string();
    match text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text,
    }
}
