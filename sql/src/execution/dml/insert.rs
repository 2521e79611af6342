//! INSERT. The source's rows become full rows of the table by assignment casts, DEFAULTs and
//! identity values. ON CONFLICT then looks for existing rows ([`super::upsert`]).

use super::assignment::assign;
use super::operation::{Action, Repeated};
use super::pipeline::{DmlPlan, Pipeline, all_columns, plan_returning, project};
use super::query::{select, strip_alias};
use super::sequence::{Drawn, ORDER, Sequence, identity_field};
use super::set_list::NewValue;
use super::source::{Source, SourceValue, field};
use super::target::Target;
use super::values::Values;
use super::widen::{SortKey, WidenNode};
use super::{checks, defaults, upsert};
use crate::parse::dml_spellings::{Overriding, overriding};
use crate::parse::long_values;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::arrow::compute::SortOptions;
use datafusion::common::TableReference;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, when};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::ColumnDef;

/// Plans an INSERT with its WITH clause.
pub(super) async fn plan(
    context: &StatementContext,
    insert: &ast::Insert,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    let target = target_of(context, insert)?;
    let overriding = overriding(insert)?;
    let conflict = upsert::read(context, &target, insert.on.as_ref())?;
    let qualifier = match &conflict {
        Some(_) => upsert::excluded(),
        None => target.qualifier(),
    };
    let source = Source::plan(context, &target, insert, with).await?;
    let rows = full_rows(context, &target, source, overriding, &qualifier).await?;
    let returning = plan_returning(
        context,
        with,
        insert.returning.as_ref(),
        vec![target.joined()],
    )
    .await?;
    let checks = checks::plan(context, &target, None).await?;
    let pipeline = match conflict {
        Some(conflict) => {
            upsert::plan(context, &target, conflict, rows, checks, returning, with).await?
        }
        None => Pipeline {
            tag: "INSERT",
            rows,
            actions: vec![Action::Insert],
            repeated: Repeated::Skipped,
            arbiters: Vec::new(),
            checks,
            proposed: Vec::new(),
            returning,
        },
    };
    pipeline.finish(context, &target)
}

/// Plans the insertion of `rows`, whose fields belong to the columns at `positions`.
pub(super) async fn plan_load(
    context: &StatementContext,
    name: &ast::ObjectName,
    positions: Vec<usize>,
    rows: LogicalPlan,
) -> Result<DmlPlan> {
    let target = Target::named(context, name, None)?;
    let source = Source::of_plan(&target, rows, positions)?;
    let overriding = Some(Overriding::System);
    let rows = full_rows(context, &target, source, overriding, &target.qualifier()).await?;
    let pipeline = Pipeline {
        tag: "COPY",
        rows,
        actions: vec![Action::Insert],
        repeated: Repeated::Skipped,
        arbiters: Vec::new(),
        checks: checks::plan(context, &target, None).await?,
        proposed: Vec::new(),
        returning: None,
    };
    pipeline.finish(context, &target)
}

/// The target; refuses the clauses that other systems add to INSERT.
pub(super) fn target_of(context: &StatementContext, insert: &ast::Insert) -> Result<Target> {
    if has_foreign_clause(insert) {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "syntax error: expected INSERT INTO t [(columns)] VALUES … or SELECT …",
        ));
    }
    let ast::TableObject::TableName(name) = &insert.table else {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "INSERT needs the name of a table",
        ));
    };
    Target::named(context, name, insert.table_alias.as_ref().map(|a| &a.alias))
}

/// Whether an INSERT has a clause that PostgreSQL does not know.
fn has_foreign_clause(insert: &ast::Insert) -> bool {
    insert.or.is_some()
        || insert.ignore
        || insert.overwrite
        || insert.partitioned.is_some()
        || !insert.after_columns.is_empty()
        || !insert.assignments.is_empty()
        || insert.replace_into
        || insert.priority.is_some()
        || insert.insert_alias.is_some()
        || insert.settings.is_some()
        || insert.format_clause.is_some()
        || insert.multi_table_insert_type.is_some()
        || insert.has_table_keyword
        || !insert.optimizer_hints.is_empty()
        || !insert.into
}

/// The cells of `INSERT INTO t (…) VALUES (…)` with one row and no other clause.
pub(crate) fn plain_row(insert: &ast::Insert) -> Option<&[ast::Expr]> {
    let has_clause = insert.on.is_some()
        || insert.returning.is_some()
        || insert.output.is_some()
        || insert.table_alias.is_some();
    if has_clause || has_foreign_clause(insert) {
        return None;
    }
    match long_values::plain_rows(insert.source.as_ref()?)? {
        [row] => Some(&row.content),
        _ => None,
    }
}

/// The positions of an INSERT's column list; `None` without one.
pub(super) fn listed_columns(
    target: &Target,
    list: &[ast::ObjectName],
) -> Result<Option<Vec<usize>>> {
    if list.is_empty() {
        return Ok(None);
    }
    let mut positions = Vec::with_capacity(list.len());
    for name in list {
        let position = target.position(name)?;
        if positions.contains(&position) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        positions.push(position);
    }
    Ok(Some(positions))
}

/// The columns of an INSERT with `given` expressions per row.
pub(super) fn columns_for(
    target: &Target,
    listed: Option<Vec<usize>>,
    given: usize,
) -> Result<Vec<usize>> {
    let available = listed.as_ref().map_or(target.table.columns.len(), Vec::len);
    if given > available {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "INSERT has more expressions than target columns",
        )
        .with_detail(format!("{given} expressions, {available} columns.")));
    }
    match listed {
        Some(listed) if given < listed.len() => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "INSERT has more target columns than expressions",
        )
        .with_detail(format!("{} columns, {given} expressions.", listed.len()))),
        Some(listed) => Ok(listed),
        None => Ok((0..given).collect()),
    }
}

impl Source {
    async fn plan(
        context: &StatementContext,
        target: &Target,
        insert: &ast::Insert,
        with: Option<&ast::With>,
    ) -> Result<Self> {
        let listed = listed_columns(target, &insert.columns)?;
        let Some(query) = &insert.source else {
            let plan = LogicalPlanBuilder::empty(true)
                .build()
                .map_err(strandline_semantics::error::convert)?;
            return Ok(Self {
                plan,
                columns: Vec::new(),
                values: Vec::new(),
            });
        };
        if let Some(rows) = long_values::plain_rows(query) {
            if with.is_some() {
                // What WITH has must be right, also if nothing names it.
                let null = ast::SelectItem::UnnamedExpr(ast::Expr::value(ast::Value::Null));
                let alone = select(with, vec![null], Vec::new(), None);
                Box::pin(context.plan_query(&alone)).await?;
            }
            let columns_for = |width| columns_for(target, listed, width);
            let (values, columns) = Values::read(target, rows, columns_for)?;
            return values.into_source(context, target, columns, with).await;
        }
        let mut query = query.as_ref().clone();
        add_with(&mut query, with);
        number_duplicates(&mut query);
        let plan = Box::pin(context.plan_query(&query)).await?;
        let columns = columns_for(target, listed, plan.schema().fields().len())?;
        Self::of_plan(target, plan, columns)
    }

    /// The fields of `plan` as the values of `columns`.
    pub fn of_plan(target: &Target, plan: LogicalPlan, columns: Vec<usize>) -> Result<Self> {
        let schema = plan.schema().clone();
        let values = columns
            .iter()
            .zip(schema.columns())
            .enumerate()
            .map(|(i, (position, field))| {
                let column = &target.table.columns[*position];
                // A quoted literal or parameter in the select list takes its column's type.
                let expr = match select_list(&plan).map(|list| strip_alias(list[i].clone())) {
                    Some(open @ (Expr::Literal(..) | Expr::Placeholder(_))) => open,
                    _ => Expr::Column(field),
                };
                assign(expr, &schema, column).map(SourceValue::Expr)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            plan,
            columns,
            values,
        })
    }
}

/// The select list of a query, below ORDER BY, LIMIT and DISTINCT.
fn select_list(plan: &LogicalPlan) -> Option<&[Expr]> {
    match plan {
        LogicalPlan::Projection(projection) => Some(&projection.expr),
        LogicalPlan::Sort(sort) => select_list(&sort.input),
        LogicalPlan::Limit(limit) => select_list(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => select_list(input),
        _ => None,
    }
}

/// Full rows of the table under `qualifier`.
pub(super) async fn full_rows(
    context: &StatementContext,
    target: &Target,
    source: Source,
    overriding: Option<Overriding>,
    qualifier: &TableReference,
) -> Result<LogicalPlan> {
    let table = &target.table;
    let mut given: Vec<Option<SourceValue>> = (0..table.columns.len()).map(|_| None).collect();
    for (position, value) in source.columns.into_iter().zip(source.values) {
        let is_default = matches!(value, SourceValue::Default);
        if takes_value(&table.columns[position], overriding, is_default)? {
            given[position] = Some(value);
        }
    }
    let wants_default = |value: &Option<SourceValue>| !matches!(value, Some(SourceValue::Expr(_)));
    let (drawn, defaulted): (Vec<usize>, Vec<usize>) = (0..given.len())
        .filter(|p| wants_default(&given[*p]))
        .partition(|p| table.columns[*p].identity.is_some());
    let ordered = !drawn.is_empty() || is_sorted(&source.plan);
    let plan = if ordered {
        in_order(context, target, source.plan, &drawn, &given)?
    } else {
        source.plan
    };
    let mut defaults = defaults::plan(context, target, &defaulted)
        .await?
        .into_iter();
    let mut exprs = Vec::with_capacity(given.len() + 1);
    for (position, value) in given.into_iter().enumerate() {
        let column = &table.columns[position];
        let mut default = || match &column.identity {
            Some(_) => Ok(field(&identity_field(position))),
            None => defaults
                .next()
                .ok_or_else(|| Error::internal("a DEFAULT was not planned")),
        };
        let expr = match value {
            Some(SourceValue::Expr(expr)) => expr,
            Some(SourceValue::SomeDefault(which, expr)) => when(which, default()?)
                .otherwise(expr)
                .map_err(strandline_semantics::error::convert)?,
            Some(SourceValue::Default) | None => default()?,
        };
        exprs.push(expr.alias_qualified(Some(qualifier.clone()), &column.name));
    }
    exprs.extend(ordered.then(|| field(ORDER)));
    project(plan, exprs)
}

/// Whether a query ends in an ORDER BY.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        LogicalPlan::Limit(limit) => is_sorted(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => is_sorted(&alias.input),
        _ => false,
    }
}

/// Appends the keys of a query's ORDER BY as fields, since the select list may lack them. Returns
/// their names and directions.
fn with_sort_keys(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<SortKey>)> {
    let (sorted, fields) = match &plan {
        LogicalPlan::Projection(projection) => (projection.input.as_ref(), projection.expr.clone()),
        other => (other, all_columns(other.schema())),
    };
    let mut below = sorted;
    while let LogicalPlan::Limit(limit) = below {
        below = &limit.input;
    }
    let LogicalPlan::Sort(sort) = below else {
        return Ok((plan, Vec::new()));
    };
    let (mut exprs, mut keys) = (fields, Vec::new());
    for (i, key) in sort.expr.iter().enumerate() {
        let field = format!("#key{i}");
        exprs.push(key.expr.clone().alias(&field));
        let options = SortOptions::new(!key.asc, key.nulls_first);
        keys.push(SortKey { field, options });
    }
    Ok((project(sorted.clone(), exprs)?, keys))
}

/// The source's rows, numbered, with identity values for the columns at `drawn`.
fn in_order(
    context: &StatementContext,
    target: &Target,
    plan: LogicalPlan,
    drawn: &[usize],
    given: &[Option<SourceValue>],
) -> Result<LogicalPlan> {
    let (plan, sorted) = with_sort_keys(plan)?;
    let schema = plan.schema().clone();
    let drawn = drawn
        .iter()
        .map(|position| {
            let only = match &given[*position] {
                Some(SourceValue::SomeDefault(Expr::Column(which), _)) => Some(
                    schema
                        .index_of_column(which)
                        .map_err(strandline_semantics::error::convert)?,
                ),
                _ => None,
            };
            Ok(Drawn {
                position: *position,
                only,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let sequence = Sequence {
        table: target.table.clone(),
        owner: context.statement.clone().into(),
        drawn,
        sorted,
        next: AtomicU64::new(0),
    };
    WidenNode::plan(Arc::new(sequence), plan)
}

/// Whether a column takes the given value instead of an identity value (428C9).
pub(super) fn takes_value(
    column: &ColumnDef,
    overriding: Option<Overriding>,
    is_default: bool,
) -> Result<bool> {
    match &column.identity {
        Some(_) if overriding == Some(Overriding::User) => Ok(false),
        Some(identity) if identity.always && overriding.is_none() && !is_default => {
            Err(defaults::generated_always(column))
        }
        _ => Ok(true),
    }
}

/// The columns and values of INSERT in a MERGE.
pub(super) fn merge_values(
    target: &Target,
    insert: &ast::MergeInsertExpr,
) -> Result<Vec<(usize, NewValue)>> {
    let ast::MergeInsertKind::Values(values) = &insert.kind else {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "syntax error at or near \"ROW\"",
        ));
    };
    if insert.insert_predicate.is_some() {
        return Err(
            Error::invalid(SqlState::SYNTAX_ERROR, "syntax error at or near \"WHERE\"")
                .with_hint("Write WHEN NOT MATCHED AND condition THEN INSERT …."),
        );
    }
    let [row] = values.rows.as_slice() else {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "INSERT of MERGE takes one row of VALUES",
        ));
    };
    let listed = listed_columns(target, &insert.columns)?;
    let columns = columns_for(target, listed, row.content.len())?;
    let set: Vec<_> = columns
        .into_iter()
        .zip(row.content.iter().map(NewValue::of))
        .collect();
    for (position, value) in &set {
        let column = &target.table.columns[*position];
        let always = column.identity.as_ref().is_some_and(|i| i.always);
        if always && *value != NewValue::Default {
            return Err(defaults::generated_always(column));
        }
    }
    Ok(set)
}

/// Puts the CTEs of a statement before the CTEs of its query.
fn add_with(query: &mut ast::Query, with: Option<&ast::With>) {
    let Some(outer) = with else { return };
    match &mut query.with {
        Some(own) => {
            own.recursive |= outer.recursive;
            own.cte_tables
                .splice(0..0, outer.cte_tables.iter().cloned());
        }
        none => *none = Some(outer.clone()),
    }
}

/// Gives repeated items of a select list new names. `SELECT x, x` is valid in an INSERT but not as
/// a plan.
fn number_duplicates(query: &mut ast::Query) {
    let ast::SetExpr::Select(select) = query.body.as_mut() else {
        return;
    };
    let mut seen = std::collections::HashSet::new();
    for (n, item) in select.projection.iter_mut().enumerate() {
        let name = match item {
            ast::SelectItem::UnnamedExpr(expr) => expr.to_string(),
            ast::SelectItem::ExprWithAlias { alias, .. } => names::fold(alias),
            _ => continue,
        };
        if seen.insert(name) {
            continue;
        }
        if let ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } =
            item
        {
            *item = super::query::numbered(n, expr.clone());
        }
    }
}
