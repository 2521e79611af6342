//! Functions of arrays. DataFusion has functions of the same names with other types, and with other
//! results for empty arrays, NULL and arrays of arrays.
//!
//! An item argument must have the type of the array's items, or a smaller integer type. For arrays
//! of arrays only their dimensions are available; their items cannot be searched.

use super::overload::Parameter::{Any, Bigint, Text};
use super::overload::{Call, Function, Overload, Returns};
use crate::cast::{Mode, cast_array};
use crate::error::invalid;
use crate::text::ValueWriter;
use crate::types::{sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, StringViewArray, UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::utils::normalize_float_zero;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let integer = SqlType::Integer;
    let list = |parameters, body: fn(&Call) -> Result<ArrayRef>| {
        Overload::new(parameters, Returns::Computed(first_list), body)
    };
    vec![
        Function::new(
            "array_length",
            vec![Overload::new(&[Any, Bigint], integer, length)],
        ),
        Function::new(
            "cardinality",
            vec![Overload::new(&[Any], integer, cardinality)],
        ),
        Function::new(
            "array_ndims",
            vec![Overload::new(&[Any], integer, dimensions)],
        ),
        Function::new(
            "array_dims",
            vec![Overload::new(&[Any], SqlType::Text, bounds)],
        ),
        Function::new("array_append", vec![list(&[Any, Any], append)]).not_strict(),
        Function::new(
            "array_prepend",
            vec![Overload::new(
                &[Any, Any],
                Returns::Computed(second_list),
                prepend,
            )],
        )
        .not_strict(),
        Function::new("array_cat", vec![list(&[Any, Any], cat)]).not_strict(),
        Function::new("array_remove", vec![list(&[Any, Any], remove)]).not_strict(),
        Function::new("array_replace", vec![list(&[Any, Any, Any], replace)]).not_strict(),
        Function::new("trim_array", vec![list(&[Any, Bigint], trim)]),
        position_function(),
        Function::new(
            "array_positions",
            vec![Overload::new(
                &[Any, Any],
                Returns::Computed(integers),
                positions,
            )],
        )
        .not_strict(),
    ]
    .into_iter()
    .chain(of_texts())
    .collect()
}

/// `array_position`
pub fn position_function() -> Function {
    Function::new(
        "array_position",
        vec![
            Overload::new(&[Any, Any], SqlType::Integer, position),
            Overload::new(&[Any, Any, Bigint], SqlType::Integer, position),
        ],
    )
    .not_strict()
}

/// Arrays from texts, and texts from arrays.
fn of_texts() -> [Function; 2] {
    [
        Function::new(
            "array_to_string",
            vec![
                Overload::new(&[Any, Text], SqlType::Text, to_string),
                Overload::new(&[Any, Text, Text], SqlType::Text, to_string),
            ],
        )
        .not_strict(),
        Function::new(
            "string_to_array",
            vec![
                Overload::new(&[Text, Text], Returns::Computed(texts), to_array),
                Overload::new(&[Text, Text, Text], Returns::Computed(texts), to_array),
            ],
        )
        .not_strict(),
    ]
}

fn integers(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(list_of(DataType::Int32))
}

fn texts(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(list_of(DataType::Utf8View))
}

pub(super) fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The type of the array argument; for NULL the array type of the item argument.
fn first_list(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match (&types[0], types.get(1)) {
        (list @ DataType::List(_), _) => Ok(list.clone()),
        (first, Some(list @ DataType::List(_))) if first.is_null() => Ok(list.clone()),
        (first, Some(item)) if first.is_null() && !item.is_null() => Ok(list_of(settled(item))),
        (other, _) => Err(no_array(other)),
    }
}

fn second_list(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match (&types[1], &types[0]) {
        (list @ DataType::List(_), _) => Ok(list.clone()),
        (second, item) if second.is_null() && !item.is_null() => Ok(list_of(settled(item))),
        (other, _) => Err(no_array(other)),
    }
}

/// An untyped literal is a text.
fn settled(item: &DataType) -> DataType {
    match item {
        DataType::Utf8 => DataType::Utf8View,
        other => other.clone(),
    }
}

pub(super) fn no_array(data_type: &DataType) -> DataFusionError {
    let name = sql_name(data_type);
    let message = format!("function of an array got a value of type {name}");
    invalid(SqlState::UNDEFINED_FUNCTION, message)
}

fn unsupported(message: &str) -> DataFusionError {
    invalid(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// An array argument; `None` for an untyped NULL.
pub(super) fn list(call: &Call, argument: usize) -> Result<Option<ListArray>> {
    let array = &call.arrays[argument];
    if array.data_type().is_null() {
        return Ok(None);
    }
    let list = array.as_list_opt::<i32>();
    list.cloned()
        .map(Some)
        .ok_or_else(|| no_array(array.data_type()))
}

/// An array argument whose items are values and can be compared.
fn flat(call: &Call, argument: usize) -> Result<Option<ListArray>> {
    let list = list(call, argument)?;
    match list {
        Some(list) if matches!(list.value_type(), DataType::List(_)) => Err(unsupported(
            "this function of an array of arrays is not supported",
        )),
        list => Ok(list),
    }
}

/// The lengths of an array's levels; none for an empty one.
pub(super) fn shape(list: &ListArray, row: usize) -> Vec<i32> {
    let length = list.value_length(row);
    if length == 0 {
        return Vec::new();
    }
    let items = list.value(row);
    let inner = items.as_list_opt::<i32>().map(|items| shape(items, 0));
    std::iter::once(length)
        .chain(inner.unwrap_or_default())
        .collect()
}

/// Applies `f` to the lengths of each array's levels.
fn of_shape(call: &Call, f: impl Fn(&[i32], usize) -> Option<i32>) -> Result<ArrayRef> {
    let Some(list) = list(call, 0)? else {
        return Ok(Arc::new(Int32Array::new_null(call.rows)));
    };
    call.map::<Int32Type>(|row| Ok(f(&shape(&list, row), row)))
}

fn length(call: &Call) -> Result<ArrayRef> {
    let wanted = call.bigint(1);
    of_shape(call, |shape, row| {
        let level = usize::try_from(wanted.value(row)).ok()?.checked_sub(1)?;
        shape.get(level).copied()
    })
}

fn cardinality(call: &Call) -> Result<ArrayRef> {
    of_shape(call, |shape, _| {
        let product = shape.iter().product();
        Some(if shape.is_empty() { 0 } else { product })
    })
}

fn dimensions(call: &Call) -> Result<ArrayRef> {
    of_shape(call, |shape, _| {
        (!shape.is_empty()).then_some(shape.len() as i32)
    })
}

fn bounds(call: &Call) -> Result<ArrayRef> {
    let Some(list) = list(call, 0)? else {
        return Ok(new_null_array(&DataType::Utf8View, call.rows));
    };
    call.map_text(|row| {
        let shape = shape(&list, row);
        let levels = shape.iter().map(|length| format!("[1:{length}]"));
        Ok((!shape.is_empty()).then(|| levels.collect()))
    })
}

/// An argument converted to the item type of `list`.
fn items(call: &Call, argument: usize, list: &ListArray) -> Result<ArrayRef> {
    let (array, wanted) = (&call.arrays[argument], list.value_type());
    let from = array.data_type();
    if *from == wanted {
        return Ok(array.clone());
    }
    let widened = from.is_signed_integer()
        && wanted.is_signed_integer()
        && from.primitive_width() <= wanted.primitive_width();
    let open = from.is_null() || *from == DataType::Utf8;
    let same_text = from.is_string() && wanted.is_string();
    let decimals = from.is_decimal() && wanted.is_decimal();
    match sql_type_of_arrow(&wanted) {
        Some(to) if open || widened || same_text || decimals => {
            let cast = cast_array(array, to, Mode::Explicit)?;
            let exact = !decimals
                || datafusion::arrow::compute::kernels::cmp::not_distinct(
                    &datafusion::arrow::compute::cast(&cast, from)?,
                    array,
                )?
                .true_count()
                    == array.len();
            match exact {
                true => Ok(datafusion::arrow::compute::cast(&cast, &wanted)?),
                false => Err(unsupported(
                    "an item with more digits than the array's items",
                )),
            }
        }
        _ => {
            let message = format!(
                "an array of type {} takes no item of type {}",
                sql_name(list.data_type()),
                sql_name(from)
            );
            Err(invalid(SqlState::UNDEFINED_FUNCTION, message))
        }
    }
}

/// Arrays of the items of `parts`: per row (part, item), `None` for NULL.
fn gathered(
    parts: &[&ArrayRef],
    rows: Vec<Option<Vec<(usize, usize)>>>,
    returns: &DataType,
) -> Result<ArrayRef> {
    let DataType::List(item) = returns else {
        return Err(no_array(returns));
    };
    let mut starts = Vec::with_capacity(parts.len());
    let mut total = 0;
    for part in parts {
        starts.push(total);
        total += part.len();
    }
    let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
    let all = concat(&arrays)?;
    let places = rows.iter().flatten().flatten();
    let places: UInt32Array = places
        .map(|(part, at)| (starts[*part] + at) as u32)
        .collect();
    let values = take(&all, &places, None)?;
    let lengths = rows.iter().map(|row| row.as_ref().map_or(0, Vec::len));
    let nulls: NullBuffer = rows.iter().map(Option::is_some).collect();
    let lengths = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(
        item.clone(),
        lengths,
        values,
        Some(nulls),
    )?))
}

/// The positions of a row's items in the list's values.
fn places(list: &ListArray, row: usize) -> std::ops::Range<usize> {
    match list.is_null(row) {
        true => 0..0,
        false => list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize,
    }
}

/// The array in `argument`, or NULLs of the result's type.
fn list_or_null(call: &Call, argument: usize) -> Result<ListArray> {
    let found = flat(call, argument)?;
    Ok(found.unwrap_or_else(|| {
        new_null_array(call.returns, call.rows)
            .as_list::<i32>()
            .clone()
    }))
}

fn append(call: &Call) -> Result<ArrayRef> {
    let list = list_or_null(call, 0)?;
    let items = items(call, 1, &list)?;
    let row = |row: usize| {
        let places = places(&list, row).map(|at| (0, at));
        Some(places.chain([(1, row)]).collect())
    };
    gathered(
        &[list.values(), &items],
        (0..call.rows).map(row).collect(),
        call.returns,
    )
}

fn prepend(call: &Call) -> Result<ArrayRef> {
    let list = list_or_null(call, 1)?;
    let items = items(call, 0, &list)?;
    let row = |row: usize| {
        let places = places(&list, row).map(|at| (0, at));
        Some(std::iter::once((1, row)).chain(places).collect())
    };
    gathered(
        &[list.values(), &items],
        (0..call.rows).map(row).collect(),
        call.returns,
    )
}

fn cat(call: &Call) -> Result<ArrayRef> {
    let (left, right) = (list_or_null(call, 0)?, list_or_null(call, 1)?);
    if left.value_type() != right.value_type() {
        let message = format!(
            "function array_cat({}, {}) does not exist",
            sql_name(left.data_type()),
            sql_name(right.data_type())
        );
        return Err(invalid(SqlState::UNDEFINED_FUNCTION, message));
    }
    let row = |row: usize| {
        if left.is_null(row) && right.is_null(row) {
            return None;
        }
        let left = places(&left, row).map(|at| (0, at));
        let right = places(&right, row).map(|at| (1, at));
        Some(left.chain(right).collect())
    };
    let rows = (0..call.rows).map(row).collect();
    gathered(&[left.values(), right.values()], rows, call.returns)
}

/// Per item of the list whether it equals its row's value; NULL equals NULL.
fn matches(list: &ListArray, items: &ArrayRef) -> Result<Vec<bool>> {
    let mut rows = vec![0u32; list.values().len()];
    for row in 0..list.len() {
        rows[places(list, row)].fill(row as u32);
    }
    let wanted = normalize_float_zero(&take(items, &UInt32Array::from(rows), None)?);
    let values = normalize_float_zero(list.values());
    let same = datafusion::arrow::compute::kernels::cmp::not_distinct(&values, &wanted)?;
    Ok(same.iter().map(|same| same == Some(true)).collect())
}

fn remove(call: &Call) -> Result<ArrayRef> {
    let list = list_or_null(call, 0)?;
    let found = matches(&list, &items(call, 1, &list)?)?;
    let row = |row: usize| {
        let kept = places(&list, row).filter(|at| !found[*at]);
        list.is_valid(row).then(|| kept.map(|at| (0, at)).collect())
    };
    gathered(
        &[list.values()],
        (0..call.rows).map(row).collect(),
        call.returns,
    )
}

fn replace(call: &Call) -> Result<ArrayRef> {
    let list = list_or_null(call, 0)?;
    let found = matches(&list, &items(call, 1, &list)?)?;
    let new = items(call, 2, &list)?;
    let row = |row: usize| {
        let kept = places(&list, row).map(|at| if found[at] { (1, row) } else { (0, at) });
        list.is_valid(row).then(|| kept.collect())
    };
    gathered(
        &[list.values(), &new],
        (0..call.rows).map(row).collect(),
        call.returns,
    )
}

fn trim(call: &Call) -> Result<ArrayRef> {
    let Some(list) = list(call, 0)? else {
        return Ok(new_null_array(call.returns, call.rows));
    };
    let mut rows = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.any_null(row) {
            rows.push(None);
            continue;
        }
        let length = list.value_length(row) as usize;
        let lost = usize::try_from(call.bigint(1).value(row))
            .ok()
            .filter(|n| *n <= length);
        let Some(lost) = lost else {
            return Err(invalid(
                SqlState("2202E"),
                format!("number of elements to trim must be between 0 and {length}"),
            ));
        };
        let kept = places(&list, row).take(length - lost).map(|at| (0, at));
        rows.push(Some(kept.collect()));
    }
    gathered(&[list.values()], rows, call.returns)
}

fn position(call: &Call) -> Result<ArrayRef> {
    let list = match flat(call, 0)? {
        Some(list) => list,
        None => return Ok(Arc::new(Int32Array::new_null(call.rows))),
    };
    let found = matches(&list, &items(call, 1, &list)?)?;
    let mut first = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let start = match call.arrays.get(2) {
            Some(starts) if starts.is_null(row) => {
                return Err(invalid(
                    SqlState("22004"),
                    "initial position must not be null",
                ));
            }
            Some(_) => call.bigint(2).value(row).max(1) as usize - 1,
            None => 0,
        };
        let at = places(&list, row).skip(start).position(|at| found[at]);
        first.push(at.map(|at| (at + start + 1) as i32));
    }
    Ok(Arc::new(Int32Array::from(first)))
}

fn positions(call: &Call) -> Result<ArrayRef> {
    let Some(list) = flat(call, 0)? else {
        return Ok(new_null_array(call.returns, call.rows));
    };
    let found = matches(&list, &items(call, 1, &list)?)?;
    let rows = (0..call.rows).map(|row| {
        let places = places(&list, row).enumerate().filter(|(_, at)| found[*at]);
        let numbers = places.map(|(n, _)| Some(n as i32 + 1));
        list.is_valid(row).then(|| numbers.collect::<Vec<_>>())
    });
    Ok(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
        rows,
    )))
}

fn to_string(call: &Call) -> Result<ArrayRef> {
    let Some(list) = list(call, 0)? else {
        return Ok(new_null_array(&DataType::Utf8View, call.rows));
    };
    let mut values: ArrayRef = list.values().clone();
    let mut rows: Vec<_> = (0..call.rows).map(|row| places(&list, row)).collect();
    while let Some(inner) = values.clone().as_list_opt::<i32>() {
        let offsets = inner.value_offsets();
        for row in rows.iter_mut().filter(|row| row.start < row.end) {
            *row = offsets[row.start] as usize..offsets[row.end] as usize;
        }
        values = inner.values().clone();
    }
    let writer = ValueWriter::new(&values)?;
    let mut out = Vec::with_capacity(call.rows);
    for (row, places) in rows.into_iter().enumerate() {
        if list.is_null(row) || call.arrays[1].is_null(row) {
            out.push(None);
            continue;
        }
        let missing = call.arrays.get(2).filter(|texts| texts.is_valid(row));
        let missing = missing.map(|_| call.text(2).value(row));
        let mut items = Vec::new();
        for at in places {
            if values.is_null(at) {
                items.extend(missing.map(str::to_string));
                continue;
            }
            let mut text = String::new();
            writer
                .write(&mut text, at, ["f", "t"])
                .map_err(|_| datafusion::common::internal_datafusion_err!("no text"))?;
            items.push(text);
        }
        out.push(Some(items.join(call.text(1).value(row))));
    }
    Ok(Arc::new(out.into_iter().collect::<StringViewArray>()))
}

/// Splits a text; a NULL delimiter splits it into characters, an empty one does not split it.
fn to_array(call: &Call) -> Result<ArrayRef> {
    let mut builder = datafusion::arrow::array::ListBuilder::new(
        datafusion::arrow::array::StringViewBuilder::new(),
    );
    for row in 0..call.rows {
        if call.arrays[0].is_null(row) {
            builder.append(false);
            continue;
        }
        let text = call.text(0).value(row);
        let parts: Vec<String> = match call.arrays[1].is_null(row) {
            _ if text.is_empty() => Vec::new(),
            true => text.chars().map(String::from).collect(),
            false if call.text(1).value(row).is_empty() => vec![text.to_string()],
            false => text
                .split(call.text(1).value(row))
                .map(str::to_string)
                .collect(),
        };
        let missing = call.arrays.get(2).filter(|texts| texts.is_valid(row));
        let missing = missing.map(|_| call.text(2).value(row));
        for part in parts {
            match missing == Some(part.as_str()) {
                true => builder.values().append_null(),
                false => builder.values().append_value(part),
            }
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}
