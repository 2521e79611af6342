//! `x op ANY (array)` and `x op ALL (array)`: true if the comparison holds for one item, or for
//! all; NULL if the result depends on a comparison with NULL. The operator is the first argument, a
//! literal.

use crate::arithmetic::as_decimal;
use crate::decimal::{MAX_DIGITS, Shape};
use crate::error::invalid;
use crate::types::{UTC, sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, UInt32Array, new_null_array,
};
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// Both functions.
pub fn functions() -> Vec<ScalarUDF> {
    [false, true]
        .map(|all| ScalarUDF::from(Quantified::new(all)))
        .into()
}

/// ANY, or ALL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    all: bool,
    signature: Signature,
}

impl Quantified {
    fn new(all: bool) -> Self {
        Self {
            all,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

/// The type in which values of two types are compared; `None` if they cannot be compared.
fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    if left == right || right.is_null() {
        return Some(left.clone());
    }
    if left.is_null() || *left == DataType::Utf8 {
        return Some(right.clone());
    }
    let text = |t: &DataType| t.is_string();
    if text(left) && text(right) {
        return Some(DataType::Utf8View);
    }
    if left.is_floating() && right.is_numeric() || right.is_floating() && left.is_numeric() {
        return Some(DataType::Float64);
    }
    if left.is_integer() && right.is_integer() {
        return Some(DataType::Int64);
    }
    if left.is_numeric() && right.is_numeric() {
        let (left, right) = (shape(left)?, shape(right)?);
        let scale = left.scale.max(right.scale);
        let integer_digits = left.integer_digits().max(right.integer_digits());
        let precision = (integer_digits + scale).min(MAX_DIGITS);
        return Some(DataType::Decimal128(precision, scale as i8));
    }
    let moment = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(..));
    if moment(left) && moment(right) {
        let zoned = |t: &DataType| matches!(t, DataType::Timestamp(_, Some(_)));
        let zone = (zoned(left) || zoned(right)).then(|| UTC.into());
        return Some(DataType::Timestamp(TimeUnit::Microsecond, zone));
    }
    let same = sql_type_of_arrow(left) == sql_type_of_arrow(right);
    (same && sql_type_of_arrow(left).is_some()).then(|| right.clone())
}

fn shape(data_type: &DataType) -> Option<Shape> {
    Shape::of(&as_decimal(data_type)?)
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        match self.all {
            true => "compare_all",
            false => "compare_any",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [symbol, left, right] = types else {
            return internal_err!("{} takes three arguments", self.name());
        };
        let item = match right {
            DataType::List(item) => item.data_type(),
            DataType::Null => left,
            _ => {
                return Err(invalid(
                    SqlState::WRONG_OBJECT_TYPE,
                    "op ANY/ALL (array) requires array on right side",
                ));
            }
        };
        if matches!(item, DataType::List(_)) {
            let message = "ANY and ALL over an array of arrays are not supported";
            return Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let Some(common) = common(left, item) else {
            let message = format!(
                "operator does not exist: {} = {}",
                sql_name(left),
                sql_name(item)
            );
            return Err(invalid(SqlState::UNDEFINED_FUNCTION, message));
        };
        let items = Arc::new(Field::new_list_field(common.clone(), true));
        Ok(vec![symbol.clone(), common, DataType::List(items)])
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(symbol))),
            left,
            right,
        ] = args.args.as_slice()
        else {
            return internal_err!("{} takes an operator and two operands", self.name());
        };
        let rows = args.number_rows;
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let compared = quantified(symbol, &left, &right, self.all)?;
        Ok(ColumnarValue::Array(Arc::new(compared)))
    }
}

/// The comparison of each row's value with each item of its array.
fn quantified(symbol: &str, left: &ArrayRef, right: &ArrayRef, all: bool) -> Result<BooleanArray> {
    let rows = right.len();
    let Some(lists) = right.as_list_opt::<i32>() else {
        let none = new_null_array(&DataType::Boolean, rows);
        return Ok(none.as_boolean().clone());
    };
    let mut row_of_item = Vec::new();
    let mut place_of_item = Vec::new();
    for row in (0..rows).filter(|row| lists.is_valid(*row)) {
        let offsets = lists.value_offsets();
        let places = offsets[row] as u32..offsets[row + 1] as u32;
        row_of_item.extend(places.clone().map(|_| row as u32));
        place_of_item.extend(places);
    }
    let left = ordered(&take(left, &UInt32Array::from(row_of_item.clone()), None)?)?;
    let items = ordered(&take(
        lists.values(),
        &UInt32Array::from(place_of_item),
        None,
    )?)?;
    let compare = match symbol {
        "=" => cmp::eq,
        "<>" => cmp::neq,
        "<" => cmp::lt,
        "<=" => cmp::lt_eq,
        ">" => cmp::gt,
        ">=" => cmp::gt_eq,
        other => return internal_err!("{other} is no comparison"),
    };
    let outcomes = compare(&left, &items)?;
    let start = |row| lists.is_valid(row).then_some(Some(all));
    let mut results: Vec<Option<Option<bool>>> = (0..rows).map(start).collect();
    for (outcome, row) in outcomes.iter().zip(row_of_item) {
        if let Some(result) = &mut results[row as usize] {
            *result = match (*result, outcome) {
                (Some(decided), _) if decided != all => Some(decided),
                (_, Some(decided)) if decided != all => Some(decided),
                (None, _) | (_, None) => None,
                (Some(_), Some(_)) => Some(all),
            };
        }
    }
    Ok(results.into_iter().map(Option::flatten).collect())
}

/// Values that compare as in PostgreSQL: intervals as lengths of time, without negative zero.
fn ordered(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>().iter();
            let lengths = intervals.map(|v| {
                v.map(|v| {
                    let days = i128::from(v.months) * 30 + i128::from(v.days);
                    days * 86_400_000_000_000 + i128::from(v.nanoseconds)
                })
            });
            Ok(Arc::new(lengths.collect::<Decimal128Array>()))
        }
        DataType::Float64 => {
            let floats = values.as_primitive::<datafusion::arrow::datatypes::Float64Type>();
            Ok(Arc::new(
                floats.unary::<_, datafusion::arrow::datatypes::Float64Type>(|v| v + 0.0),
            ))
        }
        DataType::Float32 => ordered(&cast(values, &DataType::Float64)?),
        data_type if sql_type_of_arrow(data_type) == Some(SqlType::Text) => {
            Ok(cast(values, &DataType::Utf8View)?)
        }
        _ => Ok(values.clone()),
    }
}
