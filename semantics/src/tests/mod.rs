//! SQL-level tests, one module per topic. Expected values are PostgreSQL 15's unless a comment
//! names a documented difference.

mod aggregates;
mod arithmetic;
mod functions;
mod literals;
mod planning;
