//! Expressions, in which parameters and subqueries of one value are slots.

use super::Compiler;
use super::demand::Demand;
use crate::execution::row_executor::SlotRef;
use crate::execution::short_plans::plan::Scalar;
use crate::execution::short_plans::run::Expression;
use crate::execution::short_plans::slots::ReadSlot;
use crate::parse::params;
use crate::planning::subplan;
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, plan_datafusion_err};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, Subquery, Volatility};
use datafusion::physical_expr::create_physical_expr;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_semantics::types::sql_type_of_arrow;

/// The nodes of the largest expression: its evaluation takes the caller's stack.
const NODES_MAX: usize = 200;

impl Compiler<'_> {
    /// Compiles an expression over the columns of `schema`.
    pub(super) fn expression(&mut self, expr: &Expr, schema: &DFSchema) -> Option<Expression> {
        let expr = self.with_slots(expr)?;
        let props = self.state.execution_props();
        create_physical_expr(&expr, schema, props, &PhysicalPlanningContext::default()).ok()
    }

    pub(super) fn expressions(
        &mut self,
        exprs: &[Expr],
        schema: &DFSchema,
    ) -> Option<Vec<Expression>> {
        let exprs = exprs.iter().map(|expr| self.expression(expr, schema));
        exprs.collect()
    }

    /// The expression with slots in place of parameters and subqueries.
    pub(super) fn with_slots(&mut self, expr: &Expr) -> Option<Expr> {
        let mut nodes = 0;
        let counted = expr.apply(|_| {
            nodes += 1;
            Ok(match nodes > NODES_MAX {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        });
        if counted.is_err() || nodes > NODES_MAX {
            return None;
        }
        let replaced = expr.clone().transform_up(|part| self.with_slot(part));
        replaced.ok().map(|replaced| replaced.data)
    }

    fn with_slot(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let refused = || plan_datafusion_err!("no part of a short plan");
        match &expr {
            Expr::Placeholder(placeholder) => {
                let (at, field) = self.parameter(placeholder).ok_or_else(refused)?;
                Ok(Transformed::yes(self.read(at, field)))
            }
            Expr::ScalarSubquery(subquery) => {
                let (at, field) = self.scalar(subquery).ok_or_else(refused)?;
                Ok(Transformed::yes(self.read(at, field)))
            }
            Expr::ScalarFunction(call) => {
                let is_stable = call.func.signature().volatility != Volatility::Immutable;
                let is_slot = call.func.inner().is::<ReadSlot>();
                match is_stable && !is_slot && !subplan::is_value(&call.func) {
                    true => Err(refused()),
                    false => Ok(Transformed::no(expr)),
                }
            }
            Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::WindowFunction(_)
            | Expr::Unnest(_)
            | Expr::GroupingSet(_)
            | Expr::ScalarVariable(..) => Err(refused()),
            _ => Ok(Transformed::no(expr)),
        }
    }

    fn read(&self, at: usize, field: FieldRef) -> Expr {
        let read = ReadSlot::new(at, self.slots.clone(), field);
        Expr::ScalarFunction(ScalarFunction {
            func: Arc::new(ScalarUDF::from(read)),
            args: Vec::new(),
        })
    }

    /// A parameter's slot.
    fn parameter(&self, placeholder: &Placeholder) -> Option<(usize, FieldRef)> {
        let at = params::number(&placeholder.id).ok()?.checked_sub(1)?;
        let data_type = self.parameters.get(at)?;
        let field = match &placeholder.field {
            Some(field) if field.data_type() != data_type => return None,
            Some(field) => field.as_ref().clone().with_nullable(true),
            None => Field::new("parameter", data_type.clone(), true),
        };
        Some((at, Arc::new(field)))
    }

    /// The slot of the value of a subquery that does not depend on outer rows.
    fn scalar(&mut self, subquery: &Subquery) -> Option<(usize, FieldRef)> {
        let plan = subquery.subquery.as_ref();
        let field = plan.schema().fields().first()?;
        let field = Arc::new(field.as_ref().clone().with_nullable(true));
        // The same condition may be compiled for several orders of joins.
        let mut known = self.subqueries.iter();
        let known = known.find(|(known, _)| Arc::ptr_eq(known, &subquery.subquery));
        if let Some((_, slot)) = known {
            return Some((*slot, field));
        }
        let node = self.plan(plan, &Demand::default(), Vec::new())?;
        let slot = self.new_slot(ScalarValue::try_from(field.data_type()).ok()?);
        self.scalars.push(Scalar { slot, node });
        self.subqueries.push((subquery.subquery.clone(), slot));
        Some((slot, field))
    }

    /// A slot with a first value.
    pub(super) fn new_slot(&mut self, value: ScalarValue) -> usize {
        self.constants.push(value);
        self.parameters.len() + self.constants.len() - 1
    }

    /// The slot of an expression without columns, and the expression if it must be computed.
    pub(super) fn constant_slot(&mut self, expr: &Expr) -> Option<(SlotRef, Option<Expression>)> {
        let none = DFSchema::empty();
        if !expr.column_refs().is_empty() {
            return None;
        }
        let sql_type = sql_type_of_arrow(&expr.get_type(&none).ok()?)?;
        let (at, computed) = match expr {
            Expr::Placeholder(placeholder) => (self.parameter(placeholder)?.0, None),
            Expr::Literal(value, _) => (self.new_slot(value.clone()), None),
            expr => {
                let computed = self.expression(expr, &none)?;
                (self.new_slot(ScalarValue::Null), Some(computed))
            }
        };
        Some((SlotRef { at, sql_type }, computed))
    }
}
