//! The in-memory store of updates until they are merged: append-only record pages, the row map, and
//! their protocols \[L-Store §2.2, §3.1, §3.2\]. A crate of its own because it knows neither Arrow
//! nor devices, so that a controlled scheduler can explore its interleavings.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `column_set`, `hops`, `merge_watermarks` | sets of columns; counted steps; moments of merges |
//! | `record_kind`, `record_words`, `succession` | kinds of records; their words; old bases |
//! | `record_layout`, `spare_lines` | the layout of records; cache lines of dropped pages |
//! | `page_memory`, `shared_layouts` | memory of pages; layouts that pages share |
//! | `schema`, `inserted_rows`, `tail_records`, `row_map` | columns; rows of pages; heads |
//! | `record_page` | pages of records |
//! | `change`, `claimed`, `patches`, `visibility` | changes; values by row; what readers see |
//! | `insert_range`, `tail_pages` | rows not merged yet; the pages of a tail |
//! | `tail` | the tail of an update range |
//! | `overlay`, `retirement` | settled records put together; tails and pages that go |
//! | `range` | a range and its versions |
//! | `consolidation`, `release`, `tails_reader` | overlays made; undone records freed; tails read |
//! | `write` | the write protocol |

pub mod change;
mod claimed;
pub mod column_set;
mod consolidation;
pub mod hops;
pub mod insert_range;
mod inserted_rows;
pub mod merge_watermarks;
pub mod overlay;
pub mod page_memory;
pub mod patches;
pub mod range;
mod record_kind;
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
pub mod tail;
pub mod tail_pages;
mod tail_records;
pub mod tails_reader;
pub mod visibility;
pub mod write;
