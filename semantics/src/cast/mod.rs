//! Casts between SQL types, as PostgreSQL does them: strict, checked, with its rounding.
//!
//! | from → to | rule |
//! |---|---|
//! | text → any | the type's input function ([`super::text`]) |
//! | any → text | the type's output function, booleans as `true`/`false` |
//! | numeric → integer | rounds half away from zero, 22003 out of range |
//! | float → integer | rounds half to even, 22003 out of range |
//! | float → numeric | 15 (real: 6) significant digits, then as numeric → numeric |
//! | numeric → numeric(p,s) | rounds half away from zero, 22003 if it does not fit |
//! | text → varchar(n), char(n) | explicit: cut; assignment: 22001 unless only blanks are cut |
//! | integer ↔ boolean | explicit only |
//! | point → box | the box of zero size |
//! | box → point | explicit: the centre |
//!
//! Difference from PostgreSQL: all text expressions, not only literals, may be assigned to columns
//! of any type, because a plan does not distinguish a quoted literal from a text.
//!
//! Arrays are cast item by item, and by way of their text form ([`array_cast`]).
//!
//! [`kind`] lists the other casts; the rest is 42846. A cast is planned as DataFusion's own if that
//! is exact and cannot fail, because its optimizer can then see through it; else as [`CastTo`].

mod arrays;
mod convert;
mod deferred;
mod from_text;
mod function;
mod list_from_text;
mod target;

pub use arrays::array_cast;
pub use convert::cast_array;
pub use deferred::{CAST_AS, CastAs, as_cast};
pub use function::{CastTo, cast_expression, cast_scalar};
pub use list_from_text::list_from_text;
pub use target::{cast_target, literal_shape};

use super::decimal::Shape;
use super::error::from_arrow;
use super::types::{arrow_type, sql_type_of_arrow};
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::FormatOptions;
use strandline_base::SqlType;

/// Whether a cast was written by the user or comes from storing a value into a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `CAST(x AS t)`, `x::t`.
    Explicit,
    /// INSERT, UPDATE, COPY.
    Assignment,
}

/// Groups of types with the same casts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Boolean,
    Integer,
    Numeric,
    Float,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    Interval,
    Uuid,
    Json,
    Point,
    Box,
}

fn group(sql_type: SqlType) -> Group {
    match sql_type {
        SqlType::Boolean => Group::Boolean,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Group::Integer,
        SqlType::Numeric { .. } => Group::Numeric,
        SqlType::Real | SqlType::Double => Group::Float,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => Group::Text,
        SqlType::Bytea => Group::Bytea,
        SqlType::Date => Group::Date,
        SqlType::Time => Group::Time,
        SqlType::Timestamp | SqlType::TimestampTz => Group::Timestamp,
        SqlType::Interval => Group::Interval,
        SqlType::Uuid => Group::Uuid,
        SqlType::Json => Group::Json,
        SqlType::Point => Group::Point,
        SqlType::Box => Group::Box,
    }
}

/// The implementation of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value stays unchanged.
    Identity,
    /// Arrow's cast is exact and cannot fail.
    Native,
    /// [`cast_array`].
    Checked,
}

/// The implementation of the cast; `None` if there is no such cast in `mode` (42846, 42804).
pub fn kind(from: &DataType, to: SqlType, mode: Mode) -> Option<Kind> {
    use Group::{
        Boolean, Box, Bytea, Date, Float, Integer, Interval, Json, Numeric, Point, Text, Time,
        Timestamp, Uuid,
    };
    if *from == DataType::Null {
        return Some(Kind::Native);
    }
    let source = sql_type_of_arrow(from)?;
    let target = arrow_type(to);
    let bounded_text = matches!(to, SqlType::Varchar(_) | SqlType::Char(_));
    let (from_group, to_group) = (group(source), group(to));
    if *from == target && !bounded_text && to_group != Json {
        return Some(Kind::Identity);
    }
    let explicit = mode == Mode::Explicit;
    match (from_group, to_group) {
        (Text, Text) if !bounded_text => Some(Kind::Native),
        (Text, _) => Some(Kind::Checked),
        (_, Text) => Some(Kind::Checked),
        (Integer, Boolean) | (Boolean, Integer) => {
            let is_int4 = source == SqlType::Integer || to == SqlType::Integer;
            (explicit && is_int4).then_some(Kind::Checked)
        }
        (Integer | Numeric | Float, Integer | Numeric | Float) => Some(number_kind(from, to)),
        (Date, Timestamp) | (Timestamp, Timestamp) => Some(Kind::Native),
        (Timestamp, Date | Time) | (Date, Date) | (Time, Time) => Some(Kind::Checked),
        (Time, Interval) | (Interval, Interval) => Some(Kind::Checked),
        (Interval, Time) => Some(Kind::Checked),
        (Bytea, Bytea) => Some(Kind::Native),
        (Uuid, Uuid) | (Json, Json) | (Boolean, Boolean) => Some(Kind::Native),
        (Point, Box) => Some(Kind::Checked),
        (Box, Point) => explicit.then_some(Kind::Checked),
        (Bytea, Uuid) | (Uuid, Bytea) => None,
        _ => None,
    }
}

fn number_kind(from: &DataType, to: SqlType) -> Kind {
    let rank = |t: &DataType| match t {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Some(0),
        DataType::UInt16 | DataType::Int32 => Some(1),
        DataType::UInt32 | DataType::Int64 => Some(2),
        _ => None,
    };
    let target = arrow_type(to);
    if let (Some(a), Some(b)) = (rank(from), rank(&target)) {
        return if a <= b { Kind::Native } else { Kind::Checked };
    }
    if target.is_floating() {
        let exact = from.is_integer() || *from == DataType::Float32 || *from == DataType::Float16;
        return if exact { Kind::Native } else { Kind::Checked };
    }
    match (Shape::of(from), to) {
        (Some(source), SqlType::Numeric { precision, scale }) => {
            let target = Shape::new(precision, scale);
            let fits =
                source.scale <= target.scale && source.integer_digits() <= target.integer_digits();
            if fits { Kind::Native } else { Kind::Checked }
        }
        _ => Kind::Checked,
    }
}

/// Arrow's cast, with an error instead of NULL for values that do not fit.
pub fn strict_cast(array: &ArrayRef, target: &DataType) -> strandline_base::Result<ArrayRef> {
    let options = CastOptions {
        safe: false,
        format_options: FormatOptions::default(),
    };
    cast_with_options(array, target, &options).map_err(|error| from_arrow(&error))
}

#[cfg(test)]
mod tests;
