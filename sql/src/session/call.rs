//! CALL: the procedures of the database. `strandline_backup('directory')` backs up a database that
//! a server has open, since only one process at a time may open a directory.
//! `strandline_set('name', 'value')` changes a setting of the database for all connections.
//! CHECKPOINT is parsed as a call too.

use super::Session;
use super::settings::change_caches;
use crate::backends::acting::{Acting, files_denied};
use crate::backends::cancel::Timer;
use crate::parse::foreign_keys::SET_CONSTRAINTS;
use crate::parse::maintenance::CHECKPOINT;
use crate::values::summary::Summary;
use crate::values::summary::text_result;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::utc::format_utc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::Db;

/// The procedure that writes a backup.
const BACKUP: &str = "strandline_backup";

/// The procedure that changes a setting of the database.
const SET: &str = "strandline_set";

impl Session {
    pub(super) async fn call(&mut self, call: &Function) -> Result<Summary> {
        let name = crate::parse::names::parts(&call.name)?.join(".");
        let arguments = texts(&call.args);
        match (name.as_str(), arguments.as_deref()) {
            (BACKUP, Some([target])) => self.call_backup(PathBuf::from(target)).await,
            (SET, Some([name, value])) => self.call_set(name, value).await,
            (CHECKPOINT, Some([])) => self.call_checkpoint().await,
            (SET_CONSTRAINTS, Some([mode, names])) => self.set_constraints(mode, names),
            _ => Err(Error::invalid(
                SqlState::UNDEFINED_FUNCTION,
                format!("procedure {call} does not exist"),
            )
            .with_hint(
                "There are CALL strandline_backup('directory') and \
                 CALL strandline_set('name', 'value').",
            )),
        }
    }

    async fn call_checkpoint(&mut self) -> Result<Summary> {
        if Acting::of(&self.template, &self.shared.db.catalog()).is_some() {
            return Err(Error::invalid(
                SqlState("42501"),
                "must be superuser to do CHECKPOINT",
            ));
        }
        self.checkpoint(false).await?;
        Ok(Summary::tag("CHECKPOINT"))
    }

    /// A checkpoint. It serves the whole database, so that it runs to its end in the background
    /// when the statement is cancelled or its time is up.
    pub(super) async fn checkpoint(&self, full: bool) -> Result<()> {
        self.maintain("checkpoint", move |db| db.checkpoint(full).map(|_| ()))
            .await
    }

    /// Does work of maintenance, called `name`, on a thread of its own until the statement is
    /// cancelled.
    pub(super) async fn maintain(
        &self,
        name: &'static str,
        work: impl FnOnce(&Arc<Db>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let cancel = self.cancel.clone();
        cancel.start();
        cancel.check()?;
        let _timer = self.timer();
        let db = self.shared.db.clone();
        let work = self.shared.threads().spawn_blocking(move || work(&db));
        let done = async {
            match work.await {
                Ok(outcome) => outcome,
                Err(panic) => Err(Error::internal(format!("the {name} panicked: {panic}"))),
            }
        };
        cancel.guard(done).await
    }

    /// Changes a setting of the caches. Pages that have to move first are moved in the background.
    async fn call_set(&mut self, name: &str, value: &str) -> Result<Summary> {
        if Acting::of(&self.template, &self.shared.db.catalog()).is_some() {
            return Err(Error::invalid(
                SqlState("42501"),
                format!("permission denied to set parameter \"{name}\""),
            ));
        }
        if self.open.is_some() {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("{SET} cannot run inside a transaction block"),
            ));
        }
        let (db, name, value) = (self.shared.db.clone(), name.to_owned(), value.to_owned());
        let work = tokio::task::spawn_blocking(move || {
            db.change_caches(|caches| change_caches(caches, &name, &value))
        });
        match work.await {
            Ok(changed) => changed?,
            Err(panic) => return Err(Error::internal(format!("the change panicked: {panic}"))),
        }
        Ok(Summary::tag("CALL"))
    }

    async fn call_backup(&mut self, target: PathBuf) -> Result<Summary> {
        if Acting::of(&self.template, &self.shared.db.catalog()).is_some() {
            return Err(files_denied("write a backup into"));
        }
        if self.open.is_some() {
            return Err(Error::invalid(
                SqlState::ACTIVE_SQL_TRANSACTION,
                format!("{BACKUP} cannot run inside a transaction block"),
            ));
        }
        let cancel = self.cancel.clone();
        cancel.start();
        let timeout = self.settings.statement_timeout;
        let _timer = timeout.map(|t| Timer::start(self.shared.threads(), cancel.clone(), t));
        let (db, flag) = (self.shared.db.clone(), cancel.flag().clone());
        let work = tokio::task::spawn_blocking(move || {
            crate::statements::backup::backup(&db, &target, &|_| !flag.load(Ordering::SeqCst))
        });
        // Not raced against the cancel flag: the backup checks the flag itself and removes its
        // files.
        let report = match work.await {
            Ok(report) => report.map_err(|error| cancel.explain(error))?,
            Err(panic) => return Err(Error::internal(format!("the backup panicked: {panic}"))),
        };
        let row = vec![
            format_utc(report.as_of.0),
            report.files.to_string(),
            report.bytes.to_string(),
        ];
        Ok(text_result("CALL", &["as_of", "files", "bytes"], vec![row]))
    }
}

/// The arguments, if all of them are string literals.
fn texts(arguments: &FunctionArguments) -> Option<Vec<String>> {
    let FunctionArguments::List(list) = arguments else {
        return None;
    };
    let text = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => text_of(expr),
        _ => None,
    };
    list.args.iter().map(text).collect()
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        // A bound parameter becomes a cast.
        Expr::Cast { expr, .. } => text_of(expr),
        _ => None,
    }
}
