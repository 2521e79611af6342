//! The values for which a [`Test`] of WHERE holds, known when the statement runs. `None`: the
//! statement takes the full path.

use super::conditions::{Condition, Limit, Test};
use super::execution::Execution;
use super::source::{Datum, Source};
use super::value::{Comparand, comparand};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::scalar::ScalarValue;
use std::cmp::Ordering;
use std::ops::Bound;
use strandline_base::Value;
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
            Condition::In(list) => {
                let mut points = Vec::with_capacity(list.len());
                for source in list {
                    points.extend(value(source)?);
                }
                ascending(points)
            }
            Condition::Any(parameter) => {
                let mut points = Vec::new();
                for item in items_of(self.values.get(*parameter)?)? {
                    let datum = Datum {
                        value: item,
                        known: None,
                    };
                    if let Comparand::Value(value) = comparand(&datum, t)? {
                        points.push(value);
                    }
                }
                ascending(points)
            }
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
