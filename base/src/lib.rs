//! Identifiers, values, errors, checksums, clock and randomness shared by every layer.
//!
//! Nothing in this crate touches a device, a thread or the wall clock except through the traits
//! it defines, so that a seeded simulation can replace all of them.

pub mod append_list;
pub mod bytes;
pub mod cell;
pub mod checksum;
pub mod clock;
pub mod error;
pub mod ids;
pub mod rng;
pub mod sync;
pub mod utc;
pub mod value;
pub mod value_words;

pub use append_list::AppendList;
pub use checksum::{Checksum, checksum};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result, SqlState};
pub use ids::{
    BLOCK_ROWS, ColumnId, CommitTs, RANGE_ROWS, RangeNo, RowId, StorageId, TableId, UPDATE_RANGES,
    UPDATE_ROWS,
};
pub use value::{Interval, SqlType, Value};
