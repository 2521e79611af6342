//! The short plans of kept plans: compiled with the plan, and asked for before an execution, which
//! then needs no plan of DataFusion ([`short_plans`]).

use super::{PlanSlot, SlotState, are_of, look};
use crate::catalogs::pg_catalog::display;
use crate::execution::short_plans::{self, ShortPlan, Surroundings};
use crate::planning::context::StatementContext;
use crate::planning::template::Template;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::Catalog;
use strandline_semantics as semantics;

/// The execution that looks for a short plan.
pub(crate) struct Sought<'a> {
    pub template: &'a Arc<Template>,
    pub values: &'a [ScalarValue],
    /// the types of the values; None: the values are of the types that the statement has
    pub types: Option<&'a [Option<SqlType>]>,
}

impl PlanSlot {
    /// The short plan for an execution that `uses` a catalog.
    pub fn short(
        &self,
        sought: &Sought<'_>,
        uses: impl FnOnce(&Arc<Catalog>) -> bool,
    ) -> Option<Arc<ShortPlan>> {
        let state = self.0.lock();
        let SlotState::Kept(kept) = &*state else {
            return None;
        };
        let short = kept.short.as_ref().filter(|plan| !plan.is_given_up())?;
        let key = &kept.key;
        let is_for = Arc::ptr_eq(&key.template, sought.template)
            && sought.types.is_none_or(|types| types == key.types)
            && are_of(sought.values, &key.types)
            && uses(&key.catalog);
        is_for.then(|| short.clone())
    }
}

/// The short plan of an analyzed query, which may be optimized already, for any values of its
/// parameters. Optimized with open parameters a plan serves as a short one only.
pub(super) fn compile(
    context: &StatementContext,
    (plan, is_optimized): (&LogicalPlan, bool),
    types: &[Option<SqlType>],
    output: &SchemaRef,
) -> Option<ShortPlan> {
    let around = Surroundings {
        state: &context.state,
        db: context.statement.transaction().db(),
        catalog: &context.catalog,
        template: context.template(),
        types,
        output,
    };
    match is_optimized {
        true => short_plans::compile(plan, &around),
        false => short_plans::compile(&context.optimize(plan.clone()).ok()?, &around),
    }
}

/// The short plan that a query without parameters gets when it is repeated.
pub(crate) fn of_query(context: &StatementContext, query: &LogicalPlan) -> Option<ShortPlan> {
    if display::is_needed(query) {
        return None;
    }
    let analyzed = context.analyze(query.clone()).ok()?;
    let traits = look(&analyzed).ok()?;
    if !traits.is_free || traits.is_stable {
        return None;
    }
    let output = semantics::sql::output_schema(query.schema().inner());
    compile(context, (&analyzed, false), &[], &output)
}

