//! The statements that a session has parsed lately, by their texts.
//!
//! A text is kept once per declaration of its parameters' types. When the cache is full, by number
//! or by the bytes of its texts, it starts over: texts that are used often come back at once.

use super::arrays::ParameterType;
use super::prepared::PreparedStatement;
use crate::catalogs::statistics::StatementStatistics;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::Result;

/// How many statements a session remembers.
const STATEMENTS: usize = 512;
/// Longer texts are not kept: they are bulk INSERTs, and never come again.
const LONGEST: usize = 64 << 10;
/// Bytes of all texts that a session remembers. A parsed statement takes up to some 70 times its
/// text's.
const TEXT_BYTES: usize = 512 << 10;

/// Statements by text.
#[derive(Default)]
pub(super) struct StatementCache {
    plain: HashMap<String, Arc<PreparedStatement>>,
    typed: HashMap<(String, Vec<Option<ParameterType>>), Arc<PreparedStatement>>,
    /// of the texts of both
    text_bytes: usize,
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
            self.make_room(sql);
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
            self.make_room(sql);
            self.typed.insert(key, statement.clone());
        }
        Ok(statement)
    }

    /// Counts a text that is to be kept; starts over if there is no room for it.
    fn make_room(&mut self, sql: &str) {
        let texts = self.plain.len().max(self.typed.len());
        if texts >= STATEMENTS || self.text_bytes + sql.len() > TEXT_BYTES {
            self.clear();
        }
        self.text_bytes += sql.len();
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.plain.clear();
        self.typed.clear();
        self.text_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_in_bytes() {
        let statistics = StatementStatistics::default();
        let mut cache = StatementCache::default();
        for n in 0..60 {
            let sql = format!("SELECT {n}, '{}'", "x".repeat(30_000));
            cache.plain(&sql, &statistics).expect("parses");
            assert!(cache.known(&sql).is_some(), "the newest is kept");
            cache.typed(&sql, &[], &statistics).expect("parses");
            let typed = cache.typed.keys().map(|(text, _)| text);
            let bytes: usize = cache.plain.keys().chain(typed).map(String::len).sum();
            assert_eq!(bytes, cache.text_bytes);
            assert!(bytes <= TEXT_BYTES, "{bytes} bytes after {n}");
        }
    }
}
