//! The short plan of a shape: a statement whose parameters stand for literals.
//!
//! PostgreSQL's rules give a literal more meaning than a parameter: an integer beside a numeric has
//! the digits of its value, a string beside char(n) is padded. So the statement is planned twice,
//! with its literals and with parameters whose values are put in, and both plans must be the same,
//! those of changes in WITH as well.

use super::short::{PlannedPart, compile_parts, plan_parted};
use super::{look, owned, plan};
use crate::catalogs::pg_catalog::display;
use crate::execution::dml::{self, DmlForm};
use crate::execution::short_plans::ShortPlan;
use crate::parse::params;
use crate::parse::placeholders::place_parameters;
use crate::planning::context::StatementContext;
use crate::planning::provider::value_rows::ValueRows;
use crate::planning::template::Template;
use crate::statements::roles;
use crate::statements::with_changes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScan};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::Catalog;
use strandline_semantics::sql::output_schema;

/// The state of a shape's short plan.
#[derive(Debug, Default)]
pub(crate) enum Shape {
    /// not run yet
    #[default]
    New,
    /// run once
    Used,
    Known(Arc<KnownShape>),
}

/// The short plan for one catalog and one state of the settings.
#[derive(Debug)]
pub(crate) struct KnownShape {
    pub catalog: Arc<Catalog>,
    pub template: Arc<Template>,
    /// None: there is none
    pub plan: Option<TypedPlan>,
}

/// A plan, and the types of its parameters.
#[derive(Debug)]
pub(crate) struct TypedPlan {
    pub types: Vec<SqlType>,
    pub plan: Arc<ShortPlan>,
}

/// The values of an execution of a shape.
pub(crate) struct ShapeValues<'a> {
    /// the values as literals
    pub literals: &'a [ScalarValue],
    /// the literals' own types; None: that of the place
    pub own: &'a [Option<SqlType>],
    /// the values as the types of the parameters
    pub typed: &'a [ScalarValue],
    /// the types of the parameters, all known
    pub types: &'a [Option<SqlType>],
    /// whether the columns of the result are those of the statement with literals, which may never
    /// be NULL; else those of the statement with parameters, as for a kept plan
    pub are_literals: bool,
}

/// Whether a statement is planned by its shape: a query, an UPDATE, or a DELETE; of a text without
/// its literals (`is_lifted`) also an INSERT, and a statement with changes in its WITH. The plans
/// of these show all that the statement says, so that they can be compared. A plan of MERGE does
/// not.
pub(crate) fn has_shape(statement: &ast::Statement, is_lifted: bool) -> bool {
    match statement {
        ast::Statement::Query(query) => {
            let body = has_body_of_shape(&query.body, is_lifted);
            body && (!with_changes::has_parts(query) || is_lifted && has_parts_of_shape(query))
        }
        ast::Statement::Update(_) | ast::Statement::Delete(_) => true,
        ast::Statement::Insert(_) => is_lifted,
        _ => false,
    }
}

fn has_body_of_shape(body: &ast::SetExpr, is_lifted: bool) -> bool {
    match body {
        ast::SetExpr::Merge(_) => false,
        ast::SetExpr::Insert(_) => is_lifted,
        _ => true,
    }
}

fn has_parts_of_shape(query: &ast::Query) -> bool {
    let with = query.with.as_ref();
    with.is_some_and(|with| {
        let mut tables = with.cte_tables.iter();
        tables.all(|cte| has_body_of_shape(&cte.query.body, true))
    })
}

/// The short plan of a query, or of a change of rows, for all values of these types; None: there is
/// none, or a literal means more than a parameter.
pub(crate) async fn of_shape(
    context: &StatementContext,
    statement: &ast::Statement,
    values: &ShapeValues<'_>,
) -> Option<ShortPlan> {
    let (mut written, mut open) = (statement.clone(), statement.clone());
    params::bind(&mut written, values.literals, values.own).ok()?;
    place_parameters(&mut open, values.types).ok()?;
    let written = Planned::of(context, &written, false).await?;
    let open = Planned::of(context, &open, true).await?;
    if !are_same(&written.output, &open.output) {
        return None;
    }
    for plan in open.plans() {
        let traits = look(plan).ok()?;
        if !traits.is_free || traits.is_stable || makes_numerics(plan).ok()? {
            return None;
        }
    }
    let of_open = open.text(context, values.typed)?;
    if of_open != written.text(context, &[])? {
        return None;
    }
    let output = match values.are_literals {
        true => &written.output,
        false => &open.output,
    };
    let result = (output, open.form);
    compile_parts(context, &open.parts, &open.plan, values.types, result)
}

/// A statement that is planned and analyzed.
struct Planned {
    parts: Vec<PlannedPart>,
    plan: LogicalPlan,
    form: Option<DmlForm>,
    output: SchemaRef,
}

impl Planned {
    /// Plans a statement; `is_open`: it has parameters. References that a statement keeps are
    /// numbered, and show in its plan. Two statements have the same numbers because each is planned
    /// in a context of its own.
    async fn of(
        around: &StatementContext,
        statement: &ast::Statement,
        is_open: bool,
    ) -> Option<Self> {
        let mut context = around.again(around.statement.clone());
        context.open_parameters = is_open;
        let planned = match with_changes::parted(statement) {
            Some(query) => plan_parted(&context, query).await,
            None => {
                context.writes_without_reading(roles::check::dml(&context, statement).ok()?);
                let planned = plan(&context, statement).await;
                planned.map(|planned| (Vec::new(), planned))
            }
        };
        let (parts, (plan, form)) = planned.ok()?;
        if display::is_needed(&plan) {
            return None;
        }
        let output = output_schema(plan.schema().inner());
        Some(Self {
            parts,
            plan: context.analyze(plan).ok()?,
            form,
            output,
        })
    }

    fn plans(&self) -> impl Iterator<Item = &LogicalPlan> {
        let parts = self.parts.iter().map(|(_, part)| part);
        parts.chain([&self.plan])
    }

    /// The optimized plans as text, with `values` in place of the parameters.
    fn text(&self, context: &StatementContext, values: &[ScalarValue]) -> Option<String> {
        let owner = context.statement.clone().into();
        let mut shown = String::new();
        for plan in self.plans() {
            let filled = owned(plan.clone(), &owner, &Arc::default(), values).ok()?;
            shown += &text(context, with_rows(filled)?)?;
            shown.push('\n');
        }
        Some(shown)
    }
}

/// Whether results have the same columns, which may be NULL in one of them.
fn are_same(a: &Schema, b: &Schema) -> bool {
    let mut fields = a.fields().iter().zip(b.fields());
    a.fields().len() == b.fields().len()
        && fields.all(|(a, b)| {
            a.name() == b.name() && a.data_type() == b.data_type() && a.metadata() == b.metadata()
        })
}

/// Whether a parameter becomes a numeric: a literal would have fewer digits, for other values at
/// least.
fn makes_numerics(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut makes = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            makes |= expr.exists(|part| match part {
                Expr::Cast(cast) => {
                    let is_numeric = cast.field.data_type().is_decimal();
                    Ok(is_numeric && super::has_parameter(&cast.expr)?)
                }
                _ => Ok(false),
            })?;
            Ok(match makes {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    Ok(makes)
}

/// The plan with constants in place of the row of a VALUES, which no plan shows. The values are
/// where they are used: those of literals are in the row, those of parameters are computed above
/// it. None: there are several rows.
fn with_rows(plan: LogicalPlan) -> Option<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        Ok(match node {
            LogicalPlan::TableScan(scan) => match row_of(&scan)? {
                Some(row) => Transformed::yes(row),
                None => Transformed::no(LogicalPlan::TableScan(scan)),
            },
            LogicalPlan::Projection(project) => Transformed::yes(over_row(project)?),
            other => Transformed::no(other),
        })
    });
    replaced.ok().map(|replaced| replaced.data)
}

/// The row of a VALUES as constants; None: the scan is of another table.
fn row_of(scan: &TableScan) -> PlanResult<Option<LogicalPlan>> {
    let provider = source_as_provider(&scan.source)?;
    let Some(values) = provider.downcast_ref::<ValueRows>() else {
        return Ok(None);
    };
    let (1, None) = (values.count(), &scan.projection) else {
        return plan_err!("rows that are not shown");
    };
    let fields = scan.projected_schema.iter().zip(values.rows().columns());
    let constants = fields.map(|((qualifier, field), column)| {
        let value = Expr::Literal(ScalarValue::try_from_array(column, 0)?, None);
        Ok(value.alias_qualified(qualifier.cloned(), field.name()))
    });
    let constants = constants.collect::<PlanResult<Vec<_>>>()?;
    let one = LogicalPlanBuilder::empty(true).build()?;
    let schema = scan.projected_schema.clone();
    let row = Projection::try_new_with_schema(constants, Arc::new(one), schema)?;
    Ok(Some(LogicalPlan::Projection(row)))
}

/// A projection of one computed row as that row; where the row is numbered between, with the values
/// above the numbers.
fn over_row(project: Projection) -> PlanResult<LogicalPlan> {
    let numbering = match project.input.as_ref() {
        LogicalPlan::Extension(node) if dml::numbers_rows(node) => Some(&project.input),
        _ => None,
    };
    let below = match numbering {
        Some(node) => node.inputs().first().copied(),
        None => Some(project.input.as_ref()),
    };
    let row = match below {
        Some(LogicalPlan::Projection(row)) if is_one_row(&row.input) => row,
        _ => return Ok(LogicalPlan::Projection(project)),
    };
    let computed = |expr: Expr| match &expr {
        Expr::Column(column) => Ok(match row.schema.maybe_index_of_column(column) {
            Some(at) => Transformed::yes(row.expr[at].clone().unalias()),
            None => Transformed::no(expr),
        }),
        _ => Ok(Transformed::no(expr)),
    };
    let schema = project.schema.clone();
    let names = NamePreserver::new(&LogicalPlan::Projection(project.clone()));
    let exprs = project.expr.iter().cloned().map(|expr| {
        let name = names.save(&expr);
        Ok(name.restore(expr.transform_up(computed)?.data))
    });
    let exprs = exprs.collect::<PlanResult<Vec<_>>>()?;
    let input = match numbering {
        Some(node) => node.with_new_exprs(Vec::new(), vec![emptied(row)?])?.into(),
        None => row.input.clone(),
    };
    let row = Projection::try_new_with_schema(exprs, input, schema)?;
    Ok(LogicalPlan::Projection(row))
}

fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// The same row of NULLs.
fn emptied(row: &Projection) -> PlanResult<LogicalPlan> {
    let fields = row.schema.iter();
    let nulls = fields.map(|(qualifier, field)| {
        let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
        Ok(null.alias_qualified(qualifier.cloned(), field.name()))
    });
    let nulls = nulls.collect::<PlanResult<Vec<_>>>()?;
    let row = Projection::try_new_with_schema(nulls, row.input.clone(), row.schema.clone())?;
    Ok(LogicalPlan::Projection(row))
}

/// The optimized plan as text. Names that the optimizer makes up are without their numbers, which
/// it draws anew for every plan.
fn text(context: &StatementContext, analyzed: LogicalPlan) -> Option<String> {
    let optimized = context.optimize(analyzed).ok()?;
    let text = optimized.display_indent().to_string();
    let mut pieces = text.split("__");
    let mut shown = pieces.next()?.to_string();
    for piece in pieces {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let (name, rest) = piece.split_at(piece.find(|c| !is_name(c)).unwrap_or(piece.len()));
        shown += "__";
        shown += name;
        shown += rest.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    // A text is either, and means the same.
    Some(shown.replace("Utf8View(\"", "Utf8(\""))
}
