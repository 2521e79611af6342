//! The values for which a [`Test`] of WHERE holds, known when the statement runs. `None`: the
//! statement takes the full path.

use super::conditions::{Condition, Limit, RowTest, Test};
use super::execution::Execution;
use super::source::{Datum, Source};
use super::value::{Comparand, assigned, comparand, scalar_of};
use crate::values::like_prefix;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::scalar::ScalarValue;
use std::cmp::Ordering;
use std::ops::Bound;
use strandline_base::{SqlType, Value};
use strandline_semantics::text::array::{Item, items};

/// The values for which a test holds. NULL is none of them.
#[derive(Debug)]
pub(super) enum Values {
    /// ascending, each once
    Points(Vec<Value>),
    Within(Bound<Value>, Bound<Value>),
}

impl Values {
    /// Whether the test holds for a value.
    pub fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Points(points) => points
                .iter()
                .any(|point| point.compare(value) == Some(Ordering::Equal)),
            Self::Within(lower, upper) => {
                let above = match lower {
                    Bound::Unbounded => !value.is_null(),
                    Bound::Included(l) => value.compare(l).is_some_and(Ordering::is_ge),
                    Bound::Excluded(l) => value.compare(l).is_some_and(Ordering::is_gt),
                };
                above
                    && match upper {
                        Bound::Unbounded => !value.is_null(),
                        Bound::Included(u) => value.compare(u).is_some_and(Ordering::is_le),
                        Bound::Excluded(u) => value.compare(u).is_some_and(Ordering::is_lt),
                    }
            }
        }
    }

    /// Whether it holds for no value.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Points(points) if points.is_empty())
    }
}

impl Execution<'_> {
    /// The values for which a test holds.
    pub(super) fn values_of(&self, test: &Test) -> Option<Values> {
        let t = test.sql_type;
        let value = |source: &Source| match comparand(&self.datum(source)?, t)? {
            Comparand::Value(value) => Some(Some(value)),
            Comparand::Never => Some(None),
        };
        let points = match &test.condition {
            Condition::Equal(source) => value(source)?.into_iter().collect(),
            Condition::Same(source) => match self.datum(source)?.value.is_null() {
                // The rows with NULL have no key.
                true => return None,
                false => value(source)?.into_iter().collect(),
            },
            Condition::In(list) => {
                let mut points = Vec::with_capacity(list.len());
                for source in list {
                    points.extend(value(source)?);
                }
                ascending(points)
            }
            Condition::Any(array, item) => ascending(self.points_of(array, *item, t)?),
            Condition::Like { pattern, is_whole } => match value(pattern)? {
                Some(Value::Text(pattern)) => return like(&pattern, *is_whole),
                Some(_) => return None,
                None => Vec::new(),
            },
            Condition::Within { lower, upper } => {
                let mut never = false;
                let mut bound = |limit: &Option<Limit>| {
                    let Some(limit) = limit else {
                        return Some(Bound::Unbounded);
                    };
                    let datum = self.datum(&limit.source)?;
                    match comparand(&datum, t)? {
                        Comparand::Value(value) if limit.inclusive => Some(Bound::Included(value)),
                        Comparand::Value(value) => Some(Bound::Excluded(value)),
                        Comparand::Never if datum.value.is_null() => {
                            never = true;
                            Some(Bound::Unbounded)
                        }
                        // Of a value that no row has, the place among the others is not known here.
                        Comparand::Never => None,
                    }
                };
                let (lower, upper) = (bound(lower)?, bound(upper)?);
                if !never && !is_empty(&lower, &upper) {
                    return Some(Values::Within(lower, upper));
                }
                Vec::new()
            }
        };
        Some(Values::Points(points))
    }

    /// The values of a column of type `t` that an array of items of type `item` has.
    fn points_of(&self, array: &Source, item: SqlType, t: SqlType) -> Option<Vec<Value>> {
        let array = match array {
            // Its declared type is that of the items; its value is the array's text.
            Source::Parameter(index, ..) => self.values.get(*index)?,
            Source::Literal(text) => text,
            _ => return None,
        };
        let mut points = Vec::new();
        for value in items_of(array)? {
            let mut datum = Datum { value, known: None };
            if item != t && !datum.value.is_null() && datum.value.data_type().is_string() {
                let typed = assigned(&datum, item)?;
                datum = Datum {
                    value: scalar_of(&typed, item),
                    known: Some(item),
                };
            }
            if let Comparand::Value(value) = comparand(&datum, t)? {
                points.push(value);
            }
        }
        Some(points)
    }

    /// The constants of a row test.
    pub(super) fn row_bound(&self, test: &RowTest) -> Option<RowBound> {
        let values = test
            .sources
            .iter()
            .zip(&test.columns)
            .map(|(source, (_, t))| {
                let datum = self.datum(source)?;
                match comparand(&datum, *t)? {
                    Comparand::Value(value) => Some(value),
                    Comparand::Never if datum.value.is_null() => Some(Value::Null),
                    // As for the bounds of one column.
                    Comparand::Never => None,
                }
            });
        Some(RowBound {
            values: values.collect::<Option<_>>()?,
            is_lower: test.is_lower,
            inclusive: test.inclusive,
        })
    }
}

/// The texts that a pattern may match; None: they are not those of a range, and must be if the
/// range `is_whole`.
fn like(pattern: &str, is_whole: bool) -> Option<Values> {
    let text = |text: String| Value::Text(text.into());
    let found = like_prefix::bounds(pattern);
    if is_whole {
        let (from, end) = found?;
        return match &pattern[from.len()..] {
            "" => {
                let only = text(from);
                Some(Values::Within(
                    Bound::Included(only.clone()),
                    Bound::Included(only),
                ))
            }
            "%" => {
                let (from, end) = (Bound::Included(text(from)), Bound::Excluded(text(end?)));
                Some(Values::Within(from, end))
            }
            _ => None,
        };
    }
    let (from, end) = found.map_or((None, None), |(from, end)| (Some(from), end));
    let from = from.map_or(Bound::Unbounded, |from| Bound::Included(text(from)));
    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(text(end)));
    Some(Values::Within(from, end))
}

/// What rows are compared with.
#[derive(Debug)]
pub(super) struct RowBound {
    pub values: Vec<Value>,
    /// rows are greater
    pub is_lower: bool,
    pub inclusive: bool,
}

impl RowBound {
    /// Whether the comparison holds for a row, of which the values of the columns are given. The
    /// first pair of values that differ decides; a NULL before it leaves the comparison unknown.
    pub fn holds<'v>(&self, row: impl Iterator<Item = &'v Value>) -> bool {
        for (value, bound) in row.zip(&self.values) {
            match value.compare(bound) {
                _ if value.is_null() || bound.is_null() => return false,
                Some(Ordering::Equal) => {}
                Some(order) => return (order == Ordering::Greater) == self.is_lower,
                None => return false,
            }
        }
        self.inclusive
    }

    /// The values before the first NULL.
    pub fn known(&self) -> &[Value] {
        let end = self.values.iter().position(Value::is_null);
        &self.values[..end.unwrap_or(self.values.len())]
    }
}

/// Whether no value is within the bounds.
fn is_empty(lower: &Bound<Value>, upper: &Bound<Value>) -> bool {
    let (Bound::Included(l) | Bound::Excluded(l), Bound::Included(u) | Bound::Excluded(u)) =
        (lower, upper)
    else {
        return false;
    };
    let is_closed = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
    match l.compare(u) {
        Some(Ordering::Less) => false,
        Some(Ordering::Equal) => !is_closed,
        _ => true,
    }
}

fn ascending(mut points: Vec<Value>) -> Vec<Value> {
    let order = |a: &Value, b: &Value| a.compare(b).unwrap_or(Ordering::Equal);
    points.sort_by(order);
    points.dedup_by(|a, b| order(a, b) == Ordering::Equal);
    points
}

/// The items of an array, which as a client's parameter is its text.
fn items_of(array: &ScalarValue) -> Option<Vec<ScalarValue>> {
    let of = |items: &ArrayRef| {
        let item = |at| ScalarValue::try_from_array(items, at).ok();
        (0..items.len()).map(item).collect::<Option<Vec<_>>>()
    };
    match array {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            let items = items(text).ok()?.into_iter().map(|item| match item {
                Item::Null => Some(ScalarValue::Null),
                Item::Text(text) => Some(ScalarValue::Utf8(Some(text))),
                Item::Array(_) => None,
            });
            items.collect()
        }
        ScalarValue::List(list) if list.len() == 1 && !list.is_null(0) => of(&list.value(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_within_no_bounds() {
        let values = Values::Within(Bound::Unbounded, Bound::Excluded(Value::Integer(3)));
        assert!(values.holds(&Value::Integer(2)));
        assert!(!values.holds(&Value::Integer(3)) && !values.holds(&Value::Null));
        let all = Values::Within(Bound::Unbounded, Bound::Unbounded);
        assert!(!all.holds(&Value::Null));
    }

    #[test]
    fn the_first_pair_that_differs_decides_a_comparison_of_rows() {
        let number = |v: i32| match v {
            0 => Value::Null,
            v => Value::Integer(v),
        };
        let holds = |row: [i32; 2], bound: [i32; 2], is_lower, inclusive| {
            let bound = RowBound {
                values: bound.map(number).to_vec(),
                is_lower,
                inclusive,
            };
            bound.holds(row.map(number).iter())
        };
        assert!(holds([2, 1], [1, 9], true, false) && !holds([2, 1], [1, 9], false, false));
        assert!(holds([1, 2], [1, 1], true, false) && !holds([1, 1], [1, 1], true, false));
        assert!(holds([1, 1], [1, 1], true, true) && holds([1, 1], [1, 1], false, true));
        assert!(
            holds([2, 0], [1, 1], true, false),
            "the second pair is not asked"
        );
        assert!(holds([2, 1], [1, 0], true, false));
        assert!(!holds([1, 0], [1, 1], true, true) && !holds([1, 0], [1, 1], false, true));
        assert!(!holds([0, 5], [1, 1], true, true) && !holds([5, 5], [0, 1], true, true));
    }

    #[test]
    fn an_array_is_read_from_its_text() {
        let items = |text: &str| items_of(&ScalarValue::from(text));
        let one = |text: &str| ScalarValue::from(text);
        assert_eq!(
            items("{1,NULL,\"a b\"}"),
            Some(vec![one("1"), ScalarValue::Null, one("a b")])
        );
        assert_eq!(items("{}"), Some(Vec::new()));
        assert_eq!(items("{{1}}"), None);
        assert_eq!(items("1"), None);
    }
}
