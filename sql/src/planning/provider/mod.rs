//! DataFusion's table providers for the items of FROM: tables that scan the engine or search its
//! indexes, versions of their rows, files, a row's history, a session's registered tables, and rows
//! that a part of a statement has returned.

pub mod access;
pub mod files;
pub mod filter;
pub mod history;
pub mod registered;
pub mod returned_rows;
pub mod scan;
pub mod selectivity;
pub mod statistics;
pub mod table;
pub mod table_schema;
pub mod value_rows;
pub mod versions;
