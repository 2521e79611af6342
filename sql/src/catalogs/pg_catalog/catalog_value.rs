//! Values of system tables, and arguments and results of the functions about them; their Arrow
//! arrays.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, ListBuilder, PrimitiveBuilder, StringViewArray, StringViewBuilder,
    TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int16Type, Int32Type};
use datafusion::common::{Result, internal_err};
use std::sync::Arc;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogValue {
    /// NULL
    Null,
    /// boolean
    Bool(bool),
    /// smallint, integer, bigint, oid
    Int(i64),
    /// real, double precision
    Float(f64),
    /// text, name, "char" and everything else that is shown as text
    Text(String),
    /// timestamptz, microseconds since the epoch
    Moment(u64),
    /// an array of numbers
    Ints(Vec<i64>),
    /// an array of texts
    Texts(Vec<String>),
}

impl CatalogValue {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
    /// A value or NULL.
    pub fn option<T: Into<CatalogValue>>(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
    /// The number, if it is one or is written as one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
    /// Whether it is true.
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value of an argument at `row`.
    pub fn at(array: &ArrayRef, row: usize) -> Result<Self> {
        if array.data_type().is_null() || array.is_null(row) {
            return Ok(Self::Null);
        }
        Ok(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().value(row)),
            DataType::Int64 => Self::Int(array.as_primitive::<super::Int64Type>().value(row)),
            DataType::Utf8View => Self::text(array.as_string_view().value(row)),
            DataType::Float64 => Self::Float(array.as_primitive::<super::Float64Type>().value(row)),
            DataType::List(item) => {
                let items = array.as_list::<i32>().value(row);
                let texts = item.data_type().is_string();
                let cells = (0..items.len()).map(|i| Self::at(&items, i));
                let cells = cells.collect::<Result<Vec<Self>>>()?;
                match texts {
                    true => Self::Texts(
                        cells
                            .iter()
                            .filter_map(|c| c.as_text().map(str::to_string))
                            .collect(),
                    ),
                    false => Self::Ints(cells.iter().filter_map(Self::as_int).collect()),
                }
            }
            other => match layout(other) {
                Some(layout) => Self::at(&cast(&array.slice(row, 1), &layout)?, 0)?,
                None => Self::Null,
            },
        })
    }
}

impl From<&str> for CatalogValue {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for CatalogValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for CatalogValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for CatalogValue {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<i64> for CatalogValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

/// The layout that an argument of another one is read in.
fn layout(data_type: &DataType) -> Option<DataType> {
    match data_type {
        t if t.is_integer() => Some(DataType::Int64),
        t if t.is_floating() || t.is_decimal() => Some(DataType::Float64),
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        _ => None,
    }
}

/// The cells of one column as an array of `data_type`.
pub fn array(cells: &[CatalogValue], data_type: &DataType) -> Result<ArrayRef> {
    let ints = || cells.iter().map(CatalogValue::as_int);
    let floats = || {
        cells.iter().map(|cell| match cell {
            CatalogValue::Float(number) => Some(*number),
            other => other.as_int().map(|n| n as f64),
        })
    };
    Ok(match data_type {
        DataType::Boolean => Arc::new(
            cells
                .iter()
                .map(|cell| match cell {
                    CatalogValue::Bool(value) => Some(*value),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        DataType::Int16 => Arc::new(ints().map(|n| n.map(|n| n as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(ints().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        DataType::Float32 => Arc::new(
            floats()
                .map(|n| n.map(|n| n as f32))
                .collect::<Float32Array>(),
        ),
        DataType::Float64 => Arc::new(floats().collect::<Float64Array>()),
        DataType::Utf8View => {
            let texts = cells.iter().map(CatalogValue::as_text);
            Arc::new(texts.collect::<StringViewArray>())
        }
        DataType::Timestamp(..) => {
            let moments = cells.iter().map(|cell| match cell {
                CatalogValue::Moment(us) => Some(*us as i64),
                _ => None,
            });
            let moments = moments.collect::<TimestampMicrosecondArray>();
            Arc::new(moments.with_data_type(data_type.clone()))
        }
        DataType::List(item) => list(cells, item.data_type())?,
        other if cells.iter().all(CatalogValue::is_null) => new_null_array(other, cells.len()),
        other => return internal_err!("no system table has values of {other}"),
    })
}

fn list(cells: &[CatalogValue], item: &DataType) -> Result<ArrayRef> {
    macro_rules! numbers {
        ($type:ty) => {{
            let mut builder = ListBuilder::new(PrimitiveBuilder::<$type>::new());
            for cell in cells {
                if let CatalogValue::Ints(numbers) = cell {
                    for number in numbers {
                        builder.values().append_value(*number as _);
                    }
                }
                builder.append(matches!(cell, CatalogValue::Ints(_)));
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    Ok(match item {
        DataType::Int16 => numbers!(Int16Type),
        DataType::Int32 => numbers!(Int32Type),
        DataType::Utf8View => {
            let mut builder = ListBuilder::new(StringViewBuilder::new());
            for cell in cells {
                if let CatalogValue::Texts(texts) = cell {
                    for text in texts {
                        builder.values().append_value(text);
                    }
                }
                builder.append(matches!(cell, CatalogValue::Texts(_)));
            }
            Arc::new(builder.finish())
        }
        other => {
            let field = datafusion::arrow::datatypes::Field::new_list_field(other.clone(), true);
            new_null_array(&DataType::List(Arc::new(field)), cells.len())
        }
    })
}
