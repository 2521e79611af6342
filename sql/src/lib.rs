//! Strandline: SQL on the engine, through DataFusion. See ARCHITECTURE.md.
pub mod context;
pub mod copy;
pub mod dml;
pub mod semantics;
