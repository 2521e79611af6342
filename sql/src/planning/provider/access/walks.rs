//! Walks over an index in the order of its keys, or by the distance from a point, for readers that
//! want the first rows of an order.

use super::Access;
use super::intervals::Intervals;
use datafusion::arrow::compute::SortOptions;
use std::ops::Bound;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, RowId, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::{IndexDef, IndexId, IndexPart};
use strandline_engine::display::value_text;
use strandline_engine::{
    CoveredColumns, Direction, EntryWatch, IndexRows, KeyBytes, KeyRange, NearestEntries, RowKeys,
    SpatialIndex, Statement,
};

/// A walk over a part of an index.
pub struct Walk {
    table: Arc<TableDef>,
    index: IndexId,
    way: Way,
    /// what EXPLAIN shows of it
    pub text: String,
    /// rows with NULL, which come last in the order, have no entries
    pub omits_nulls: bool,
    /// whether the entries have the values of what the scan reads, and of the key
    pub is_covering: bool,
}

/// The entries of a walk, in their order.
enum Way {
    Keys(KeyRange, Direction),
    /// those nearest to a point first
    Nearest([f64; 2]),
}

/// The entries of a walk that has begun.
pub enum WalkEntries {
    Keys(IndexRows),
    Nearest(NearestEntries),
}

impl WalkEntries {
    /// For rows that are read as of `ts`.
    pub fn at(self, ts: CommitTs) -> Self {
        match self {
            Self::Keys(entries) => Self::Keys(entries.as_of(ts)),
            nearest => nearest,
        }
    }

    /// Appends up to `at_most` further entries to `out`; whether there may be more.
    pub fn next_chunk(&mut self, at_most: usize, out: &mut Vec<(KeyBytes, RowId)>) -> Result<bool> {
        match self {
            Self::Keys(entries) => entries.next_chunk(at_most, out),
            Self::Nearest(entries) => entries.next_chunk(at_most, out),
        }
    }

    /// Whether the entries under `key` may not be in the wanted order: a key that is cut, or a
    /// place with NaN, whose distance by the operator may be infinite.
    pub fn is_unordered(&self, key: &KeyBytes) -> bool {
        match self {
            Self::Keys(_) => key.is_cut(),
            Self::Nearest(_) => SpatialIndex::rect(key).is_ok_and(|rect| {
                let mut coordinates = rect.low().into_iter().chain(rect.high());
                coordinates.any(f64::is_nan)
            }),
        }
    }
}

impl Walk {
    /// Begins the walk: its entries, and what computes the keys of rows. None: the index has been
    /// dropped.
    pub fn entries(&self, statement: &Statement) -> Result<Option<(WalkEntries, RowKeys)>> {
        if !statement.has_index(&self.table, self.index) {
            return Ok(None);
        }
        let (table, index) = (&self.table, self.index);
        let entries = match &self.way {
            Way::Keys(range, direction) => {
                WalkEntries::Keys(statement.index_cursor(table, index, range, *direction)?)
            }
            Way::Nearest(point) => {
                WalkEntries::Nearest(statement.nearest_entries(table, index, *point)?)
            }
        };
        Ok(Some((entries, statement.row_keys(table, index)?)))
    }
}

/// A term that rows are ordered by.
#[derive(Clone, Copy, Debug)]
pub struct OrderedTerm {
    pub term: ColumnId,
    pub options: SortOptions,
    /// rows with NULL in it are not wanted
    pub skips_null: bool,
}

impl Walk {
    /// Where entries of the rows of `table` have `columns`, and a watch over the index; None: they
    /// do not have them all.
    pub fn covering(
        &self,
        statement: &Statement,
        table: &TableDef,
        columns: &[ColumnId],
    ) -> Result<Option<(CoveredColumns, EntryWatch)>> {
        let index = self.table.index(self.index).filter(|_| self.is_covering);
        let covered = index.and_then(|index| CoveredColumns::of(table, index, columns));
        match covered {
            Some(covered) => {
                let watch = statement.watch_entries(&self.table, self.index)?;
                Ok(Some((covered, watch)))
            }
            None => Ok(None),
        }
    }
}

impl Access {
    /// A walk that comes to the rows of the scan in this order, which has a term at least.
    pub fn walk(&self, order: &[OrderedTerm]) -> Result<Option<Walk>> {
        let indexes = self.ordered();
        let found = indexes.filter_map(|index| Some((index, self.order_of(index, order)?)));
        // The more parts are equal, the fewer entries are walked over in vain.
        let best = found.max_by_key(|(index, (fixed, _))| (*fixed, self.covers_walk(index)));
        match best {
            Some((index, (fixed, direction))) => {
                self.walk_of(index, fixed, direction, order).map(Some)
            }
            None => Ok(None),
        }
    }

    /// A walk that comes to the rows of the scan by the distance of a term from `point`; rows in
    /// which the term is NULL do not come. None also if the point is not finite: the index then
    /// orders otherwise than `<->`, of which the difference of two infinities is NaN.
    pub fn nearest(&self, term: ColumnId, point: &Value) -> Option<Walk> {
        let Value::Point(at) = point else {
            return None;
        };
        if !at.coordinates().iter().all(|at| at.is_finite()) {
            return None;
        }
        let column = self.terms.columns().column_by_id(term)?;
        let index = self.over_place(term)?;
        let name = self.terms.text(term);
        let shown = value_text(SqlType::Point, point);
        Some(Walk {
            table: self.indexed.clone(),
            index: index.id,
            way: Way::Nearest(at.coordinates()),
            text: format!("{} (order {name} <-> {shown})", index.name),
            omits_nulls: !column.not_null,
            is_covering: false,
        })
    }

    /// Whether the entries of an index have the values of what the scan reads, and of the key, by
    /// which a row is compared with its entry.
    fn covers_walk(&self, index: &IndexDef) -> bool {
        let mut read = self.read.clone();
        for column in index.key_columns() {
            if !read.contains(&column) {
                read.push(column);
            }
        }
        CoveredColumns::of(&self.table, index, &read).is_some()
    }

    /// How many leading parts of `index` are equal in all rows, and the direction in which the
    /// next ones have the order.
    fn order_of(&self, index: &IndexDef, order: &[OrderedTerm]) -> Option<(usize, Direction)> {
        let first = order.first()?;
        let parts = &index.parts;
        let fixed = parts
            .iter()
            .position(|part| self.terms.id_of(part) == Some(first.term))?;
        let (equal, rest) = parts.split_at_checked(fixed)?;
        if rest.len() < order.len() || !equal.iter().all(|part| self.only_value(part).is_some()) {
            return None;
        }
        let mut directions = rest
            .iter()
            .zip(order)
            .map(|(part, wanted)| self.direction_of(part, wanted));
        let direction = directions.next()??;
        directions
            .all(|other| other == Some(direction))
            .then_some((fixed, direction))
    }

    /// The direction in which a part has the wanted order.
    fn direction_of(&self, part: &IndexPart, wanted: &OrderedTerm) -> Option<Direction> {
        let column = self.terms.columns().column_by_id(wanted.term)?;
        let known = self.condition.columns.get(&wanted.term);
        let has_null = !column.not_null && !wanted.skips_null && known.is_none_or(|k| k.null);
        let SortOptions {
            descending,
            nulls_first,
        } = wanted.options;
        let same_nulls = nulls_first == part.nulls_first;
        let is_forward = descending == part.descending;
        let fits = !has_null || same_nulls == is_forward;
        let direction = match is_forward {
            true => Direction::Forward,
            false => Direction::Backward,
        };
        (fits && self.terms.id_of(part) == Some(wanted.term)).then_some(direction)
    }

    /// The one value that a part has in all rows of the scan.
    fn only_value(&self, part: &IndexPart) -> Option<Value> {
        let values = self.condition.columns.get(&self.terms.id_of(part)?)?;
        match (values.null, values.values.as_slice()) {
            (true, []) => Some(Value::Null),
            (false, [one]) => one.point().cloned(),
            _ => None,
        }
    }

    fn walk_of(
        &self,
        index: &IndexDef,
        fixed: usize,
        direction: Direction,
        order: &[OrderedTerm],
    ) -> Result<Walk> {
        let keys = self.statement.index_keys(&self.indexed, index.id)?;
        let equal: Vec<Value> = index
            .parts
            .iter()
            .take(fixed)
            .filter_map(|part| self.only_value(part))
            .collect();
        let next = index.parts.get(fixed).zip(order.first());
        let range = next.and_then(|(part, first)| {
            let known = self.condition.columns.get(&first.term);
            let known = known
                .cloned()
                .or(first.skips_null.then(Intervals::not_null))?;
            let is_wanted = !known.null || first.skips_null;
            let (lower, upper) = is_wanted.then(|| hull(&known))?;
            Some(match part.descending {
                false => keys.range(&equal, lower.as_ref(), upper.as_ref()),
                true => keys.range(&equal, upper.as_ref(), lower.as_ref()),
            })
        });
        let names = order.iter().map(|wanted| {
            let name = self.terms.text(wanted.term);
            let suffix = if wanted.options.descending {
                " DESC"
            } else {
                ""
            };
            format!("{name}{suffix}")
        });
        let names: Vec<String> = names.collect();
        Ok(Walk {
            table: self.indexed.clone(),
            index: index.id,
            way: Way::Keys(range.unwrap_or_else(|| keys.prefix(&equal)), direction),
            text: format!("{} (order {})", index.name, names.join(", ")),
            omits_nulls: false,
            is_covering: self.covers_walk(index),
        })
    }

    /// So many entries are at most worth walking over for the first `rows` rows of an order; None:
    /// the rows are found at less cost in another way.
    pub fn walk_limit(&self, rows: usize) -> Option<usize> {
        let limit = match &self.planned {
            Some(planned) if planned.rows.len() <= rows.saturating_mul(WALKED_PER_ROW) => {
                return None;
            }
            Some(planned) => planned.rows.len(),
            None => self.limit,
        };
        (rows <= limit).then_some(limit)
    }
}

/// For one of an order's first rows a walk passes over so many entries at most before candidates
/// are fetched and sorted instead, if there are no more of these.
const WALKED_PER_ROW: usize = 4;

/// From the least to the greatest value.
fn hull(values: &Intervals) -> (Bound<Value>, Bound<Value>) {
    match (values.values.first(), values.values.last()) {
        (Some(first), Some(last)) => (first.lower.clone(), last.upper.clone()),
        _ => (Bound::Unbounded, Bound::Unbounded),
    }
}
