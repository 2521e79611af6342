//! The database as DataFusion sees it: a catalog bound to one statement's snapshot, tables that
//! scan the engine or ask its indexes, the versions of their rows, views, files, a row's history,
//! and a session's registered tables.

pub mod access;
pub mod catalog;
pub mod files;
pub mod filter;
pub mod history;
pub mod registered;
pub mod scan;
pub mod selectivity;
pub mod statistics;
pub mod table;
pub mod value_rows;
pub mod versions;
