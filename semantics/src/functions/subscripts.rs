//! `(array)[i][j]` and `(array)[l:u]`. Subscripts count from 1, for a system table's vector from 0.
//! An item outside the array is NULL, and a part has only the items within it. A system table's
//! name is an array of characters, from 0. The coordinates of a point and the corners of a box count
//! from 0.

use super::arrays::first;
use super::lists;
use super::overload::Parameter::{Any, Bigint};
use super::overload::{Call, Function, Overload, Returns};
use crate::geometry::array_of;
use crate::types::{PG_TYPE_KEY, arrow_type, is_geometric, sql_type_of_arrow};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, new_null_array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_column::types::coordinates_at;

/// An item: the array and a subscript for each of its levels.
pub const ITEM: &str = "array_item";
/// A part: the array, and a lower and an upper bound for each of its levels.
pub const PART: &str = "array_part";

/// Both functions.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new(
            ITEM,
            vec![Overload::variadic(
                &[Any, Bigint],
                Returns::Computed(innermost),
                item,
            )],
        ),
        Function::new(
            PART,
            vec![Overload::variadic(
                &[Any, Bigint],
                Returns::Computed(same),
                part,
            )],
        ),
    ]
}

fn innermost(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let mut item = match &types[0] {
        DataType::List(item) => item.data_type(),
        name if name.is_string() => return Ok(DataType::Utf8View),
        other => match sql_type_of_arrow(other) {
            Some(SqlType::Point) => return Ok(DataType::Float64),
            Some(SqlType::Box) => return Ok(arrow_type(SqlType::Point)),
            _ => return Err(lists::no_array(other)),
        },
    };
    while let DataType::List(inner) = item {
        item = inner.data_type();
    }
    Ok(item.clone())
}

fn same(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    match &types[0] {
        list @ DataType::List(_) => Ok(list.clone()),
        other => Err(lists::no_array(other)),
    }
}

/// An array's levels, outermost first; `None` for an untyped NULL.
fn levels(call: &Call) -> Result<Option<Vec<ListArray>>> {
    let Some(mut list) = lists::list(call, 0)? else {
        return Ok(None);
    };
    let mut levels = Vec::new();
    loop {
        let inner = list.values().as_list_opt::<i32>().cloned();
        levels.push(list);
        match inner {
            Some(inner) => list = inner,
            None => return Ok(Some(levels)),
        }
    }
}

fn places(list: &ListArray, at: usize) -> Range<usize> {
    let offsets = list.value_offsets();
    offsets[at] as usize..offsets[at + 1] as usize
}

/// A character of a name.
fn character(call: &Call) -> Result<ArrayRef> {
    let pg_type = call.fields[0].metadata().get(PG_TYPE_KEY);
    if pg_type.is_none_or(|pg_type| pg_type != "name") || call.arrays.len() != 2 {
        return Err(lists::no_array(call.arrays[0].data_type()));
    }
    let names = cast(&call.arrays[0], &DataType::Utf8View)?;
    call.map_text(|row| {
        let at = usize::try_from(call.bigint(1).value(row)).ok();
        let name = names.as_string_view().value(row);
        Ok(at.and_then(|at| name.chars().nth(at)).map(String::from))
    })
}

/// `point[0]` and `point[1]` are x and y, `box[0]` and `box[1]` the upper right and the lower left
/// corner.
fn coordinate(call: &Call) -> Result<ArrayRef> {
    let subscripts = call.arrays.len() - 1;
    let place = |row: usize| {
        let at = usize::try_from(call.bigint(1).value(row)).ok();
        at.filter(|at| *at < 2 && subscripts == 1 && !call.any_null(row))
    };
    let of = |row: usize| coordinates_at(&call.arrays[0], row);
    if *call.returns == DataType::Float64 {
        return call.map::<Float64Type>(|row| Ok(place(row).map(|at| of(row)[at])));
    }
    array_of(SqlType::Point, call.rows, |row| {
        Ok(place(row).map(|at| [of(row)[2 * at], of(row)[2 * at + 1]]))
    })
}

fn item(call: &Call) -> Result<ArrayRef> {
    if call.arrays[0].data_type().is_string() {
        return character(call);
    }
    if is_geometric(call.arrays[0].data_type()) {
        return coordinate(call);
    }
    let Some(levels) = levels(call)? else {
        return Ok(new_null_array(call.returns, call.rows));
    };
    let subscripts = call.arrays.len() - 1;
    let least = i64::from(first(call));
    let found = (0..call.rows).map(|row| {
        if call.any_null(row) || subscripts != levels.len() {
            return None;
        }
        let mut at = row;
        for (level, list) in levels.iter().enumerate() {
            let places = places(list, at);
            let skipped = call.bigint(level + 1).value(row).checked_sub(least)?;
            let skipped = usize::try_from(skipped).ok()?;
            at = places
                .start
                .checked_add(skipped)
                .filter(|at| *at < places.end)?;
        }
        Some(at as u32)
    });
    let found: UInt32Array = found.collect();
    let values = levels[levels.len() - 1].values();
    Ok(take(values, &found, None)?)
}

/// The positions of one level's items within a row's bounds.
fn within(call: &Call, level: usize, row: usize, places: Range<usize>) -> Range<usize> {
    let argument = 1 + 2 * level;
    if argument >= call.arrays.len() {
        return places;
    }
    let least = i64::from(first(call));
    let length = places.len() as i64;
    let lower = call.bigint(argument).value(row).max(least) - least;
    let upper = call.bigint(argument + 1).value(row).min(length - 1 + least) - least;
    if upper < lower {
        return places.start..places.start;
    }
    places.start + lower as usize..places.start + upper as usize + 1
}

fn part(call: &Call) -> Result<ArrayRef> {
    let Some(levels) = levels(call)? else {
        return Ok(new_null_array(call.returns, call.rows));
    };
    let deep = call.arrays.len() / 2 <= levels.len();
    let valid: Vec<bool> = (0..call.rows).map(|row| !call.any_null(row)).collect();
    // Per list of a level its row and its position.
    let mut parents: Vec<(usize, Option<usize>)> =
        (0..call.rows).map(|row| (row, Some(row))).collect();
    let mut lengths = Vec::with_capacity(levels.len());
    for (level, list) in levels.iter().enumerate() {
        let mut items = Vec::new();
        let mut counts = Vec::with_capacity(parents.len());
        for (row, at) in &parents {
            let kept = match at {
                Some(at) if valid[*row] && deep && !is_empty(call, &levels, *row) => {
                    within(call, level, *row, places(list, *at))
                }
                _ => 0..0,
            };
            counts.push(kept.len());
            items.extend(kept.map(|at| (*row, Some(at))));
        }
        lengths.push(counts);
        parents = items;
    }
    let indices: UInt32Array = parents
        .iter()
        .map(|(_, at)| at.map(|at| at as u32))
        .collect();
    let mut values = take(levels[levels.len() - 1].values(), &indices, None)?;
    for (level, counts) in lengths.into_iter().enumerate().rev() {
        let nulls = (level == 0).then(|| NullBuffer::from(valid.clone()));
        let list = ListArray::try_new(
            item_field(&levels[level]),
            OffsetBuffer::from_lengths(counts),
            values,
            nulls,
        )?;
        values = Arc::new(list);
    }
    Ok(values)
}

fn item_field(list: &ListArray) -> FieldRef {
    match list.data_type() {
        DataType::List(item) => Arc::clone(item),
        _ => Arc::new(datafusion::arrow::datatypes::Field::new_list_field(
            list.value_type(),
            true,
        )),
    }
}

/// Whether a row's array has no items within the bounds. A level without items makes the result
/// empty.
fn is_empty(call: &Call, levels: &[ListArray], row: usize) -> bool {
    let mut at = row;
    for (level, list) in levels.iter().enumerate() {
        let kept = within(call, level, row, places(list, at));
        if kept.is_empty() {
            return true;
        }
        at = kept.start;
    }
    false
}
