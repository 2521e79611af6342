//! INSERT … ON CONFLICT: proposed rows (`excluded`) ← [`super::probe`] ← action ← new rows.
//!
//! A row without a conflict is inserted. With a conflict the existing row stays or is updated from
//! `excluded.*` and its own columns. The proposed row must satisfy NOT NULL and CHECK in any case,
//! as in PostgreSQL.

use super::arbiter::Arbiter;
use super::checks::{PlannedCheck, requalify};
use super::inference;
use super::operation::{Action, Constraint, Repeated};
use super::pipeline::{ACTION, Pipeline, all_columns, project};
use super::probe::Probe;
use super::query::{numbered, plan_select, select, strip_alias};
use super::sequence::ORDER;
use super::set_list::{self, NewValue};
use super::source::field;
use super::target::Target;
use super::update;
use super::widen::WidenNode;
use crate::parse::names::{self, ROW_ID};
use crate::planning::context::StatementContext;
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::{Case, Expr, LogicalPlan, lit, when};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;

/// The qualifier of the proposed row.
const EXCLUDED: &str = "excluded";

/// Number of the action that inserts, in [`Operation::actions`](super::operation::Operation).
const INSERT: i32 = 0;
/// Number of the action that updates.
const UPDATE: i32 = 1;

/// The qualifier of the proposed row's columns in plans.
pub(super) fn excluded() -> TableReference {
    TableReference::bare(EXCLUDED)
}

/// SET (position in the table, value) and WHERE of DO UPDATE.
type DoUpdate = (Vec<(usize, NewValue)>, Option<ast::Expr>);

/// An ON CONFLICT clause.
pub(super) struct Conflict {
    /// the keys and indexes that decide whether a row conflicts
    arbiters: Vec<Arbiter>,
    /// DO UPDATE: SET and WHERE
    update: Option<DoUpdate>,
}

/// Reads ON CONFLICT; `None` without it, or if the table has no key or unique index.
pub(super) fn read(
    context: &StatementContext,
    target: &Target,
    on: Option<&ast::OnInsert>,
) -> Result<Option<Conflict>> {
    let conflict = match on {
        None => return Ok(None),
        Some(ast::OnInsert::OnConflict(conflict)) => conflict,
        Some(_) => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                "syntax error at or near \"DUPLICATE\"",
            )
            .with_hint("Write ON CONFLICT (key) DO UPDATE SET …."));
        }
    };
    if target.alias == EXCLUDED {
        return Err(Error::invalid(
            SqlState("42712"),
            "table name \"excluded\" specified more than once",
        )
        .with_hint("Give the table an alias: INSERT INTO excluded AS t …."));
    }
    let arbiters = arbiters(context, target, conflict.conflict_target.as_ref())?;
    let update = match &conflict.action {
        ast::OnConflictAction::DoNothing => None,
        ast::OnConflictAction::DoUpdate(_) if conflict.conflict_target.is_none() => {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .with_hint("For example, ON CONFLICT (column_name)."));
        }
        ast::OnConflictAction::DoUpdate(update) => {
            let set = set_list::read(target, &update.assignments)?;
            update::refuse_always_identity(target, &set)?;
            Some((set, update.selection.clone()))
        }
    };
    Ok((!arbiters.is_empty()).then_some(Conflict { arbiters, update }))
}

/// The keys and indexes that ON CONFLICT selects; all without a target.
fn arbiters(
    context: &StatementContext,
    target: &Target,
    named: Option<&ast::ConflictTarget>,
) -> Result<Vec<Arbiter>> {
    let table = &target.table;
    match named {
        None => Ok(Arbiter::all(table)),
        Some(ast::ConflictTarget::OnConstraint(name)) => {
            let name = names::single(name)?;
            let key = table
                .keys
                .iter()
                .position(|k| k.name == name)
                .ok_or_else(|| {
                    Error::invalid(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            table.name
                        ),
                    )
                })?;
            Ok(vec![Arbiter::Key(key)])
        }
        Some(ast::ConflictTarget::Columns(columns)) => inference::infer(context, target, columns),
    }
}

/// Plans everything between the proposed rows and the DML node.
pub(super) async fn plan(
    context: &StatementContext,
    target: &Target,
    conflict: Conflict,
    proposed: LogicalPlan,
    checks: Vec<PlannedCheck>,
    returning: Option<Vec<Expr>>,
    with: Option<&ast::With>,
) -> Result<Pipeline> {
    let probe = Probe {
        table: target.table.clone(),
        arbiters: conflict.arbiters.clone(),
        fetch: conflict.update.is_some(),
        target: target.qualifier(),
        owner: context.statement.clone().into(),
    };
    let ordered = proposed.schema().has_column_with_unqualified_name(ORDER);
    let probed = WidenNode::plan(Arc::new(probe), proposed)?;

    let mut conditions = proposed_conditions(target, &checks)?;
    let (set, values, condition) = match &conflict.update {
        None => (Vec::new(), Vec::new(), None),
        Some((set, condition)) => {
            let planned =
                plan_update(context, target, set, condition.as_ref(), with, &probed).await?;
            (set.iter().map(|(p, _)| *p).collect(), planned.0, planned.1)
        }
    };
    let updates = conflict.update.is_some();
    let action = action(updates.then_some(condition));

    let mut stage = all_columns(probed.schema());
    stage.push(action.alias(ACTION));
    stage.extend(
        conditions
            .iter_mut()
            .map(|(name, _, c)| c.clone().alias(name.clone())),
    );
    let staged = project(probed, stage)?;

    let mut columns = vec![field(ROW_ID), field(ACTION)];
    columns.extend(new_row(target, &set, values, updates)?);
    columns.extend(conditions.iter().map(|(name, ..)| field(name)));
    columns.extend(ordered.then(|| field(ORDER)));
    Ok(Pipeline {
        tag: "INSERT",
        rows: project(staged, columns)?,
        actions: if updates {
            vec![Action::Insert, Action::Update(set)]
        } else {
            vec![Action::Insert]
        },
        repeated: if updates {
            Repeated::UpsertError
        } else {
            Repeated::Skipped
        },
        arbiters: conflict.arbiters,
        // Without updates the new rows are the proposed rows.
        checks: if updates { checks } else { Vec::new() },
        proposed: conditions
            .into_iter()
            .map(|(name, constraint, _)| (name, constraint))
            .collect(),
        returning,
    })
}

/// NOT NULL and CHECK of the proposed rows: (field, constraint, condition).
fn proposed_conditions(
    target: &Target,
    checks: &[PlannedCheck],
) -> Result<Vec<(String, Constraint, Expr)>> {
    let not_null = target
        .table
        .columns
        .iter()
        .filter(|c| c.not_null)
        .map(|column| {
            let value = Expr::Column(Column::new(Some(excluded()), &column.name));
            Ok((
                Constraint::NotNull(column.name.clone()),
                value.is_not_null(),
            ))
        });
    let checked = checks.iter().map(|check| {
        Ok((
            check.constraint.clone(),
            requalify(check.condition.clone(), &excluded())?,
        ))
    });
    not_null
        .chain(checked)
        .enumerate()
        .map(|(n, condition)| condition.map(|(what, expr)| (format!("#proposed{n}"), what, expr)))
        .collect()
}

/// The values of SET and the condition of WHERE over the probe's fields.
async fn plan_update(
    context: &StatementContext,
    target: &Target,
    set: &[(usize, NewValue)],
    condition: Option<&ast::Expr>,
    with: Option<&ast::With>,
    probed: &LogicalPlan,
) -> Result<(Vec<Expr>, Option<Expr>)> {
    let proposed = target.called(EXCLUDED);
    let mut items: Vec<_> = update::written(set).cloned().collect();
    let count = items.len();
    items.extend(condition.cloned());
    if items.is_empty() {
        let values = update::new_values(context, target, set, Vec::new(), probed.schema()).await?;
        return Ok((values, None));
    }
    let items = items
        .into_iter()
        .enumerate()
        .map(|(n, e)| numbered(n, e))
        .collect();
    let query = select(with, items, vec![target.joined(), proposed.joined()], None);
    let planned = plan_select(context, &query, "ON CONFLICT DO UPDATE").await?;
    let mut exprs: Vec<Expr> = planned.exprs.into_iter().map(strip_alias).collect();
    let condition = (exprs.len() > count).then(|| exprs.pop()).flatten();
    let values = update::new_values(context, target, set, exprs, probed.schema()).await?;
    Ok((values, condition))
}

/// INSERT without a conflict; with one UPDATE, if DO UPDATE exists and its WHERE holds.
fn action(update: Option<Option<Expr>>) -> Expr {
    let mut cases = vec![(Box::new(field(ROW_ID).is_null()), Box::new(lit(INSERT)))];
    if let Some(condition) = update {
        cases.push((
            Box::new(condition.unwrap_or(lit(true))),
            Box::new(lit(UPDATE)),
        ));
    }
    Expr::Case(Case {
        expr: None,
        when_then_expr: cases,
        else_expr: None,
    })
}

/// The columns of the new row.
fn new_row(target: &Target, set: &[usize], values: Vec<Expr>, updates: bool) -> Result<Vec<Expr>> {
    let mut by_position: Vec<Option<Expr>> = vec![None; target.table.columns.len()];
    for (position, value) in set.iter().zip(values) {
        by_position[*position] = Some(value);
    }
    let columns = target.table.columns.iter().zip(by_position);
    columns
        .map(|(column, new)| {
            let proposed = Expr::Column(Column::new(Some(excluded()), &column.name));
            let value = if updates {
                let existing = Expr::Column(target.column(&column.name));
                let chosen = |n: i32| field(ACTION).eq(lit(n));
                let mut cases = when(chosen(INSERT), proposed);
                match new {
                    Some(new) => cases.when(chosen(UPDATE), new).otherwise(existing),
                    None => cases.otherwise(existing),
                }
                .map_err(convert)?
            } else {
                proposed
            };
            Ok(value.alias_qualified(Some(target.qualifier()), &column.name))
        })
        .collect()
}
