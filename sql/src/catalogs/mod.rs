//! The system tables that SQL shows: `information_schema`, `pg_catalog` with its functions, and the
//! counters of `strandline_stats()` and `strandline_tiers()`. They read the engine's catalog and
//! the registry of backends.

pub(crate) mod information_schema;
pub(crate) mod lookup;
pub(crate) mod pg_catalog;
pub(crate) mod statistics;
pub(crate) mod tiers;

/// The name of the schema of `information_schema`.
const INFORMATION_SCHEMA: &str = "information_schema";
