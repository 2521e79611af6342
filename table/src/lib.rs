//! Kinds of tables. One so far: lineage tables, of immutable compressed base chunks, append-only
//! tails, the merge, and scans into Arrow \[L-Store §2–§4\]. See ARCHITECTURE.md for the picture.

pub mod lineage;
pub mod update_run;
