//! Harnesses of the tests that see the whole database; the tests themselves are in `tests/`.

pub mod differential;
pub mod pg_types;
pub mod slt;
pub mod tpch;
