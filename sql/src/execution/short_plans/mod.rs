//! Short plans: the row executor's queries of several tables, with subqueries, expressions, groups
//! and set operations, and the changes of the rows that these give.
//!
//! A [`ShortPlan`] is compiled once from the optimized logical plan of a statement that is kept
//! ([`compiler`]), in which parameters are [`slots`]. It is a small tree of [`operators`], each of
//! which gives all its rows as one batch, and runs on the session's thread without a plan of
//! DataFusion. Tables are read by keys and indexes ([`Lookup`]), or as a whole if they are small.
//! The one table of a change is scanned if it is not large. A join runs its inner side once per
//! outer row, with the row's keys in slots. Expressions are DataFusion's, compiled, so that they
//! have one implementation.
//!
//! Invariants:
//! 1. The result is the full path's up to the order of rows that ORDER BY leaves open. An error of
//!    an expression is not reported from here: the run is undecided, and the full path words the
//!    error. Only the engine's own errors and cancellations come from here.
//! 2. A run takes at most [`run::ROWS_MAX`] rows from tables, and an operator that meets more stops
//!    the run. The session undoes what a stopped run has changed. A plan that stops more often than
//!    it finishes is not used any more.
//! 3. A plan is valid for one catalog, one state of the settings and the types of its parameters,
//!    as the kept plan that it belongs to. It holds no statement and no snapshot.
//! 4. Slots are empty while a plan is compiled, and reading an empty slot fails: DataFusion takes
//!    what it can evaluate while it compiles an expression for a constant.
//! 5. An access path finds all rows for which the conditions that it stands for hold. Conditions
//!    that it stands for exactly are not evaluated again.
//! 6. Changes are applied by [`dml::Change`](crate::execution::dml::Change), the full path's code,
//!    which also words violations of constraints. A change that would run an action of a foreign
//!    key has no short plan.
//!
//! [`Lookup`]: crate::execution::row_executor::Lookup

mod compiler;
mod node;
mod operators;
mod plan;
mod run;
mod slots;

pub(crate) use compiler::{Surroundings, compile};
pub(crate) use plan::{Answer, Inputs, ShortPlan};
