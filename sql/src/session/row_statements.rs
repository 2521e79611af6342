//! The row executor's side of a session: the choice of statements, and the transaction around them.
//!
//! A prepared statement keeps its compiled form for the last catalog and settings. An execution
//! that the row executor leaves undecided is undone and takes the full path.
//!
//! Compiled statements and transaction control run without a future ([`Session::run_at_once`]). The
//! future that could also plan a query costs more to make and to poll than such a statement.

use super::Session;
use super::execute::{is_conflict, looks_again};
use super::outcome::Output;
use super::prepared::PreparedStatement;
use super::short_statements::ShortRun;
use super::statement_cache::{Lifting, Shape as LiftedShape};
use crate::backends::acting::Acting;
use crate::execution::row_executor::{Compiled, Compiler, Execution, Planner, RowStatement, Run};
use crate::planning::provider::registered::RegisteredTables;
use crate::statements::explain::RowPlan;
use crate::values::summary::Summary;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType};
use strandline_engine::catalog::Catalog;
use strandline_engine::{Savepoint, Transaction};

/// How often a statement starts over for other transactions' commits before the full path takes it.
const MAX_TRIES: usize = 100;

/// What the row executor runs.
enum Form<'a> {
    Compiled(Arc<Compiled>, &'a [ScalarValue]),
    Short(ShortRun<'a>),
}

/// The transaction of a point statement, and the open block's `now()` if it belongs to a block.
type Begun = (Arc<Transaction>, Option<u64>);

impl Session {
    /// Runs a text whose statement is compiled already except for its literals; None: it takes the
    /// longer path.
    pub(crate) fn run_text_at_once(
        &mut self,
        sql: &str,
        values: &[ScalarValue],
    ) -> Result<Option<Output>> {
        if let Some(prepared) = self.statements.known(sql) {
            return self.run_at_once(&prepared, values);
        }
        if !values.is_empty() || !self.row_executor || !self.statements.lift(sql) {
            return Ok(None);
        }
        for lifting in [Lifting::All, Lifting::Plain, Lifting::Operands] {
            if !self.statements.lift_fewer(lifting, sql) {
                continue;
            }
            let prepared = match self.statements.shape(lifting, &self.shared.statistics) {
                LiftedShape::Seen => return Ok(None),
                LiftedShape::Unsuited => continue,
                LiftedShape::Statement(prepared) => prepared,
            };
            if prepared.is_of_transaction() {
                return self.run_of_transaction(&prepared).map(Some);
            }
            if self.has_failed() {
                return Ok(None);
            }
            let literals = self.statements.literals(lifting);
            if self.compiled(&prepared).is_none() {
                // Literals have no declared types, and neither have these parameters.
                self.compile(&prepared, &[], &literals);
            }
            let ran = self.form(&prepared, &literals).map(|form| {
                let text = || Arc::from(crate::parse::redacted(sql));
                self.run_form(&prepared, &form, text)
            });
            self.statements.give_back(lifting, literals);
            if let Some(ran) = ran {
                return ran;
            }
        }
        Ok(None)
    }

    /// Runs a compiled statement; None: it takes the longer path.
    pub(crate) fn run_at_once(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Option<Output>> {
        if prepared.is_of_transaction() && values.is_empty() {
            return self.run_of_transaction(prepared).map(Some);
        }
        let values = prepared.typed_values(values);
        match self.form(prepared, &values) {
            Some(form) => self.run_form(prepared, &form, || prepared.text.clone()),
            None => Ok(None),
        }
    }

    /// The form that the statement has for the row executor, if it is compiled.
    fn form<'a>(
        &self,
        prepared: &PreparedStatement,
        values: &'a [ScalarValue],
    ) -> Option<Form<'a>> {
        if self.has_failed() || !self.row_executor || values.len() != prepared.parameter_count() {
            return None;
        }
        let compiled = self.compiled(prepared)?;
        match compiled.statement {
            Some(_) => Some(Form::Compiled(compiled, values)),
            None => self.short_run(prepared, values, None).map(Form::Short),
        }
    }

    /// `text` is the query text that other sessions see.
    fn run_form(
        &mut self,
        prepared: &PreparedStatement,
        form: &Form<'_>,
        text: impl FnOnce() -> Arc<str>,
    ) -> Result<Option<Output>> {
        self.cancel.refuse_if_terminated()?;
        let backend = self.registered.backend();
        let running = backend.start(Some(text()), self.shared.db.now_us());
        let ran = match form {
            Form::Short(short) => self.run_short(short),
            Form::Compiled(compiled, values) => {
                self.run_compiled_or_short((prepared, compiled), values, None)
            }
        };
        drop(running);
        match &ran {
            Ok(None) => self.is_undecided = true,
            Ok(Some(_)) => {}
            Err(_) => {
                self.mark_failed();
                self.report_block();
            }
        }
        ran
    }

    /// Runs a statement in the row executor; None: it takes the full path. `types` are the values'
    /// types if the statement itself does not know them.
    pub(super) async fn run_point(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
        types: Option<&[Option<SqlType>]>,
    ) -> Result<Option<Output>> {
        let is_undecided = std::mem::take(&mut self.is_undecided);
        if is_undecided || !self.row_executor || !prepared.may_be_row_statement() {
            return Ok(None);
        }
        let compiled = match self.compiled(prepared) {
            Some(compiled) => compiled,
            None => {
                let known = self.known_types(prepared).await?;
                let literals = if prepared.typed { &[] } else { values };
                self.compile(prepared, &known, literals)
            }
        };
        if compiled.statement.is_some() {
            return self.run_compiled_or_short((prepared, &compiled), values, types);
        }
        match self.short_run(prepared, values, types) {
            Some(short) => self.run_short(&short),
            None => Ok(None),
        }
    }

    fn run_of_transaction(&mut self, prepared: &PreparedStatement) -> Result<Output> {
        self.cancel.refuse_if_terminated()?;
        let backend = self.registered.backend();
        let running = backend.start(Some(prepared.text.clone()), self.shared.db.now_us());
        let output = self.control(&prepared.statement);
        drop(running);
        self.report_block();
        output
    }

    fn control(&mut self, statement: &Parsed) -> Result<Output> {
        if let Some(done) = self.run_control(statement)? {
            return Ok(done);
        }
        self.refuse_if_failed()?;
        let done = self
            .run_begin(statement)
            .inspect_err(|_| self.mark_failed())?;
        done.ok_or_else(|| Error::internal("a statement around a transaction is none"))
    }

    /// Runs a compiled statement. What it leaves undecided may have a short plan: of a small table
    /// that reads all rows.
    fn run_compiled_or_short(
        &mut self,
        (prepared, compiled): (&PreparedStatement, &Compiled),
        values: &[ScalarValue],
        types: Option<&[Option<SqlType>]>,
    ) -> Result<Option<Output>> {
        if let Some(output) = self.run_compiled(compiled, values)? {
            return Ok(Some(output));
        }
        match self.short_run(prepared, values, types) {
            Some(short) => self.run_short(&short),
            None => Ok(None),
        }
    }

    fn run_compiled(
        &mut self,
        compiled: &Compiled,
        values: &[ScalarValue],
    ) -> Result<Option<Output>> {
        let Some(statement) = &compiled.statement else {
            return Ok(None);
        };
        let reads = statement.is_read_only();
        if reads && self.settings.max_staleness.is_some() {
            return Ok(None);
        }
        self.cancel.start();
        self.cancel.check()?;
        let Some((transaction, began_us)) = self.point_transaction(reads)? else {
            return Ok(None);
        };
        let implicit = began_us.is_none();
        let starts_over = statement.may_start_over() && looks_again(&transaction);
        // A read never waits for a lock.
        let _timer = match reads {
            true => None,
            false => self.timer(),
        };
        let has_savepoint = !reads && (!implicit || starts_over);
        let savepoint = has_savepoint.then(|| transaction.savepoint());
        let checks = match statement.checked_table().map(|table| self.checks_of(table)) {
            None => None,
            Some(Ok(checks)) => Some(checks),
            Some(Err(_)) => return Ok(None),
        };
        let execution = Execution {
            compiled,
            transaction: &transaction,
            values,
            now_us: self.asked_now(compiled, began_us),
            checks,
            begun: None,
            queried: Vec::new(),
        };
        let again = savepoint.as_ref().filter(|_| starts_over);
        let ran = match self.attempts_at(&transaction, again, || execution.run().map(Some)) {
            Err(error) => {
                if implicit {
                    transaction.rollback();
                }
                return Err(self.cancel.explain(error));
            }
            Ok(ran) => ran,
        };
        let Some(output) = ran.and_then(output_of) else {
            match savepoint {
                _ if implicit => transaction.rollback(),
                Some(savepoint) => transaction.rollback_to(&savepoint)?,
                None => {}
            }
            return Ok(None);
        };
        if implicit {
            self.commit_engine(&transaction)?;
        }
        self.shared.statistics.point();
        Ok(Some(output))
    }

    /// Runs a statement, and again with a new snapshot after a conflict if there is a savepoint
    /// before it. None: the full path decides.
    pub(super) fn attempts_at<T>(
        &self,
        transaction: &Arc<Transaction>,
        savepoint: Option<&Savepoint>,
        mut run: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut tries = 1;
        loop {
            match run() {
                Err(error) if looks_again(transaction) && is_conflict(&error) => {
                    let Some(savepoint) = savepoint.filter(|_| tries < MAX_TRIES) else {
                        return Ok(None);
                    };
                    transaction.rollback_to(savepoint)?;
                    tries += 1;
                    self.cancel.check()?;
                }
                ran => return ran,
            }
        }
    }

    /// `now()` if the statement uses it. Reading the clock is a measurable part of a short
    /// statement.
    fn asked_now(&self, compiled: &Compiled, began_us: Option<u64>) -> u64 {
        match began_us {
            None if compiled.asks_now => self.now_us(),
            known => known.unwrap_or_default(),
        }
    }

    /// The compiled form of `prepared` if it is for the present catalog and settings.
    fn compiled(&self, prepared: &PreparedStatement) -> Option<Arc<Compiled>> {
        let known = prepared.compiled.lock().clone()?;
        let same_catalog = self.uses_catalog(&known.catalog);
        (same_catalog && Arc::ptr_eq(&known.template, &self.template)).then_some(known)
    }

    /// Whether the coming statement uses this catalog.
    pub(super) fn uses_catalog(&self, catalog: &Arc<Catalog>) -> bool {
        match &self.open {
            Some(open) => open.transaction.uses_catalog(catalog),
            None => self.shared.db.uses_catalog(catalog),
        }
    }

    /// `literals` are the values of parameters that have no declared type.
    fn compile(
        &self,
        prepared: &PreparedStatement,
        types: &[Option<SqlType>],
        literals: &[ScalarValue],
    ) -> Arc<Compiled> {
        let compiled = Arc::new(self.compiled_anew(&prepared.statement, types, literals));
        *prepared.compiled.lock() = Some(compiled.clone());
        compiled
    }

    /// What the row executor does with the statement of an EXPLAIN.
    pub(super) fn row_plan(&self, explain: &Parsed) -> RowPlan {
        let Parsed::Explain { statement, .. } = explain else {
            return RowPlan::Off;
        };
        if !self.row_executor || self.settings.max_staleness.is_some() {
            return RowPlan::Off;
        }
        match self.compiled_anew(statement, &[], &[]).statement {
            Some(statement) => RowPlan::Compiled(statement.text()),
            None => RowPlan::Planned,
        }
    }

    fn compiled_anew(
        &self,
        statement: &Parsed,
        types: &[Option<SqlType>],
        literals: &[ScalarValue],
    ) -> Compiled {
        let catalog = match &self.open {
            Some(open) => open.transaction.next_catalog(),
            None => self.shared.db.catalog(),
        };
        let aside = Cell::new(None);
        let begin = || {
            let (mut context, implicit) = self.context_aside().ok()?;
            context.open_parameters = true;
            aside.set(implicit);
            Some(context)
        };
        let compiler = Compiler {
            db: &self.shared.db,
            catalog: &catalog,
            default_schema: &self.template.config_options().catalog.default_schema,
            registered: &RegisteredTables::of(&self.template),
            types,
            literals,
            uses_indexes: self.settings.access.indexes,
            asks_now: Cell::new(false),
            subqueries: RefCell::default(),
            planner: Planner::new(&begin),
        };
        // Without the privileges, the full path reports the error. The result stays valid: another
        // role is another template, and other privileges are another catalog.
        let acting = Acting::of(&self.template, &catalog);
        let may = |statement: &RowStatement| {
            let may = |acting: &Arc<Acting>| {
                let wanted = statement.privileges();
                let mut each = wanted.flat_map(|(table, all)| all.iter().map(move |p| (table, *p)));
                each.all(|(table, privilege)| acting.require_on(table, privilege).is_ok())
            };
            acting.as_ref().is_none_or(may)
        };
        let statement = compiler.compile(statement).filter(may);
        if let Some(transaction) = aside.take() {
            transaction.rollback();
        }
        Compiled {
            asks_now: compiler.asks_now.get(),
            statement,
            catalog,
            template: self.template.clone(),
        }
    }

    /// The open block's transaction and its `now()`, or a new transaction whose `now()` is not read
    /// yet. None: the full path reports that writing is refused.
    pub(super) fn point_transaction(&mut self, reads: bool) -> Result<Option<Begun>> {
        if let Some(open) = &mut self.open {
            if open.transaction.options().read_only && !reads {
                return Ok(None);
            }
            open.used = true;
            return Ok(Some((open.transaction.clone(), Some(open.now_us))));
        }
        let mut modes = self.default_modes();
        if modes.read_only && !reads {
            return Ok(None);
        }
        modes.read_only = reads;
        modes.speculative &= !reads;
        Ok(Some((self.begin_engine(modes)?, None)))
    }
}

/// What a client gets; None: the full path decides.
fn output_of(ran: Run) -> Option<Output> {
    Some(match ran {
        Run::Row(row) => Output::Row(row),
        Run::Rows(result) => Output::Batch(result),
        Run::Done(tag, rows, returned) => {
            let summary = Summary::rows(command_tag(tag, rows), rows);
            Output::Done(summary.with_result(returned))
        }
        Run::Undecided => return None,
    })
}

/// PostgreSQL's command tag.
fn command_tag(tag: &'static str, rows: u64) -> std::borrow::Cow<'static, str> {
    match (tag, rows) {
        ("INSERT", 1) => "INSERT 0 1".into(),
        ("UPDATE", 1) => "UPDATE 1".into(),
        ("DELETE", 1) => "DELETE 1".into(),
        ("UPDATE", 0) => "UPDATE 0".into(),
        ("DELETE", 0) => "DELETE 0".into(),
        ("INSERT", n) => format!("INSERT 0 {n}").into(),
        (tag, n) => format!("{tag} {n}").into(),
    }
}
