//! The recently parsed statements of a session, by text.
//!
//! A text is kept once for each declaration of its parameter types. From their second text on,
//! statements that differ only in literals share one text with parameters, of all literals, of all
//! but decimals, or of operands ([`LiftedText`]). A cache that is full, by number or by bytes, is
//! cleared: frequent texts return at once. A text that is long enough to reserve memory is not
//! kept, because its reservation would last as long.

use super::arrays::ParameterType;
use super::prepared::PreparedStatement;
use super::text_memory;
use crate::catalogs::statistics::StatementStatistics;
use crate::parse::lifted_literals::LiftedText;
use crate::runtime::stack_growth::with_room;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::Result;

/// The most statements of each map.
const STATEMENTS: usize = 512;
/// Bytes of all kept texts. A parsed statement takes up to about 70 times the bytes of its text.
const TEXT_BYTES: usize = 512 << 10;
/// The most texts with some of their literals for one text without literals.
const OTHERS: u8 = 8;

/// Statements by text.
#[derive(Default)]
pub(super) struct StatementCache {
    plain: HashMap<String, Arc<PreparedStatement>>,
    typed: HashMap<(String, Vec<Option<ParameterType>>), Arc<PreparedStatement>>,
    /// by texts without their literals
    lifted: HashMap<String, Lifted>,
    /// bytes of all kept texts
    text_bytes: usize,
    /// the last text whose literals were lifted: all of them, all but decimals, operands only
    all: LiftedText,
    plain_literals: LiftedText,
    operands: LiftedText,
}

/// Which literals are lifted out of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifting {
    All,
    /// all but decimals
    Plain,
    /// those that are compared, assigned or inserted
    Operands,
}

/// The cache entry of a text without its literals.
struct Lifted {
    shape: Shape,
    /// so many texts with some of the literals may still be parsed for this text
    others: u8,
}

/// What is known of a text without its literals.
#[derive(Clone)]
pub(super) enum Shape {
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

    /// Lifts the literals out of `sql`; false if it must run as it is.
    pub fn lift(&mut self, sql: &str) -> bool {
        self.all.lift(sql)
    }

    /// Lifts fewer literals out of `sql`, the last text given to [`StatementCache::lift`], than the
    /// form before it does; false if nothing comes of it. The literals that stay make other texts,
    /// so there may be a few only.
    pub fn lift_fewer(&mut self, lifting: Lifting, sql: &str) -> bool {
        let has_form = match lifting {
            Lifting::All => return true,
            Lifting::Plain => self.plain_literals.lift_plain(&self.all, sql),
            Lifting::Operands => {
                let more = match self.plain_literals.values.is_empty() {
                    true => &self.all,
                    false => &self.plain_literals,
                };
                self.operands.lift_operands(more, sql)
            }
        };
        if !has_form {
            return false;
        }
        if self.lifted.contains_key(&self.last(lifting).text) {
            return true;
        }
        let all = self.lifted.get_mut(&self.all.text);
        let Some(others) = all.map(|all| &mut all.others).filter(|left| **left > 0) else {
            return false;
        };
        *others -= 1;
        self.keep(self.last(lifting).text.clone(), Shape::Seen);
        true
    }

    /// What is known of the last text without its literals, which [`StatementCache::literals`]
    /// returns.
    pub fn shape(&mut self, lifting: Lifting, statistics: &StatementStatistics) -> Shape {
        let lifted = self.last(lifting);
        match self.lifted.get(&lifted.text).map(|known| &known.shape) {
            Some(Shape::Seen) => {}
            Some(known) => return known.clone(),
            None => {
                let text = lifted.text.clone();
                self.keep(text, Shape::Seen);
                return Shape::Seen;
            }
        }
        statistics.parsed();
        let lifted = self.last(lifting);
        let text = &lifted.text;
        let parsed = with_room(|| crate::parse::statement(text));
        let statement = parsed.and_then(|parsed| PreparedStatement::plain(text, parsed));
        let statement = statement.ok().filter(|statement| {
            statement.parameter_count() == lifted.values.len()
                && (statement.may_be_row_statement() || statement.is_of_transaction())
        });
        let shape = match statement {
            Some(statement) => Shape::Statement(Arc::new(statement.of_literals())),
            None => Shape::Unsuited,
        };
        let text = text.clone();
        if let Some(known) = self.lifted.get_mut(&text) {
            known.shape = shape.clone();
        }
        shape
    }

    fn keep(&mut self, text: String, shape: Shape) {
        self.make_room(&text);
        let others = OTHERS;
        self.lifted.insert(text, Lifted { shape, others });
    }

    fn last(&self, lifting: Lifting) -> &LiftedText {
        match lifting {
            Lifting::All => &self.all,
            Lifting::Plain => &self.plain_literals,
            Lifting::Operands => &self.operands,
        }
    }

    fn last_mut(&mut self, lifting: Lifting) -> &mut LiftedText {
        match lifting {
            Lifting::All => &mut self.all,
            Lifting::Plain => &mut self.plain_literals,
            Lifting::Operands => &mut self.operands,
        }
    }

    /// Takes the literals of the last text. [`StatementCache::give_back`] returns them: the other
    /// lifting needs them, and their memory is reused.
    pub fn literals(&mut self, lifting: Lifting) -> Vec<ScalarValue> {
        std::mem::take(&mut self.last_mut(lifting).values)
    }

    /// Takes literals back.
    pub fn give_back(&mut self, lifting: Lifting, literals: Vec<ScalarValue>) {
        self.last_mut(lifting).values = literals;
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
            assert!(cache.lift(&lifted));
            cache.shape(Lifting::All, &statistics);
            let typed = cache.typed.keys().map(|(text, _)| text);
            let texts = cache.plain.keys().chain(typed).chain(cache.lifted.keys());
            let bytes: usize = texts.map(String::len).sum();
            assert_eq!(bytes, cache.text_bytes);
            assert!(bytes <= TEXT_BYTES, "{bytes} bytes after {n}");
        }
    }

    #[test]
    fn a_text_has_few_texts_with_some_literals() {
        let statistics = StatementStatistics::default();
        let mut cache = StatementCache::default();
        let mut lifts = |n: i32| {
            let sql = format!("SELECT f(a, {n}) FROM t WHERE k = {n}");
            assert!(cache.lift(&sql));
            cache.shape(Lifting::All, &statistics);
            cache.lift_fewer(Lifting::Operands, &sql)
        };
        for n in 0..20 {
            assert_eq!(lifts(n), n < i32::from(OTHERS), "{n}");
        }
        assert!(lifts(3), "a text that is known");
    }
}
