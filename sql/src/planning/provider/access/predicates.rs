//! Partial indexes: whether a scan's conditions let through only rows that an index has.
//!
//! Each conjunct of the index's predicate must follow from the conditions. It does if
//! * it is one of the conditions, in canonical form ([`super::terms`]);
//! * or it is true for all values of columns that the conditions let through;
//! * or it is `… IS NOT NULL`, and a condition cannot be true where that is NULL.
//!
//! Invariant: of the conditions too many values may be known, of a conjunct never ([`exact`]).
//!
//! [`exact`]: super::condition::exact

use super::condition::Conjunction;
use super::terms::{Conjunct, Predicate, analyzed, bare, physical};
use crate::planning::expressions::Role;
use crate::planning::provider::table_schema::condition_schema;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexDef;

/// The conditions that hold for the rows of a scan.
pub struct Given<'a> {
    values: &'a Conjunction,
    /// in canonical form
    conjuncts: Vec<Expr>,
}

impl<'a> Given<'a> {
    /// `filters` hold, and `values` follow from them.
    pub fn of(filters: &[Expr], values: &'a Conjunction) -> Self {
        let conjuncts = filters.iter().flat_map(split_conjunction);
        Self {
            values,
            conjuncts: conjuncts.map(bare).collect(),
        }
    }

    /// Whether `predicate` is true for every row.
    pub fn implies(&self, predicate: &Predicate) -> bool {
        let mut wanted = predicate.conjuncts.iter();
        wanted.all(|wanted| self.has(&wanted.canonical) || self.is_known(wanted))
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

    /// Whether a conjunct is true for all values that the conditions let through.
    fn is_known(&self, wanted: &Conjunct) -> bool {
        let Some(wanted) = &wanted.values else {
            return false;
        };
        wanted.iter().all(|(column, values)| {
            let known = self.values.columns.get(column);
            known.is_some_and(|known| known.is_within(values))
        })
    }
}

/// Whether `expr` is certainly NULL where `part` is NULL.
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
            Expr::Like(Like { expr, .. }) | Expr::Between(Between { expr, .. }) => of(expr),
            // NOT IN of nothing is true.
            Expr::InList(InList { expr, list, .. }) => !list.is_empty() && of(expr),
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
    let Some(predicate) = &index.predicate else {
        return Ok(true);
    };
    let schema = Arc::new(condition_schema(table)?);
    let predicate = Predicate::of(predicate, table, &schema, state)?;
    let condition = analyzed(condition.clone(), Role::Condition, &schema, state)?;
    let mut values = Conjunction::default();
    values.add_physical(&physical(&condition, &schema, state)?, table);
    Ok(Given::of(&[condition], &values).implies(&predicate))
}
