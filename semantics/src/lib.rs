//! PostgreSQL's types, casts, operators, functions, aggregates and wire formats for DataFusion.
//! It is independent of the storage engine: it uses DataFusion, the values of `base` and the Arrow
//! types of `column`.
//!
//! * [`sql`]: rewrites parsed statements; callers apply it before planning.
//! * [`types`], [`text`], [`cast`]: SQL types in plans, their text form, casts between them.
//! * [`operators`], [`arithmetic`], [`align`]: operators, literals without a type.
//! * [`functions`], [`aggregates`]: functions that DataFusion lacks or computes differently.
//! * [`rules`]: analyzer and optimizer rules for the parts above.
//! * [`set_operations`]: gives UNION, INTERSECT and EXCEPT their types when they are planned.
//! * [`error`]: passes our errors through DataFusion, and words DataFusion's errors as
//!   PostgreSQL's.
//! * [`column_builder`]: Arrow columns from text and from PostgreSQL's binary forms.
//! * [`wire_format`]: values in PostgreSQL's protocol.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | contents |
//! |---|---|
//! | `decimal`, `numeric_send` | shapes of numerics, their binary form |
//! | `output_names` | distinct names of result columns |
//! | `error` | our errors through DataFusion and back |
//! | `types`, `calendar` | SQL types in plans; days, months and years |
//! | `text` | the text form of every type |
//! | `arithmetic` | arithmetic that checks and rounds as PostgreSQL's |
//! | `geometry` | predicates and measures of points and boxes |
//! | `cast` | casts |
//! | `column_builder` | columns from text and binary values |
//! | `wire_format` | values in PostgreSQL's protocol |
//! | `functions`, `aggregates` | functions that DataFusion lacks or computes differently |
//! | `align` | operands brought to types that belong together |
//! | `rules` | analyzer and optimizer rules |
//! | `operators`, `set_operations` | operators and set operations while they are planned |
//! | `sql` | rewriting of parsed statements |
//!
//! Operators, functions, types and rules use DataFusion's public hooks; [`configure`] adds them to
//! a session state that was built with [`session_config`].

pub mod aggregates;
pub mod align;
pub mod arithmetic;
pub mod calendar;
pub mod cast;
pub mod column_builder;
pub mod decimal;
pub mod error;
pub mod functions;
pub mod geometry;
mod numeric_send;
pub mod operators;
mod output_names;
pub mod rules;
pub mod set_operations;
pub mod sql;
pub mod text;
pub mod types;
pub mod wire_format;

use datafusion::catalog::TableFunction;
use datafusion::common::config::{Dialect, SqlParserOptions};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::SessionConfig;
use functions::series::{GenerateSeries, NAME};
use std::sync::Arc;

/// DataFusion's options with which plans follow PostgreSQL: dialect, exact decimal literals, NULL
/// ordering, UTC. Callers add their own options (batch size, catalog names).
pub fn session_config() -> SessionConfig {
    let mut config = SessionConfig::new();
    let options = config.options_mut();
    options.sql_parser = SqlParserOptions {
        dialect: Dialect::PostgreSQL,
        parse_float_as_decimal: true,
        default_null_ordering: "nulls_max".to_string(),
        ..SqlParserOptions::default()
    };
    // The check would fail on nullability alone: `x IS FALSE` is never NULL, but its physical plan
    // is nullable.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.execution.time_zone = Some(types::UTC.to_string());
    config
}

/// Adds DataFusion's default functions and rules, and all parts of this crate over them. Call it
/// once, on a builder without default features. The builder's own parts are kept.
pub fn configure(builder: SessionStateBuilder) -> SessionStateBuilder {
    let mut builder = builder.with_default_features();
    let planners = builder.expr_planners().take().unwrap_or_default();
    let own: Arc<dyn ExprPlanner> = Arc::new(operators::OperatorPlanner);
    let scalars = builder.scalar_functions().get_or_insert_with(Vec::new);
    scalars.extend(functions::functions());
    scalars.extend(arithmetic::functions());
    scalars.push(Arc::new(ScalarUDF::from(cast::CastAs::default())));
    builder
        .aggregate_functions()
        .get_or_insert_with(Vec::new)
        .extend(aggregates::functions());
    let series = TableFunction::new(NAME.to_string(), Arc::new(GenerateSeries));
    builder
        .table_functions()
        .get_or_insert_with(Default::default)
        .insert(NAME.to_string(), Arc::new(series));
    let analyzer = builder.analyzer().get_or_insert_with(Default::default);
    analyzer.rules.insert(0, Arc::new(rules::ResolveLiterals));
    analyzer
        .rules
        .insert(0, Arc::new(rules::ColumnsOfGroupingSets));
    analyzer.rules.insert(0, Arc::new(rules::RequireOrders));
    analyzer.rules.push(Arc::new(rules::Casts));
    let optimizer = builder.optimizer().get_or_insert_with(Default::default);
    rules::replace(&mut optimizer.rules);
    let before_pushdown = optimizer
        .rules
        .iter()
        .position(|r| r.name() == "push_down_filter");
    optimizer
        .rules
        .insert(before_pushdown.unwrap_or(0), Arc::new(rules::CompareDates));
    optimizer.rules.push(Arc::new(rules::UnsignZeros));
    optimizer.rules.push(Arc::new(rules::KeysBelow));
    optimizer.rules.push(Arc::new(rules::GuardFallible));
    rules::hide_false_keys(&mut optimizer.rules);
    builder
        .with_relation_planners(vec![
            Arc::new(rules::KeylessRelations),
            Arc::new(set_operations::Typed),
        ])
        .with_expr_planners(std::iter::once(own).chain(planners).collect())
        .with_type_planner(Arc::new(types::SqlTypePlanner))
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
