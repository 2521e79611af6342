//! Short plans of a session's statements: the choice of executions, and the transaction around
//! them.
//!
//! A statement that the row executor does not compile from its syntax tree may have a short plan:
//! beside its kept plan, or of its shape if its parameters are read as literals ([`shapes`]). An
//! execution that the short plan leaves undecided takes the full path.
//!
//! [`shapes`]: super::shapes

use super::Session;
use super::outcome::Output;
use super::prepared::PreparedStatement;
use crate::execution::short_plans::{Inputs, ShortPlan};
use crate::statements::plan_cache::Sought;
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
        if !prepared.typed && types.is_none() && !values.is_empty() {
            return self.run_of_shape(prepared, values);
        }
        let sought = Sought {
            template: &self.template,
            values,
            types,
        };
        let uses = |catalog: &Arc<_>| self.uses_catalog(catalog);
        let plan = prepared.plan.short(&sought, uses)?;
        let values = Cow::Borrowed(values);
        Some(ShortRun { plan, values })
    }

    /// Runs a query by its short plan; None: it takes the full path.
    pub(super) fn run_short(&mut self, run: &ShortRun<'_>) -> Result<Option<Output>> {
        self.cancel.start();
        self.cancel.check()?;
        let Some((transaction, began_us)) = self.point_transaction(true)? else {
            return Ok(None);
        };
        let is_implicit = began_us.is_none();
        let now_us = match began_us {
            None if run.plan.asks_now() => self.now_us(),
            known => known.unwrap_or_default(),
        };
        let _timer = self.timer();
        let inputs = Inputs {
            transaction: &transaction,
            values: &run.values,
            memory: &self.template.runtime_env().memory_pool,
            now_us,
        };
        let statistics = &self.shared.statistics;
        match run.plan.run(&inputs) {
            Ok(Some(result)) => {
                statistics.short();
                if is_implicit {
                    self.commit_engine(&transaction)?;
                }
                Ok(Some(Output::Batch(result)))
            }
            Ok(None) => {
                statistics.short_stopped();
                if is_implicit {
                    transaction.rollback();
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
