//! `unsigned_zero(x)`: a value with 0 in place of each -0, for where the engine compares bits.
//!
//! PostgreSQL takes 0 and -0 for one value, and all NaN for one. DataFusion's comparisons know 0
//! and -0; its sorts, groups, windows, joins and lists do not. Of NaN there is one form only:
//! arithmetic and what reads values make no other.

use crate::types::has_floats;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::utils::{normalize_float_zero, normalize_float_zero_scalar};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;
use std::sync::{Arc, LazyLock};

/// The function's name.
pub const NAME: &str = "unsigned_zero";

/// `unsigned_zero(value)`, of a value whose type has floats.
pub fn unsigned_zero(value: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(UnsignedZero {
            signature: Signature::any(1, Volatility::Immutable),
        }))
    });
    match value {
        Expr::Literal(value, metadata) if value.data_type().is_floating() => {
            Expr::Literal(normalize_float_zero_scalar(value), metadata)
        }
        Expr::ScalarFunction(call) if is_this(&call) => Expr::ScalarFunction(call),
        value => FUNCTION.call(vec![value]),
    }
}

/// Whether an expression is a call of the function, under aliases.
pub fn is_unsigned(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_unsigned(&alias.expr),
        Expr::ScalarFunction(call) => is_this(call),
        _ => false,
    }
}

fn is_this(call: &ScalarFunction) -> bool {
    call.func.inner().is::<UnsignedZero>()
}

/// The argument of `unsigned_zero`, or another expression itself. Both are equal, and have the same
/// order.
pub fn as_signed(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) if is_unsigned(&alias.expr) => as_signed(&alias.expr),
        Expr::ScalarFunction(call) if is_this(call) => call.args.first().unwrap_or(expr),
        other => other,
    }
}

/// The same of a physical expression.
pub fn as_signed_physical(expr: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>();
    let call = call.filter(|call| call.fun().inner().is::<UnsignedZero>());
    call.and_then(|call| call.args().first()).unwrap_or(expr)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct UnsignedZero {
    signature: Signature,
}

impl ScalarUDFImpl for UnsignedZero {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [argument] => Ok(argument.clone()),
            _ => internal_err!("{NAME} takes one argument"),
        }
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [argument] => Ok(Arc::clone(argument)),
            _ => internal_err!("{NAME} takes one argument"),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match args.args.as_slice() {
            [ColumnarValue::Array(values)] => ColumnarValue::Array(unsigned(values)?),
            [ColumnarValue::Scalar(value)] => {
                let values = unsigned(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)
            }
            _ => return internal_err!("{NAME} takes one argument"),
        })
    }
}

fn unsigned(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::List(item) if has_floats(values.data_type()) => {
            let lists = values.as_list::<i32>();
            let items = unsigned(lists.values())?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?)
        }
        DataType::Struct(fields) if has_floats(values.data_type()) => {
            let rows = values.as_struct();
            let columns = rows.columns().iter().map(unsigned);
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let nulls = rows.nulls().cloned();
            Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?)
        }
        _ => normalize_float_zero(values),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Float32Array, Float64Array};
    use datafusion::arrow::datatypes::Float64Type;

    #[test]
    fn zeros_lose_their_sign_at_any_depth() {
        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(-1.0)]));
        let found = unsigned(&doubles).unwrap();
        let bits = |array: &ArrayRef| -> Vec<Option<u64>> {
            let values = array.as_primitive::<Float64Type>().iter();
            values.map(|value| value.map(f64::to_bits)).collect()
        };
        let expected = [Some(0.0_f64.to_bits()), None, Some((-1.0_f64).to_bits())];
        assert_eq!(bits(&found), expected);
        let reals: ArrayRef = Arc::new(Float32Array::from(vec![-0.0]));
        let plain: ArrayRef = Arc::new(Float32Array::from(vec![0.0]));
        assert_eq!(&unsigned(&reals).unwrap(), &plain);
        let list = |value| {
            let items = vec![Some(vec![Some(value), None]), None];
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(items)) as ArrayRef
        };
        let found = unsigned(&list(-0.0)).unwrap();
        assert_eq!(bits(found.as_list::<i32>().values()), [expected[0], None]);
        assert_eq!(found.data_type(), list(0.0).data_type());
        assert_eq!(found.nulls(), list(0.0).nulls());
    }
}
