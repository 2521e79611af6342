//! Values of several numeric types as one array.

use arrow::array::{ArrayRef, NullArray};
use arrow::datatypes::DataType;
use std::sync::Arc;
use strandline::ScalarValue;

/// Up to this whole number, a float represents every whole number exactly.
const EXACT_FLOAT: i64 = 1 << 53;

/// Values as one array; None if no type represents them all exactly.
pub fn array_of(mut values: Vec<ScalarValue>) -> Option<ArrayRef> {
    let typed = |value: &&ScalarValue| !matches!(value, ScalarValue::Null);
    let Some(first) = values.iter().find(typed).map(ScalarValue::data_type) else {
        return Some(Arc::new(NullArray::new(values.len())));
    };
    let mut target = first;
    for value in values.iter().filter(typed) {
        target = common(&target, &value.data_type())?;
    }
    for value in &mut values {
        *value = converted(value, &target)?;
    }
    ScalarValue::iter_to_array(values).ok()
}

fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Float64, Int64};
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Decimal128(p, a), Decimal128(_, b)) => Some(Decimal128(*p, *a.max(b))),
        (Int64, Decimal128(p, s)) | (Decimal128(p, s), Int64) => Some(Decimal128(*p, *s)),
        (Int64, Float64) | (Float64, Int64) => Some(Float64),
        _ => None,
    }
}

fn converted(value: &ScalarValue, target: &DataType) -> Option<ScalarValue> {
    match (value, target) {
        (ScalarValue::Null, target) => ScalarValue::try_from(target).ok(),
        (value, target) if value.data_type() == *target => Some(value.clone()),
        (ScalarValue::Int64(Some(v)), DataType::Float64) => {
            let exact = (-EXACT_FLOAT..=EXACT_FLOAT).contains(v);
            exact.then_some(ScalarValue::Float64(Some(*v as f64)))
        }
        (ScalarValue::Int64(Some(v)), DataType::Decimal128(p, s)) => {
            rescaled(i128::from(*v), 0, (*p, *s))
        }
        (ScalarValue::Decimal128(Some(v), _, from), DataType::Decimal128(p, s)) => {
            rescaled(*v, *from, (*p, *s))
        }
        _ => None,
    }
}

fn rescaled(value: i128, from: i8, (precision, scale): (u8, i8)) -> Option<ScalarValue> {
    let factor = 10i128.checked_pow(u32::try_from(scale - from).ok()?)?;
    let value = value.checked_mul(factor)?;
    let fits = value.unsigned_abs() < 10u128.pow(u32::from(precision));
    fits.then_some(ScalarValue::Decimal128(Some(value), precision, scale))
}
