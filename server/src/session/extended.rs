//! The extended protocol: Parse, Bind, Describe, Execute, Close.

use super::rows::{Portion, RowSource};
use super::statement::{Formats, Statement, columns_of};
use super::{Answer, Fault, Held, Session};
use crate::message::{Bind, Fields, Parse, Target};
use crate::reply;
use crate::report::protocol_violation;
use std::sync::Arc;
use strandline::wire_format::Scalar;
use strandline::{
    Connection, Error, Prepared, Result, SqlState, Started, Summary, TransactionStatus,
};

/// A statement with its values.
pub(super) struct Portal {
    statement: Arc<Statement>,
    values: Vec<Scalar>,
    formats: Formats,
    state: PortalState,
}

/// The state of a portal.
enum PortalState {
    /// not started
    Bound,
    /// some rows are sent, more may follow
    Rows(Box<RowSource>, String),
    /// no more rows
    Done,
}

impl Session {
    /// Parse.
    pub(super) fn on_parse(&mut self, wire: &mut Held<'_>) -> Answer {
        let parse = Parse::read(wire.body())?;
        if !parse.name.is_empty() && self.statements.contains_key(parse.name) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{}\" already exists", parse.name),
            )
            .into());
        }
        let statement = Statement::prepare(&mut self.connection, parse.sql, parse.types)?;
        self.statements
            .insert(parse.name.to_string(), Arc::new(statement));
        reply::empty(&mut wire.output, b'1');
        Ok(())
    }

    /// Bind.
    pub(super) fn on_bind(&mut self, wire: &mut Held<'_>) -> Answer {
        let bind = Bind::read(wire.body())?;
        let statement = self.statement(bind.statement)?.clone();
        let needed = statement.parameter_count();
        if bind.values.len() != needed {
            return Err(protocol_violation(format!(
                "bind message supplies {} parameters, but prepared statement \"{}\" requires \
                 {needed}",
                bind.values.len(),
                bind.statement
            ))
            .into());
        }
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            return Err(Error::invalid(
                SqlState("42P03"),
                format!("cursor \"{}\" already exists", bind.portal),
            )
            .into());
        }
        let values = statement.read_values(&bind.formats, &bind.values)?;
        let count = bind.result_formats.len();
        let portal = Portal {
            statement,
            values,
            formats: Formats::read(&bind.result_formats, count)?,
            state: PortalState::Bound,
        };
        // The unnamed portal, which most requests use, needs no allocation.
        match self.portals.get_mut(bind.portal) {
            Some(slot) => *slot = portal,
            None => {
                self.portals.insert(bind.portal.to_string(), portal);
            }
        }
        reply::empty(&mut wire.output, b'2');
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<&Arc<Statement>> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_string(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Error::invalid(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    /// Describe.
    pub(super) fn on_describe(&mut self, wire: &mut Held<'_>) -> Answer {
        match Target::read(wire.body())? {
            Target::Statement(name) => {
                let statement = self.statement(name)?.clone();
                let result = statement.result(&mut self.connection)?;
                reply::parameters(&mut wire.output, &statement.parameter_types());
                match &result {
                    Some(schema) => {
                        let formats = Formats::default();
                        reply::columns(&mut wire.output, columns_of(schema, &formats));
                    }
                    None => reply::empty(&mut wire.output, b'n'),
                }
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                let connection = &mut self.connection;
                describe_portal(portal, connection, &mut wire.output)?;
            }
        }
        Ok(())
    }

    /// Execute.
    pub(super) fn on_execute(&mut self, wire: &mut Held<'_>) -> Answer {
        let mut fields = Fields::new(wire.body());
        let (name, most) = (fields.text()?, fields.int32()?);
        fields.end()?;
        // Zero and negative numbers mean all rows.
        let most = u64::try_from(most).unwrap_or(0);
        let (key, mut portal) = self
            .portals
            .remove_entry(name)
            .ok_or_else(|| no_portal(name))?;
        let began = self.begin_measuring();
        let answer = self.execute(wire, &mut portal, most);
        match &answer {
            Ok(()) => self.measure(began, &portal.statement.word, None),
            Err(Fault::Statement(error)) => {
                self.measure(began, &portal.statement.word, Some(error.sqlstate()));
            }
            Err(_) => {}
        }
        self.portals.insert(key, portal);
        answer
    }

    fn execute(&mut self, wire: &mut Held<'_>, portal: &mut Portal, most: u64) -> Answer {
        if let PortalState::Rows(rows, _) = &mut portal.state {
            rows.restart_timeout(&self.connection);
        }
        if let PortalState::Bound = portal.state {
            let Some(prepared) = &portal.statement.prepared else {
                reply::empty(&mut wire.output, b'I');
                return Ok(());
            };
            // A statement directly before a Sync is a transaction by itself.
            let is_alone = most == 0
                && !self.connection.is_in_request()
                && self.connection.transaction_status() == TransactionStatus::Idle
                && wire.peek() == Some(b'S');
            if !is_alone {
                self.connection.begin_request()?;
            }
            let values = std::mem::take(&mut portal.values);
            let started = self.start_prepared(wire, prepared, &values)?;
            let formats = portal.formats.clone();
            portal.state = match started {
                Started::Rows(query) => {
                    PortalState::Rows(Box::new(RowSource::of_query(query, formats)), String::new())
                }
                Started::Done(summary) => {
                    let tag = summary.command_tag().to_string();
                    match summary.into_result() {
                        Some(result) => {
                            let rows = Box::new(RowSource::of_result(result, formats));
                            PortalState::Rows(rows, tag)
                        }
                        None => {
                            portal.state = PortalState::Done;
                            self.after_statement(wire, &tag);
                            reply::complete(&mut wire.output, &tag);
                            return Ok(());
                        }
                    }
                }
            };
        }
        self.send_portion(wire, portal, most)
    }

    fn send_portion(&mut self, wire: &mut Held<'_>, portal: &mut Portal, most: u64) -> Answer {
        let PortalState::Rows(rows, tag) = &mut portal.state else {
            return Err(Error::invalid(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "portal cannot be run",
            )
            .into());
        };
        match rows.send(&mut self.connection, wire, most)? {
            Portion::Part(_) => {
                self.send_notices(wire);
                reply::empty(&mut wire.output, b's');
            }
            Portion::All(count) => {
                let tag = match tag.is_empty() {
                    true => format!("SELECT {count}"),
                    false => std::mem::take(tag),
                };
                self.after_statement(wire, &tag);
                reply::complete(&mut wire.output, &tag);
                portal.state = PortalState::Done;
            }
        }
        Ok(())
    }

    /// Close; a missing object is no error.
    pub(super) fn on_close(&mut self, wire: &mut Held<'_>) -> Answer {
        match Target::read(wire.body())? {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        reply::empty(&mut wire.output, b'3');
        Ok(())
    }

    /// Starts a statement. DEALLOCATE ends one that Parse has named, if there is one.
    pub(super) fn start_prepared(
        &mut self,
        wire: &mut Held<'_>,
        prepared: &Prepared,
        values: &[Scalar],
    ) -> Result<Started> {
        if let Some(name) = prepared.deallocates()
            && self.connection.transaction_status() != TransactionStatus::Failed
            && self.statements.remove(&name).is_some()
        {
            return Ok(Started::Done(Summary::of_command("DEALLOCATE")));
        }
        self.start(wire, |connection| connection.start(prepared, values))
    }
}

/// Appends the description of a portal's rows.
fn describe_portal(
    portal: &Portal,
    connection: &mut Connection,
    output: &mut Vec<u8>,
) -> Result<()> {
    if let PortalState::Rows(rows, _) = &portal.state {
        rows.describe(output);
        return Ok(());
    }
    match &portal.statement.result(connection)? {
        Some(schema) => reply::columns(output, columns_of(schema, &portal.formats)),
        None => reply::empty(output, b'n'),
    }
    Ok(())
}

fn no_portal(name: &str) -> Error {
    Error::invalid(
        SqlState("34000"),
        format!("portal \"{name}\" does not exist"),
    )
}
