//! From sets of values to ranges of an index's keys.

use super::intervals::{Interval, Intervals};
use super::terms::Terms;
use std::collections::BTreeMap;
use strandline_base::{ColumnId, Value};
use strandline_engine::catalog::index::{IndexDef, IndexPart};
use strandline_engine::{KeyRange, OrderedKeys};

/// A scan asks for so many ranges of an index at most: of the parts after, it makes no use.
const RANGES_MAX: usize = 4096;

/// The ranges of an index that hold the keys of all rows that a scan may give.
pub struct IndexRanges {
    /// in no order
    pub ranges: Vec<KeyRange>,
    /// the terms that the ranges restrict
    pub columns: Vec<ColumnId>,
}

impl IndexRanges {
    /// The ranges of `index` for rows whose terms have `values`; None: the index's first part is
    /// not restricted.
    pub fn new(
        index: &IndexDef,
        keys: &OrderedKeys,
        terms: &Terms,
        values: &BTreeMap<ColumnId, Intervals>,
    ) -> Option<Self> {
        let mut prefixes = vec![Vec::new()];
        let mut columns = Vec::new();
        for part in &index.parts {
            let restricted = terms
                .id_of(part)
                .and_then(|id| Some((id, values.get(&id)?)));
            let Some((id, values)) = restricted else {
                break;
            };
            let several = values.values.len() + usize::from(values.null);
            if prefixes.len().saturating_mul(several) > RANGES_MAX {
                break;
            }
            columns.push(id);
            if !values.values.iter().all(|i| i.point().is_some()) {
                let ranges = prefixes.iter().flat_map(|prefix| {
                    let inside = values.values.iter();
                    let inside = inside.map(|i| range_of(keys, prefix, i, part.descending));
                    let null = values
                        .null
                        .then(|| keys.prefix(&with(prefix, &Value::Null)));
                    inside.chain(null)
                });
                let ranges = ranges.collect();
                return Some(Self { ranges, columns });
            }
            let points = values.values.iter().filter_map(Interval::point);
            let points: Vec<&Value> = points.chain(values.null.then_some(&Value::Null)).collect();
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| points.iter().map(|value| with(prefix, value)))
                .collect();
        }
        let ranges = prefixes.iter().map(|prefix| keys.prefix(prefix)).collect();
        (!columns.is_empty()).then_some(Self { ranges, columns })
    }
}

/// What is known of `columns`, as EXPLAIN shows it.
pub fn text_of(
    columns: &[ColumnId],
    terms: &Terms,
    values: &BTreeMap<ColumnId, Intervals>,
) -> String {
    let columns = columns.iter().filter_map(|id| {
        let column = terms.columns().column_by_id(*id)?;
        Some(values.get(id)?.text(terms.text(*id), column.sql_type))
    });
    columns.collect::<Vec<_>>().join(" AND ")
}

/// `prefix` and one value more.
pub fn with(prefix: &[Value], value: &Value) -> Vec<Value> {
    let mut longer = Vec::with_capacity(prefix.len() + 1);
    longer.extend_from_slice(prefix);
    longer.push(value.clone());
    longer
}

/// The keys that begin with `prefix` and whose next part, descending or not, lies in `interval`.
fn range_of(
    keys: &OrderedKeys,
    prefix: &[Value],
    interval: &Interval,
    descending: bool,
) -> KeyRange {
    let (lower, upper) = (interval.lower.as_ref(), interval.upper.as_ref());
    match descending {
        false => keys.range(prefix, lower, upper),
        true => keys.range(prefix, upper, lower),
    }
}

/// How many leading parts of `index` have known values.
pub fn parts_restricted(
    index: &IndexDef,
    terms: &Terms,
    values: &BTreeMap<ColumnId, Intervals>,
) -> usize {
    let is_known = |part: &&IndexPart| terms.id_of(part).is_some_and(|id| values.contains_key(&id));
    index.parts.iter().take_while(is_known).count()
}
