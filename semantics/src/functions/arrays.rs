//! Functions of arrays that DataFusion lacks. Items of a system table's vector (`int2vector`) are
//! numbered from 0, items of other arrays from 1.

use super::lists;
use super::overload::Parameter::{Any, Bigint};
use super::overload::{Call, Function, Overload, Returns};
use crate::error::invalid;
use crate::types::{PG_TYPE_KEY, sql_name};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int32Builder, ListArray, ListBuilder,
    StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type};
use datafusion::common::{Result, ScalarValue};
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let integer = SqlType::Integer;
    vec![
        Function::new(
            "array_upper",
            vec![Overload::new(&[Any, Bigint], integer, |c| bound(c, true))],
        ),
        Function::new(
            "array_lower",
            vec![Overload::new(&[Any, Bigint], integer, |c| bound(c, false))],
        ),
        Function::new(
            "array_subscripts",
            vec![
                Overload::new(&[Any], Returns::Computed(numbers), subscripts),
                Overload::new(&[Any, Bigint], Returns::Computed(numbers), subscripts),
                Overload::new(&[Any, Bigint, Any], Returns::Computed(numbers), subscripts),
            ],
        ),
        Function::new(
            "_pg_expandarray",
            vec![Overload::new(&[Any], Returns::Computed(numbered), expand)],
        ),
    ]
}

/// The first subscript.
pub(super) fn first(call: &Call) -> i32 {
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

/// The greatest or least subscript of a level; NULL for an empty array and for a missing level.
fn bound(call: &Call, upper: bool) -> Result<ArrayRef> {
    let Some(list) = lists::list(call, 0)? else {
        return Ok(Arc::new(Int32Array::new_null(call.rows)));
    };
    let (first, wanted) = (first(call), call.bigint(1));
    call.map::<Int32Type>(|row| {
        let shape = lists::shape(&list, row);
        let level = usize::try_from(wanted.value(row)).ok();
        let length = level.and_then(|level| shape.get(level.checked_sub(1)?));
        Ok(length.map(|length| if upper { first + length - 1 } else { first }))
    })
}

fn numbers(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let item = Field::new_list_field(DataType::Int32, true);
    Ok(DataType::List(Arc::new(item)))
}

/// The subscripts of one level of an array, by default the first; descending if the third argument
/// is true.
fn subscripts(call: &Call) -> Result<ArrayRef> {
    let (list, first) = (list(call)?, first(call));
    let backwards = match call.arrays.get(2) {
        Some(flags) => cast(flags, &DataType::Boolean)?.as_boolean().clone(),
        None => BooleanArray::from(vec![false; call.rows]),
    };
    let mut builder = ListBuilder::new(Int32Builder::new());
    for row in 0..call.rows {
        let valid = !call.any_null(row);
        if valid {
            let level = call.arrays.get(1).map_or(1, |_| call.bigint(1).value(row));
            let level = usize::try_from(level).ok().and_then(|l| l.checked_sub(1));
            let shape = lists::shape(list, row);
            let length = level.and_then(|level| shape.get(level)).copied();
            let length = length.unwrap_or(0);
            for i in 0..length {
                let i = match backwards.value(row) {
                    true => length - 1 - i,
                    false => i,
                };
                builder.values().append_value(first + i);
            }
        }
        builder.append(valid);
    }
    Ok(Arc::new(builder.finish()))
}

/// The fields of an item and its position, from 1.
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

/// An array's items, each with its position.
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
