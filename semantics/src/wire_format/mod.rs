//! Values in PostgreSQL's protocol: type numbers, and every column in the text form of the type's
//! output function and the binary form of its send function.
//!
//! Columns are written directly from Arrow arrays into the bytes of a message ([`ColumnWriter`]),
//! without intermediate values. Parameters are read into scalars ([`read_parameter`]).

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

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// the form of the type's output function
    Text,
    /// the form of the type's send function
    Binary,
}

/// Days from 1970-01-01, Arrow's epoch, to 2000-01-01, PostgreSQL's epoch.
const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
const EPOCH_US: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

#[cfg(test)]
mod tests;
