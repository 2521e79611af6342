//! Casts to and from arrays: item by item, by the casts of the item types, or through the array's
//! text form. Arrow's own cast would turn a text into an array of one item.

use super::{Kind, Mode, cast_array, kind, list_from_text};
use crate::error::invalid;
use crate::text::ValueWriter;
use crate::types::{sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, StringViewBuilder, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::SqlState;

/// The replacement of DataFusion's cast of `operand`, of type `from`, to `to`. `None` if neither is
/// an array, or if DataFusion's cast is right.
///
/// # Errors
/// 42846 if there is no such cast.
pub fn array_cast(operand: &Expr, from: &DataType, to: &DataType) -> Result<Option<Expr>> {
    let wanted = match (from, to) {
        (DataType::List(item), DataType::List(wanted)) => match list_target(item, wanted)? {
            Some(target) => DataType::List(target),
            None => return Ok(None),
        },
        (from, DataType::List(_)) if from.is_null() => return Ok(None),
        (from, DataType::List(_)) if from.is_string() => to.clone(),
        (DataType::List(_), to) if to.is_string() => to.clone(),
        (from, DataType::List(_)) if sql_type_of_arrow(from).is_some() => {
            return Err(no_cast(from, to));
        }
        _ => return Ok(None),
    };
    let function = ScalarUDF::from(CastArray::new(wanted));
    let call = ScalarFunction::new_udf(Arc::new(function), vec![operand.clone()]);
    Ok(Some(Expr::ScalarFunction(call)))
}

fn no_cast(from: &DataType, to: &DataType) -> datafusion::error::DataFusionError {
    let (from, to) = (sql_name(from), sql_name(to));
    invalid(
        SqlState::CANNOT_COERCE,
        format!("cannot cast type {from} to {to}"),
    )
}

/// The item type for a cast of a list of `item` to a list of `wanted`; a list of lists keeps its
/// dimensions. `None` if Arrow's cast is right.
fn list_target(item: &Field, wanted: &FieldRef) -> Result<Option<FieldRef>> {
    if item.data_type() == wanted.data_type() || item.data_type().is_null() {
        return Ok(None);
    }
    if let DataType::List(inner) = item.data_type() {
        let inner_wanted = match wanted.data_type() {
            DataType::List(wanted) => wanted,
            _ => wanted,
        };
        let target = list_target(inner, inner_wanted)?.unwrap_or_else(|| inner_wanted.clone());
        let target = DataType::List(target);
        return Ok(Some(Arc::new(Field::new_list_field(target, true))));
    }
    let Some(to) = sql_type_of_arrow(wanted.data_type()) else {
        return Ok(None);
    };
    match kind(item.data_type(), to, Mode::Explicit) {
        Some(Kind::Identity | Kind::Native) => Ok(None),
        Some(Kind::Checked) => Ok(Some(wanted.clone())),
        None => Err(no_cast(item.data_type(), wanted.data_type())),
    }
}

/// A cast to or from an array.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastArray {
    target: DataType,
    signature: Signature,
}

impl CastArray {
    fn new(target: DataType) -> Self {
        Self {
            target,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for CastArray {
    fn name(&self) -> &str {
        "cast_array"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }
    fn is_strict(&self) -> bool {
        true
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => {
                Ok(ColumnarValue::Array(converted(array, &self.target)?))
            }
            [ColumnarValue::Scalar(value)] => {
                let array = converted(&value.to_array_of_size(1)?, &self.target)?;
                let value = ScalarValue::try_from_array(&array, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => internal_err!("a cast takes one argument"),
        }
    }
}

/// `source` as values of type `target`.
fn converted(source: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    match (source.data_type(), target) {
        (from, to) if from == to => Ok(source.clone()),
        (DataType::Null, to) => Ok(new_null_array(to, source.len())),
        (DataType::List(_), DataType::List(item)) => {
            let list = source.as_list::<i32>();
            let items = converted(list.values(), item.data_type())?;
            Ok(Arc::new(ListArray::try_new(
                item.clone(),
                list.offsets().clone(),
                items,
                list.nulls().cloned(),
            )?))
        }
        (DataType::List(_), to) => {
            let writer = ValueWriter::new(source)?;
            let mut builder = StringViewBuilder::with_capacity(source.len());
            let mut text = String::new();
            for row in 0..source.len() {
                if source.is_null(row) {
                    builder.append_null();
                    continue;
                }
                text.clear();
                writer
                    .write(&mut text, row, ["f", "t"])
                    .map_err(|_| datafusion::common::internal_datafusion_err!("no text"))?;
                builder.append_value(&text);
            }
            let texts: ArrayRef = Arc::new(builder.finish());
            Ok(cast(&texts, to)?)
        }
        (from, DataType::List(item)) if from.is_string() => {
            let texts = cast(source, &DataType::Utf8View)?;
            let lists = texts.as_string_view().iter().map(|text| match text {
                Some(text) => list_from_text(text, item),
                None => ScalarValue::try_from(target),
            });
            let lists = lists.collect::<Result<Vec<_>>>()?;
            match lists.is_empty() {
                true => Ok(new_null_array(target, 0)),
                false => ScalarValue::iter_to_array(lists),
            }
        }
        (_, to) => match sql_type_of_arrow(to) {
            Some(sql_type) => {
                let array = cast_array(source, sql_type, Mode::Explicit)?;
                Ok(cast(&array, to)?)
            }
            None => Err(no_cast(source.data_type(), to)),
        },
    }
}
