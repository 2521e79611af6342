//! WHERE conjuncts inside the scan. A conjunct that cannot fail and depends on its columns alone is
//! compiled once; the engine evaluates it on the rows of a block ([`ScanFilter`]). The provider
//! reports it as handled exactly, so DataFusion keeps no filter of its own. Comparisons with
//! constants also become bounds that prune ranges and blocks ([`bounds`]).
//!
//! Invariant: pruning never decides about a row, so a bound may be weaker than its conjunct but
//! never stronger.

pub mod bounds;

use datafusion::arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions, cast::AsArray};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result};
use strandline_engine::catalog::TableDef;
use strandline_engine::{ColumnPredicate, RowFilter};
use strandline_semantics::error::{convert, raise};
use strandline_semantics::functions::{SpatialOperator, as_signed_physical, trimmed_of_blanks};

#[cfg(test)]
mod tests;

/// The filters of the engine's scan from a WHERE clause.
#[derive(Clone, Default)]
pub struct ScanFilters {
    /// bounds that prune
    pub prune: Vec<ColumnPredicate>,
    /// conjuncts that decide about rows
    pub rows: Vec<Arc<ScanFilter>>,
}

/// One conjunct, compiled for batches of exactly its columns.
pub struct ScanFilter {
    columns: Vec<ColumnId>,
    schema: SchemaRef,
    expression: Arc<dyn PhysicalExpr>,
    text: String,
    comparison: Option<ColumnPredicate>,
    is_costly: bool,
    is_dynamic: bool,
}

impl ScanFilter {
    /// `expression` reads columns of `schema`, whose fields are `columns`.
    pub fn new(
        columns: Vec<ColumnId>,
        schema: SchemaRef,
        expression: Arc<dyn PhysicalExpr>,
        text: String,
    ) -> Self {
        Self {
            columns,
            schema,
            expression,
            text,
            comparison: None,
            is_costly: false,
            is_dynamic: false,
        }
    }
    /// `expression` over the scan's output, if it is a dynamic filter of stored columns themselves.
    /// A filter of computed values could fail on rows that are not in the result.
    pub fn dynamic(
        expression: &Arc<dyn PhysicalExpr>,
        table: &TableDef,
        output: &Schema,
    ) -> Result<Option<Self>, DataFusionError> {
        if expression
            .downcast_ref::<DynamicFilterPhysicalExpr>()
            .is_none()
        {
            return Ok(None);
        }
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for part in expression.children() {
            let field = as_signed_physical(part)
                .downcast_ref::<Column>()
                .map(|column| output.field(column.index()));
            let Some(field) = field else { return Ok(None) };
            let Some(column) = table.column(field.name()) else {
                return Ok(None);
            };
            if !columns.contains(&column.id) {
                columns.push(column.id);
                fields.push(field.clone().with_nullable(true));
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let expression = reassign_expr_columns(expression.clone(), &schema)?;
        let text = "dynamic".to_string();
        Ok(Some(Self {
            // It may look up every row in a join's hash table.
            is_costly: true,
            is_dynamic: true,
            ..Self::new(columns, schema, expression, text)
        }))
    }
    /// The compiled condition.
    pub fn expression(&self) -> &Arc<dyn PhysicalExpr> {
        &self.expression
    }
    /// The present predicate of a dynamic filter; None for other filters.
    pub fn learned(&self) -> Result<Option<Arc<dyn PhysicalExpr>>, DataFusionError> {
        let dynamic = self.expression.downcast_ref::<DynamicFilterPhysicalExpr>();
        dynamic.map(DynamicFilterPhysicalExpr::current).transpose()
    }
    /// The conjunct's text in EXPLAIN.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl RowFilter for ScanFilter {
    fn columns(&self) -> &[ColumnId] {
        &self.columns
    }

    fn is_costly(&self) -> bool {
        self.is_costly
    }

    fn comparison(&self) -> Option<&ColumnPredicate> {
        self.comparison.as_ref()
    }

    fn is_fixed(&self) -> bool {
        !self.is_dynamic
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal(format!("a filter got other columns: {error}")))?;
        let value = self.expression.evaluate(&batch).map_err(convert)?;
        let array = value.into_array(batch.num_rows()).map_err(convert)?;
        array
            .as_boolean_opt()
            .cloned()
            .ok_or_else(|| Error::internal(format!("the condition {} is not boolean", self.text)))
    }
}

/// Whether the scan can handle `expr` exactly: deterministic, unable to fail, over stored columns.
pub fn is_pushable(expr: &Expr, def: &TableDef, schema: &Schema) -> bool {
    let all = |exprs: &[&Expr]| exprs.iter().all(|e| is_pushable(e, def, schema));
    match expr {
        Expr::Column(column) => def.column(&column.name).is_some(),
        Expr::Literal(..) => true,
        Expr::Alias(alias) => all(&[&alias.expr]),
        Expr::Not(e)
        | Expr::IsNull(e)
        | Expr::IsNotNull(e)
        | Expr::IsTrue(e)
        | Expr::IsFalse(e)
        | Expr::IsUnknown(e)
        | Expr::IsNotTrue(e)
        | Expr::IsNotFalse(e)
        | Expr::IsNotUnknown(e) => all(&[e]),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            is_safe_operator(*op) && all(&[left, right])
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) => all(&[expr, low, high]),
        Expr::InList(InList { expr, list, .. }) => {
            all(&[expr]) && list.iter().all(|e| matches!(e, Expr::Literal(..)))
        }
        Expr::Like(Like { expr, pattern, .. }) => {
            all(&[expr]) && matches!(pattern.as_ref(), Expr::Literal(..))
        }
        Expr::Cast(cast) => {
            all(&[&cast.expr])
                && expression_type(&cast.expr, schema)
                    .is_some_and(|from| is_lossless(&from, cast.field.data_type()))
        }
        Expr::ScalarFunction(call) if is_place_condition(call.name()) => {
            all(&call.args.iter().collect::<Vec<_>>())
        }
        // char(n) without its trailing blanks
        Expr::ScalarFunction(_) => trimmed_of_blanks(expr).is_some_and(|inner| all(&[inner])),
        _ => false,
    }
}

/// Whether a function is an operator between points and boxes that compares them, and cannot fail.
fn is_place_condition(function: &str) -> bool {
    let operator = SpatialOperator::of_function(function);
    operator.is_some_and(|operator| operator != SpatialOperator::Distance)
}

fn is_safe_operator(op: Operator) -> bool {
    use Operator as O;
    matches!(
        op,
        O::Eq
            | O::NotEq
            | O::Lt
            | O::LtEq
            | O::Gt
            | O::GtEq
            | O::And
            | O::Or
            | O::IsDistinctFrom
            | O::IsNotDistinctFrom
    )
}

/// The type of a column, literal or cast; None for other expressions.
fn expression_type(expr: &Expr, schema: &Schema) -> Option<DataType> {
    match expr {
        Expr::Column(column) => schema
            .field_with_name(&column.name)
            .ok()
            .map(|f| f.data_type().clone()),
        Expr::Literal(value, _) => Some(value.data_type()),
        Expr::Cast(cast) => Some(cast.field.data_type().clone()),
        _ => None,
    }
}

/// Whether a cast keeps every value and its order, and never fails.
pub(crate) fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if from == to {
        return true;
    }
    match (from, to) {
        (T::Int16, T::Int32 | T::Int64 | T::Float32 | T::Float64) => true,
        (T::Int32, T::Int64 | T::Float64) => true,
        (T::Float32, T::Float64) => true,
        (T::Utf8View | T::Utf8 | T::LargeUtf8, T::Utf8View | T::Utf8 | T::LargeUtf8) => true,
        (T::BinaryView | T::Binary, T::BinaryView | T::Binary | T::LargeBinary) => true,
        (T::Int16 | T::Int32 | T::Int64, _) => {
            let digits = match from {
                T::Int16 => 5,
                T::Int32 => 10,
                _ => 19,
            };
            decimal(to).is_some_and(|(p, s)| i16::from(p) - i16::from(s) >= digits)
        }
        _ => match (decimal(from), decimal(to)) {
            (Some((p1, s1)), Some((p2, s2))) => {
                s2 >= s1 && i16::from(p2) - i16::from(s2) >= i16::from(p1) - i16::from(s1)
            }
            _ => false,
        },
    }
}

fn decimal(t: &DataType) -> Option<(u8, i8)> {
    match t {
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => Some((*p, *s)),
        _ => None,
    }
}

/// Compiles the conjuncts that DataFusion passed to the scan.
pub fn compile(
    filters: &[Expr],
    def: &TableDef,
    schema: &Schema,
    state: &dyn Session,
) -> Result<ScanFilters, DataFusionError> {
    let mut compiled = ScanFilters::default();
    for filter in filters {
        if matches!(filter, Expr::Literal(ScalarValue::Boolean(Some(true)), _)) {
            continue;
        }
        bounds::collect(filter, def, &mut compiled.prune);
        compiled
            .rows
            .push(Arc::new(compile_one(filter, def, schema, state)?));
    }
    Ok(compiled)
}

fn compile_one(
    filter: &Expr,
    def: &TableDef,
    schema: &Schema,
    state: &dyn Session,
) -> Result<ScanFilter, DataFusionError> {
    let names: BTreeSet<String> = filter
        .column_refs()
        .into_iter()
        .map(|column| column.name.clone())
        .collect();
    let mut columns = Vec::with_capacity(names.len());
    let mut fields = Vec::with_capacity(names.len());
    for name in &names {
        columns.push(def.require_column(name).map_err(raise)?.id);
        // Slots without a visible row may be NULL in a NOT NULL column.
        fields.push(schema.field_with_name(name)?.clone().with_nullable(true));
    }
    let schema = Arc::new(Schema::new(fields));
    let df_schema = DFSchema::try_from(schema.clone())?;
    let expression = create_physical_expr(
        filter,
        &df_schema,
        state.execution_props(),
        &PhysicalPlanningContext::default(),
    )?;
    let mut matches_patterns = false;
    filter.apply(|part| {
        matches_patterns |= matches!(part, Expr::Like(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(ScanFilter {
        is_costly: matches_patterns,
        comparison: bounds::comparison(filter, def),
        ..ScanFilter::new(columns, schema, expression, filter.to_string())
    })
}
