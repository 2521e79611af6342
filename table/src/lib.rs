//! Lineage tables. See ARCHITECTURE.md.
pub mod chunk;
pub mod types;
pub mod update_run;
