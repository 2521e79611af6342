//! Lineage tables: immutable compressed base chunks, append-only tails, the merge, and scans into
//! Arrow \[L-Store §2–§4\]. See ARCHITECTURE.md for the picture.

pub mod base;
pub mod chunk;
pub mod column_buffer;
pub mod data_file;
pub mod fold;
pub mod history;
pub mod insert_range;
pub mod lineage;
pub mod load;
pub mod merge;
pub mod pending;
pub mod range;
pub mod read;
pub mod record_page;
pub mod row_map;
pub mod row_meta;
pub mod scan;
pub mod schema;
pub mod tail;
pub mod types;
pub mod update_run;
pub mod visibility;
pub mod write;
