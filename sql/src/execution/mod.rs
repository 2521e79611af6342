//! Statements that change rows ([`dml`]), and statements on single rows by key that run without
//! DataFusion ([`row_executor`]), with the checks of their rows, and short queries of any form that
//! are compiled from kept plans ([`short_plans`]).

pub(crate) mod dml;
pub(crate) mod row_checks;
pub(crate) mod row_executor;
pub(crate) mod row_expressions;
pub(crate) mod row_rules;
pub(crate) mod row_values;
pub(crate) mod short_plans;
