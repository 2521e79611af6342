//! The simple protocol: a text of statements, each answered with its rows and its tag.
//!
//! Several statements in one text are one transaction, unless they say BEGIN and COMMIT
//! themselves; all are parsed before the first one runs.

use super::rows::{Portion, RowSource};
use super::statement::Formats;
use super::{Answer, Fault, Held, Session, only_text};
use crate::reply;
use parking_lot::MutexGuard;
use strandline::{Execution, Result, StatementText, split_script};

impl Session {
    /// Query.
    pub(super) fn on_query(&mut self, wire: &mut Held<'_>) -> Answer {
        self.portals.remove("");
        self.statements.remove("");
        match only_text(wire).map(str::to_string) {
            Ok(sql) => self.run_script(wire, &sql)?,
            Err(error) => self.fail(wire, &error, None)?,
        }
        self.ready(wire);
        Ok(())
    }

    fn run_script(&mut self, wire: &mut Held<'_>, sql: &str) -> Answer {
        let pieces = match pieces(sql) {
            Ok(pieces) => pieces,
            Err(error) => return self.fail(wire, &error, Some((sql, 0))),
        };
        if pieces.is_empty() {
            reply::empty(&mut wire.output, b'I');
            return Ok(());
        }
        for (i, piece) in pieces.iter().enumerate() {
            let is_alone = pieces.len() == 1;
            let checked = match (i, is_alone) {
                (0, false) => self.check_all(sql, &pieces, wire)?,
                _ => true,
            };
            if !checked {
                break;
            }
            let is_last = i + 1 == pieces.len();
            match self.run_piece(wire, piece.sql, is_alone, is_last) {
                Ok(()) => {}
                Err(Fault::Statement(error)) => {
                    let before = sql[..piece.offset].chars().count();
                    return self.fail(wire, &error, Some((piece.sql, before)));
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Whether all statements can be parsed; reports the first that cannot.
    fn check_all(
        &mut self,
        sql: &str,
        pieces: &[StatementText<'_>],
        wire: &mut Held<'_>,
    ) -> Answer<bool> {
        for piece in pieces {
            if let Err(error) = self.connection.check_syntax(piece.sql) {
                let before = sql[..piece.offset].chars().count();
                self.fail(wire, &error, Some((piece.sql, before)))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn run_piece(
        &mut self,
        wire: &mut Held<'_>,
        sql: &str,
        is_alone: bool,
        is_last: bool,
    ) -> Answer {
        if let Some(tag) = self.deallocate(sql) {
            reply::complete(&mut wire.output, tag);
            return Ok(());
        }
        if !is_alone {
            self.connection.begin_request()?;
        }
        let started = MutexGuard::unlocked(wire, || self.connection.start(sql, &[]))?;
        let tag = match started {
            Execution::Rows(cursor) => {
                let mut rows = RowSource::of_cursor(cursor, Formats::default());
                rows.describe(&mut wire.output);
                let count = self.send_all(wire, &mut rows)?;
                format!("SELECT {count}")
            }
            Execution::Done(summary) => {
                let tag = summary.command_tag().to_string();
                if let Some(result) = summary.into_result() {
                    let mut rows = RowSource::of_result(result, Formats::default());
                    rows.describe(&mut wire.output);
                    self.send_all(wire, &mut rows)?;
                }
                tag
            }
        };
        if is_last {
            self.connection.commit_request()?;
        }
        self.after_statement(wire, &tag);
        reply::complete(&mut wire.output, &tag);
        Ok(())
    }

    fn send_all(&mut self, wire: &mut Held<'_>, rows: &mut RowSource) -> Answer<u64> {
        match rows.send(&mut self.connection, wire, 0)? {
            Portion::All(count) | Portion::Part(count) => Ok(count),
        }
    }
}

/// The statements of `sql`. One whose only semicolon ends it is not looked at any closer, as long
/// as it does not begin with a comment, which may be all there is.
fn pieces(sql: &str) -> Result<Vec<StatementText<'_>>> {
    let text = sql.trim_ascii();
    let text = text.strip_suffix(';').unwrap_or(text).trim_ascii_end();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if text.contains(';') || text.starts_with("--") || text.starts_with("/*") {
        return split_script(sql);
    }
    Ok(vec![StatementText {
        sql: text,
        offset: text.as_ptr() as usize - sql.as_ptr() as usize,
        terminated: true,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_is_recognised_without_a_look() {
        let texts = |sql| -> Vec<&str> { pieces(sql).unwrap().iter().map(|p| p.sql).collect() };
        assert_eq!(texts("  SELECT 1 ; "), ["SELECT 1"]);
        assert_eq!(texts("SELECT ';'"), ["SELECT ';'"]);
        assert_eq!(texts("SELECT 1; SELECT 2"), ["SELECT 1", "SELECT 2"]);
        assert_eq!(pieces("  SELECT 1").unwrap()[0].offset, 2);
        for empty in ["", " ; ", "-- nothing", "/* nothing */ ;", ";;"] {
            assert!(pieces(empty).unwrap().is_empty(), "{empty}");
        }
        assert!(pieces("SELECT 'x;").is_err());
    }
}
