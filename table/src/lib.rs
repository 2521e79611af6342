//! Lineage tables: immutable compressed base chunks, append-only tails, the merge, and scans into
//! Arrow \[L-Store §2–§4\]. See ARCHITECTURE.md for the picture.

mod append;
pub mod base;
pub mod changes;
pub mod consolidation;
pub mod fold;
pub mod history;
pub mod horizon;
pub mod image;
pub mod lineage;
pub mod load;
pub mod merge;
pub mod merged;
pub mod pending;
pub mod range;
pub mod read;
pub mod release;
pub mod row_block;
pub mod row_meta;
pub mod scan;
pub mod update_run;
pub mod versions;
pub mod write;
