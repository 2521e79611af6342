//! From expressions of a syntax tree to [`Expressions`].
//!
//! The full path's planner and analyzer resolve names and settle types over the statement's table,
//! so results and their types are the full path's. Then columns, parameters and `now()` become
//! inputs of a batch. `None`: the statement takes the full path, in particular for subqueries,
//! volatile functions, and parameters whose value says more than their type.

use super::expressions::{ComputedValues, Expressions, Input, Slot};
use super::scope::{Compiler, EXCLUDED, Scope};
use super::source::Source;
use crate::catalogs::pg_catalog::{display, functions};
use crate::execution::dml;
use crate::parse::params::{self, own_type};
use crate::parse::placeholders::place_parameters;
use crate::planning::context::StatementContext;
use crate::planning::expressions::compile;
use crate::planning::provider::table_schema::arrow_field;
use crate::planning::subplan;
use crate::runtime::blocking::wait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, plan_datafusion_err};
use datafusion::logical_expr::expr::{Cast, Placeholder, ScalarFunction};
use datafusion::logical_expr::{Expr as Planned, ExprSchemable, LogicalPlan, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as InputColumn;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, Value as Literal};
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_column::types::arrow_type;
use strandline_engine::catalog::ColumnDef;
use strandline_semantics as semantics;
use strandline_semantics::functions::Function;
use strandline_semantics::sql::walk::any_expression;

/// The place, among the columns that are read, of the column at a position of the table.
pub(super) type Place<'a> = &'a mut dyn FnMut(usize) -> usize;

/// An analyzed select list.
pub(super) struct Items {
    expressions: Vec<Planned>,
    /// the columns with the names that users see
    pub output: SchemaRef,
    /// of each item the position in the table, if it is a column
    pub positions: Vec<Option<usize>>,
}

impl Compiler<'_> {
    /// Compiles values that are assigned to the columns at these positions.
    pub(super) fn computed_values(
        &self,
        scope: &Scope<'_>,
        values: Vec<(Expr, usize)>,
        place: Place<'_>,
    ) -> Option<ComputedValues> {
        let columns = values.iter().map(|(_, at)| &scope.table.columns[*at]);
        let columns: Vec<&ColumnDef> = columns.collect();
        let exprs = values.into_iter().map(|(value, _)| value);
        let mut query = dml::values_query(exprs, scope.from.clone());
        let context = self.planning(&mut query)?;
        let planned = dml::plan_values(context, &query, &columns);
        let plan = context.analyze(wait(Box::pin(planned)).ok()?).ok()?;
        let LogicalPlan::Projection(projection) = plan else {
            return None;
        };
        Some(ComputedValues {
            expressions: self.bound(scope, context, projection.expr, place)?,
            types: columns.iter().map(|column| column.sql_type).collect(),
        })
    }

    /// Compiles a condition that all of `conjuncts` hold.
    pub(super) fn condition(
        &self,
        scope: &Scope<'_>,
        conjuncts: &[Expr],
        place: Place<'_>,
    ) -> Option<Expressions> {
        let mut conjuncts = conjuncts.iter().cloned();
        let first = conjuncts.next()?;
        let all = conjuncts.fold(first, |left, right| Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(left))),
            op: ast::BinaryOperator::And,
            right: Box::new(Expr::Nested(Box::new(right))),
        });
        let nothing = Expr::value(Literal::Null);
        let mut query = dml::values_query([nothing], scope.from.clone());
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            select.selection = Some(all);
        }
        let context = self.planning(&mut query)?;
        let planned = wait(Box::pin(context.plan_query(&query))).ok()?;
        let LogicalPlan::Projection(projection) = context.analyze(planned).ok()? else {
            return None;
        };
        let LogicalPlan::Filter(filter) = projection.input.as_ref() else {
            return None;
        };
        self.bound(scope, context, vec![filter.predicate.clone()], place)
    }

    /// Plans a select list.
    pub(super) fn items(&self, scope: &Scope<'_>, items: &[SelectItem]) -> Option<Items> {
        let mut query = dml::plain_select(items.to_vec(), scope.from.clone(), None);
        let mut written = query.clone();
        let context = self.planning(&mut query)?;
        let planned = wait(Box::pin(context.plan_query(&query))).ok()?;
        if display::is_needed(&planned) {
            return None;
        }
        let output = match self.literals.is_empty() {
            true => semantics::sql::output_schema(planned.schema().inner()),
            // With literals a column may be narrower, and never NULL.
            false => {
                let (values, own): (Vec<_>, Vec<_>) = self.literals.iter().map(own_type).unzip();
                let declared = |at| self.types.get(at).copied().flatten();
                let types = own.into_iter().enumerate();
                let types: Vec<_> = types.map(|(at, own)| declared(at).or(own)).collect();
                params::bind(&mut written, &values, &types).ok()?;
                let planned = wait(Box::pin(context.plan_query(&written))).ok()?;
                semantics::sql::output_schema(planned.schema().inner())
            }
        };
        let LogicalPlan::Projection(projection) = context.analyze(planned).ok()? else {
            return None;
        };
        let is_table = match projection.input.as_ref() {
            LogicalPlan::TableScan(_) => true,
            LogicalPlan::SubqueryAlias(alias) => {
                matches!(alias.input.as_ref(), LogicalPlan::TableScan(_))
            }
            _ => false,
        };
        if !is_table {
            return None;
        }
        let expressions = projection.expr.into_iter();
        let expressions: Vec<_> = expressions.map(|e| e.unalias_nested().data).collect();
        let position = |expression: &Planned| match expression {
            Planned::Column(column) => match input_of(scope, column)? {
                Input::Column(position) => Some(position),
                _ => None,
            },
            _ => None,
        };
        Some(Items {
            positions: expressions.iter().map(position).collect(),
            expressions,
            output,
        })
    }

    /// Compiles a planned select list.
    pub(super) fn compiled_items(
        &self,
        scope: &Scope<'_>,
        items: Items,
        place: Place<'_>,
    ) -> Option<Expressions> {
        let context = self.planner.context(self.catalog)?;
        let compiled = self.bound(scope, context, items.expressions, place)?;
        let schema = compiled.schema.as_ref();
        let mut types = compiled.compiled.iter().zip(items.output.fields());
        let same = types.all(|(expression, field)| {
            let t = expression.data_type(schema);
            t.is_ok_and(|t| t == *field.data_type())
        });
        same.then_some(compiled)
    }

    /// The context to plan `query` in, whose parameters become placeholders of their types.
    fn planning(&self, query: &mut ast::Query) -> Option<&StatementContext> {
        let is_open = any_expression(&*query, |expr| match expr {
            Expr::Value(value) => match &value.value {
                Literal::Placeholder(name) => {
                    let index = params::number(name).map(|number| number - 1);
                    index.is_ok_and(|index| self.slot_type(index).is_none())
                }
                _ => false,
            },
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => true,
            _ => false,
        });
        if is_open {
            return None;
        }
        let parameters = self.types.len().max(self.literals.len());
        let types: Vec<_> = (0..parameters).map(|index| self.slot_type(index)).collect();
        place_parameters(query, &types).ok()?;
        self.planner.context(self.catalog)
    }

    /// Whether an expression may have this constant.
    pub(super) fn has_slot(&self, source: &Source) -> bool {
        match source {
            Source::Parameter(index, ..) => self.slot_type(*index).is_some(),
            _ => true,
        }
    }

    /// The type of a parameter whose value carries no more than its type.
    fn slot_type(&self, index: usize) -> Option<SqlType> {
        let declared = self.types.get(index).copied().flatten();
        let own = || own_type(self.literals.get(index)?).1;
        declared.or_else(own).filter(|t| params::is_plain(*t))
    }

    /// Compiles analyzed expressions.
    fn bound(
        &self,
        scope: &Scope<'_>,
        context: &StatementContext,
        expressions: Vec<Planned>,
        place: Place<'_>,
    ) -> Option<Expressions> {
        let mut binder = Binder {
            compiler: self,
            scope,
            place,
            inputs: Vec::new(),
            fields: Vec::new(),
        };
        let bound = expressions.into_iter().map(|expr| binder.bind(expr));
        let bound = bound.collect::<Option<Vec<_>>>()?;
        let Binder { inputs, fields, .. } = binder;
        let schema = Arc::new(Schema::new(fields));
        let names = Arc::new(DFSchema::try_from(schema.clone()).ok()?);
        let compiled = bound.into_iter().map(|expr| {
            let compiled = compile(expr, &names, &context.state).ok()?;
            with_slots(compiled, &inputs)
        });
        let compiled = compiled.collect::<Option<Vec<_>>>()?;
        let is_integer = |(input, t): &(Input, SqlType)| {
            matches!(input, Input::Literal(_)) && matches!(t, SqlType::Integer | SqlType::BigInt)
        };
        let has_decimals = |expr| has_decimals(expr, &schema);
        if inputs.iter().any(is_integer) && compiled.iter().any(has_decimals) {
            return None;
        }
        Some(Expressions {
            inputs,
            schema,
            compiled,
        })
    }
}

/// Puts inputs into analyzed expressions.
struct Binder<'a, 'c> {
    compiler: &'a Compiler<'c>,
    scope: &'a Scope<'a>,
    place: Place<'a>,
    inputs: Vec<(Input, SqlType)>,
    fields: Vec<Field>,
}

impl Binder<'_, '_> {
    fn bind(&mut self, expr: Planned) -> Option<Planned> {
        let mut may = true;
        let looked = expr.apply(|part| {
            may = may_be_part(part);
            Ok(match may {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        });
        looked.ok().filter(|_| may)?;
        let bound = expr.transform_up(|part| {
            let input = match &part {
                Planned::Column(column) => self.column(column),
                Planned::Placeholder(parameter) => self.parameter(parameter),
                Planned::ScalarFunction(call) if is_now(call) => Some(self.now()),
                _ => return Ok(Transformed::no(part)),
            };
            let name = input.ok_or_else(|| plan_datafusion_err!("no input of a row: {part}"))?;
            let column = Planned::Column(Column::new_unqualified(name));
            Ok(Transformed::yes(column))
        });
        Some(bound.ok()?.data.unalias_nested().data)
    }

    fn column(&mut self, column: &Column) -> Option<String> {
        let input = input_of(self.scope, column)?;
        let (Input::Column(position) | Input::Excluded(position)) = input else {
            return None;
        };
        let def = &self.scope.table.columns[position];
        let is_own = matches!(input, Input::Column(_));
        let input = match is_own {
            true => Input::Column((self.place)(position)),
            false => input,
        };
        let field = arrow_field("", def.sql_type, !(is_own && def.not_null));
        Some(self.name(input, def.sql_type, field))
    }

    fn parameter(&mut self, parameter: &Placeholder) -> Option<String> {
        let index = params::number(&parameter.id).ok()? - 1;
        let sql_type = self.compiler.slot_type(index)?;
        let t = arrow_type(sql_type);
        let known = parameter.field.as_ref().map(|field| field.data_type());
        let t = match known {
            None | Some(DataType::Null) => t,
            Some(known) if *known == t || (known.is_string() && t.is_string()) => known.clone(),
            Some(_) => return None,
        };
        let input = match self.compiler.types.get(index) {
            Some(Some(_)) => Input::Parameter(index),
            _ => Input::Literal(index),
        };
        Some(self.name(input, sql_type, Field::new("", t, true)))
    }

    fn now(&mut self) -> String {
        self.compiler.asks_now.set(true);
        let t = SqlType::TimestampTz;
        self.name(Input::Now, t, arrow_field("", t, true))
    }

    /// The name of an input among the batch's columns.
    fn name(&mut self, input: Input, sql_type: SqlType, field: Field) -> String {
        let known = self.inputs.iter().zip(&self.fields).position(|known| {
            let ((other, _), same) = known;
            *other == input && same.data_type() == field.data_type()
        });
        let at = known.unwrap_or(self.inputs.len());
        let name = format!("#{at}");
        if known.is_none() {
            self.inputs.push((input, sql_type));
            self.fields.push(field.with_name(&name));
        }
        name
    }
}

/// The column of the row, by its position in the table, or of the proposed row.
fn input_of(scope: &Scope<'_>, column: &Column) -> Option<Input> {
    let relation = column.relation.as_ref()?.table();
    let mut columns = scope.table.columns.iter();
    let position = columns.position(|known| known.name == column.name)?;
    if relation == scope.alias {
        Some(Input::Column(position))
    } else {
        (scope.proposes && relation == EXCLUDED).then_some(Input::Excluded(position))
    }
}

/// Whether an expression may have this part.
fn may_be_part(part: &Planned) -> bool {
    match part {
        Planned::Alias(_)
        | Planned::Column(_)
        | Planned::Literal(..)
        | Planned::BinaryExpr(_)
        | Planned::Like(_)
        | Planned::SimilarTo(_)
        | Planned::Not(_)
        | Planned::IsNotNull(_)
        | Planned::IsNull(_)
        | Planned::IsTrue(_)
        | Planned::IsFalse(_)
        | Planned::IsUnknown(_)
        | Planned::IsNotTrue(_)
        | Planned::IsNotFalse(_)
        | Planned::IsNotUnknown(_)
        | Planned::Negative(_)
        | Planned::Between(_)
        | Planned::Case(_)
        | Planned::InList(_)
        | Planned::Placeholder(_) => true,
        Planned::Cast(cast) => is_lasting(cast),
        Planned::ScalarFunction(call) => is_now(call) || is_deterministic(call),
        _ => false,
    }
}

/// Whether the full path keeps the cast to the execution: it makes a failure of a constant's cast a
/// failure to plan, for which no row is needed.
fn is_lasting(cast: &Cast) -> bool {
    if !has_parameter(&cast.expr) || !cast.expr.column_refs().is_empty() {
        return true;
    }
    let Ok(from) = cast.expr.get_type(&DFSchema::empty()) else {
        return false;
    };
    let to = cast.field.data_type();
    let widens = match &from {
        // The cast of a parameter to its own type.
        DataType::Null => true,
        DataType::Int16 => to.is_numeric(),
        DataType::Int32 => to.is_numeric() && *to != DataType::Int16,
        DataType::Int64 => to.is_numeric() && !matches!(to, DataType::Int16 | DataType::Int32),
        _ => false,
    };
    from == *to || widens || (from.is_string() && to.is_string())
}

fn has_parameter(expr: &Planned) -> bool {
    expr.exists(|part| Ok(matches!(part, Planned::Placeholder(_))))
        .unwrap_or(true)
}

fn is_deterministic(call: &ScalarFunction) -> bool {
    let function = call.func.inner().downcast_ref::<Function>();
    let has_computed_type = function.is_some_and(Function::has_computed_type);
    let has_open_type = has_computed_type && call.args.iter().any(has_parameter);
    let is_of_statement = subplan::is_subplan(&call.func)
        || subplan::is_value(&call.func)
        || dml::draws_identity(&call.func)
        || functions::is_system(&call.func);
    let is_immutable = call.func.signature().volatility == Volatility::Immutable;
    is_immutable && !has_open_type && !is_of_statement
}

fn is_now(call: &ScalarFunction) -> bool {
    call.args.is_empty() && call.func.name() == "now"
}

/// The expression with slots for the inputs that have one value in all rows.
fn with_slots(
    expression: Arc<dyn PhysicalExpr>,
    inputs: &[(Input, SqlType)],
) -> Option<Arc<dyn PhysicalExpr>> {
    let replaced = expression.transform_up(|part| {
        let column = part.downcast_ref::<InputColumn>().map(InputColumn::index);
        Ok(match column {
            Some(at) if inputs[at].0.is_slot() => {
                Transformed::yes(Arc::new(Slot(part)) as Arc<dyn PhysicalExpr>)
            }
            _ => Transformed::no(part),
        })
    });
    Some(replaced.ok()?.data)
}

/// Whether a part of the expression is numeric: among numerics an integer literal has the digits of
/// its value, not those of its type.
fn has_decimals(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let is_decimal = |part: &Arc<dyn PhysicalExpr>| {
        let t = part.data_type(schema);
        t.is_ok_and(|t| t.is_decimal())
    };
    expression
        .exists(|part| Ok(is_decimal(part)))
        .unwrap_or(true)
}
