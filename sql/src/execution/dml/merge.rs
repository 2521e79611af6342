//! MERGE: a join of source and target. One expression gives each row's action, that of the first
//! WHEN that applies. The new row's columns depend on the action.

use super::insert;
use super::operation::{Action, Repeated};
use super::pipeline::{ACTION, DmlPlan, Needed, Pipeline, all_columns, plan_returning, project};
use super::query::{numbered, plan_select, select, strip_alias};
use super::set_list::{self, NewValue};
use super::source::field;
use super::target::Target;
use super::{checks, defaults, update};
use crate::parse::dml_spellings as syntax;
use crate::parse::names::ROW_ID;
use crate::planning::context::StatementContext;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Case, Expr, Join, JoinType, LogicalPlan, and, lit, when};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;

/// The field that is true where a row comes from the source.
const FROM_SOURCE: &str = "#source";

/// Plans a MERGE with its WITH clause.
pub(super) async fn plan(
    context: &StatementContext,
    merge: &ast::Merge,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    let returned = match &merge.output {
        None => None,
        Some(ast::OutputClause::Returning { select_items, .. }) => Some(select_items),
        Some(ast::OutputClause::Output { .. }) => return Err(syntax::no_output()),
    };
    let target = Target::of_factor(context, &merge.table, "MERGE")?;
    let from = joined(&target, merge);
    let clauses = merge
        .clauses
        .iter()
        .map(|c| Clause::read(&target, c))
        .collect::<Result<Vec<_>>>()?;

    let mut items = vec![target.row_id()];
    for clause in &clauses {
        items.extend(clause.predicate.iter().cloned());
        items.extend(clause.written().cloned());
    }
    let items = items
        .into_iter()
        .enumerate()
        .map(|(n, e)| numbered(n, e))
        .collect();
    let query = select(with, items, vec![from.clone()], None);
    let planned = plan_select(context, &query, "MERGE").await?;
    let mut exprs = planned.exprs.into_iter().map(strip_alias);
    let row_id = exprs
        .next()
        .ok_or_else(|| Error::internal("MERGE was planned without rows"))?;
    let mut predicates = Vec::new();
    let mut values = Vec::new();
    for clause in &clauses {
        predicates.push(clause.predicate.as_ref().and_then(|_| exprs.next()));
        values.push(
            exprs
                .by_ref()
                .take(clause.written().count())
                .collect::<Vec<_>>(),
        );
    }

    let joined_rows = mark_source(planned.input.as_ref().clone())?;
    let action = action_of(&clauses, &row_id, predicates)?;
    let mut stage = all_columns(joined_rows.schema());
    stage.retain(|e| !matches!(e, Expr::Column(c) if c.name == ROW_ID));
    stage.push(row_id.alias(ROW_ID));
    stage.push(action.alias(ACTION));
    let rows = project(joined_rows, stage)?;

    let checks = checks::plan(context, &target, None).await?;
    let returning = plan_returning(context, with, returned, vec![from]).await?;
    let schema = rows.schema().clone();
    let new_rows = NewRows {
        context,
        target: &target,
        clauses: &clauses,
        values,
        schema: &schema,
    };
    let columns = new_rows
        .columns(Needed::by(&target, &checks, returning.as_ref())?)
        .await?;
    let pipeline = Pipeline {
        tag: "MERGE",
        rows: project(rows, columns)?,
        actions: clauses.iter().map(Clause::action).collect(),
        repeated: Repeated::MergeError,
        arbiters: Vec::new(),
        checks,
        proposed: Vec::new(),
        returning,
    };
    pipeline.finish(context, &target)
}

/// `source LEFT JOIN target ON …`, or a full join if a clause has NOT MATCHED BY SOURCE.
fn joined(target: &Target, merge: &ast::Merge) -> ast::TableWithJoins {
    let on = ast::JoinConstraint::On(merge.on.as_ref().clone());
    let full = merge
        .clauses
        .iter()
        .any(|c| c.clause_kind == ast::MergeClauseKind::NotMatchedBySource);
    let join_operator = if full {
        ast::JoinOperator::FullOuter(on)
    } else {
        ast::JoinOperator::LeftOuter(on)
    };
    ast::TableWithJoins {
        relation: merge.source.clone(),
        joins: vec![ast::Join {
            relation: target.factor(),
            global: false,
            join_operator,
        }],
    }
}

/// One WHEN clause.
struct Clause {
    kind: ast::MergeClauseKind,
    predicate: Option<ast::Expr>,
    action: Action,
    /// the columns that are set or inserted
    set: Vec<(usize, NewValue)>,
}

impl Clause {
    fn read(target: &Target, clause: &ast::MergeClause) -> Result<Self> {
        let (action, set) = if syntax::is_do_nothing(&clause.action) {
            (Action::Nothing, Vec::new())
        } else {
            match &clause.action {
                ast::MergeAction::Delete { .. } => (Action::Delete, Vec::new()),
                ast::MergeAction::Update(set) => {
                    if set.update_predicate.is_some() || set.delete_predicate.is_some() {
                        return Err(Error::invalid(
                            SqlState::SYNTAX_ERROR,
                            "syntax error at or near \"WHERE\"",
                        )
                        .with_hint("Write WHEN MATCHED AND condition THEN UPDATE SET …."));
                    }
                    let set = set_list::read(target, &set.assignments)?;
                    update::refuse_always_identity(target, &set)?;
                    (Action::Update(set.iter().map(|(p, _)| *p).collect()), set)
                }
                ast::MergeAction::Insert(values) => {
                    (Action::Insert, insert::merge_values(target, values)?)
                }
            }
        };
        Ok(Self {
            kind: clause.clause_kind,
            predicate: clause.predicate.clone(),
            action,
            set,
        })
    }

    fn action(&self) -> Action {
        self.action.clone()
    }

    fn written(&self) -> impl Iterator<Item = &ast::Expr> {
        update::written(&self.set)
    }
}

/// Adds [`FROM_SOURCE`] to the source of a full join.
fn mark_source(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Join(join) = plan else {
        return Ok(plan);
    };
    if join.join_type != JoinType::Full {
        return Ok(LogicalPlan::Join(join));
    }
    let mut columns = all_columns(join.left.schema());
    columns.push(lit(true).alias(FROM_SOURCE));
    let left = project(join.left.as_ref().clone(), columns)?;
    Join::try_new(
        Arc::new(left),
        join.right,
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )
    .map(LogicalPlan::Join)
    .map_err(convert)
}

/// The number of the first clause that applies; NULL without one.
fn action_of(clauses: &[Clause], row_id: &Expr, predicates: Vec<Option<Expr>>) -> Result<Expr> {
    let full = clauses
        .iter()
        .any(|c| c.kind == ast::MergeClauseKind::NotMatchedBySource);
    let has_source = Expr::Column(Column::from_name(FROM_SOURCE));
    let mut cases = Vec::new();
    for ((number, clause), predicate) in (0i32..).zip(clauses).zip(predicates) {
        let kind = match clause.kind {
            ast::MergeClauseKind::Matched if full => and(
                row_id.clone().is_not_null(),
                has_source.clone().is_not_null(),
            ),
            ast::MergeClauseKind::Matched => row_id.clone().is_not_null(),
            ast::MergeClauseKind::NotMatched | ast::MergeClauseKind::NotMatchedByTarget => {
                row_id.clone().is_null()
            }
            ast::MergeClauseKind::NotMatchedBySource => has_source.clone().is_null(),
        };
        let condition = match predicate {
            Some(predicate) => and(kind, predicate),
            None => kind,
        };
        cases.push((Box::new(condition), Box::new(lit(number))));
    }
    if cases.is_empty() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "MERGE needs at least one WHEN clause",
        ));
    }
    Ok(Expr::Case(Case {
        expr: None,
        when_then_expr: cases,
        else_expr: None,
    }))
}

/// The new row of each clause.
struct NewRows<'a> {
    context: &'a StatementContext,
    target: &'a Target,
    clauses: &'a [Clause],
    /// per clause the plans of its written expressions
    values: Vec<Vec<Expr>>,
    schema: &'a DFSchema,
}

impl NewRows<'_> {
    /// `_rowid`, the action, and the columns that a clause writes or `needed` contains.
    async fn columns(mut self, needed: Needed) -> Result<Vec<Expr>> {
        let table = self.target.table.clone();
        let inserts = self.clauses.iter().any(|c| c.action == Action::Insert);
        let mut per_clause = Vec::with_capacity(self.clauses.len());
        let planned = std::mem::take(&mut self.values);
        for (clause, planned) in self.clauses.iter().zip(planned) {
            per_clause.push(self.clause_values(clause, planned).await?);
        }
        let mut columns = vec![
            Expr::Column(Column::from_name(ROW_ID)),
            Expr::Column(Column::from_name(ACTION)),
        ];
        for (position, column) in table.columns.iter().enumerate() {
            let written = per_clause.iter().any(|values| values[position].is_some());
            if !inserts && !written && !needed.columns.contains(&position) {
                continue;
            }
            let old = Expr::Column(self.target.column(&column.name));
            let mut value = old;
            for (number, values) in per_clause.iter().enumerate().rev() {
                if let Some(new) = &values[position] {
                    let chosen = field(ACTION).eq(lit(number as i32));
                    value = when(chosen, new.clone())
                        .otherwise(value)
                        .map_err(convert)?;
                }
            }
            columns.push(value.alias_qualified(Some(self.target.qualifier()), &column.name));
        }
        columns.extend(needed.others.into_iter().map(Expr::Column));
        Ok(columns)
    }

    /// Per column of the table the value that the clause writes.
    async fn clause_values(
        &self,
        clause: &Clause,
        planned: Vec<Expr>,
    ) -> Result<Vec<Option<Expr>>> {
        let table = &self.target.table;
        let mut values: Vec<Option<Expr>> = vec![None; table.columns.len()];
        let set = update::new_values(self.context, self.target, &clause.set, planned, self.schema)
            .await?;
        for ((position, _), value) in clause.set.iter().zip(set) {
            values[*position] = Some(value);
        }
        if clause.action == Action::Insert {
            let omitted: Vec<usize> = (0..values.len()).filter(|p| values[*p].is_none()).collect();
            let defaults = defaults::plan(self.context, self.target, &omitted).await?;
            for (position, value) in omitted.into_iter().zip(defaults) {
                values[position] = Some(value);
            }
        }
        Ok(values)
    }
}
