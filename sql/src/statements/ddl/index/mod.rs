//! DROP INDEX.

mod drop;

pub use drop::drop;
