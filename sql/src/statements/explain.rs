//! EXPLAIN and EXPLAIN ANALYZE: the physical plan, one line per row under `QUERY PLAN`, as in
//! PostgreSQL. The lines of scans show ranges read and pruned, and with ANALYZE chunks decoded and
//! tail records patched.
//!
//! If the row executor takes the statement, the first line says how; the plan below is for what it
//! leaves undecided. ANALYZE runs the plan.

use crate::execution::dml;
use crate::planning::context::StatementContext;
use crate::statements::roles;
use crate::statements::work::Work;
use crate::values::summary::Summary;
use crate::values::summary::text_result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::{
    AnalyzeFormatKind, Expr, Statement as Parsed, UtilityOption,
};
use futures::StreamExt;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Indent,
    Tree,
}

#[derive(Debug, Default)]
struct Options {
    analyze: bool,
    verbose: bool,
    format: Format,
}

/// The name of the column that EXPLAIN gives.
pub const COLUMN: &str = "QUERY PLAN";

/// Executes EXPLAIN. `row_plan`: a line about the row executor, shown without ANALYZE; `note`: one
/// about the snapshot, shown with it.
pub async fn execute(
    context: &mut StatementContext,
    statement: &Parsed,
    row_plan: Option<String>,
    note: Option<String>,
) -> Result<Summary> {
    let Parsed::Explain {
        analyze,
        verbose,
        statement,
        format,
        options,
        ..
    } = statement
    else {
        return Err(Error::internal("EXPLAIN got another statement"));
    };
    let mut wanted = Options {
        analyze: *analyze,
        verbose: *verbose,
        format: Format::Indent,
    };
    if let Some(AnalyzeFormatKind::Keyword(f) | AnalyzeFormatKind::Assignment(f)) = format {
        wanted.format = format_of(&f.to_string())?;
    }
    for option in options.iter().flatten() {
        apply(option, &mut wanted)?;
    }
    let logical = plan(context, statement).await?;
    context.fit(&logical)?;
    let physical = context
        .state
        .create_physical_plan(&logical)
        .await
        .map_err(convert)?;
    let text = if wanted.analyze {
        let shown = analyze_plan(context, physical, wanted.verbose).await?;
        match note {
            Some(note) => format!("{shown}\n{note}"),
            None => shown,
        }
    } else {
        let shown = DisplayableExecutionPlan::new(physical.as_ref());
        let plan = match wanted.format {
            Format::Indent => shown.indent(wanted.verbose).to_string(),
            Format::Tree => shown.tree_render().to_string(),
        };
        let row_plan = row_plan.map(|text| format!("{text}\n"));
        row_plan.unwrap_or_default() + &plan
    };
    let rows: Vec<_> = text.lines().map(|line| vec![line.to_string()]).collect();
    Ok(text_result("EXPLAIN", &[COLUMN], rows))
}

/// Whether an EXPLAIN runs its statement.
pub fn analyzes(statement: &Parsed) -> bool {
    let Parsed::Explain {
        analyze, options, ..
    } = statement
    else {
        return false;
    };
    let mut wanted = Options {
        analyze: *analyze,
        ..Options::default()
    };
    // A wrong option fails when the statement is executed.
    options
        .iter()
        .flatten()
        .all(|option| apply(option, &mut wanted).is_ok());
    wanted.analyze
}

async fn plan(context: &StatementContext, statement: &Parsed) -> Result<LogicalPlan> {
    match Work::of(statement)? {
        Work::Query(query) => context.plan_query(query).await,
        Work::Dml(parsed) => {
            context.writes_without_reading(roles::check::dml(context, parsed)?);
            dml::explain(context, parsed).await
        }
        other => Err(Error::unsupported(format!(
            "EXPLAIN of {} is not supported",
            other.name()
        ))),
    }
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
    let shown = if verbose {
        DisplayableExecutionPlan::with_full_metrics(plan.as_ref())
            .indent(true)
            .to_string()
    } else {
        DisplayableExecutionPlan::with_metrics(plan.as_ref())
            .indent(false)
            .to_string()
    };
    let milliseconds = elapsed_us as f64 / 1_000.0;
    Ok(format!(
        "{shown}Rows: {rows}\nExecution Time: {milliseconds:.3} ms"
    ))
}

fn apply(option: &UtilityOption, wanted: &mut Options) -> Result<()> {
    let name = option.name.value.to_ascii_lowercase();
    let value = option.arg.as_ref().map(|value| match value {
        Expr::Identifier(ident) => ident.value.to_ascii_lowercase(),
        other => other.to_string().trim_matches('\'').to_ascii_lowercase(),
    });
    let on = !matches!(value.as_deref(), Some("off" | "false" | "0"));
    match name.as_str() {
        "analyze" => wanted.analyze = on,
        "verbose" => wanted.verbose = on,
        "format" => wanted.format = format_of(value.as_deref().unwrap_or_default())?,
        "costs" | "timing" | "summary" | "buffers" => {}
        _ => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("unrecognized EXPLAIN option \"{name}\""),
            )
            .with_hint("Available: ANALYZE, VERBOSE, FORMAT TEXT, FORMAT TREE."));
        }
    }
    Ok(())
}

fn format_of(name: &str) -> Result<Format> {
    match name.to_ascii_lowercase().as_str() {
        "text" | "indent" => Ok(Format::Indent),
        "tree" => Ok(Format::Tree),
        other => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized value for EXPLAIN option \"format\": \"{other}\""),
        )
        .with_hint("Available: text, tree.")),
    }
}
