//! Identifiers, values, errors, checksums, clock and randomness shared by every layer.
//!
//! Nothing in this crate touches a device, a thread or the wall clock except through the traits
//! it defines, so that a seeded simulation can replace all of them. Ids of databases (`unique_id`)
//! are drawn from the operating system: only whether two of them are equal matters.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `sync`, `bytes`, `calendar`, `checksum`, `clock`, `ids`, `rng`, `unique_id` | import none |
//! | `append_list`, `error`, `geometry` | a list read while it grows; errors; points and boxes |
//! | `value` | types and single values |
//! | `value_text` | the text of single values |
//! | `utc` | moments as text for messages |
//! | `value_words` | values as words of 64 bits |
//! | `cell` | values in cells of one word that threads share |

pub mod append_list;
pub mod bytes;
pub mod calendar;
pub mod cell;
pub mod checksum;
pub mod clock;
pub mod error;
pub mod geometry;
pub mod ids;
pub mod rng;
pub mod sync;
pub mod unique_id;
pub mod utc;
pub mod value;
pub mod value_text;
pub mod value_words;

pub use append_list::AppendList;
pub use checksum::{Checksum, checksum};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, ErrorSubject, Result, SqlState};
pub use geometry::{BoxCorners, Point};
pub use ids::{
    BLOCK_ROWS, ColumnId, CommitTs, RANGE_ROWS, RangeNo, RowId, StorageId, TableId, UPDATE_RANGES,
    UPDATE_ROWS,
};
pub use value::{Interval, SqlType, Value};
