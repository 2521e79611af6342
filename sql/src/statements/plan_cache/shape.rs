//! The short plan of a shape: a statement whose parameters stand for literals.
//!
//! PostgreSQL's rules give a literal more meaning than a parameter: an integer beside a numeric has
//! the digits of its value, a string beside char(n) is padded. So the statement is planned twice,
//! with its literals and with parameters whose values are put in, and both plans must be the same.

use super::{look, owned, plan};
use crate::catalogs::pg_catalog::display;
use crate::execution::short_plans::ShortPlan;
use crate::parse::params;
use crate::parse::placeholders::place_parameters;
use crate::planning::context::StatementContext;
use crate::planning::template::Template;
use crate::statements::data_statement::DataStatement;
use crate::statements::roles;
use crate::statements::with_changes;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
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

/// Whether a statement is planned by its shape: a query without changes in its WITH, an UPDATE, or
/// a DELETE. The plans of these show all that the statement says, so that they can be compared.
pub(crate) fn has_shape(statement: &ast::Statement) -> bool {
    match statement {
        ast::Statement::Query(query) => {
            !with_changes::has_parts(query)
                && !matches!(
                    *query.body,
                    ast::SetExpr::Insert(_) | ast::SetExpr::Merge(_)
                )
        }
        ast::Statement::Update(_) | ast::Statement::Delete(_) => true,
        _ => false,
    }
}

/// The short plan of a query, an UPDATE or a DELETE for all values of these types; None: there is
/// none, or a literal means more than a parameter.
pub(crate) async fn of_shape(
    context: &mut StatementContext,
    statement: &ast::Statement,
    values: &ShapeValues<'_>,
) -> Option<ShortPlan> {
    if let Some(DataStatement::Dml(_)) = DataStatement::of(statement) {
        let writes = roles::check::dml(context, statement).ok()?;
        context.writes_without_reading(writes);
    }
    let (mut written, mut open) = (statement.clone(), statement.clone());
    params::bind(&mut written, values.literals, values.own).ok()?;
    place_parameters(&mut open, values.types).ok()?;
    let (written, _) = plan(context, &written).await.ok()?;
    context.open_parameters = true;
    let planned = plan(context, &open).await;
    context.open_parameters = false;
    let (open, form) = planned.ok()?;
    let [of_written, of_open] = [&written, &open].map(|plan| output_schema(plan.schema().inner()));
    let has_same_columns = are_same(&of_written, &of_open);
    if !has_same_columns || display::is_needed(&written) {
        return None;
    }
    let open = context.analyze(open).ok()?;
    let traits = look(&open).ok()?;
    if !traits.is_free || traits.is_stable || makes_numerics(&open).ok()? {
        return None;
    }
    let owner = context.statement.clone().into();
    let filled = owned(open.clone(), &owner, &Arc::default(), values.typed).ok()?;
    let written = context.analyze(written).ok()?;
    if text(context, filled)? != text(context, written)? {
        return None;
    }
    let output = match values.are_literals {
        true => of_written,
        false => of_open,
    };
    super::short::compile(context, &open, values.types, (&output, form))
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
