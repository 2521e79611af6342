//! Bytes of rows: the measure that bounds batches, ranges and waiting rows in memory.
//!
//! The bytes of a row are the bytes of its values, also if their buffers are shared with other
//! rows: 8 bytes for a value of fixed width (16 for wide ones, 32 for a box), 16 and its length for
//! text and bytea. A slice of a batch therefore has the bytes of its own rows, unlike in Arrow's measures.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use strandline_base::{ColumnId, Value};

/// Bytes of a text or bytea value beside its length.
const BYTES_HEAD: usize = 16;
/// Bytes of a value of fixed width, unless it is wider.
const WORD: usize = 8;

/// Bytes of the rows of `batch`.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| array_bytes(c)).sum()
}

/// Bytes of the values of `array`.
pub fn array_bytes(array: &dyn Array) -> usize {
    let rows = array.len();
    match array.data_type() {
        DataType::Utf8View => heads(rows) + views_bytes(array.as_string_view().views()),
        DataType::BinaryView => heads(rows) + views_bytes(array.as_binary_view().views()),
        DataType::Utf8 => heads(rows) + span(array.as_string::<i32>().value_offsets()),
        DataType::Binary => heads(rows) + span(array.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => heads(rows) + span(array.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => heads(rows) + span(array.as_binary::<i64>().value_offsets()),
        DataType::Null => 0,
        DataType::FixedSizeList(item, _) if *item.data_type() == DataType::Float64 => {
            array.as_fixed_size_list().values().len() * WORD
        }
        other => match other.primitive_width() {
            Some(width) => rows * width.max(WORD),
            None => array.to_data().get_slice_memory_size().unwrap_or(0),
        },
    }
}

/// The number of first rows of `batch` that have at most `bytes`; at least one, unless it is empty.
pub fn rows_within(batch: &RecordBatch, bytes: usize) -> usize {
    let rows = batch.num_rows();
    if rows <= 1 || batch_bytes(batch) <= bytes {
        return rows;
    }
    // The largest number of rows that fits, by bisection: a slice costs nothing.
    let (mut fits, mut exceeds) = (1, rows);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        match batch_bytes(&batch.slice(0, middle)) <= bytes {
            true => fits = middle,
            false => exceeds = middle,
        }
    }
    fits
}

/// `batch` in slices of at most `bytes`, or of one row.
pub fn slices(batch: RecordBatch, bytes: usize) -> impl Iterator<Item = RecordBatch> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        let rows = rows_within(&rest, bytes);
        if rows == 0 {
            return None;
        }
        let slice = rest.slice(0, rows);
        rest = rest.slice(rows, rest.num_rows() - rows);
        Some(slice)
    })
}

/// Bytes of a row of single values.
#[inline]
pub fn values_bytes<'a>(values: impl IntoIterator<Item = &'a Value>) -> usize {
    values.into_iter().map(value_bytes).sum()
}

/// Bytes of the values that an update sets.
#[inline]
pub fn set_bytes(set: &[(ColumnId, Value)]) -> usize {
    values_bytes(set.iter().map(|(_, value)| value))
}

/// Bytes of one value.
#[inline]
pub fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => BYTES_HEAD + text.len(),
        Value::Bytea(bytes) => BYTES_HEAD + bytes.len(),
        Value::Numeric(_) | Value::Interval(_) | Value::Uuid(_) | Value::Point(_) => 2 * WORD,
        Value::Box(_) => 4 * WORD,
        _ => WORD,
    }
}

fn heads(rows: usize) -> usize {
    rows * BYTES_HEAD
}

/// The sum of the lengths in the low 32 bits of views.
fn views_bytes(views: &[u128]) -> usize {
    views.iter().map(|view| *view as u32 as usize).sum()
}

fn span<O: Copy + TryInto<usize>>(offsets: &[O]) -> usize {
    let at = |offset: Option<&O>| offset.and_then(|o| (*o).try_into().ok()).unwrap_or(0);
    at(offsets.last()) - at(offsets.first())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::array_of;
    use arrow_array::{ArrayRef, BinaryArray, Int16Array, StringArray, StringViewArray};
    use std::sync::Arc;
    use strandline_base::{BoxCorners, Point, SqlType};

    fn batch(texts: &[&str]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int16Array::from_iter_values(0..texts.len() as i16));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).expect("batch")
    }

    #[test]
    fn a_slice_has_the_bytes_of_its_rows() {
        let long = "x".repeat(1000);
        let batch = batch(&["a", &long, "bc", ""]);
        assert_eq!(batch_bytes(&batch), 4 * 24 + 1003);
        assert_eq!(batch_bytes(&batch.slice(1, 1)), 24 + 1000);
        assert_eq!(batch_bytes(&batch.slice(2, 2)), 2 * 24 + 2);
        assert_eq!(batch_bytes(&batch.slice(4, 0)), 0);
        let text = StringArray::from(vec!["abc", &long, "d"]);
        assert_eq!(array_bytes(&text.slice(1, 2)), 2 * 16 + 1001);
        let bytes = BinaryArray::from(vec![&b"abc"[..], b"", b"d"]);
        assert_eq!(array_bytes(&bytes), 3 * 16 + 4);
    }

    #[test]
    fn values_count_as_in_arrays() {
        let row = [Value::SmallInt(1), Value::Text("abc".into()), Value::Null];
        assert_eq!(values_bytes(&row), 8 + 19 + 8);
        let set: Vec<_> = (0..).map(ColumnId).zip(row).collect();
        assert_eq!(set_bytes(&set), 8 + 19 + 8);
        assert_eq!(value_bytes(&Value::Uuid([0; 16])), 16);
        let point = Value::Point(Point::new([1.0, 2.0]));
        let corners = Value::Box(BoxCorners::new([1.0, 2.0], [3.0, 4.0]));
        for (t, value, bytes) in [(SqlType::Point, point, 16), (SqlType::Box, corners, 32)] {
            let array = array_of(t, &[value.clone(), Value::Null, value.clone()]).expect("array");
            assert_eq!(value_bytes(&value), bytes);
            assert_eq!(array_bytes(&array.slice(1, 2)), 2 * bytes, "{t}");
        }
    }

    #[test]
    fn slices_are_cut_by_bytes_and_have_a_row_at_least() {
        let wide = "x".repeat(500);
        let batch = batch(&["a", "b", &wide, "c", "d", "e"]);
        let sizes =
            |bytes| -> Vec<usize> { slices(batch.clone(), bytes).map(|b| b.num_rows()).collect() };
        assert_eq!(sizes(1 << 20), [6]);
        assert_eq!(sizes(50), [2, 1, 2, 1]);
        assert_eq!(sizes(600), [4, 2]);
        assert_eq!(sizes(0), [1; 6]);
        assert_eq!(rows_within(&batch.slice(0, 0), 9), 0);
    }
}
