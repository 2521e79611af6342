//! Describes a statement without running it: the types of its parameters and the columns of its
//! result.
//!
//! A declared parameter has its declared type. Any other parameter has no type until its place
//! gives it one, like a quoted literal \[PostgreSQL, "Type Conversion"\]. The statement is planned
//! with placeholders, and the analyzer finds the type of each. A parameter whose place gives no
//! type is a text. The types have no length, precision or scale, which belong to columns.
//!
//! Places that are evaluated while planning (`FOR SYSTEM_TIME AS OF $1`, arguments of table
//! functions) cannot hold a placeholder; their types are known by the place.

use super::Session;
use super::arrays::{self, Items};
use super::description::{Described, Description, of_parameter};
use super::prepared::PreparedStatement;
use crate::execution::dml;
use crate::parse::params;
use crate::parse::placeholders::{Hold, Placing};
use crate::planning::context::StatementContext;
use crate::statements::explain;
use crate::statements::with_changes;
use crate::statements::work::Work;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan};
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{Result, SqlType};
use strandline_engine::Transaction;
use strandline_engine::catalog::Catalog;
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::sql::walk::walk_mut;
use strandline_semantics::types;

impl Session {
    /// Describes `prepared`. A description is reused until the catalog or the settings change.
    pub(crate) async fn describe(&self, prepared: &PreparedStatement) -> Result<Arc<Described>> {
        if let Some(known) = self.known_description(prepared) {
            return Ok(known);
        }
        let catalog = self.present_catalog();
        let described = Box::pin(self.describe_anew(prepared)).await;
        let (found, items, result) = described.map_err(|error| prepared.locate(error))?;
        let known = |t: &Option<SqlType>| t.unwrap_or(SqlType::Text);
        let description = Description {
            parameters: found.iter().map(known).collect(),
            items,
            result,
        };
        let described = Arc::new(Described {
            catalog,
            template: self.template.clone(),
            types: found,
            description: Arc::new(description),
        });
        *prepared.described.lock() = Some(described.clone());
        Ok(described)
    }

    /// The last description of `prepared`, unless the catalog or the settings have changed since.
    pub(crate) fn known_description(&self, prepared: &PreparedStatement) -> Option<Arc<Described>> {
        let known = prepared.described.lock().clone()?;
        let holds = Arc::ptr_eq(&known.template, &self.template)
            && Arc::ptr_eq(&known.catalog, &self.present_catalog());
        holds.then_some(known)
    }

    fn present_catalog(&self) -> Arc<Catalog> {
        match &self.open {
            Some(open) => open.transaction.catalog(),
            None => self.shared.db.catalog(),
        }
    }

    async fn describe_anew(&self, prepared: &PreparedStatement) -> Result<Found> {
        let declared = prepared.declared_types()?;
        let text = |name: &str| Some(Arc::new(Schema::new(vec![text_field(name)])));
        let result = match &prepared.statement {
            Parsed::ShowVariable { variable } => self.shown_columns(variable)?,
            Parsed::Execute { .. } => {
                let inner = self.prepared_by(&prepared.statement)?;
                Box::pin(self.describe(&inner))
                    .await?
                    .description
                    .result
                    .clone()
            }
            Parsed::Explain { statement, .. } => {
                let planned = Work::of(statement)?;
                if !matches!(planned, Work::Query(_) | Work::Dml(_)) {
                    return Ok((declared, Vec::new(), text(explain::COLUMN)));
                }
                let (found, items, _) = self.describe_work(statement, declared).await?;
                return Ok((found, items, text(explain::COLUMN)));
            }
            Parsed::Query(_)
            | Parsed::Insert(_)
            | Parsed::Update(_)
            | Parsed::Delete(_)
            | Parsed::Merge(_) => return self.describe_work(&prepared.statement, declared).await,
            _ => None,
        };
        Ok((declared, Vec::new(), result))
    }

    /// Parameters and result of a query or DML statement.
    async fn describe_work(
        &self,
        statement: &Parsed,
        declared: Vec<Option<SqlType>>,
    ) -> Result<Found> {
        let (mut context, implicit) = self.context_aside()?;
        context.open_parameters = true;
        let mut statement = statement.clone();
        let samples = arrays::sample(&mut statement, declared.len());
        let described = types_and_result(&context, &statement, declared).await;
        if let Some(transaction) = implicit {
            transaction.rollback();
        }
        let (mut types, result) = described?;
        let mut items = vec![None; types.len()];
        for ((sample, known), item) in samples.iter().zip(&mut types).zip(&mut items) {
            *item = match sample {
                Some(Items::Known(item)) => Some(of_parameter(*item)),
                Some(Items::Compared) => Some(known.unwrap_or(SqlType::Text)),
                None => continue,
            };
            // An array's text takes the type of its place.
            *known = None;
        }
        Ok((types, items, result))
    }

    /// A context for a lookup besides a statement. It runs in the open block's transaction, or in
    /// one of its own, which the caller rolls back.
    pub(super) fn context_aside(&self) -> Result<(StatementContext, Option<Arc<Transaction>>)> {
        self.refuse_if_failed()?;
        let (transaction, now_us, implicit) = match &self.open {
            Some(open) => (open.transaction.clone(), open.now_us, None),
            None => {
                let mut modes = self.default_modes();
                modes.read_only = true;
                let transaction = self.begin_engine(modes)?;
                (transaction.clone(), self.now_us(), Some(transaction))
            }
        };
        let statement = transaction.begin_statement()?;
        let context = StatementContext::new(&self.template, statement, Vec::new(), now_us);
        Ok((context, implicit))
    }
}

/// The types of a statement's parameters and of the items of arrays, where they are known, and the
/// columns of its result.
type Found = (
    Vec<Option<SqlType>>,
    Vec<Option<SqlType>>,
    Option<SchemaRef>,
);

fn text_field(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

/// The types of a query's or DML statement's parameters, and the columns of its rows.
pub(super) async fn types_and_result(
    context: &StatementContext,
    statement: &Parsed,
    declared: Vec<Option<SqlType>>,
) -> Result<(Vec<Option<SqlType>>, Option<SchemaRef>)> {
    let (mut types, open) = (declared.clone(), declared.iter().any(Option::is_none));
    match planned(context, statement, &mut types, Hold::Placeholder).await {
        Ok((_, result)) if !open || result.is_none() => Ok((types, result)),
        Ok(_) => {
            // The result's types may depend on the parameter types, which are known only now.
            let untyped = |t: &Option<SqlType>| Some(t.unwrap_or(SqlType::Text));
            let mut known: Vec<_> = types.iter().map(untyped).collect();
            let again = planned(context, statement, &mut known, Hold::Placeholder).await?;
            Ok((known, again.1))
        }
        // One of the places takes only constants.
        Err(error) => {
            let mut types = declared;
            match planned(context, statement, &mut types, Hold::Null).await {
                Ok((_, result)) => Ok((types, result)),
                Err(_) => Err(error),
            }
        }
    }
}

/// Plans `statement` and fills in the types that it finds. Returns the columns of its rows, if any.
async fn planned(
    context: &StatementContext,
    statement: &Parsed,
    types: &mut [Option<SqlType>],
    hold: Hold,
) -> Result<(LogicalPlan, Option<SchemaRef>)> {
    let mut statement = statement.clone();
    let mut placing = Placing { types, hold };
    if let ControlFlow::Break(error) = walk_mut(&mut statement, &mut placing) {
        return Err(error);
    }
    if let Some(query) = with_changes::parted(&statement) {
        let rest = with_changes::plan(context, query).await?;
        for part in &rest.parts {
            collect_types(&part.plan, types).map_err(convert)?;
        }
        statement = rest.statement();
    }
    let (plan, rows) = match Work::of(&statement)? {
        Work::Query(query) => (context.plan_query(query).await?, true),
        _ => {
            let planned = dml::plan(context, &statement, &Arc::default()).await?;
            (planned.plan, planned.form.returning)
        }
    };
    let plan = context
        .state
        .analyzer()
        .execute_and_check(plan, context.state.config_options(), |_, _| {})
        .map_err(convert)?;
    collect_types(&plan, types).map_err(convert)?;
    let result = rows.then(|| semantics::sql::output_schema(plan.schema().inner()));
    Ok((plan, result))
}

/// Notes the types that a plan gives to parameters of unknown type, at the first place of each.
fn collect_types(
    plan: &LogicalPlan,
    types: &mut [Option<SqlType>],
) -> datafusion::common::Result<()> {
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                let (parameter, field) = match expr {
                    Planned::Cast(cast) => match cast.expr.as_ref() {
                        Planned::Placeholder(parameter) => (parameter, Some(cast.field.as_ref())),
                        _ => return Ok(TreeNodeRecursion::Continue),
                    },
                    Planned::Placeholder(parameter) => (parameter, None),
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                note(parameter, field, types);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })
    .map(|_| ())
}

fn note(parameter: &Placeholder, cast_to: Option<&Field>, types: &mut [Option<SqlType>]) {
    let typed = |field: &&Field| !field.data_type().is_null();
    let field = parameter.field.as_deref().filter(typed).or(cast_to);
    if let Ok(number) = params::number(&parameter.id)
        && let Some(slot @ None) = types.get_mut(number - 1)
        && let Some(field) = field.filter(typed)
    {
        *slot = types::sql_type_of(field).map(of_parameter);
    }
}
