//! Comparisons of a column with a constant, and their evaluation against a column's bounds.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use strandline_base::{ColumnId, Value};

/// The smallest and the largest value, or bounds below and above them; None: unknown.
type Bounds<'b> = (&'b Option<Value>, &'b Option<Value>);

/// `column op value`; never true for a NULL column.
#[derive(Clone, Debug)]
pub struct ColumnPredicate {
    /// the column
    pub column: ColumnId,
    /// the comparison
    pub op: CompareOp,
    /// a value of the column's type
    pub value: Value,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// =
    Eq,
    /// <
    Lt,
    /// <=
    Le,
    /// >
    Gt,
    /// >=
    Ge,
}

impl ColumnPredicate {
    /// Whether some row of a block with these bounds may satisfy the predicate.
    pub(crate) fn may_hold(&self, bounds: Bounds<'_>) -> bool {
        // Without a bound, or with one that cannot be compared, the filter must decide.
        let (min, max) = self.order(bounds);
        match self.op {
            CompareOp::Eq => min != Some(Greater) && max != Some(Less),
            CompareOp::Lt => min.is_none_or(|m| m == Less),
            CompareOp::Le => min.is_none_or(|m| m == Less || m == Equal),
            CompareOp::Gt => max.is_none_or(|m| m == Greater),
            CompareOp::Ge => max.is_none_or(|m| m == Greater || m == Equal),
        }
    }

    /// Whether every row of a block without NULLs that has these bounds satisfies the predicate.
    pub(crate) fn always_holds(&self, bounds: Bounds<'_>) -> bool {
        let (min, max) = self.order(bounds);
        match self.op {
            CompareOp::Eq => min == Some(Equal) && max == Some(Equal),
            CompareOp::Lt => max == Some(Less),
            CompareOp::Le => matches!(max, Some(Less | Equal)),
            CompareOp::Gt => min == Some(Greater),
            CompareOp::Ge => matches!(min, Some(Greater | Equal)),
        }
    }

    /// The order of the bounds and the value; None: unknown.
    fn order(&self, (min, max): Bounds<'_>) -> (Option<Ordering>, Option<Ordering>) {
        let order = |bound: &Option<Value>| bound.as_ref()?.compare(&self.value);
        (order(min), order(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_say_no_more_than_the_rows_between_them() {
        let bound = |v: i64| Some(Value::BigInt(v));
        let ops = [
            CompareOp::Eq,
            CompareOp::Lt,
            CompareOp::Le,
            CompareOp::Gt,
            CompareOp::Ge,
        ];
        let holds = |op: CompareOp, row: i64, value: i64| match op {
            CompareOp::Eq => row == value,
            CompareOp::Lt => row < value,
            CompareOp::Le => row <= value,
            CompareOp::Gt => row > value,
            CompareOp::Ge => row >= value,
        };
        for (min, max, value) in (0..5).flat_map(|min| {
            (min..5).flat_map(move |max| (-1..6).map(move |value| (min, max, value)))
        }) {
            for op in ops {
                let predicate = ColumnPredicate {
                    column: ColumnId(0),
                    op,
                    value: Value::BigInt(value),
                };
                let bounds = (&bound(min), &bound(max));
                let any = (min..=max).any(|row| holds(op, row, value));
                let all = (min..=max).all(|row| holds(op, row, value));
                assert_eq!(predicate.may_hold(bounds), any, "{predicate:?} {bounds:?}");
                assert_eq!(
                    predicate.always_holds(bounds),
                    all,
                    "{predicate:?} {bounds:?}"
                );
                let unknown = (&None, &None);
                assert!(predicate.may_hold(unknown) && !predicate.always_holds(unknown));
            }
        }
    }
}
