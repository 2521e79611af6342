//! Running work: the transaction around a statement, its savepoint, and running it again.
//!
//! Under read committed a statement that meets a newer committed version fails in the engine with
//! `ErrorKind::Conflict` and 40001. The session undoes it to the savepoint before it and runs it
//! again with a new snapshot, up to [`MAX_TRIES`] times. Other transactions see none of this.

use super::Session;
use super::outcome::{Output, RunningQuery};
use crate::backends::cancel::Timer;
use crate::execution::dml;
use crate::execution::row_rules;
use crate::planning::context::StatementContext;
use crate::statements::copy;
use crate::statements::ddl;
use crate::statements::explain;
use crate::statements::plan_cache::Ran;
use crate::statements::roles;
use crate::statements::with_changes;
use crate::statements::work::Work;
use crate::values::result::{Gathered, QueryResult};
use crate::values::summary::Summary;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Duration;
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_engine::{ConflictPolicy, Isolation, Transaction};
use strandline_semantics::error::convert;

/// How often a statement runs under read committed before its conflict is reported.
const MAX_TRIES: usize = 1_000;

impl Session {
    /// Runs `work` in the open block or in a transaction of its own.
    pub(super) async fn execute(&mut self, work: &Work<'_>) -> Result<Output> {
        let (transaction, now_us, implicit) = self.transaction_for(work)?;
        let began_us = self.shared.db.elapsed_us();
        match self.attempts(&transaction, work, now_us).await {
            Ok(Output::Rows(mut query)) => {
                query.time_left = self.settings.statement_timeout;
                self.charge(&mut query, began_us);
                query.implicit = implicit.then_some(transaction);
                Ok(Output::Rows(query))
            }
            Ok(mut done) => {
                if implicit {
                    self.commit_engine(&transaction)?;
                }
                if let Output::Done(summary) = &mut done {
                    self.pass_on(summary.take_notices());
                }
                Ok(done)
            }
            Err(error) => {
                if implicit {
                    transaction.rollback();
                }
                Err(error)
            }
        }
    }

    /// The open block's transaction, or a new one; its `now()`; whether it is new.
    fn transaction_for(&mut self, work: &Work<'_>) -> Result<(Arc<Transaction>, u64, bool)> {
        let reads = work.is_read_only();
        if let Some(open) = &mut self.open {
            if open.transaction.options().read_only && !reads {
                return Err(read_only(work));
            }
            open.used = true;
            return Ok((open.transaction.clone(), open.now_us, false));
        }
        let mut modes = self.default_modes();
        if modes.read_only && !reads {
            return Err(read_only(work));
        }
        modes.read_only = reads;
        // A query's rows go out before its commit. Only the commit would wait for the transactions
        // that a speculative read depends on.
        modes.speculative &= !reads;
        Ok((self.begin_engine(modes)?, self.now_us(), true))
    }

    async fn attempts(
        &self,
        transaction: &Arc<Transaction>,
        work: &Work<'_>,
        now_us: u64,
    ) -> Result<Output> {
        let cancel = self.cancel.clone();
        cancel.start();
        let timeout = self.settings.statement_timeout;
        let _timer = timeout.map(|t| Timer::start(self.shared.threads(), cancel.clone(), t));
        let again = looks_again(transaction)
            && !matches!(work, Work::Copy(parsed) if copy::takes_from_client(parsed));
        let mut tries = 1;
        loop {
            let savepoint = transaction.savepoint();
            match cancel.guard(self.attempt(transaction, work, now_us)).await {
                Err(error) if again && is_conflict(&error) && tries < MAX_TRIES => {
                    transaction.rollback_to(&savepoint)?;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    async fn attempt(
        &self,
        transaction: &Arc<Transaction>,
        work: &Work<'_>,
        now_us: u64,
    ) -> Result<Output> {
        let statement = transaction.begin_statement()?;
        let mut context =
            StatementContext::new(&self.template, statement.clone(), Vec::new(), now_us);
        context.is_alone = self.open.is_none();
        context.index_storage = self.settings.index_storage;
        context.key_index = self.settings.key_index;
        context.progress = self.progress.clone();
        context.copy_clients = self.copy_clients.clone();
        let Work::Prepared(execution) = work else {
            return self.run_anew(context, work).await;
        };
        match execution.run(&mut context).await? {
            Some(Ran::Rows(rows)) => Ok(running(context, rows)),
            Some(Ran::Batch(result)) => {
                row_rules::finish(&context)?;
                Ok(Output::Batch(result))
            }
            Some(Ran::Changed(done)) => {
                row_rules::finish(&context)?;
                Ok(Output::Done(dml_summary(done)))
            }
            None => {
                let bound = execution.bound_statement()?;
                self.run_anew(context, &Work::of(&bound)?).await
            }
        }
    }

    /// Plans and runs a statement that is not prepared.
    async fn run_anew(&self, mut context: StatementContext, work: &Work<'_>) -> Result<Output> {
        let statement = context.statement.clone();
        self.shared.statistics.planned();
        let summary = match work {
            Work::Prepared(_) => return Err(Error::internal("a prepared statement is not bound")),
            Work::Query(query) if with_changes::has_parts(query) => {
                let rest = with_changes::run(&mut context, query).await?;
                let plan = context.plan_query(&rest.query).await?;
                context.fit(&plan)?;
                let (schema, rows) = gathered(&context, plan).await?;
                row_rules::finish(&context)?;
                return Ok(Output::Batch(QueryResult::new(schema, rows)));
            }
            Work::Query(query) => {
                let only_reads = work.is_read_only();
                let mut plan = context.plan_query(query).await?;
                if only_reads
                    && let Some(choice) = self.choose_moment(&context)?
                    && let Some(older) = choice.older
                {
                    context = context.again(older);
                    plan = context.plan_query(query).await?;
                }
                context.fit(&plan)?;
                if !only_reads {
                    return Ok(Output::Rows(locked_rows(context, plan).await?));
                }
                let rows = context.run(plan).await?;
                return Ok(running(context, rows));
            }
            Work::Dml(parsed) => {
                let rest = match with_changes::parted(parsed) {
                    Some(query) => Some(with_changes::run(&mut context, query).await?),
                    None => None,
                };
                let changed = rest.as_ref().map(|rest| rest.changed.clone());
                let rest = rest.map(|rest| rest.statement());
                let parsed = rest.as_ref().unwrap_or(parsed);
                context.writes_without_reading(roles::check::dml(&context, parsed)?);
                let changed = changed.unwrap_or_default();
                dml_summary(dml::execute(&mut context, parsed, &changed).await?)
            }
            Work::Copy(parsed) => {
                let rows = copy::execute(&context, parsed).await?;
                Summary::rows(format!("COPY {rows}"), rows)
            }
            Work::Ddl(parsed) => ddl::execute(&context, parsed).await?,
            Work::Explain(parsed) => {
                let choice = match work.analyzed_query()? {
                    Some(query) if work.is_read_only() => {
                        context.plan_query(query).await?;
                        self.choose_moment(&context)?
                    }
                    _ => None,
                };
                let (older, note) = choice.map_or((None, None), |c| (c.older, Some(c.text)));
                if let Some(older) = older {
                    context = context.again(older);
                }
                let row_plan = self.row_plan(parsed);
                explain::execute(&mut context, parsed, row_plan, note).await?
            }
        };
        // EXPLAIN ANALYZE may have read at an older moment, by another statement.
        row_rules::finish_statement(&context, &statement)?;
        Ok(Output::Done(summary))
    }

    /// The next batch of a running query; at its end or on an error its transaction ends too.
    pub(crate) async fn next_batch(
        &mut self,
        query: &mut RunningQuery,
    ) -> Option<Result<RecordBatch>> {
        if query.implicit.is_none()
            && let Err(error) = self.refuse_outside(query.context.statement.transaction())
        {
            return Some(Err(error));
        }
        let cancel = self.cancel.clone();
        let next = async {
            // A stream whose rows are always ready never yields, so the cancel flag is checked
            // here.
            cancel.check()?;
            query.stream.next().await.transpose().map_err(convert)
        };
        match cancel.guard(next).await {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                let in_block = query.implicit.is_none();
                let finished = query.context.statement.finish();
                let ended = match query.implicit.take() {
                    Some(transaction) => finished.and_then(|()| self.commit_engine(&transaction)),
                    None => finished,
                };
                let ended = ended.and_then(|()| self.apply_requests());
                ended.err().map(|error| {
                    if in_block {
                        self.mark_failed();
                    }
                    Err(error)
                })
            }
            Err(error) => Some(Err(self.give_up(query, error))),
        }
    }

    /// The running query fails with `error`: its transaction is rolled back, or its block fails.
    fn give_up(&mut self, query: &mut RunningQuery, error: Error) -> Error {
        self.registered.backend().take_requests();
        match query.implicit.take() {
            Some(transaction) => transaction.rollback(),
            None => self.mark_failed(),
        }
        self.report_block();
        error
    }

    /// Cancels what runs when its time is up; None without `statement_timeout`.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.timer_of(self.settings.statement_timeout)
    }

    /// As [`Session::timer`], with `time_left`. Without any, what runs is cancelled at once.
    fn timer_of(&self, time_left: Option<Duration>) -> Option<Timer> {
        let time_left = time_left?;
        if time_left.is_zero() {
            self.cancel.time_out_now();
        }
        Some(Timer::start(
            self.shared.threads(),
            self.cancel.clone(),
            time_left,
        ))
    }

    /// Runs `query` for a call, within the time that is left to it.
    pub(crate) fn begin_call(&self, query: &RunningQuery) -> (Option<Timer>, u64) {
        let began_us = match query.time_left {
            Some(_) => self.shared.db.elapsed_us(),
            None => 0,
        };
        (self.timer_of(query.time_left), began_us)
    }

    /// Takes the time since `began_us` from what is left to `query`.
    pub(crate) fn charge(&self, query: &mut RunningQuery, began_us: u64) {
        if let Some(left) = &mut query.time_left {
            let spent_us = self.shared.db.elapsed_us().saturating_sub(began_us);
            *left = left.saturating_sub(Duration::from_micros(spent_us));
        }
    }

    /// All rows of a running query.
    pub(crate) async fn collect(&mut self, mut query: Box<RunningQuery>) -> Result<QueryResult> {
        let (_timer, _) = self.begin_call(&query);
        let mut rows = Gathered::new(query.context.memory());
        let mut refused = None;
        while let Some(batch) = self.next_batch(&mut query).await {
            if let Err(error) = rows.push(batch?) {
                refused = Some(convert(error));
                break;
            }
        }
        match refused {
            None => Ok(QueryResult::new(query.schema, rows.into_batches())),
            Some(error) => Err(self.give_up(&mut query, error)),
        }
    }

    /// Counts the rows of a running query and drops them.
    pub(crate) async fn count(&mut self, mut query: Box<RunningQuery>) -> Result<u64> {
        let (_timer, _) = self.begin_call(&query);
        let mut rows = 0;
        while let Some(batch) = self.next_batch(&mut query).await {
            rows += batch?.num_rows() as u64;
        }
        Ok(rows)
    }
}

fn running(
    context: StatementContext,
    (schema, stream): (SchemaRef, SendableRecordBatchStream),
) -> Output {
    Output::Rows(Box::new(RunningQuery {
        schema,
        stream,
        implicit: None,
        context,
        time_left: None,
        running: None,
    }))
}

/// Runs a locking query to its end, so that a conflict appears while the query can still run again.
async fn locked_rows(context: StatementContext, plan: LogicalPlan) -> Result<Box<RunningQuery>> {
    let (schema, rows) = gathered(&context, plan).await?;
    let rows = futures::stream::iter(rows.into_iter().map(Ok));
    Ok(Box::new(RunningQuery {
        schema: schema.clone(),
        stream: Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
        implicit: None,
        context,
        time_left: None,
        running: None,
    }))
}

/// All rows of a query.
async fn gathered(
    context: &StatementContext,
    plan: LogicalPlan,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let (schema, mut stream) = context.run(plan).await?;
    let mut rows = Gathered::new(context.memory());
    while let Some(batch) = stream.try_next().await.map_err(convert)? {
        rows.push(batch).map_err(convert)?;
    }
    Ok((schema, rows.into_batches()))
}

/// Whether a statement that meets a newer committed version runs again.
pub(super) fn looks_again(transaction: &Transaction) -> bool {
    transaction.options().isolation == Isolation::ReadCommitted
        && transaction.conflicts() == ConflictPolicy::Wait
}

/// Whether a statement failed on a newer version of a row, so that it may run again.
pub(super) fn is_conflict(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict && error.sqlstate() == SqlState::SERIALIZATION_FAILURE
}

fn read_only(work: &Work<'_>) -> Error {
    Error::invalid(
        SqlState::READ_ONLY_SQL_TRANSACTION,
        format!("cannot execute {} in a read-only transaction", work.name()),
    )
}

pub(super) fn dml_summary(outcome: dml::DmlOutcome) -> Summary {
    let tag = match outcome.tag {
        "INSERT" => format!("INSERT 0 {}", outcome.rows),
        other => format!("{other} {}", outcome.rows),
    };
    let result = outcome
        .returning
        .map(|(schema, batches)| QueryResult::new(schema, batches));
    Summary::rows(tag, outcome.rows).with_result(result)
}
