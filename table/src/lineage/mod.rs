//! Lineage tables \[L-Store §2–§4\], room by room:
//!
//! | room | what enters, what leaves |
//! |---|---|
//! | [`base`] | a range's immutable state: insert range or chunks, row metadata, blocks |
//! | [`history`] | records of update runs: versions that base no longer holds; what runs write |
//! | [`write`] | updates, deletes, locks, inserts and loads of rows: records under a start word |
//! | [`read`] | a row id and a snapshot: values; a row id: all its versions |
//! | [`scan`] | a range and a snapshot: Arrow arrays, also of all versions in an interval |
//! | [`merge`] | a range and a moment: new base state, written and published |
//!
//! [`Lineage`] itself, the list of ranges and runs that all rooms but `base` share, is in
//! `storage`. A room imports only rooms above it in the table. [`image`] lays a range open for
//! inspection.

pub mod base;
pub mod consolidation;
pub mod history;
pub mod horizon;
pub mod image;
pub mod merge;
pub mod range;
pub mod read;
pub mod scan;
mod storage;
pub mod write;

pub use storage::{BasedRange, Lineage, Shared};
