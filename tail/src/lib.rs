//! Where updates live until they are merged: append-only record pages, the row map, and
//! the protocols around them \[L-Store §2.2, §3.1, §3.2\]. A crate of its own because it knows
//! neither Arrow nor devices, so that a controlled scheduler can explore its interleavings.

pub mod column_set;
pub mod hops;
pub mod insert_range;
mod inserted_rows;
pub mod merged_through;
pub mod overlay;
pub mod page_memory;
pub mod patches;
pub mod range;
mod record_layout;
pub mod record_page;
mod record_words;
pub mod release;
pub mod retirement;
pub mod row_map;
pub mod schema;
mod shared_layouts;
mod spare_lines;
pub mod succession;
pub mod tail_pages;
mod tail_records;
pub mod tails_reader;
pub mod visibility;
