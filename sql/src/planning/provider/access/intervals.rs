//! Sets of values of one column, as a condition leaves them: intervals, and perhaps NULL.
//!
//! Invariant: a set may hold more values than its condition lets through, never fewer. Readers of
//! an index apply the condition to the rows that they find.

use std::cmp::Ordering;
use std::ops::Bound;
use strandline_base::{SqlType, Value};
use strandline_engine::display::value_text;
use strandline_engine::{ColumnPredicate, CompareOp};

/// Two sets of so many intervals together are not intersected: one of them is kept.
const PAIRS_MAX: usize = 1 << 14;

/// Values between two bounds, in the order of `Value::compare`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    pub lower: Bound<Value>,
    pub upper: Bound<Value>,
}

/// A set of values of one column: disjoint intervals in ascending order, and perhaps NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    pub null: bool,
    pub values: Vec<Interval>,
}

impl Interval {
    const ALL: Self = Self {
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
    };

    /// The one value of the interval, if it has but one.
    pub fn point(&self) -> Option<&Value> {
        match (&self.lower, &self.upper) {
            (Bound::Included(a), Bound::Included(b)) if a.compare(b) == Some(Ordering::Equal) => {
                Some(a)
            }
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        let (Some(lower), Some(upper)) = (value_of(&self.lower), value_of(&self.upper)) else {
            return false;
        };
        let closed = matches!(
            (&self.lower, &self.upper),
            (Bound::Included(_), Bound::Included(_))
        );
        match lower.compare(upper) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => !closed,
            _ => false,
        }
    }

    fn intersected(&self, other: &Self) -> Self {
        let later = lower_order(&self.lower, &other.lower) == Ordering::Less;
        let earlier = upper_order(&self.upper, &other.upper) == Ordering::Greater;
        Self {
            lower: if later { &other.lower } else { &self.lower }.clone(),
            upper: if earlier { &other.upper } else { &self.upper }.clone(),
        }
    }
}

impl Intervals {
    /// NULL alone.
    pub fn null() -> Self {
        Self {
            null: true,
            values: Vec::new(),
        }
    }

    /// Every value but NULL.
    pub fn not_null() -> Self {
        Self::of(vec![Interval::ALL])
    }

    /// The values of `intervals`, which are in any order and may overlap.
    pub fn of(intervals: Vec<Interval>) -> Self {
        let mut values = intervals;
        values.retain(|interval| !interval.is_empty());
        values.sort_by(|a, b| lower_order(&a.lower, &b.lower));
        values.dedup_by(|next, last| {
            let joins = meets(&last.upper, &next.lower);
            if joins && upper_order(&last.upper, &next.upper) == Ordering::Less {
                last.upper = next.upper.clone();
            }
            joins
        });
        Self {
            null: false,
            values,
        }
    }

    /// The values for which a comparison holds.
    pub fn of_comparison(predicate: &ColumnPredicate) -> Self {
        let value = || predicate.value.clone();
        let (lower, upper) = match predicate.op {
            CompareOp::Eq => (Bound::Included(value()), Bound::Included(value())),
            CompareOp::Lt => (Bound::Unbounded, Bound::Excluded(value())),
            CompareOp::Le => (Bound::Unbounded, Bound::Included(value())),
            CompareOp::Gt => (Bound::Excluded(value()), Bound::Unbounded),
            CompareOp::Ge => (Bound::Included(value()), Bound::Unbounded),
        };
        Self::of(vec![Interval { lower, upper }])
    }

    /// The values in both sets, or one of the sets if they have too many intervals.
    pub fn intersected(&self, other: &Self) -> Self {
        self.common(other).unwrap_or_else(|| {
            let fewer = match self.values.len() <= other.values.len() {
                true => self,
                false => other,
            };
            Self {
                null: self.null && other.null,
                values: fewer.values.clone(),
            }
        })
    }

    /// The values in both sets; None: the sets have too many intervals.
    pub fn common(&self, other: &Self) -> Option<Self> {
        if self.values.len().saturating_mul(other.values.len()) > PAIRS_MAX {
            return None;
        }
        let pairs = self.values.iter().flat_map(|a| {
            let others = other.values.iter();
            others.map(move |b| a.intersected(b))
        });
        Some(Self {
            null: self.null && other.null,
            ..Self::of(pairs.collect())
        })
    }

    /// Whether all values of the set are in `other`, as far as is known.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut values = self.values.iter();
        (other.null || !self.null)
            && values.all(|own| {
                let mut others = other.values.iter();
                others.any(|other| {
                    lower_order(&other.lower, &own.lower) != Ordering::Greater
                        && upper_order(&other.upper, &own.upper) != Ordering::Less
                        && is_comparable(&other.lower, &own.lower)
                        && is_comparable(&other.upper, &own.upper)
                })
            })
    }

    /// The values that are in none of the intervals, without NULL.
    pub fn others(&self) -> Self {
        let mut lower = Bound::Unbounded;
        let mut values = Vec::with_capacity(self.values.len() + 1);
        for interval in &self.values {
            let upper = match &interval.lower {
                Bound::Included(value) => Some(Bound::Excluded(value.clone())),
                Bound::Excluded(value) => Some(Bound::Included(value.clone())),
                Bound::Unbounded => None,
            };
            values.extend(upper.map(|upper| Interval {
                lower: lower.clone(),
                upper,
            }));
            lower = match &interval.upper {
                Bound::Included(value) => Bound::Excluded(value.clone()),
                Bound::Excluded(value) => Bound::Included(value.clone()),
                Bound::Unbounded => return Self::of(values),
            };
        }
        values.push(Interval {
            lower,
            upper: Bound::Unbounded,
        });
        Self::of(values)
    }

    /// The values in either set.
    pub fn united(&self, other: &Self) -> Self {
        let values = self.values.iter().chain(&other.values).cloned();
        Self {
            null: self.null || other.null,
            ..Self::of(values.collect())
        }
    }

    /// The condition on `name`, a column of type `t`, as EXPLAIN shows it.
    pub fn text(&self, name: &str, t: SqlType) -> String {
        let shown = |value: &Value| match value {
            Value::Text(_) => format!("'{}'", value_text(t, value)),
            _ => value_text(t, value),
        };
        let mut parts = Vec::new();
        match self.values.as_slice() {
            several @ [_, _, ..] if several.iter().all(|i| i.point().is_some()) => {
                parts.push(format!("{name} IN ({} values)", several.len()));
            }
            several => parts.extend(several.iter().map(|i| interval_text(i, name, &shown))),
        }
        if self.null {
            parts.push(format!("{name} IS NULL"));
        }
        match parts.as_slice() {
            [] => format!("{name} has no value"),
            _ => parts.join(" OR "),
        }
    }
}

fn interval_text(interval: &Interval, name: &str, shown: &dyn Fn(&Value) -> String) -> String {
    if let Some(value) = interval.point() {
        return format!("{name} = {}", shown(value));
    }
    let lower = match &interval.lower {
        Bound::Included(v) => Some(format!("{name} >= {}", shown(v))),
        Bound::Excluded(v) => Some(format!("{name} > {}", shown(v))),
        Bound::Unbounded => None,
    };
    let upper = match &interval.upper {
        Bound::Included(v) => Some(format!("{name} <= {}", shown(v))),
        Bound::Excluded(v) => Some(format!("{name} < {}", shown(v))),
        Bound::Unbounded => None,
    };
    let sides: Vec<String> = lower.into_iter().chain(upper).collect();
    match sides.as_slice() {
        [] => format!("{name} IS NOT NULL"),
        _ => sides.join(" AND "),
    }
}

fn value_of(bound: &Bound<Value>) -> Option<&Value> {
    match bound {
        Bound::Included(v) | Bound::Excluded(v) => Some(v),
        Bound::Unbounded => None,
    }
}

/// Whether the order of two bounds is known.
fn is_comparable(a: &Bound<Value>, b: &Bound<Value>) -> bool {
    match (value_of(a), value_of(b)) {
        (Some(a), Some(b)) => a.compare(b).is_some(),
        _ => true,
    }
}

/// Values that do not compare stand beside each other: neither bound is the narrower one.
fn order(a: &Value, b: &Value) -> Ordering {
    a.compare(b).unwrap_or(Ordering::Equal)
}

/// The order of two bounds as lower ones.
fn lower_order(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(x), Bound::Excluded(y)) => order(x, y).then(Ordering::Less),
        (Bound::Excluded(x), Bound::Included(y)) => order(x, y).then(Ordering::Greater),
        (Bound::Included(x), Bound::Included(y)) | (Bound::Excluded(x), Bound::Excluded(y)) => {
            order(x, y)
        }
    }
}

/// The order of two bounds as upper ones.
fn upper_order(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(x), Bound::Excluded(y)) => order(x, y).then(Ordering::Greater),
        (Bound::Excluded(x), Bound::Included(y)) => order(x, y).then(Ordering::Less),
        (Bound::Included(x), Bound::Included(y)) | (Bound::Excluded(x), Bound::Excluded(y)) => {
            order(x, y)
        }
    }
}

/// Whether an interval that ends at `upper` and one that begins at `lower`, not before it, have
/// values in common or none between them.
fn meets(upper: &Bound<Value>, lower: &Bound<Value>) -> bool {
    let (Some(end), Some(begin)) = (value_of(upper), value_of(lower)) else {
        return true;
    };
    match order(begin, end) {
        Ordering::Less => true,
        Ordering::Equal => !matches!((upper, lower), (Bound::Excluded(_), Bound::Excluded(_))),
        Ordering::Greater => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(lower: i64, upper: i64) -> Interval {
        Interval {
            lower: Bound::Included(Value::BigInt(lower)),
            upper: Bound::Excluded(Value::BigInt(upper)),
        }
    }

    fn holds(set: &Intervals, value: i64) -> bool {
        let value = Value::BigInt(value);
        set.values.iter().any(|i| {
            let above = match &i.lower {
                Bound::Included(l) => order(l, &value) != Ordering::Greater,
                Bound::Excluded(l) => order(l, &value) == Ordering::Less,
                Bound::Unbounded => true,
            };
            let below = match &i.upper {
                Bound::Included(u) => order(u, &value) != Ordering::Less,
                Bound::Excluded(u) => order(u, &value) == Ordering::Greater,
                Bound::Unbounded => true,
            };
            above && below
        })
    }

    /// All sets that comparisons and their unions and intersections make of a few numbers.
    fn sets() -> Vec<Intervals> {
        let ops = [
            CompareOp::Eq,
            CompareOp::Lt,
            CompareOp::Le,
            CompareOp::Gt,
            CompareOp::Ge,
        ];
        let of = |op, value| {
            Intervals::of_comparison(&ColumnPredicate {
                column: strandline_base::ColumnId(0),
                op,
                value: Value::BigInt(value),
            })
        };
        let ones = ops.iter().flat_map(|op| (1..4).map(move |v| of(*op, v)));
        ones.chain([Intervals::not_null(), Intervals::of(Vec::new())])
            .collect()
    }

    #[test]
    fn unions_and_intersections_hold_the_values_of_both_or_either() {
        let sets = sets();
        for a in &sets {
            for b in &sets {
                let (both, either) = (a.intersected(b), a.united(b));
                assert!(both.is_within(a) && a.is_within(&either), "{a:?}, {b:?}");
                if a.is_within(b) {
                    let outside = (0..5).find(|v| holds(a, *v) && !holds(b, *v));
                    assert_eq!(outside, None, "{a:?} in {b:?}");
                }
                for value in 0..5 {
                    let (in_a, in_b) = (holds(a, value), holds(b, value));
                    assert_eq!(holds(&both, value), in_a && in_b, "{a:?} and {b:?}");
                    assert_eq!(holds(&either, value), in_a || in_b, "{a:?} or {b:?}");
                }
            }
        }
    }

    #[test]
    fn others_are_all_values_outside() {
        for set in sets() {
            for value in 0..5 {
                assert_ne!(
                    holds(&set, value),
                    holds(&set.others(), value),
                    "{set:?}, {value}"
                );
            }
        }
    }

    #[test]
    fn intervals_that_meet_become_one() {
        let set = Intervals::of(vec![interval(5, 9), interval(1, 3), interval(3, 5)]);
        assert_eq!(set.values, [interval(1, 9)]);
        let apart = Intervals::of(vec![interval(5, 9), interval(1, 3), interval(7, 7)]);
        assert_eq!(apart.values, [interval(1, 3), interval(5, 9)]);
    }

    #[test]
    fn null_is_in_a_set_by_itself() {
        let both = Intervals::null().united(&Intervals::not_null());
        assert!(both.null && !both.values.is_empty());
        assert_eq!(both.intersected(&Intervals::null()), Intervals::null());
        assert_eq!(
            Intervals::null().intersected(&Intervals::not_null()),
            Intervals::of(Vec::new())
        );
    }
}
