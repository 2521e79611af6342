//! Functions of arrays that DataFusion lacks. A vector of the system tables (`int2vector`) counts
//! its items from 0, any other array from 1.

use super::overload::Parameter::Any;
use super::overload::{Call, Function, Overload, Returns};
use crate::semantics::error::invalid;
use crate::semantics::types::{PG_TYPE_KEY, sql_name};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int32Builder, ListArray, ListBuilder, StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{Result, ScalarValue};
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let integer = SqlType::Integer;
    vec![
        Function::new(
            "array_upper",
            vec![Overload::new(&[Any, Any], integer, |c| bound(c, true))],
        ),
        Function::new(
            "array_lower",
            vec![Overload::new(&[Any, Any], integer, |c| bound(c, false))],
        ),
        Function::new(
            "array_subscripts",
            vec![Overload::new(
                &[Any],
                Returns::Computed(numbers),
                subscripts,
            )],
        ),
        Function::new(
            "_pg_expandarray",
            vec![Overload::new(&[Any], Returns::Computed(numbered), expand)],
        ),
    ]
}

fn first(call: &Call) -> i32 {
    let pg_type = call.fields[0].metadata().get(PG_TYPE_KEY);
    i32::from(!pg_type.is_some_and(|t| t.ends_with("vector")))
}

fn list<'a>(call: &'a Call) -> Result<&'a ListArray> {
    call.arrays[0].as_list_opt::<i32>().ok_or_else(|| {
        let name = sql_name(call.arrays[0].data_type());
        let message = format!("function of an array got a value of type {name}");
        invalid(SqlState::UNDEFINED_FUNCTION, message)
    })
}

/// The greatest or the least subscript; NULL for an empty array, as for NULL.
fn bound(call: &Call, upper: bool) -> Result<ArrayRef> {
    if call.arrays[0].data_type().is_null() {
        return Ok(Arc::new(Int32Array::new_null(call.rows)));
    }
    let (list, first) = (list(call)?, first(call));
    let bounds = (0..call.rows).map(|row| {
        let length = match list.is_null(row) {
            true => 0,
            false => list.value_length(row),
        };
        (length > 0).then_some(if upper { first + length - 1 } else { first })
    });
    Ok(Arc::new(bounds.collect::<Int32Array>()))
}

fn numbers(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = Field::new_list_field(DataType::Int32, true);
    Ok(DataType::List(Arc::new(item)))
}

/// The subscripts of an array's items.
fn subscripts(call: &Call) -> Result<ArrayRef> {
    let (list, first) = (list(call)?, first(call));
    let mut builder = ListBuilder::new(Int32Builder::new());
    for row in 0..call.rows {
        if list.is_valid(row) {
            for i in 0..list.value_length(row) {
                builder.values().append_value(first + i);
            }
        }
        builder.append(list.is_valid(row));
    }
    Ok(Arc::new(builder.finish()))
}

/// An item and its place, from 1.
fn item_fields(item: &DataType) -> Fields {
    vec![
        Field::new("x", item.clone(), true),
        Field::new("n", DataType::Int32, true),
    ]
    .into()
}

fn numbered(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = match &types[0] {
        DataType::List(item) => item.data_type().clone(),
        other => other.clone(),
    };
    let pair = DataType::Struct(item_fields(&item));
    let pair = Field::new_list_field(pair, true);
    Ok(DataType::List(Arc::new(pair)))
}

/// An array's items, each with its place.
fn expand(call: &Call) -> Result<ArrayRef> {
    let list = list(call)?;
    let places = (0..call.rows).flat_map(|row| 1..=list.value_length(row));
    let offsets = list.offsets();
    let (start, end) = (offsets[0] as usize, offsets[call.rows] as usize);
    let items = list.values().slice(start, end - start);
    let fields = item_fields(items.data_type());
    let columns: Vec<ArrayRef> = vec![items, Arc::new(places.collect::<Int32Array>())];
    let pairs = StructArray::try_new(fields.clone(), columns, None)?;
    let lengths = (0..call.rows).map(|row| list.value_length(row) as usize);
    let field = Arc::new(Field::new_list_field(DataType::Struct(fields), true));
    Ok(Arc::new(ListArray::try_new(
        field,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(pairs),
        list.nulls().cloned(),
    )?))
}
