//! Quoted strings in a set operation take the type of the other inputs' column. Texts cannot be
//! combined with other types (42804), where DataFusion would convert the other types to text.
//!
//! An oid beside a name of one (`regclass`) makes both oids.
//!
//! A union of dates and timestamps has timestamps in microseconds. DataFusion would use
//! nanoseconds, which end in the year 2262.

use crate::align::{is_unknown, widened};
use crate::cast::{Mode, cast_expression, literal_shape};
use crate::decimal::widest_numeric;
use crate::error::invalid;
use crate::types::{PG_TYPE_KEY, arrow_type, sql_name, sql_type_of_arrow};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality, Result, internal_err};
use datafusion::logical_expr::{Cast, Expr, Join, JoinType, LogicalPlan, Projection, Union};
use datafusion::optimizer::analyzer::type_coercion::coerce_union_schema;
use datafusion::scalar::ScalarValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// PostgreSQL's name of the type whose numbers `regclass` and the like are.
const OID: &str = "oid";

/// Converts the inputs of every set operation in `plan` to the types of its columns.
pub fn align_unions(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aligned = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Union(union) => Ok(match unified(&union.inputs, "UNION")? {
            Some(inputs) => {
                let union = Union::try_new_with_loose_types(inputs)?;
                Transformed::yes(LogicalPlan::Union(union))
            }
            None => Transformed::no(LogicalPlan::Union(union)),
        }),
        LogicalPlan::Join(join) if is_set_operation(&join) => {
            let operation = match join.join_type {
                JoinType::LeftSemi => "INTERSECT",
                _ => "EXCEPT",
            };
            let inputs = [Arc::clone(&join.left), Arc::clone(&join.right)];
            Ok(match unified(&inputs, operation)? {
                Some(inputs) => Transformed::yes(joined(join, inputs)?),
                None => Transformed::no(LogicalPlan::Join(join)),
            })
        }
        other => Ok(Transformed::no(other)),
    })?;
    if !aligned.transformed {
        return Ok(aligned.data);
    }
    aligned
        .data
        .transform_up_with_subqueries(|plan| plan.recompute_schema().map(Transformed::yes))
        .map(|plan| plan.data)
}

/// Whether a join is INTERSECT or EXCEPT: before the optimizer only these take NULLs as equal.
pub(super) fn is_set_operation(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
}

fn joined(join: Join, inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    let Ok([left, right]) = <[Arc<LogicalPlan>; 2]>::try_from(inputs) else {
        return internal_err!("a join has two inputs");
    };
    Ok(LogicalPlan::Join(Join::try_new(
        left,
        right,
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?))
}

/// The inputs with columns of equal types; `None` if they have equal types already.
fn unified(inputs: &[Arc<LogicalPlan>], operation: &str) -> Result<Option<Vec<Arc<LogicalPlan>>>> {
    let mut inputs = inputs.to_vec();
    let Some(first) = inputs.first() else {
        return Ok(None);
    };
    let columns = first.schema().fields().len();
    if inputs
        .iter()
        .any(|input| input.schema().fields().len() != columns)
    {
        return Ok(None);
    }
    let mut changed = false;
    for column in 0..columns {
        changed |= type_literals(&mut inputs, column, operation)?;
    }
    for column in 0..columns {
        changed |= name_as_oids(&mut inputs, column)?;
        changed |= widen_bigints(&mut inputs, column)?;
        changed |= widen_numerics(&mut inputs, column)?;
    }
    let moments: Vec<Option<DataType>> = (0..columns).map(|i| moment(&inputs, i)).collect();
    let common = coerce_union_schema(&inputs)?;
    let targets: Vec<DataType> = moments
        .into_iter()
        .zip(common.fields())
        .map(|(moment, field)| moment.unwrap_or_else(|| field.data_type().clone()))
        .collect();
    for input in &mut inputs {
        let types = input
            .schema()
            .fields()
            .iter()
            .map(|field| field.data_type());
        if types.ne(targets.iter()) {
            *input = Arc::new(cast_columns(Arc::clone(input), &targets)?);
            changed = true;
        }
    }
    Ok(changed.then_some(inputs))
}

/// Makes `regclass` and the like beside oids to oids; returns whether there were any.
fn name_as_oids(inputs: &mut [Arc<LogicalPlan>], column: usize) -> Result<bool> {
    let type_of = |input: &LogicalPlan| {
        let field = input.schema().field(column);
        field.metadata().get(PG_TYPE_KEY).cloned()
    };
    let is_oid = |input: &LogicalPlan| type_of(input).is_some_and(|name| name == OID);
    if !inputs.iter().any(|input| is_oid(input)) {
        return Ok(false);
    }
    let mut changed = false;
    for input in inputs {
        if !type_of(input).is_some_and(|name| name.starts_with("reg")) {
            continue;
        }
        let columns = input.schema().columns().into_iter();
        let mut exprs: Vec<Expr> = columns.map(Expr::Column).collect();
        let (qualifier, field) = input.schema().qualified_field(column);
        let metadata = BTreeMap::from([(PG_TYPE_KEY.to_string(), OID.to_string())]);
        exprs[column] = exprs[column].clone().alias_qualified_with_metadata(
            qualifier.cloned(),
            field.name(),
            Some(FieldMetadata::from(metadata)),
        );
        let plan = Projection::try_new(exprs, Arc::clone(input))?;
        *input = Arc::new(LogicalPlan::Projection(plan));
        changed = true;
    }
    Ok(changed)
}

/// Converts bigints beside numerics of up to 18 digits to numerics; returns whether there were any.
fn widen_bigints(inputs: &mut [Arc<LogicalPlan>], column: usize) -> Result<bool> {
    let type_of = |input: &LogicalPlan| input.schema().field(column).data_type().clone();
    let narrow = inputs
        .iter()
        .map(|input| type_of(input))
        .find(|data_type| matches!(data_type, DataType::Decimal64(..)));
    let Some(narrow) = narrow else {
        return Ok(false);
    };
    let mut changed = false;
    for input in inputs {
        let mut exprs: Vec<Expr> = input
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        if let Some(wide) = widened(&exprs[column], &type_of(input), &narrow)? {
            let (qualifier, field) = input.schema().qualified_field(column);
            exprs[column] = wide.alias_qualified(qualifier.cloned(), field.name());
            let plan = Projection::try_new(exprs, Arc::clone(input))?;
            *input = Arc::new(LogicalPlan::Projection(plan));
            changed = true;
        }
    }
    Ok(changed)
}

/// Converts numerics without an exact common type to numerics of 38 digits; returns whether there
/// were any.
fn widen_numerics(inputs: &mut [Arc<LogicalPlan>], column: usize) -> Result<bool> {
    let type_of = |input: &LogicalPlan| input.schema().field(column).data_type().clone();
    let types: Vec<DataType> = inputs.iter().map(|input| type_of(input)).collect();
    let Some(widest) = widest_numeric(types.iter().filter(|t| !t.is_null())) else {
        return Ok(false);
    };
    for input in inputs {
        let fields = input.schema().fields().iter();
        let mut targets: Vec<DataType> = fields.map(|f| f.data_type().clone()).collect();
        targets[column] = arrow_type(widest);
        *input = Arc::new(cast_columns(Arc::clone(input), &targets)?);
    }
    Ok(true)
}

/// Types the quoted strings of a column; returns whether there were any.
fn type_literals(inputs: &mut [Arc<LogicalPlan>], column: usize, operation: &str) -> Result<bool> {
    let is_open = |input: &LogicalPlan| open_literal(input, column);
    let types = inputs.iter().filter(|input| !is_open(input)).map(|input| {
        let data_type = input.schema().field(column).data_type();
        (data_type.clone(), sql_type_of_arrow(data_type))
    });
    let types: Vec<_> = types
        .filter(|(data_type, _)| !data_type.is_null())
        .collect();
    let text = types.iter().find(|(data_type, _)| data_type.is_string());
    let other = types
        .iter()
        .find(|(t, sql)| !t.is_string() && sql.is_some());
    if let (Some((text, _)), Some((other, _))) = (text, other) {
        let (other, text) = (sql_name(other), sql_name(text));
        let message = format!("{operation} types {other} and {text} cannot be matched");
        return Err(invalid(SqlState::DATATYPE_MISMATCH, message));
    }
    let Some((_, Some(target))) = other else {
        return Ok(false);
    };
    let mut changed = false;
    for input in inputs.iter_mut().filter(|input| is_open(input)) {
        *input = Arc::new(cast_literal(input, column, *target)?);
        changed = true;
    }
    Ok(changed)
}

/// Whether the input's column is a quoted string.
fn open_literal(input: &LogicalPlan, column: usize) -> bool {
    match input {
        LogicalPlan::Projection(projection) => {
            is_unknown(&projection.expr[column].clone().unalias_nested().data)
        }
        _ => false,
    }
}

fn cast_literal(input: &LogicalPlan, column: usize, target: SqlType) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = input else {
        return Ok(input.clone());
    };
    let mut exprs = projection.expr.clone();
    let (qualifier, field) = projection.schema.qualified_field(column);
    let literal = exprs[column].clone().unalias_nested().data;
    // A numeric keeps its written digits.
    let target = match (&literal, target) {
        (Expr::Literal(ScalarValue::Utf8(Some(text)), _), SqlType::Numeric { .. }) => {
            let shape = literal_shape(text)?;
            SqlType::Numeric {
                precision: shape.precision,
                scale: shape.scale,
            }
        }
        (_, target) => target,
    };
    exprs[column] = cast_expression(literal, &DataType::Utf8, target, Mode::Explicit)?
        .alias_qualified(qualifier.cloned(), field.name());
    let input = Arc::clone(&projection.input);
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}

/// The type of column `i` if its inputs mix dates and several kinds of timestamps.
fn moment(inputs: &[Arc<LogicalPlan>], i: usize) -> Option<DataType> {
    let mut types = Vec::new();
    for input in inputs {
        match input.schema().field(i).data_type() {
            DataType::Null => {}
            t @ (DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _)) => types.push(t),
            _ => return None,
        }
    }
    let mixed = types.windows(2).any(|pair| pair[0] != pair[1]);
    let zoned = types
        .iter()
        .any(|t| matches!(t, DataType::Timestamp(_, Some(_))));
    let target = if zoned {
        SqlType::TimestampTz
    } else {
        SqlType::Timestamp
    };
    mixed.then(|| arrow_type(target))
}

fn cast_columns(input: Arc<LogicalPlan>, targets: &[DataType]) -> Result<LogicalPlan> {
    let exprs = input
        .schema()
        .iter()
        .zip(targets)
        .map(|((qualifier, field), target)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            if target == field.data_type() {
                return column;
            }
            let cast = Expr::Cast(Cast::new(Box::new(column), target.clone()));
            cast.alias_qualified(qualifier.cloned(), field.name())
        })
        .collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}
