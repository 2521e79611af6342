//! EXPLAIN and EXPLAIN ANALYZE: the physical plan, one line per row under `QUERY PLAN`, as in
//! PostgreSQL. The lines of scans show ranges read and pruned, and with ANALYZE chunks decoded and
//! tail records patched.
//!
//! If the row executor runs the statement, the first line describes its plan, and the lines below
//! it the operators of a short plan. The plan below these is used when the row executor gives up.
//! ANALYZE of a query runs the short plan as well, and shows the rows of its operators. The plans
//! of changes in WITH are shown by their names; only ANALYZE runs them.

use crate::execution::dml::{self, ChangedRows, DmlForm};
use crate::execution::short_plans::{Inputs, ShortPlan};
use crate::planning::context::StatementContext;
use crate::statements::explain_options::{Format, Options};
use crate::statements::plan_cache;
use crate::statements::roles;
use crate::statements::with_changes::{self, Part, Rest};
use crate::statements::work::Work;
use crate::values::summary::Summary;
use crate::values::summary::text_result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use futures::StreamExt;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_semantics::error::convert;

/// The name of EXPLAIN's column.
pub const COLUMN: &str = "QUERY PLAN";

/// What the row executor does with the statement of an EXPLAIN.
pub enum RowPlan {
    /// it does not run
    Off,
    /// it compiles the statement from its syntax tree; the line that is shown without ANALYZE
    Compiled(String),
    /// it runs the statement by a short plan, if there is one
    Planned,
}

/// Executes EXPLAIN. `note` is a line about the snapshot, shown with ANALYZE.
pub async fn execute(
    context: &mut StatementContext,
    statement: &Parsed,
    row_plan: RowPlan,
    note: Option<String>,
) -> Result<Summary> {
    let Parsed::Explain {
        statement: explained,
        ..
    } = statement
    else {
        return Err(Error::internal("EXPLAIN got another statement"));
    };
    let wanted = Options::of(statement)?;
    let rest = match with_changes::parted(explained) {
        None => None,
        Some(query) if wanted.analyze => Some(with_changes::run(context, query).await?),
        Some(query) => Some(with_changes::plan(context, query).await?),
    };
    let statement = rest.as_ref().map(Rest::statement);
    let explained = statement.as_ref().unwrap_or(explained);
    let (parts, changed) = match rest {
        Some(rest) => (rest.parts, rest.changed),
        None => (Vec::new(), Arc::default()),
    };
    let shown_parts = shown_parts(context, &parts, &wanted).await?;
    let (logical, form) = plan(context, explained, &changed).await?;
    context.fit(&logical)?;
    let only_reads = form.is_none() && parts.is_empty();
    let short = match row_plan {
        // ANALYZE would change the rows a second time.
        RowPlan::Planned if only_reads || !wanted.analyze => {
            let parts = parts.into_iter().map(|part| (part.name, part.plan));
            let parts: Vec<_> = parts.collect();
            plan_cache::of_statement(context, &parts, (&logical, form))
        }
        _ => None,
    };
    let physical = context
        .state
        .create_physical_plan(&logical)
        .await
        .map_err(convert)?;
    let text = if wanted.analyze {
        let short = match &short {
            Some(short) => analyze_short(context, short)?,
            None => String::new(),
        };
        let shown = short + &shown_parts + &analyze_plan(context, physical, wanted.verbose).await?;
        match note {
            Some(note) => format!("{shown}\n{note}"),
            None => shown,
        }
    } else {
        let plan = shown_plan(physical.as_ref(), &wanted);
        let row_plan = match (row_plan, &short) {
            (RowPlan::Compiled(line), _) => line + "\n",
            (_, Some(short)) => lines(&short.explain()),
            (RowPlan::Off | RowPlan::Planned, None) => String::new(),
        };
        row_plan + &shown_parts + &plan
    };
    let rows: Vec<_> = text.lines().map(|line| vec![line.to_string()]).collect();
    Ok(text_result("EXPLAIN", &[COLUMN], rows))
}

/// The plans of the changes in WITH, each below a line with its name.
async fn shown_parts(
    context: &StatementContext,
    parts: &[Part],
    wanted: &Options,
) -> Result<String> {
    let mut shown = String::new();
    for Part { name, plan, ran } in parts {
        let text = match ran {
            Some(ran) => with_metrics(ran.as_ref(), wanted.verbose),
            None => {
                let physical = context.physical(plan.clone(), false).await?;
                shown_plan(physical.as_ref(), wanted)
            }
        };
        shown.push_str(&format!("CTE {name}\n"));
        text.lines()
            .for_each(|line| shown.push_str(&format!("  {line}\n")));
    }
    Ok(shown)
}

fn shown_plan(plan: &dyn ExecutionPlan, wanted: &Options) -> String {
    let shown = DisplayableExecutionPlan::new(plan);
    match wanted.format {
        Format::Indent => shown.indent(wanted.verbose).to_string(),
        Format::Tree => shown.tree_render().to_string(),
    }
}

async fn plan(
    context: &StatementContext,
    statement: &Parsed,
    changed: &Arc<ChangedRows>,
) -> Result<(LogicalPlan, Option<DmlForm>)> {
    match Work::of(statement)? {
        Work::Query(query) => Ok((context.plan_query(query).await?, None)),
        Work::Dml(parsed) => {
            context.writes_without_reading(roles::check::dml(context, parsed)?);
            let planned = dml::plan(context, parsed, changed).await?;
            Ok((planned.plan, Some(planned.form)))
        }
        other => Err(Error::unsupported(format!(
            "EXPLAIN of {} is not supported",
            other.name()
        ))),
    }
}

/// Runs a short plan and shows what its operators have given.
fn analyze_short(context: &StatementContext, plan: &ShortPlan) -> Result<String> {
    let inputs = Inputs {
        transaction: context.statement.transaction(),
        values: &[],
        memory: context.memory(),
        now_us: context.now_us(),
    };
    Ok(lines(&plan.analyze(&context.statement, &inputs)?))
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

async fn analyze_plan(
    context: &StatementContext,
    plan: Arc<dyn ExecutionPlan>,
    verbose: bool,
) -> Result<String> {
    let db = context.statement.transaction().db();
    let begin = db.elapsed_us();
    let mut stream = execute_stream(plan.clone(), context.state.task()).map_err(convert)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch.map_err(convert)?.num_rows();
    }
    drop(stream);
    let elapsed_us = db.elapsed_us().saturating_sub(begin);
    let shown = with_metrics(plan.as_ref(), verbose);
    let milliseconds = elapsed_us as f64 / 1_000.0;
    Ok(format!(
        "{shown}Rows: {rows}\nExecution Time: {milliseconds:.3} ms"
    ))
}

/// A plan that has run, with its metrics.
fn with_metrics(plan: &dyn ExecutionPlan, verbose: bool) -> String {
    let shown = match verbose {
        true => DisplayableExecutionPlan::with_full_metrics(plan),
        false => DisplayableExecutionPlan::with_metrics(plan),
    };
    shown.indent(verbose).to_string()
}
