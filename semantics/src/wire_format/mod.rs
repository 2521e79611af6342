//! Values as PostgreSQL's protocol carries them: types by number, and every column in the text
//! form of the type's output function and the binary form of its send function.
//!
//! Columns are written straight from Arrow arrays into the bytes of a message ([`ColumnWriter`]),
//! without a value in between. Parameters are read into scalars ([`read_parameter`]).

mod array;
mod read;
mod types;
mod write;

pub use crate::text::utf8;
pub use array::read_array_parameter;
pub use datafusion::scalar::ScalarValue as Scalar;
pub use read::read_parameter;
pub use types::{ColumnType, array_oid_of, item_type_of_oid, sql_type_of_oid};
pub use write::{ColumnWriter, storable_form};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// as the type's output function prints it
    Text,
    /// as the type's send function packs it
    Binary,
}

/// Days from 1970-01-01, where Arrow counts from, to 2000-01-01, where PostgreSQL does.
const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
const EPOCH_US: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

#[cfg(test)]
mod tests;
