//! Short plans of a session's statements: the choice of executions, and the transaction around
//! them.
//!
//! A statement that the row executor does not compile from its syntax tree may have a short plan:
//! beside its kept plan, or of its shape if its parameters are read as literals ([`shapes`]). An
//! execution that the short plan leaves undecided is undone and takes the full path.
//!
//! [`shapes`]: super::shapes

use super::Session;
use super::execute::{dml_summary, looks_again};
use super::outcome::Output;
use super::prepared::PreparedStatement;
use crate::execution::short_plans::{Answer, Inputs, ShortPlan};
use crate::parse::params;
use crate::statements::plan_cache::{Sought, has_shape};
use datafusion::scalar::ScalarValue;
use std::borrow::Cow;
use std::sync::Arc;
use strandline_base::{Result, SqlType};

/// A plan with the values of an execution.
pub(super) struct ShortRun<'a> {
    pub plan: Arc<ShortPlan>,
    pub values: Cow<'a, [ScalarValue]>,
}

impl Session {
    /// The short plan for an execution, if the statement has one for these values. `types` are the
    /// values' types if somebody but the statement knows them.
    pub(super) fn short_run<'a>(
        &self,
        prepared: &PreparedStatement,
        values: &'a [ScalarValue],
        types: Option<&[Option<SqlType>]>,
    ) -> Option<ShortRun<'a>> {
        if !self.row_executor || self.settings.max_staleness.is_some() {
            return None;
        }
        let (values, own) = match (prepared.typed, types) {
            (false, None) if values.is_empty() => (Cow::Borrowed(values), None),
            (false, None) if has_shape(&prepared.statement, prepared.is_lifted) => {
                return self.run_of_shape(prepared, values);
            }
            (false, None) => {
                let own: (Vec<_>, Vec<_>) = values.iter().map(params::own_type).unzip();
                (Cow::Owned(own.0), Some(own.1))
            }
            _ => (Cow::Borrowed(values), None),
        };
        let sought = Sought {
            template: &self.template,
            values: &values,
            types: types.or(own.as_deref()),
        };
        let uses = |catalog: &Arc<_>| self.uses_catalog(catalog);
        let plan = prepared.plan.short(&sought, uses)?;
        Some(ShortRun { plan, values })
    }

    /// Runs a statement by its short plan; None: it takes the full path.
    pub(super) fn run_short(&mut self, run: &ShortRun<'_>) -> Result<Option<Output>> {
        self.cancel.start();
        self.cancel.check()?;
        let reads = run.plan.only_reads();
        let Some((transaction, began_us)) = self.point_transaction(reads)? else {
            return Ok(None);
        };
        let is_implicit = began_us.is_none();
        let now_us = match began_us {
            None if run.plan.asks_now() => self.now_us(),
            known => known.unwrap_or_default(),
        };
        let _timer = self.timer();
        let starts_over = !reads && looks_again(&transaction);
        let has_savepoint = !reads && (!is_implicit || starts_over);
        let savepoint = has_savepoint.then(|| transaction.savepoint());
        let inputs = Inputs {
            transaction: &transaction,
            values: &run.values,
            memory: &self.template.runtime_env().memory_pool,
            now_us,
        };
        let again = savepoint.as_ref().filter(|_| starts_over);
        let statistics = &self.shared.statistics;
        match self.attempts_at(&transaction, again, || run.plan.run(&inputs)) {
            Ok(Some(answer)) => {
                statistics.short();
                if is_implicit {
                    self.commit_engine(&transaction)?;
                }
                Ok(Some(match answer {
                    Answer::Rows(result) => Output::Batch(result),
                    Answer::Changed(done) => Output::Done(dml_summary(done)),
                }))
            }
            Ok(None) => {
                statistics.short_stopped();
                match savepoint {
                    _ if is_implicit => transaction.rollback(),
                    Some(savepoint) => transaction.rollback_to(&savepoint)?,
                    None => {}
                }
                Ok(None)
            }
            Err(error) => {
                if is_implicit {
                    transaction.rollback();
                }
                Err(self.cancel.explain(error))
            }
        }
    }
}
