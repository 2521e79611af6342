//! Partial indexes: whether a scan's conditions let through only rows that an index has.
//!
//! Each conjunct of the index's predicate must follow from the conditions:
//! * it is one of them, in canonical form ([`super::terms`]);
//! * or the values that they let through of the columns are values for which it is true;
//! * or it says that something is not NULL, and a condition is not true if that is NULL.

use super::condition::{Conjunction, exact};
use super::terms::{analyzed, bare};
use crate::parse;
use crate::planning::expressions::Role;
use crate::planning::provider::table_schema::condition_schema;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::create_physical_expr;
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexDef;
use strandline_semantics::error::convert;

/// What is known of the rows of a scan.
pub struct Given<'a> {
    values: &'a Conjunction,
    /// in canonical form
    conjuncts: Vec<Expr>,
}

impl<'a> Given<'a> {
    /// `filters` hold, from which `values` follow.
    pub fn of(filters: &[Expr], values: &'a Conjunction) -> Self {
        let conjuncts = filters.iter().flat_map(split_conjunction);
        Self {
            values,
            conjuncts: conjuncts.map(bare).collect(),
        }
    }

    /// Whether every row has an entry in `index`, which is `table`'s.
    pub fn implies(
        &self,
        index: &IndexDef,
        table: &TableDef,
        state: &SessionState,
    ) -> Result<bool> {
        let Some(predicate) = &index.predicate else {
            return Ok(true);
        };
        // To plan the predicate costs more than to look at its columns.
        let is_read = |name: &str| {
            let mut conjuncts = self.conjuncts.iter();
            conjuncts.any(|given| given.column_refs().iter().any(|column| column.name == name))
        };
        let columns = predicate.columns.iter();
        let mut columns = columns.filter_map(|id| table.column_by_id(*id));
        if !columns.all(|column| is_read(&column.name)) {
            return Ok(false);
        }
        let schema = Arc::new(condition_schema(table)?);
        let wanted = analyzed(
            parse::expression(&predicate.sql)?,
            Role::Condition,
            &schema,
            state,
        )?;
        for conjunct in split_conjunction(&wanted) {
            if self.has(&bare(conjunct)) {
                continue;
            }
            let props = state.execution_props();
            let context = PhysicalPlanningContext::default();
            let physical = create_physical_expr(conjunct, &schema, props, &context);
            let Some(wanted) = exact(&physical.map_err(convert)?, table) else {
                return Ok(false);
            };
            let is_known = wanted.iter().all(|(column, values)| {
                let known = self.values.columns.get(column);
                known.is_some_and(|known| known.is_within(values))
            });
            if !is_known {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a condition in canonical form is among the conjuncts, or is `… IS NOT NULL` and
    /// follows from one of them.
    fn has(&self, wanted: &Expr) -> bool {
        let mut given = self.conjuncts.iter();
        match wanted {
            Expr::IsNotNull(part) => {
                given.any(|given| given == wanted || is_null_with(given, part))
            }
            _ => given.any(|given| given == wanted),
        }
    }
}

/// Whether `expr` is NULL wherever `part` is, as far as is known.
fn is_null_with(expr: &Expr, part: &Expr) -> bool {
    let of = |inner: &Expr| is_null_with(inner, part);
    expr == part
        || match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => false,
                Operator::Or => of(left) && of(right),
                op if is_strict(*op) => of(left) || of(right),
                _ => false,
            },
            Expr::Not(inner) | Expr::Negative(inner) => of(inner),
            Expr::Cast(cast) => of(&cast.expr),
            Expr::Like(Like { expr, .. })
            | Expr::Between(Between { expr, .. })
            | Expr::InList(InList { expr, .. }) => of(expr),
            _ => false,
        }
}

/// Whether an operator gives NULL if an operand is NULL.
fn is_strict(op: Operator) -> bool {
    use Operator as O;
    op.is_numerical_operators()
        || matches!(
            op,
            O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::StringConcat
        )
}

/// Whether every row for which `condition`, planned over `table`, is true has an entry in `index`.
pub fn is_implied_by(
    index: &IndexDef,
    table: &TableDef,
    condition: &ast::Expr,
    state: &SessionState,
) -> Result<bool> {
    let schema = Arc::new(condition_schema(table)?);
    let condition = analyzed(condition.clone(), Role::Condition, &schema, state)?;
    let props = state.execution_props();
    let context = PhysicalPlanningContext::default();
    let physical = create_physical_expr(&condition, &schema, props, &context).map_err(convert)?;
    let mut values = Conjunction::default();
    values.add_physical(&physical, table);
    Given::of(&[condition], &values).implies(index, table, state)
}
