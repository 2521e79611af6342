//! The statements that a session has parsed lately, by their texts.
//!
//! A text is kept once per declaration of its parameters' types. When the cache is full it starts
//! over: texts that are used often come back at once.

use super::arrays::ParameterType;
use super::prepared::PreparedStatement;
use crate::statistics::StatementStatistics;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::Result;

/// How many statements a session remembers.
const STATEMENTS: usize = 512;
/// Longer texts are not kept: they are bulk INSERTs, and never come again.
const LONGEST: usize = 64 << 10;

/// Statements by text.
#[derive(Default)]
pub(super) struct StatementCache {
    plain: HashMap<String, Arc<PreparedStatement>>,
    typed: HashMap<(String, Vec<Option<ParameterType>>), Arc<PreparedStatement>>,
}

impl StatementCache {
    /// The statement of a text without declared types, if it is known.
    pub fn known(&self, sql: &str) -> Option<Arc<PreparedStatement>> {
        self.plain.get(sql).cloned()
    }

    /// The one statement that `sql` is; values give its parameters their types.
    pub fn plain(
        &mut self,
        sql: &str,
        statistics: &StatementStatistics,
    ) -> Result<Arc<PreparedStatement>> {
        if let Some(known) = self.plain.get(sql) {
            return Ok(known.clone());
        }
        statistics.parsed();
        let statement = Arc::new(PreparedStatement::plain(
            sql,
            crate::parse::statement(sql)?,
        )?);
        if sql.len() <= LONGEST {
            if self.plain.len() >= STATEMENTS {
                self.plain.clear();
            }
            self.plain.insert(sql.to_string(), statement.clone());
        }
        Ok(statement)
    }

    /// The one statement that `sql` is, with the types that a client declares.
    pub fn typed(
        &mut self,
        sql: &str,
        declared: &[Option<ParameterType>],
        statistics: &StatementStatistics,
    ) -> Result<Arc<PreparedStatement>> {
        let key = (sql.to_string(), declared.to_vec());
        if let Some(known) = self.typed.get(&key) {
            return Ok(known.clone());
        }
        statistics.parsed();
        let parsed = crate::parse::statement(sql)?;
        let statement = Arc::new(PreparedStatement::typed(sql, parsed, declared)?);
        if sql.len() <= LONGEST {
            if self.typed.len() >= STATEMENTS {
                self.typed.clear();
            }
            self.typed.insert(key, statement.clone());
        }
        Ok(statement)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.plain.clear();
        self.typed.clear();
    }
}
