//! Builds Arrow arrays from the cells of record pages, and patches decoded arrays.
//!
//! Fixed-width columns are handled as raw little-endian values of 2 to 32 bytes, for every
//! Arrow type. An array with a single owner is patched in place. Booleans are bit-packed. Text and
//! bytes are rebuilt as view arrays.

use crate::types::{arrow_type, coordinate_array, fixed_width};
use crate::word_patches::WordPatches;
use arrow_array::builder::{BinaryViewBuilder, StringViewBuilder};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use std::sync::Arc;
use strandline_base::cell::Cell;
use strandline_base::cell::StorageColumn;
use strandline_base::value_words::{Physical, bytes_of, wide_of, word_of};
use strandline_base::{Error, Result, Value};

/// A value as a cell. The value must fit the column's type.
pub fn cell_of<'a>(spec: &StorageColumn, value: &'a Value) -> Cell<'a> {
    match (spec.physical, value) {
        (_, Value::Null) => Cell::Null,
        (Physical::Bytes, v) => bytes_of(v).map_or(Cell::Null, Cell::Bytes),
        (Physical::Wide, v) => wide_of(v).map_or(Cell::Null, Cell::Wide),
        (_, v) => word_of(v).map_or(Cell::Null, Cell::Word),
    }
}

/// An array of `rows` values; `cell(i)` gives the i-th.
pub fn gather<'a>(
    spec: &StorageColumn,
    rows: usize,
    cell: impl Fn(usize) -> Cell<'a>,
) -> Result<ArrayRef> {
    let missing = spec.missing.clone();
    let absent = cell_of(spec, &missing);
    let cell = |i: usize| match cell(i) {
        Cell::Absent => absent,
        other => other,
    };
    let data_type = arrow_type(spec.sql_type);
    match data_type {
        DataType::Utf8View => {
            let mut builder = StringViewBuilder::with_capacity(rows);
            for i in 0..rows {
                match cell(i) {
                    Cell::Bytes(b) => builder.append_value(text(b)?),
                    _ => builder.append_null(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::BinaryView => {
            let mut builder = BinaryViewBuilder::with_capacity(rows);
            for i in 0..rows {
                match cell(i) {
                    Cell::Bytes(b) => builder.append_value(b),
                    _ => builder.append_null(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::Boolean => {
            let mut values = BooleanBufferBuilder::new(rows);
            let mut nulls = BooleanBufferBuilder::new(rows);
            for i in 0..rows {
                let word = cell(i);
                nulls.append(matches!(word, Cell::Word(_)));
                values.append(matches!(word, Cell::Word(w) if w != 0));
            }
            build(data_type, rows, values.finish().into_inner(), nulls)
        }
        _ => gather_fixed(data_type, rows, cell),
    }
}

fn gather_fixed<'a>(
    data_type: DataType,
    rows: usize,
    cell: impl Fn(usize) -> Cell<'a>,
) -> Result<ArrayRef> {
    let width = known_width(&data_type)?;
    let mut values = MutableBuffer::from_len_zeroed(rows * width);
    let bytes = values.as_slice_mut();
    let mut nulls = BooleanBufferBuilder::new(rows);
    for i in 0..rows {
        let cell = cell(i);
        nulls.append(cell != Cell::Null);
        put(&mut bytes[i * width..(i + 1) * width], cell)?;
    }
    build(data_type, rows, values.into(), nulls)
}

fn known_width(data_type: &DataType) -> Result<usize> {
    fixed_width(data_type)
        .ok_or_else(|| Error::internal(format!("no fixed width for Arrow type {data_type}")))
}

fn put(to: &mut [u8], cell: Cell<'_>) -> Result<()> {
    match cell {
        Cell::Word(w) => {
            let n = to.len();
            to.copy_from_slice(&w.to_le_bytes()[..n]);
        }
        Cell::Wide([low, high]) => {
            to[..8].copy_from_slice(&low.to_le_bytes());
            to[8..].copy_from_slice(&high.to_le_bytes());
        }
        Cell::Bytes(bytes) if bytes.len() == to.len() => to.copy_from_slice(bytes),
        Cell::Bytes(bytes) => {
            let (found, width) = (bytes.len(), to.len());
            return Err(Error::internal(format!(
                "a cell of {found} bytes in a column of {width} bytes per value"
            )));
        }
        Cell::Null | Cell::Absent => to.fill(0),
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|e| Error::internal(format!("a text cell is not UTF-8: {e}")))
}

fn build(
    data_type: DataType,
    rows: usize,
    values: Buffer,
    mut nulls: BooleanBufferBuilder,
) -> Result<ArrayRef> {
    let nulls = NullBuffer::new(nulls.finish());
    build_with(
        data_type,
        rows,
        values,
        (nulls.null_count() > 0).then_some(nulls),
    )
}

fn build_with(
    data_type: DataType,
    rows: usize,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    if matches!(data_type, DataType::FixedSizeList(..)) {
        return Ok(coordinate_array(&data_type, values, nulls));
    }
    let data = ArrayData::builder(data_type)
        .len(rows)
        .add_buffer(values)
        .nulls(nulls)
        .build()
        .map_err(|e| Error::internal(format!("building an Arrow array: {e}")))?;
    Ok(make_array(data))
}

/// Replaces the values at `patches` (row, cell); the last patch of a row wins.
pub fn patch<'a>(
    spec: &StorageColumn,
    array: ArrayRef,
    patches: impl Iterator<Item = (usize, Cell<'a>)>,
) -> Result<ArrayRef> {
    let mut patches = patches.peekable();
    if patches.peek().is_none() {
        return Ok(array);
    }
    let missing = spec.missing.clone();
    let absent = cell_of(spec, &missing);
    let patches = patches.map(|(slot, cell)| match cell {
        Cell::Absent => (slot, absent),
        cell => (slot, cell),
    });
    match array.data_type() {
        DataType::Utf8View | DataType::BinaryView => patch_views(spec, &array, patches),
        DataType::Boolean => patch_booleans(&array, patches),
        _ => patch_fixed(array, patches),
    }
}

/// Replaces values by words, in an array of fixed-width values of at most 8 bytes.
pub fn patch_words(array: ArrayRef, patches: &WordPatches<'_>) -> Result<ArrayRef> {
    let mut fixed = FixedWidth::of(array)?;
    let (width, nulls) = (fixed.width, &mut fixed.nulls);
    let bytes = fixed.values.as_slice_mut();
    patches.for_each(|row, word| {
        bytes[row * width..(row + 1) * width].copy_from_slice(&word.to_le_bytes()[..width]);
        if let Some(nulls) = nulls {
            nulls.set_bit(row, true);
        }
    });
    fixed.build()
}

fn patch_fixed<'a>(
    array: ArrayRef,
    patches: impl Iterator<Item = (usize, Cell<'a>)>,
) -> Result<ArrayRef> {
    let mut fixed = FixedWidth::of(array)?;
    let (width, rows) = (fixed.width, fixed.rows);
    let bytes = fixed.values.as_slice_mut();
    for (row, cell) in patches {
        put(&mut bytes[row * width..(row + 1) * width], cell)?;
        mark_null(&mut fixed.nulls, rows, row, cell == Cell::Null);
    }
    fixed.build()
}

/// An array of fixed-width values, taken apart for changes.
struct FixedWidth {
    data_type: DataType,
    width: usize,
    rows: usize,
    values: MutableBuffer,
    nulls: Option<BooleanBufferBuilder>,
}

impl FixedWidth {
    /// The array's own buffer if it has a single owner, else a copy.
    fn of(array: ArrayRef) -> Result<Self> {
        let data_type = array.data_type().clone();
        let width = known_width(&data_type)?;
        let rows = array.len();
        let data = array.to_data();
        drop(array);
        let nulls = data.nulls().map(|n| {
            let mut builder = BooleanBufferBuilder::new(rows);
            builder.append_buffer(n.inner());
            builder
        });
        // The bytes of points and boxes are those of the coordinates.
        let (bytes, start) = match data.child_data() {
            [coordinates] => (
                &coordinates.buffers()[0],
                coordinates.offset() * size_of::<f64>(),
            ),
            _ => (&data.buffers()[0], data.offset() * width),
        };
        let buffer = bytes.slice_with_length(start, rows * width);
        drop(data);
        let values = buffer.into_mutable().unwrap_or_else(|shared| {
            let mut copy = MutableBuffer::with_capacity(shared.len());
            copy.extend_from_slice(&shared);
            copy
        });
        Ok(Self {
            data_type,
            width,
            rows,
            values,
            nulls,
        })
    }

    fn build(self) -> Result<ArrayRef> {
        let nulls = finish_nulls(self.nulls);
        build_with(self.data_type, self.rows, self.values.into(), nulls)
    }
}

fn mark_null(nulls: &mut Option<BooleanBufferBuilder>, rows: usize, slot: usize, null: bool) {
    if null {
        let nulls = nulls.get_or_insert_with(|| {
            let mut all_valid = BooleanBufferBuilder::new(rows);
            all_valid.append_n(rows, true);
            all_valid
        });
        nulls.set_bit(slot, false);
    } else if let Some(nulls) = nulls {
        nulls.set_bit(slot, true);
    }
}

fn finish_nulls(nulls: Option<BooleanBufferBuilder>) -> Option<NullBuffer> {
    nulls
        .map(|mut n| NullBuffer::new(n.finish()))
        .filter(|n| n.null_count() > 0)
}

fn patch_booleans<'a>(
    array: &ArrayRef,
    patches: impl Iterator<Item = (usize, Cell<'a>)>,
) -> Result<ArrayRef> {
    let rows = array.len();
    let old = arrow_array::cast::AsArray::as_boolean(array.as_ref());
    let mut values = BooleanBufferBuilder::new(rows);
    values.append_buffer(old.values());
    let mut nulls = old.nulls().map(|n| {
        let mut builder = BooleanBufferBuilder::new(rows);
        builder.append_buffer(n.inner());
        builder
    });
    for (slot, cell) in patches {
        values.set_bit(slot, matches!(cell, Cell::Word(w) if w != 0));
        mark_null(&mut nulls, rows, slot, cell == Cell::Null);
    }
    let values = values.finish().into_inner();
    build_with(DataType::Boolean, rows, values, finish_nulls(nulls))
}

fn patch_views<'a>(
    spec: &StorageColumn,
    array: &ArrayRef,
    patches: impl Iterator<Item = (usize, Cell<'a>)>,
) -> Result<ArrayRef> {
    let mut indices: Vec<(usize, usize)> = (0..array.len()).map(|i| (0, i)).collect();
    let mut cells = Vec::new();
    for (slot, cell) in patches {
        indices[slot] = (1, cells.len());
        cells.push(cell);
    }
    let new = gather(spec, cells.len(), |i| cells[i])?;
    arrow_select::interleave::interleave(&[array.as_ref(), new.as_ref()], &indices)
        .map_err(|e| Error::internal(format!("patching a text column: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{array_of, value_at};
    use strandline_base::rng::Rng;
    use strandline_base::{BoxCorners, Interval, Point, SqlType};

    fn samples(rng: &mut Rng, t: SqlType) -> Value {
        if rng.one_in(4) {
            return Value::Null;
        }
        let n = rng.next_u64();
        match t {
            SqlType::Boolean => Value::Boolean(n & 1 == 1),
            SqlType::SmallInt => Value::SmallInt(n as i16),
            SqlType::Integer => Value::Integer(n as i32),
            SqlType::Double => Value::Double(n as f64),
            SqlType::Numeric { precision: 38, .. } => Value::Numeric(i128::from(n as i64) << 60),
            SqlType::Numeric { .. } => Value::Numeric(i128::from(n as i64 >> 8)),
            SqlType::Text => Value::from(format!("value {n} with enough text to spill")),
            SqlType::Bytea => Value::from(&n.to_le_bytes()[..]),
            SqlType::Interval => Value::Interval(Interval {
                months: n as i32,
                days: -3,
                nanos: n as i64,
            }),
            SqlType::Uuid => Value::Uuid([n as u8; 16]),
            SqlType::Point => Value::Point(Point::from_words([n, n.rotate_left(7)])),
            SqlType::Box => Value::Box(BoxCorners::new([n as f64, -0.0], [1e300, f64::NAN])),
            _ => Value::BigInt(n as i64),
        }
    }

    #[test]
    fn patched_arrays_equal_patched_values() {
        let mut rng = Rng::new(7);
        let types = [
            SqlType::Boolean,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Double,
            SqlType::Numeric {
                precision: 18,
                scale: 2,
            },
            SqlType::Numeric {
                precision: 38,
                scale: 2,
            },
            SqlType::Text,
            SqlType::Bytea,
            SqlType::Interval,
            SqlType::Uuid,
            SqlType::Point,
            SqlType::Box,
        ];
        for t in types {
            for rows in [1usize, 63, 64, 200] {
                let spec = &StorageColumn::new(t, Value::Null);
                let mut values: Vec<Value> = (0..rows).map(|_| samples(&mut rng, t)).collect();
                let shared = array_of(t, &values).expect("array");
                let gathered = gather(spec, rows, |i| cell_of(spec, &values[i])).expect("gather");
                assert_eq!(&gathered, &shared, "{t}");
                let new: Vec<(usize, Value)> = (0..rows)
                    .filter_map(|i| {
                        if rng.one_in(3) {
                            Some((i, samples(&mut rng, t)))
                        } else {
                            None
                        }
                    })
                    .collect();
                for array in [shared.clone(), array_of(t, &values).expect("array")] {
                    let cells: Vec<_> = new.iter().map(|(i, v)| (*i, cell_of(spec, v))).collect();
                    let patched = patch(spec, array, cells.into_iter()).expect("patch");
                    let mut expected = values.clone();
                    for (i, v) in &new {
                        expected[*i] = v.clone();
                    }
                    let got: Vec<Value> = (0..rows).map(|i| value_at(t, &patched, i)).collect();
                    assert_eq!(got, expected, "{t}");
                }
                // the shared array was not touched
                let got: Vec<Value> = (0..rows).map(|i| value_at(t, &shared, i)).collect();
                assert_eq!(got, std::mem::take(&mut values));
            }
        }
    }
}
