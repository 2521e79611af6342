//! The function that runs a subquery with the values of one outer row.

use crate::runtime::blocking;
use datafusion::arrow::array::{Array, ArrayRef, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Column, DFSchemaRef, Result, internal_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};
use datafusion::physical_plan::collect;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use strandline_base::{Error, SqlState};
use strandline_semantics::error::raise;

/// The result of a subquery's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// the only column of the only row; NULL without rows, 21000 with several
    Value,
    /// whether there are rows
    Existence,
    /// the first column of all rows
    Array,
}

/// The name of the operand of IN among the outer columns.
const OPERAND: &str = "\u{1}operand";

/// A subquery as a function of the outer columns it refers to.
#[derive(Debug)]
pub struct Subplan {
    /// identifies the subquery
    number: u64,
    name: String,
    plan: LogicalPlan,
    /// the columns of the plan that the arguments replace, in their order
    outer: Vec<Column>,
    gives: Gives,
    field: FieldRef,
    state: Arc<SessionState>,
    signature: Signature,
}

impl Subplan {
    /// A function over the analyzed `plan`, and its arguments in a node over `schema`. An outer
    /// column that is not in `schema` belongs to a query further out.
    pub fn new(
        plan: LogicalPlan,
        gives: Gives,
        state: &Arc<SessionState>,
        schema: &DFSchemaRef,
    ) -> (Self, Vec<Expr>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (mut outer, mut args) = (Vec::new(), Vec::new());
        for reference in plan.all_out_ref_exprs() {
            let Expr::OuterReferenceColumn(field, column) = reference else {
                continue;
            };
            args.push(match schema.has_column(&column) {
                true => Expr::Column(column.clone()),
                false => Expr::OuterReferenceColumn(field, column.clone()),
            });
            outer.push(column);
        }
        let first = plan.schema().field(0).clone();
        let field = match gives {
            Gives::Value => first.as_ref().clone().with_nullable(true),
            Gives::Existence => Field::new("exists", DataType::Boolean, true),
            Gives::Array => {
                let item = Field::new_list_field(first.data_type().clone(), true);
                Field::new("array", DataType::List(Arc::new(item)), true)
            }
        };
        let subplan = Self {
            number,
            name: format!("subplan_{number}"),
            plan,
            outer,
            gives,
            field: Arc::new(field),
            state: Arc::clone(state),
            signature: match args.len() {
                0 => Signature::nullary(Volatility::Volatile),
                _ => Signature::variadic_any(Volatility::Volatile),
            },
        };
        (subplan, args)
    }

    /// Runs the subquery with one row's values of the outer columns.
    fn run(&self, values: &[ScalarValue]) -> Result<ScalarValue> {
        let plan = self.plan.clone().transform_up(|node| {
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let bound = expr.transform_up(|e| self.bind(e, values))?;
                Ok(bound.update_data(|expr| name.restore(expr)))
            })?;
            let node = match node.transformed {
                true => node.map_data(|node| node.recompute_schema())?,
                false => node,
            };
            // Until it is bound, a function of outer columns in FROM is under its own Subquery
            // node.
            Ok(match node.data {
                LogicalPlan::Subquery(inner) => {
                    Transformed::yes(Arc::unwrap_or_clone(inner.subquery))
                }
                data => Transformed::new(data, node.transformed, node.tnr),
            })
        })?;
        let state = &self.state;
        let batches = blocking::wait(async {
            let physical = state.create_physical_plan(&plan.data).await?;
            collect(physical, state.task_ctx()).await
        })?;
        let columns: Vec<ArrayRef> = batches.iter().map(|b| b.column(0).clone()).collect();
        let rows: usize = columns.iter().map(|column| column.len()).sum();
        match self.gives {
            Gives::Existence => Ok(ScalarValue::Boolean(Some(rows > 0))),
            Gives::Array => self.array(&columns),
            Gives::Value if rows > 1 => Err(raise(Error::invalid(
                SqlState("21000"),
                "more than one row returned by a subquery used as an expression",
            ))),
            Gives::Value => match columns.iter().find(|column| !column.is_empty()) {
                Some(column) => {
                    ScalarValue::try_from_array(column, 0)?.cast_to(self.field.data_type())
                }
                None => ScalarValue::try_from(self.field.data_type()),
            },
        }
    }

    fn array(&self, columns: &[ArrayRef]) -> Result<ScalarValue> {
        let parts: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        let items = match parts.as_slice() {
            [] => {
                let item = self.plan.schema().field(0);
                new_empty_array(item.data_type())
            }
            parts => concat(parts)?,
        };
        Ok(SingleRowListArrayBuilder::new(items).build_list_scalar())
    }

    /// Replaces an outer column by its value.
    fn bind(&self, expr: Expr, values: &[ScalarValue]) -> Result<Transformed<Expr>> {
        if let Expr::OuterReferenceColumn(_, column) = &expr
            && let Some(at) = self.outer.iter().position(|outer| outer == column)
        {
            return Ok(Transformed::yes(Expr::Literal(values[at].clone(), None)));
        }
        Ok(Transformed::no(expr))
    }
}

impl PartialEq for Subplan {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Subplan {}

impl Hash for Subplan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl ScalarUDFImpl for Subplan {
    fn name(&self) -> &str {
        &self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }
    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::clone(&self.field))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.outer.is_empty() {
            return self.run(&[]).map(ColumnarValue::Scalar);
        }
        let columns = args
            .args
            .iter()
            .map(|arg| arg.to_array(args.number_rows))
            .collect::<Result<Vec<_>>>()?;
        let mut known: HashMap<Vec<ScalarValue>, ScalarValue> = HashMap::new();
        let mut results = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let values = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<Result<Vec<_>>>()?;
            if let Some(result) = known.get(&values) {
                results.push(result.clone());
                continue;
            }
            let result = self.run(&values)?;
            known.insert(values, result.clone());
            results.push(result);
        }
        if results.is_empty() {
            return Ok(ColumnarValue::Array(new_empty_array(
                self.field.data_type(),
            )));
        }
        ScalarValue::iter_to_array(results).map(ColumnarValue::Array)
    }
}

/// The operand of `value IN (…)` as an outer column of the subquery.
pub fn operand(value: &Expr, schema: &DFSchemaRef) -> Result<(FieldRef, Column)> {
    let (_, field) = value.to_field(schema.as_ref())?;
    Ok((field, Column::from_name(OPERAND)))
}

/// Replaces the operand's column among the arguments of a subplan's call by `value`.
pub fn with_operand(call: Expr, value: Expr) -> Result<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = call else {
        return internal_err!("a subplan is a call");
    };
    let args = args.into_iter().map(|arg| match &arg {
        Expr::OuterReferenceColumn(_, column) if column.name == OPERAND => value.clone(),
        _ => arg,
    });
    let args = args.collect();
    Ok(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// `array_of((SELECT …))`, the form of ARRAY(SELECT …) in a plan until it is extracted.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ArrayOf {
    signature: Signature,
}

impl ArrayOf {
    /// The function's name.
    pub const NAME: &'static str = "array_of";
}

impl Default for ArrayOf {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for ArrayOf {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let item = Field::new_list_field(arg_types[0].clone(), true);
        Ok(DataType::List(Arc::new(item)))
    }
    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not replaced while planning", Self::NAME)
    }
}

/// Makes the column of a scalar subquery's plan nullable. DataFusion trusts a NOT NULL column
/// although the subquery is NULL without rows.
pub fn nullable(plan: LogicalPlan) -> Result<LogicalPlan> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(MayBeNull::default())));
    let (qualifier, field) = plan.schema().qualified_field(0);
    let (qualifier, name) = (qualifier.cloned(), field.name().clone());
    let value = Expr::Column(Column::new(qualifier.clone(), &name));
    let value = FUNCTION.call(vec![value]).alias_qualified(qualifier, name);
    LogicalPlanBuilder::from(plan).project([value])?.build()
}

/// Returns its argument as a nullable value. It is volatile, so that no rule looks through it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct MayBeNull {
    signature: Signature,
}

impl Default for MayBeNull {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for MayBeNull {
    fn name(&self) -> &str {
        "value_or_null"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types[0].clone())
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let field = args.arg_fields[0].as_ref().clone();
        Ok(Arc::new(field.with_nullable(true)))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(args.args) {
            Ok([value]) => Ok(value),
            Err(_) => internal_err!("{} takes one value", self.name()),
        }
    }
}

/// The subquery of `ARRAY(SELECT …)`, if the expression is one.
pub fn array_of(expr: &Expr) -> Option<&Subquery> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    match (func.inner().is::<ArrayOf>(), args.as_slice()) {
        (true, [Expr::ScalarSubquery(subquery)]) => Some(subquery),
        _ => None,
    }
}
