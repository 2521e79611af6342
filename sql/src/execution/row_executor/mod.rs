//! The row executor: statements on one row by its whole key, or on the few rows of one table that a
//! key or a secondary index leads to ([`search`]) and their [`aggregates`], MIN and MAX of indexed
//! columns, row locks, and INSERTs of a few rows, compiled once and run on the engine without
//! DataFusion's plans.
//!
//! A statement is compiled from its syntax tree ([`compile`]) into a [`program`], for one version
//! of the catalog, one set of session settings and the types of its parameters. Statements outside
//! these forms are not compiled and take the full path. Columns, constants and simple arithmetic
//! are compiled from the syntax tree too. All other expressions go through DataFusion's planner
//! once ([`compile_expressions`]) and are evaluated by its code over small batches
//! ([`expressions`]).
//!
//! Invariants:
//! 1. The result is exactly the full path's. Unusual values and rows (an inexact cast, an overflow,
//!    a NULL or CHECK violation, an expression that fails) are not decided here: the execution is
//!    [`Run::Undecided`], leaves nothing behind, and the full path runs the statement and words the
//!    error. Only the engine's own errors (duplicate keys, conflicts, deadlocks, locks not
//!    available) come from here: they are the same on both paths.
//! 2. A compiled statement runs only in a transaction that uses the same catalog version it was
//!    compiled for; the engine's operations look once more.
//! 3. Under read committed a write by key applies to the newest version. A conflict of another
//!    statement undoes it, and it runs again with a new snapshot: here as long as there is a
//!    savepoint and the tries last, then on the full path.
//! 4. A compiled statement holds nothing of the transaction that it was compiled in.

mod aggregates;
mod arithmetic;
mod column_defaults;
mod compile;
mod compile_expressions;
mod compile_insert;
mod condition_values;
mod conditions;
mod constant;
mod ends;
mod execution;
mod expressions;
mod find;
mod found_rows;
mod insert;
mod lookup;
mod modify;
mod paths;
mod planner;
mod program;
mod projection;
mod run;
mod scope;
mod search;
mod sets;
mod source;
mod subqueries;
mod value;

pub(crate) use constant::argument;
pub(crate) use execution::{Execution, Run};
pub(crate) use found_rows::ROW_ID;
pub(crate) use lookup::{Comparison, Lookup, OrderBy, SlotRef, Wanted};
pub(crate) use planner::Planner;
pub(crate) use program::{Compiled, RowStatement};
pub(crate) use scope::Compiler;
pub(crate) use value::is_comparable;
