//! The row executor: statements on one row by its whole key, or on the few rows of one table that a
//! key or a secondary index leads to ([`search`]) and their [`aggregates`], MIN and MAX of indexed
//! columns, and INSERTs of a few rows, compiled once and run on the engine without DataFusion.
//!
//! A statement is compiled from its syntax tree ([`compile`]) into a [`program`], for one version
//! of the catalog, one set of session settings and the types of its parameters. Statements outside
//! these forms are not compiled and take the full path.
//!
//! Invariants:
//! 1. The result is exactly the full path's. Unusual values and rows (an inexact cast, an overflow,
//!    a NULL or CHECK violation) are not decided here: the execution is [`Run::Undecided`], leaves
//!    nothing behind, and the full path runs the statement and words the error. Only the engine's
//!    own errors (duplicate keys, conflicts, deadlocks) come from here: they are the same on both
//!    paths.
//! 2. A compiled statement runs only in a transaction that uses the same catalog version it was
//!    compiled for; the engine's operations look once more.
//! 3. Under read committed a conflict undoes the statement and leaves it to the full path, which
//!    runs it again as often as it takes.

mod aggregates;
mod arithmetic;
mod compile;
mod compile_insert;
mod condition_values;
mod conditions;
mod constant;
mod ends;
mod execution;
mod find;
mod insert;
mod lookup;
mod modify;
mod program;
mod run;
mod scope;
mod search;
mod source;
mod value;

pub(crate) use constant::argument;
pub(crate) use execution::{Execution, Run};
pub(crate) use lookup::{Comparison, Lookup, OrderBy, SlotRef, Wanted, is_comparable};
pub(crate) use program::{Compiled, RowStatement};
pub(crate) use scope::Compiler;
