//! Everything that a name in FROM can stand for, as DataFusion's table providers: tables that scan
//! the engine or ask its indexes, the versions of their rows, files, a row's history, and a
//! session's registered tables.

pub mod access;
pub mod files;
pub mod filter;
pub mod history;
pub mod registered;
pub mod scan;
pub mod selectivity;
pub mod statistics;
pub mod table;
pub mod table_schema;
pub mod value_rows;
pub mod versions;
