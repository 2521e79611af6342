//! The simple protocol: a text of statements, each answered with its rows and its tag.
//!
//! Several statements in one text are one transaction, unless they contain BEGIN and COMMIT
//! themselves. All are parsed before the first one runs.

use super::rows::{Portion, RowSource};
use super::statement::Formats;
use super::{Answer, Fault, Held, Session, only_text};
use crate::reply;
use std::time::Instant;
use strandline::{Prepared, Started};

impl Session {
    /// Query.
    pub(super) fn on_query(&mut self, wire: &mut Held<'_>) -> Answer {
        self.portals.remove("");
        self.statements.remove("");
        match only_text(wire).map(str::to_string) {
            Ok(sql) => self.run_script(wire, &sql)?,
            Err(error) => self.fail(wire, &error)?,
        }
        self.ready(wire);
        Ok(())
    }

    fn run_script(&mut self, wire: &mut Held<'_>, sql: &str) -> Answer {
        let began = self.begin_measuring();
        let known = self.start(wire, |connection| connection.start_known(sql));
        if let Some(known) = known.transpose() {
            let answered = known.map_err(Fault::from);
            let answered = answered.and_then(|started| self.answer(wire, started, true));
            return self.finish(wire, began, sql, answered).map(drop);
        }
        let statements = match self.connection.prepare_script(sql) {
            Ok(statements) => statements,
            Err(error) => return self.fail(wire, &error),
        };
        if statements.is_empty() {
            reply::empty(&mut wire.output, b'I');
            return Ok(());
        }
        let is_alone = statements.len() == 1;
        for (i, statement) in statements.iter().enumerate() {
            let is_last = i + 1 == statements.len();
            let began = self.begin_measuring();
            let answered = self.run_one(wire, statement, is_alone, is_last);
            if !self.finish(wire, began, sql, answered)? {
                break;
            }
        }
        Ok(())
    }

    /// Counts an ended statement and reports its error; returns whether it succeeded.
    fn finish(
        &mut self,
        wire: &mut Held<'_>,
        began: Option<Instant>,
        sql: &str,
        answered: Answer<String>,
    ) -> Answer<bool> {
        match answered {
            Ok(tag) => {
                self.measure(began, &tag, None);
                Ok(true)
            }
            Err(Fault::Statement(error)) => {
                self.measure(began, sql, Some(error.sqlstate()));
                self.fail(wire, &error)?;
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    fn run_one(
        &mut self,
        wire: &mut Held<'_>,
        statement: &Prepared,
        is_alone: bool,
        is_last: bool,
    ) -> Answer<String> {
        if !is_alone {
            self.connection.begin_request()?;
        }
        let started = self.start_prepared(wire, statement, &[])?;
        self.answer(wire, started, is_last)
    }

    /// Sends a statement's result; returns its tag.
    fn answer(&mut self, wire: &mut Held<'_>, started: Started, is_last: bool) -> Answer<String> {
        let tag = match started {
            Started::Rows(query) => {
                let mut rows = RowSource::of_query(query, Formats::default());
                rows.describe(&mut wire.output);
                let count = self.send_all(wire, &mut rows)?;
                format!("SELECT {count}")
            }
            Started::Done(summary) => {
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
        Ok(tag)
    }

    fn send_all(&mut self, wire: &mut Held<'_>, rows: &mut RowSource) -> Answer<u64> {
        match rows.send(&mut self.connection, wire, 0)? {
            Portion::All(count) | Portion::Part(count) => Ok(count),
        }
    }
}
