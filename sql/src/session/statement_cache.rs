//! The recently parsed statements of a session, by text.
//!
//! A text is kept once for each declaration of its parameter types. From their second text on,
//! statements that differ only in literals share one text with parameters. A cache that is full, by
//! number or by bytes, is cleared: frequent texts return at once. A text that is long enough to
//! reserve memory is not kept, because its reservation would last as long.

use super::arrays::ParameterType;
use super::prepared::PreparedStatement;
use super::text_memory;
use crate::catalogs::statistics::StatementStatistics;
use crate::parse::lifted_literals::LiftedText;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::Result;

/// The most statements of each map.
const STATEMENTS: usize = 512;
/// Bytes of all kept texts. A parsed statement takes up to about 70 times the bytes of its text.
const TEXT_BYTES: usize = 512 << 10;

/// Statements by text.
#[derive(Default)]
pub(super) struct StatementCache {
    plain: HashMap<String, Arc<PreparedStatement>>,
    typed: HashMap<(String, Vec<Option<ParameterType>>), Arc<PreparedStatement>>,
    /// by texts without their literals
    lifted: HashMap<String, Lifted>,
    /// bytes of all kept texts
    text_bytes: usize,
    /// the last text whose literals were lifted
    last: LiftedText,
}

/// The cache entry of a text without its literals.
enum Lifted {
    /// seen once: many texts never repeat, and parsing is expensive
    Seen,
    /// not a statement that the row executor could compile, nor transaction control
    Unsuited,
    Statement(Arc<PreparedStatement>),
}

impl StatementCache {
    /// The statement of a text without declared types, if it is known.
    pub fn known(&self, sql: &str) -> Option<Arc<PreparedStatement>> {
        self.plain.get(sql).cloned()
    }

    /// The statement of `sql` with parameters in place of its literals, which
    /// [`StatementCache::literals`] then returns. None: `sql` must run as it is.
    pub fn without_literals(
        &mut self,
        sql: &str,
        statistics: &StatementStatistics,
    ) -> Option<Arc<PreparedStatement>> {
        if !self.last.lift(sql) {
            return None;
        }
        match self.lifted.get(&self.last.text) {
            Some(Lifted::Statement(known)) => return Some(known.clone()),
            Some(Lifted::Unsuited) => return None,
            Some(Lifted::Seen) => {}
            None => {
                let text = self.last.text.clone();
                self.make_room(&text);
                self.lifted.insert(text, Lifted::Seen);
                return None;
            }
        }
        statistics.parsed();
        let text = &self.last.text;
        let parsed = crate::parse::statement(text);
        let statement = parsed.and_then(|parsed| PreparedStatement::plain(text, parsed));
        let statement = statement.ok().map(Arc::new).filter(|statement| {
            statement.parameter_count() == self.last.values.len()
                && (statement.may_be_row_statement() || statement.is_of_transaction())
        });
        let known = match &statement {
            Some(statement) => Lifted::Statement(statement.clone()),
            None => Lifted::Unsuited,
        };
        self.lifted.insert(text.clone(), known);
        statement
    }

    /// Takes the literals of the last text given to [`StatementCache::without_literals`].
    /// [`StatementCache::give_back`] returns them, so that their memory is reused.
    pub fn literals(&mut self) -> Vec<ScalarValue> {
        std::mem::take(&mut self.last.values)
    }

    /// Takes literals back.
    pub fn give_back(&mut self, literals: Vec<ScalarValue>) {
        self.last.values = literals;
    }

    /// `sql` as one statement, whose parameters take the types of their values.
    pub fn plain(
        &mut self,
        sql: &str,
        statistics: &StatementStatistics,
        pool: &Arc<dyn MemoryPool>,
    ) -> Result<Arc<PreparedStatement>> {
        if let Some(known) = self.plain.get(sql) {
            return Ok(known.clone());
        }
        statistics.parsed();
        let memory = text_memory::reserve(sql, pool)?;
        let parsed = crate::parse::statement(sql)?;
        let is_kept = memory.is_none();
        let statement = Arc::new(PreparedStatement::plain(sql, parsed)?.with_memory(memory));
        if is_kept {
            self.make_room(sql);
            self.plain.insert(sql.to_string(), statement.clone());
        }
        Ok(statement)
    }

    /// `sql` as one statement, with the parameter types that a client declares.
    pub fn typed(
        &mut self,
        sql: &str,
        declared: &[Option<ParameterType>],
        statistics: &StatementStatistics,
        pool: &Arc<dyn MemoryPool>,
    ) -> Result<Arc<PreparedStatement>> {
        let key = (sql.to_string(), declared.to_vec());
        if let Some(known) = self.typed.get(&key) {
            return Ok(known.clone());
        }
        statistics.parsed();
        let memory = text_memory::reserve(sql, pool)?;
        let parsed = crate::parse::statement(sql)?;
        let statement = PreparedStatement::typed(sql, parsed, declared)?;
        let is_kept = memory.is_none();
        let statement = Arc::new(statement.with_memory(memory));
        if is_kept {
            self.make_room(sql);
            self.typed.insert(key, statement.clone());
        }
        Ok(statement)
    }

    /// Counts a text that will be kept; clears the cache if there is no room for it.
    fn make_room(&mut self, sql: &str) {
        let texts = [self.plain.len(), self.typed.len(), self.lifted.len()];
        let texts = texts.into_iter().max().unwrap_or_default();
        if texts >= STATEMENTS || self.text_bytes + sql.len() > TEXT_BYTES {
            self.clear();
        }
        self.text_bytes += sql.len();
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.plain.clear();
        self.typed.clear();
        self.lifted.clear();
        self.text_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    #[test]
    fn texts_are_bounded_in_bytes() {
        let statistics = StatementStatistics::default();
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut cache = StatementCache::default();
        for n in 0..120 {
            let sql = format!("SELECT {n}, '{}'", "x".repeat(15_000));
            cache.plain(&sql, &statistics, &pool).expect("parses");
            assert!(cache.known(&sql).is_some(), "the newest is kept");
            cache.typed(&sql, &[], &statistics, &pool).expect("parses");
            let lifted = format!("SELECT \"{}\" FROM t WHERE k = {n}", "y".repeat(n));
            cache.without_literals(&lifted, &statistics);
            let typed = cache.typed.keys().map(|(text, _)| text);
            let texts = cache.plain.keys().chain(typed).chain(cache.lifted.keys());
            let bytes: usize = texts.map(String::len).sum();
            assert_eq!(bytes, cache.text_bytes);
            assert!(bytes <= TEXT_BYTES, "{bytes} bytes after {n}");
        }
    }
}
