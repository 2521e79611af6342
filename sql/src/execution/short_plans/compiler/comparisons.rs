//! Conditions that an access path can stand for: comparisons of one column with constants.

use super::Compiler;
use crate::execution::row_executor::{Comparison, SlotRef, is_comparable};
use crate::execution::short_plans::run::Expression;
use crate::planning::provider::filter::is_lossless;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use strandline_base::{ColumnId, SqlType};

/// A comparison, and what is computed for it before.
pub(super) struct Compared {
    pub column: Column,
    pub comparison: Comparison,
    pub computed: Vec<(usize, Expression)>,
}

/// The comparisons of a table's columns, at most one a column.
#[derive(Default)]
pub(super) struct Comparisons {
    pub found: Vec<(ColumnId, Comparison)>,
    pub computed: Vec<(usize, Expression)>,
}

impl Comparisons {
    /// Adds a comparison of a column of type `t`; false if a search cannot make it.
    pub fn add(
        &mut self,
        (column, t): (ColumnId, SqlType),
        comparison: Comparison,
        computed: Vec<(usize, Expression)>,
    ) -> bool {
        let mut slots = comparison.slots().into_iter();
        if !slots.all(|slot| is_comparable(t, slot.sql_type)) {
            return false;
        }
        let known = self.found.iter_mut().find(|(known, _)| *known == column);
        let is_added = match known.map(|(_, known)| known) {
            None => {
                self.found.push((column, comparison));
                true
            }
            Some(known) => merge(known, comparison),
        };
        if is_added {
            self.computed.extend(computed);
        }
        is_added
    }
}

/// Adds bounds to bounds of the other side.
fn merge(known: &mut Comparison, other: Comparison) -> bool {
    let (
        Comparison::Within { lower, upper },
        Comparison::Within {
            lower: other_lower,
            upper: other_upper,
        },
    ) = (known, other)
    else {
        return false;
    };
    let has_both_lower = lower.is_some() && other_lower.is_some();
    let has_both_upper = upper.is_some() && other_upper.is_some();
    if has_both_lower || has_both_upper {
        return false;
    }
    *lower = lower.or(other_lower);
    *upper = upper.or(other_upper);
    true
}

/// The column that an expression is, with nothing but lossless casts around it.
pub(super) fn column_of<'e>(expr: &'e Expr, schema: &DFSchema) -> Option<&'e Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) => {
            let from = cast.expr.get_type(schema).ok()?;
            match is_lossless(&from, cast.field.data_type()) {
                true => column_of(&cast.expr, schema),
                false => None,
            }
        }
        _ => None,
    }
}

impl Compiler<'_> {
    /// The comparison that a condition over the columns of `schema` is.
    pub(super) fn comparison(&mut self, expr: &Expr, schema: &DFSchema) -> Option<Compared> {
        let mut computed = Vec::new();
        let (column, comparison) = match expr {
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Or, ..
            }) => {
                let mut alternatives = Vec::new();
                let column = self.alternatives(expr, schema, &mut alternatives, &mut computed)?;
                (column, Comparison::In(alternatives))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match column_of(left, schema) {
                Some(column) => {
                    let slot = self.slot(right, &mut computed)?;
                    (column, compared(*op, slot)?)
                }
                None => {
                    let column = column_of(right, schema)?;
                    let slot = self.slot(left, &mut computed)?;
                    (column, compared(op.swap()?, slot)?)
                }
            },
            Expr::InList(InList {
                expr,
                list,
                negated: false,
            }) => {
                let column = column_of(expr, schema)?;
                let slots = list.iter().map(|item| self.slot(item, &mut computed));
                (column, Comparison::In(slots.collect::<Option<_>>()?))
            }
            Expr::Between(Between {
                expr,
                negated: false,
                low,
                high,
            }) => {
                let column = column_of(expr, schema)?;
                let lower = (self.slot(low, &mut computed)?, true);
                let upper = (self.slot(high, &mut computed)?, true);
                let within = Comparison::Within {
                    lower: Some(lower),
                    upper: Some(upper),
                };
                (column, within)
            }
            _ => return None,
        };
        Some(Compared {
            column: column.clone(),
            comparison,
            computed,
        })
    }

    /// Adds what `condition` implies, without standing for it.
    pub(super) fn add_implied(
        &mut self,
        condition: &Expr,
        schema: &DFSchema,
        column: impl Fn(&str) -> Option<(ColumnId, SqlType)>,
        comparisons: &mut Comparisons,
    ) {
        for part in implied(condition) {
            let compared = self.comparison(part, schema);
            if let Some(compared) = compared
                && let Some(column) = column(&compared.column.name)
            {
                comparisons.add(column, compared.comparison, compared.computed);
            }
        }
    }

    fn slot(&mut self, expr: &Expr, computed: &mut Vec<(usize, Expression)>) -> Option<SlotRef> {
        let (slot, expression) = self.constant_slot(expr)?;
        computed.extend(expression.map(|expression| (slot.at, expression)));
        Some(slot)
    }

    /// The one column of `c = a OR c = b`, and the slots of its values.
    fn alternatives<'e>(
        &mut self,
        expr: &'e Expr,
        schema: &DFSchema,
        slots: &mut Vec<SlotRef>,
        computed: &mut Vec<(usize, Expression)>,
    ) -> Option<&'e Column> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
            return None;
        };
        match op {
            Operator::Or => {
                let column = self.alternatives(left, schema, slots, computed)?;
                let other = self.alternatives(right, schema, slots, computed)?;
                (column == other).then_some(column)
            }
            Operator::Eq => {
                let (column, value) = match column_of(left, schema) {
                    Some(column) => (column, right),
                    None => (column_of(right, schema)?, left),
                };
                slots.push(self.slot(value, computed)?);
                Some(column)
            }
            _ => None,
        }
    }
}

/// The conditions that must hold for a guarded AND to hold (`semantics/src/rules/guards.rs`): `s`
/// and `f` of `CASE WHEN s THEN f::int8 ELSE 0 END = 1`.
fn implied(condition: &Expr) -> Vec<&Expr> {
    let is = |expr: &Expr, flag: i8| match expr {
        Expr::Literal(value, _) => *value == ScalarValue::Int8(Some(flag)),
        _ => false,
    };
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return Vec::new();
    };
    if *op != Operator::Eq || !is(right, 1) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut flag = left.as_ref();
    while let Expr::Case(case) = flag {
        let otherwise = case.else_expr.as_deref();
        let [(when, then)] = case.when_then_expr.as_slice() else {
            return found;
        };
        if case.expr.is_some() || !otherwise.is_some_and(|otherwise| is(otherwise, 0)) {
            return found;
        }
        found.extend(split_conjunction(when));
        flag = then;
    }
    if let Expr::Cast(cast) = flag
        && *cast.field.data_type() == DataType::Int8
    {
        found.extend(split_conjunction(&cast.expr));
    }
    found
}

fn compared(op: Operator, slot: SlotRef) -> Option<Comparison> {
    let (lower, upper) = match op {
        Operator::Eq => return Some(Comparison::Equal(slot)),
        Operator::Gt => (Some((slot, false)), None),
        Operator::GtEq => (Some((slot, true)), None),
        Operator::Lt => (None, Some((slot, false))),
        Operator::LtEq => (None, Some((slot, true))),
        _ => return None,
    };
    Some(Comparison::Within { lower, upper })
}
