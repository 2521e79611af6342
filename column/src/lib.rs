//! Columns of values as Arrow arrays, as encoded chunks, and as bytes: pure functions over memory.
//!
//! The crate knows no device, no cache and no transaction, so that every codec can be tested, and
//! damaged, in isolation. [`types`] maps SQL types to Arrow and single values, [`chunk`] encodes
//! one column of one range, [`buffer`] turns cells of record pages into arrays and patches arrays,
//! and [`row_bytes`] measures rows.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | contents |
//! |---|---|
//! | `row_bytes`, `types`, `word_patches` | bytes of rows; types and values; new words for rows |
//! | `buffer`, `chunk` | arrays from cells; columns of ranges in their file format |

pub mod buffer;
pub mod chunk;
pub mod row_bytes;
pub mod types;
pub mod word_patches;
