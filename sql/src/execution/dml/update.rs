//! UPDATE: `SELECT _rowid, e1, e2, … FROM t, others WHERE …`, whose expressions are the new values
//! of the columns that are set.

use super::assignment::assign;
use super::operation::{Action, Repeated};
use super::pipeline::{DmlPlan, Needed, Pipeline, plan_returning, project};
use super::query::{numbered, plan_select, select, strip_alias};
use super::set_list::{self, NewValue};
use super::target::Target;
use super::{checks, defaults};
use crate::parse::dml_spellings as syntax;
use crate::parse::names::ROW_ID;
use crate::planning::context::StatementContext;
use datafusion::common::DFSchema;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast;
use strandline_base::{Error, Result, SqlState};

/// Plans an UPDATE with its WITH clause.
pub(super) async fn plan(
    context: &StatementContext,
    update: &ast::Update,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    refuse_foreign_clauses(update)?;
    let target = Target::of_joined(context, &update.table, "UPDATE", "FROM, after SET")?;
    let mut from = vec![target.joined()];
    if let Some(ast::UpdateTableFromKind::AfterSet(others)) = &update.from {
        from.extend(others.iter().cloned());
    }
    let set = set_list::read(&target, &update.assignments)?;
    refuse_always_identity(&target, &set)?;

    let mut items = vec![numbered(0, target.row_id())];
    items.extend(
        written(&set)
            .enumerate()
            .map(|(n, e)| numbered(n + 1, e.clone())),
    );
    let query = select(with, items, from.clone(), update.selection.clone());
    let planned = plan_select(context, &query, "UPDATE").await?;
    let mut exprs = planned.exprs.into_iter().map(strip_alias);
    let row_id = exprs
        .next()
        .ok_or_else(|| Error::internal("UPDATE was planned without rows"))?;
    let input_schema = planned.input.schema().clone();
    let values = new_values(context, &target, &set, exprs.collect(), &input_schema).await?;

    let positions: Vec<usize> = set.iter().map(|(p, _)| *p).collect();
    let checks = checks::plan(context, &target, Some(&positions)).await?;
    let returning = plan_returning(context, with, update.returning.as_ref(), from).await?;
    let needed = Needed::by(&target, &checks, returning.as_ref())?;

    let mut columns = vec![row_id.alias(ROW_ID)];
    for (position, value) in positions.iter().zip(values) {
        let name = &target.table.columns[*position].name;
        columns.push(value.alias_qualified(Some(target.qualifier()), name));
    }
    for position in needed.columns.iter().filter(|p| !positions.contains(p)) {
        columns.push(Expr::Column(
            target.column(&target.table.columns[*position].name),
        ));
    }
    columns.extend(needed.others.into_iter().map(Expr::Column));
    let pipeline = Pipeline {
        tag: "UPDATE",
        rows: project(planned.input.as_ref().clone(), columns)?,
        actions: vec![Action::Update(positions)],
        repeated: Repeated::Skipped,
        arbiters: Vec::new(),
        checks,
        proposed: Vec::new(),
        returning,
    };
    pipeline.finish(context, &target)
}

/// The expressions of SET, without DEFAULTs.
pub(super) fn written(set: &[(usize, NewValue)]) -> impl Iterator<Item = &ast::Expr> {
    set.iter().filter_map(|(_, value)| match value {
        NewValue::Expr(expr) => Some(expr),
        NewValue::Default => None,
    })
}

/// One value per entry of `set`, converted to its column's type; `planned` are the planned
/// expressions of [`written`].
pub(super) async fn new_values(
    context: &StatementContext,
    target: &Target,
    set: &[(usize, NewValue)],
    planned: Vec<Expr>,
    schema: &DFSchema,
) -> Result<Vec<Expr>> {
    let defaulted: Vec<usize> = set
        .iter()
        .filter(|(_, v)| *v == NewValue::Default)
        .map(|(p, _)| *p)
        .collect();
    let mut defaults = defaults::plan(context, target, &defaulted)
        .await?
        .into_iter();
    let mut planned = planned.into_iter();
    set.iter()
        .map(|(position, value)| {
            let missing = || Error::internal("a value of SET was not planned");
            match value {
                NewValue::Default => defaults.next().ok_or_else(missing),
                NewValue::Expr(_) => {
                    let expr = planned.next().ok_or_else(missing)?;
                    assign(expr, schema, &target.table.columns[*position])
                }
            }
        })
        .collect()
}

/// 428C9: GENERATED ALWAYS columns can only be set to DEFAULT.
pub(super) fn refuse_always_identity(target: &Target, set: &[(usize, NewValue)]) -> Result<()> {
    for (position, value) in set {
        let column = &target.table.columns[*position];
        let always = column.identity.as_ref().is_some_and(|i| i.always);
        if always && *value != NewValue::Default {
            return Err(defaults::only_default(column));
        }
    }
    Ok(())
}

fn refuse_foreign_clauses(update: &ast::Update) -> Result<()> {
    if update.limit.is_some() {
        return Err(no_limit("UPDATE", "LIMIT"));
    }
    if !update.order_by.is_empty() {
        return Err(no_limit("UPDATE", "ORDER BY"));
    }
    if update.output.is_some() {
        return Err(syntax::no_output());
    }
    if matches!(update.from, Some(ast::UpdateTableFromKind::BeforeSet(_))) {
        return Err(
            Error::invalid(SqlState::SYNTAX_ERROR, "syntax error at or near \"FROM\"")
                .with_hint("Write FROM after SET."),
        );
    }
    if update.or.is_some() || !update.optimizer_hints.is_empty() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "syntax error at or near \"OR\"",
        ));
    }
    Ok(())
}

/// The error for another system's clause that would be dangerous to ignore.
pub(super) fn no_limit(verb: &str, clause: &str) -> Error {
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!("syntax error at or near \"{clause}\""),
    )
    .with_detail(format!("{verb} has no {clause}."))
    .with_hint("Choose the rows in WHERE: … WHERE key IN (SELECT key FROM t … LIMIT n).")
}
