//! A session: one connection's transaction, settings and prepared statements, and the dispatch of
//! its statements.
//!
//! * Transaction control, settings and prepared statements are handled here and below
//!   ([`transaction`], [`settings`], [`prepared`]).
//! * Every statement that reads or writes data or definitions is *work* ([`Work`]). It runs in the
//!   open transaction or in its own, with a savepoint before it ([`execute`]). Under read committed
//!   it runs again with a new snapshot when it meets another transaction's commit.
//! * A statement that fails inside a transaction block leaves the block failed. Its changes since
//!   the last savepoint are undone at once and its row locks end. Every statement fails with 25P02
//!   until ROLLBACK.

mod arguments;
pub mod arrays;
pub mod call;
mod constraints;
mod describe;
pub(crate) mod description;
pub mod execute;
mod implicit;
mod maintenance;
mod modes;
pub mod outcome;
pub mod portal;
mod prepare;
pub mod prepared;
mod relaxed;
mod row_statements;
pub mod settings;
mod shapes;
pub mod shared;
mod short_statements;
pub mod slow_log;
mod statement_cache;
pub(crate) mod text_memory;
pub mod transaction;

use crate::backends::activity::{Registered, TransactionStatus};
use crate::backends::cancel::CancelState;
use crate::backends::identity::{Identity, User};
use crate::execution::row_checks::CheckSet;
use crate::planning::context::ProgressHook;
use crate::planning::template::Template;
use crate::runtime::copy_client::CopyClients;
use crate::session::shared::Shared;
use crate::statements::work::Work;
use crate::values::summary::Summary;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Statement as Parsed};
use outcome::Output;
use prepared::PreparedStatement;
pub use settings::Settings;
use statement_cache::StatementCache;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, Result, SqlState};
use strandline_engine::Transaction;
use strandline_engine::catalog::TableDef;
use transaction::OpenTransaction;

/// The state of one connection.
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    /// The database's template with this session's settings in it.
    pub(crate) template: Arc<Template>,
    settings: Arc<Settings>,
    pub(crate) open: Option<OpenTransaction>,
    prepared: HashMap<String, Arc<PreparedStatement>>,
    statements: StatementCache,
    /// Whether statements may run in the row executor; tests compare with it off.
    pub(crate) row_executor: bool,
    /// whether the row executor has just passed the coming statement on to the full path
    is_undecided: bool,
    pub(crate) cancel: Arc<CancelState>,
    /// the session's entry in the registry, which other sessions read
    pub(crate) registered: Registered,
    pub(crate) progress: Option<ProgressHook>,
    /// the other end of COPY … FROM STDIN and TO STDOUT
    pub(crate) copy_clients: Option<CopyClients>,
    /// this session's newest commit that changed something
    committed: CommitTs,
    notices: Vec<Error>,
}

impl Session {
    pub(crate) fn new(shared: Arc<Shared>, user: User) -> Self {
        let settings = Arc::new(shared.defaults.clone());
        let cancel = Arc::<CancelState>::default();
        let registered = shared.register(cancel.clone(), &user);
        let (template, random) = (&shared.template, &shared.random);
        let mut template = Identity::put_into(
            template,
            &registered,
            random,
            user.clone(),
            user,
            settings::check,
        );
        template
            .config_mut()
            .set_extension(Arc::new(settings.access));
        let session = Self {
            template: Template::new(template),
            shared,
            settings,
            registered,
            open: None,
            prepared: HashMap::new(),
            statements: StatementCache::default(),
            row_executor: true,
            is_undecided: false,
            cancel,
            progress: None,
            copy_clients: None,
            committed: CommitTs::ZERO,
            notices: Vec::new(),
        };
        session.report_settings();
        session
    }

    /// Commits a transaction of this session.
    pub(crate) fn commit_engine(&mut self, transaction: &Transaction) -> Result<()> {
        let has_written = transaction.has_written();
        let ts = transaction.commit()?;
        if has_written {
            self.committed = ts;
        }
        Ok(())
    }

    /// Takes the warnings and notices since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.notices)
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Queues a warning for the client unless it wants errors only (`client_min_messages`).
    fn notice(&mut self, state: SqlState, message: impl Into<String>) {
        if self.settings.client_min_messages != "error" {
            self.notices.push(Error::invalid(state, message));
        }
    }

    /// Queues a statement's notices for the client unless it wants errors only
    /// (`client_min_messages`).
    fn pass_on(&mut self, notices: Vec<Error>) {
        if self.settings.client_min_messages != "error" {
            self.notices.extend(notices);
        }
    }

    /// Parses and runs one statement. A syntax error fails the open block too.
    pub(crate) async fn run_text(&mut self, sql: &str, params: &[ScalarValue]) -> Result<Output> {
        let statement = self.prepare_plain(sql)?;
        self.run_prepared(&statement, params).await
    }

    /// The memory that queries share.
    pub(crate) fn memory(&self) -> &Arc<dyn MemoryPool> {
        &self.template.runtime_env().memory_pool
    }

    /// Parses `sql` as one statement. A syntax error fails the open block.
    pub(crate) fn prepare_plain(&mut self, sql: &str) -> Result<Arc<PreparedStatement>> {
        let pool = &self.template.runtime_env().memory_pool;
        let prepared = self.statements.plain(sql, &self.shared.statistics, pool);
        prepared.inspect_err(|_| self.mark_failed())
    }

    /// Shows other sessions whether a transaction block is open.
    pub(crate) fn report_block(&self) {
        let started_us = self.open.as_ref().map_or(0, |open| open.now_us);
        let status = self.transaction_status();
        self.registered.backend().set_block(status, started_us);
    }

    /// Runs COMMIT, ROLLBACK or ROLLBACK TO SAVEPOINT, the only statements of a failed block.
    fn run_control(&mut self, statement: &Parsed) -> Result<Option<Output>> {
        let summary = match statement {
            Parsed::Commit { chain, .. } => self.commit(*chain)?,
            Parsed::Rollback {
                chain,
                savepoint: None,
            } => self.rollback(*chain)?,
            Parsed::Rollback {
                savepoint: Some(name),
                ..
            } => self.rollback_to(name)?,
            _ => return Ok(None),
        };
        Ok(Some(Output::Done(summary)))
    }

    /// Runs a statement that begins a transaction or makes or releases a savepoint.
    fn run_begin(&mut self, statement: &Parsed) -> Result<Option<Output>> {
        let summary = match statement {
            Parsed::StartTransaction {
                modes,
                statements,
                begin,
                ..
            } => {
                if !statements.is_empty() {
                    return Err(Error::unsupported("BEGIN … END blocks are not supported"));
                }
                self.begin(modes, *begin)?
            }
            Parsed::Savepoint { name } => self.savepoint(name)?,
            Parsed::ReleaseSavepoint { name } => self.release(name)?,
            _ => return Ok(None),
        };
        Ok(Some(Output::Done(summary)))
    }

    /// Runs a statement without parameters, or an EXECUTE whose arguments may be `outer`
    /// parameters.
    async fn run_unfailed(&mut self, statement: &Parsed, outer: &[ScalarValue]) -> Result<Output> {
        if let Some(done) = self.run_begin(statement)? {
            return Ok(done);
        }
        let summary = match statement {
            Parsed::Set(ast::Set::SetTransaction {
                modes,
                session,
                snapshot,
            }) => {
                if snapshot.is_some() {
                    return Err(Error::unsupported(
                        "SET TRANSACTION SNAPSHOT is not supported",
                    ));
                }
                self.set_transaction(modes, *session)?
            }
            Parsed::Set(ast::Set::SetRole { role_name, .. }) => {
                let name = role_name.as_ref();
                self.set_role(name.filter(|n| !n.value.eq_ignore_ascii_case("none")))?
            }
            Parsed::Set(set) => self.set(set)?,
            Parsed::Reset(reset) => self.reset(&reset.reset)?,
            Parsed::ShowVariable { variable } => self.show(variable)?,
            Parsed::Call(call) => self.call(call).await?,
            Parsed::Discard { object_type } => self.discard(object_type)?,
            Parsed::Lock(lock) => self.lock_tables(lock)?,
            Parsed::Close { cursor } => close(cursor)?,
            // There are no notifications.
            Parsed::UNLISTEN { .. } => Summary::tag("UNLISTEN"),
            Parsed::Vacuum(vacuum) if vacuum.reindex => {
                self.vacuum_index(vacuum.table_name.as_ref()).await?
            }
            Parsed::Vacuum(vacuum) => self.vacuum(vacuum.table_name.as_ref(), vacuum.full).await?,
            Parsed::Analyze(analyze) => self.analyze(analyze.table_name.as_ref())?,
            Parsed::Prepare {
                name,
                data_types,
                statement,
            } => self.prepare(name, data_types, statement)?,
            Parsed::Deallocate { name, .. } => self.deallocate(name)?,
            Parsed::Execute { .. } => {
                return Box::pin(self.run_executed(statement, outer)).await;
            }
            other => return self.execute(&Work::of(other)?).await,
        };
        Ok(Output::Done(summary))
    }

    /// Whether a transaction block is open, and whether it has failed.
    pub(crate) fn transaction_status(&self) -> TransactionStatus {
        match &self.open {
            None => TransactionStatus::Idle,
            Some(open) if open.implicit => TransactionStatus::Idle,
            Some(open) if open.failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Open,
        }
    }

    /// The table's CHECK constraints, compiled for rows that do not come from SQL.
    pub(crate) fn checks_of(&self, table: &Arc<TableDef>) -> Result<Arc<CheckSet>> {
        let now_us = match &self.open {
            Some(open) => open.now_us,
            None => self.now_us(),
        };
        self.shared.row_checks.of(table, &self.template, now_us)
    }

    fn discard(&mut self, what: &ast::DiscardObject) -> Result<Summary> {
        match what {
            ast::DiscardObject::ALL => {
                if self.open.is_some() {
                    return Err(Error::invalid(
                        SqlState::ACTIVE_SQL_TRANSACTION,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.prepared.clear();
                self.set_role(None)?;
                self.reset(&ast::Reset::ALL)?;
                self.statements.clear();
            }
            ast::DiscardObject::PLANS => self.statements.clear(),
            ast::DiscardObject::SEQUENCES | ast::DiscardObject::TEMP => {}
        }
        Ok(Summary::tag(format!("DISCARD {what}")))
    }
}

/// CLOSE of one cursor fails: named cursors do not exist.
fn close(cursor: &ast::CloseCursor) -> Result<Summary> {
    match cursor {
        ast::CloseCursor::All => Ok(Summary::tag("CLOSE CURSOR ALL")),
        ast::CloseCursor::Specific { name } => Err(Error::invalid(
            SqlState("34000"),
            format!(
                "cursor \"{}\" does not exist",
                crate::parse::names::fold(name)
            ),
        )),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.transaction.rollback();
        }
    }
}
