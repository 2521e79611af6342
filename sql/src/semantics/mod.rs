//! CONTRACT (helper `sql-semantics` owns this folder).
#![allow(unused_variables, clippy::todo)]
use datafusion::execution::session_state::SessionStateBuilder;

/// Adds everything that makes DataFusion compute as PostgreSQL does: checked arithmetic, SUM/AVG
/// types, casts, functions, analyzer rules.
pub fn configure(builder: SessionStateBuilder) -> SessionStateBuilder {
    todo!()
}
