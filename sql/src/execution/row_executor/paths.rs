//! Access paths of a search, and the choice of one, by definitions only.

use super::conditions::{Condition, RowTest, Test};
use super::source::Source;
use super::value::{is_integer, is_key_type};
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::{
    IndexDef, IndexId, IndexMethod, IndexPart, IndexState, IndexValue,
};
use strandline_engine::{CoveredColumns, Direction, OrderedKeys, PartOrder};

/// Values of a key's columns.
#[derive(Debug)]
pub(super) struct KeyPath {
    /// index into `TableDef::keys`
    pub key: usize,
    /// per column of the key its test
    pub parts: Vec<usize>,
    /// which of these tests is of a range of integers
    pub range: Option<usize>,
    /// Some: the numbers of the range are gone through in this direction
    pub walk: Option<Direction>,
}

/// Ranges of an index.
#[derive(Debug)]
pub(super) struct IndexPath {
    pub index: IndexId,
    pub keys: OrderedKeys,
    /// tests of the first parts, whose values are points
    pub points: Vec<usize>,
    /// of the part after these
    pub next: Next,
    /// whether that part is descending
    pub next_descending: bool,
    /// the row test that narrows the range of that part and of parts after it, and of how many
    pub row: Option<(usize, usize)>,
    /// Some: the entries are walked over in this direction, in which they have the order wanted
    pub walk: Option<Direction>,
    /// so many columns of the order wanted the walk has
    pub ordered: usize,
    /// places of the index's columns among those read, for a walk
    pub key_places: Vec<usize>,
    /// Some: entries have the values of all columns read
    pub covered: Option<CoveredColumns>,
}

/// The part after those with known values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// any value
    Open,
    NotNull,
    /// what a test lets through
    Test(usize),
}

/// LIMIT and OFFSET.
#[derive(Clone, Debug, Default)]
pub(super) struct Slice {
    pub limit: Option<Source>,
    pub offset: Option<Source>,
}

/// A column of an ORDER BY.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderColumn {
    pub column: ColumnId,
    pub order: PartOrder,
    /// rows with NULL in the column may be left out
    pub skips_null: bool,
}

/// What a search has to find.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked<'a> {
    pub tests: Vec<Test>,
    pub rows: Vec<RowTest>,
    pub order: Vec<OrderColumn>,
    pub slice: Slice,
    /// the columns asked for
    pub wanted: &'a [ColumnId],
}

/// The place of a column among those read, one of which it becomes.
pub(super) fn place<C: PartialEq>(reads: &mut Vec<C>, column: C) -> usize {
    let known = reads.iter().position(|read| *read == column);
    known.unwrap_or_else(|| {
        reads.push(column);
        reads.len() - 1
    })
}

/// The rank of a path: the greatest is taken.
type Rank = (usize, bool, bool, Walks);

/// How much of the order wanted a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Walks {
    No,
    InPart,
    InFull,
}

/// The path by an index.
pub(super) fn index_path(
    table: &TableDef,
    asked: &Asked<'_>,
    reads: &mut Vec<ColumnId>,
) -> Option<IndexPath> {
    let indexes = table.readable_indexes().filter(|index| {
        index.state == IndexState::Valid && index.method == IndexMethod::Ordered && index.is_plain()
    });
    let paths = indexes.flat_map(|index| {
        let walk = walk_of(table, index, asked);
        // All rows in order are no short plan.
        let walk = walk.filter(|_| !asked.tests.is_empty() || asked.slice.limit.is_some());
        let walk = walk.map(|(rank, path)| (rank, index.as_ref(), path));
        let ranges = ranges_of(index, asked);
        walk.into_iter()
            .chain(ranges.map(|(rank, path)| (rank, index.as_ref(), path)))
    });
    let (_, index, mut path) = paths.max_by_key(|(rank, ..)| *rank)?;
    if path.walk.is_some() {
        let columns = index.key_columns();
        path.key_places = columns.iter().map(|id| place(reads, *id)).collect();
    }
    Some(path)
}

/// The path by a key whose columns all have values.
pub(super) fn key_path(table: &TableDef, tests: &[Test]) -> Option<KeyPath> {
    let test_of = |id: &ColumnId| {
        let mut tests = tests.iter();
        tests.position(|test| test.column == *id && test.is_points())
    };
    table.keys.iter().enumerate().find_map(|(key, def)| {
        let parts = def.columns.iter().map(test_of);
        Some(KeyPath {
            key,
            parts: parts.collect::<Option<Vec<_>>>()?,
            range: None,
            walk: None,
        })
    })
}

/// The path by a key of whose columns one is within a range of integers and the others have values.
pub(super) fn integers_path(table: &TableDef, asked: &Asked<'_>) -> Option<KeyPath> {
    let tests = &asked.tests;
    let test_of = |id: &ColumnId| tests.iter().position(|test| test.column == *id);
    table.keys.iter().enumerate().find_map(|(key, def)| {
        let parts = def.columns.iter().map(test_of);
        let parts = parts.collect::<Option<Vec<_>>>()?;
        let mut ranges = (0..parts.len()).filter(|at| !tests[parts[*at]].is_points());
        let (range, others) = (ranges.next()?, ranges.next());
        let test = &tests[parts[range]];
        let is_one = others.is_none() && is_integer(test.sql_type);
        let Condition::Within { lower, upper } = test.condition.clone() else {
            return None;
        };
        let mut fixed = parts.iter().filter(|part| **part != parts[range]);
        let are_fixed = fixed.all(|part| tests[*part].is_equal());
        let walk = match asked.order.as_slice() {
            [by] if by.column == test.column && are_fixed => match by.order.descending {
                false if lower.is_some() => Some(Direction::Forward),
                true if upper.is_some() => Some(Direction::Backward),
                _ => None,
            },
            _ => None,
        };
        let has_both = lower.is_some() && upper.is_some();
        let is_bounded = has_both || (walk.is_some() && asked.slice.limit.is_some());
        (is_one && is_bounded).then_some(KeyPath {
            key,
            parts,
            range: Some(range),
            walk,
        })
    })
}

/// The path over ranges of an index in no order, if the index's first part is tested.
fn ranges_of(index: &IndexDef, asked: &Asked<'_>) -> Option<(Rank, IndexPath)> {
    let tests = &asked.tests;
    let test_of = |part: &IndexPart| {
        let column = column_of(part)?;
        tests.iter().position(|test| test.column == column)
    };
    let tested = index.parts.iter().map_while(test_of);
    let points: Vec<usize> = tested.take_while(|at| tests[*at].is_points()).collect();
    let next = index.parts.get(points.len());
    let next_test = next.and_then(test_of);
    let rank = (points.len(), false, next_test.is_some(), Walks::No);
    let is_restricted = !points.is_empty() || next_test.is_some();
    is_restricted.then(|| {
        let next_is = next_test.map_or(Next::Open, Next::Test);
        (rank, path(index, points, next_is, &asked.rows))
    })
}

/// The path over an index in the wanted order, or in that of its first columns if a limit bounds
/// the rows that are sorted then.
fn walk_of(table: &TableDef, index: &IndexDef, asked: &Asked<'_>) -> Option<(Rank, IndexPath)> {
    let (tests, order) = (&asked.tests, &asked.order);
    let first = order.first()?;
    let mut parts = index.parts.iter();
    let fixed = parts.position(|part| column_of(part) == Some(first.column))?;
    let (equal, rest) = index.parts.split_at_checked(fixed)?;
    let test_of = |column: ColumnId| tests.iter().position(|test| test.column == column);
    let points = equal.iter().map(|part| {
        let at = test_of(column_of(part)?)?;
        tests[at].is_equal().then_some(at)
    });
    let points = points.collect::<Option<Vec<usize>>>()?;
    let directions = rest.iter().zip(order).map_while(|(part, by)| {
        let column = table.column_by_id(by.column)?;
        let is_tested = test_of(by.column).is_some();
        let has_null = !column.not_null && !is_tested && !by.skips_null;
        let direction = direction_of(part, by, has_null)?;
        (column_of(part) == Some(by.column)).then_some(direction)
    });
    let directions: Vec<Direction> = directions.collect();
    let direction = *directions.first()?;
    let ordered = directions.iter().take_while(|other| **other == direction);
    let ordered = ordered.count();
    let walks = match ordered == order.len() {
        true => Walks::InFull,
        false => Walks::InPart,
    };
    let have_groups = order[..ordered].iter().all(|by| {
        let column = table.column_by_id(by.column);
        column.is_some_and(|column| is_key_type(column.sql_type))
    });
    if walks == Walks::InPart && (asked.slice.limit.is_none() || !have_groups) {
        return None;
    }
    let next = match test_of(first.column) {
        Some(at) if tests[at].is_points() => return None,
        Some(at) => Next::Test(at),
        None if first.skips_null => Next::NotNull,
        None => Next::Open,
    };
    let has_range = matches!(next, Next::Test(_));
    let is_exact = tests.len() == points.len() + usize::from(has_range);
    let rank = (points.len(), is_exact, has_range, walks);
    let mut path = path(index, points, next, &asked.rows);
    path.walk = Some(direction);
    path.ordered = ordered;
    Some((rank, path))
}

/// The direction in which a part has the wanted order.
fn direction_of(part: &IndexPart, by: &OrderColumn, has_null: bool) -> Option<Direction> {
    let is_forward = part.descending == by.order.descending;
    let same_nulls = part.nulls_first == by.order.nulls_first;
    (!has_null || same_nulls == is_forward).then_some(match is_forward {
        true => Direction::Forward,
        false => Direction::Backward,
    })
}

fn path(index: &IndexDef, points: Vec<usize>, next: Next, rows: &[RowTest]) -> IndexPath {
    let order = |part: &IndexPart| PartOrder {
        descending: part.descending,
        nulls_first: part.nulls_first,
    };
    let next_part = index.parts.get(points.len());
    let rest = index.parts.get(points.len()..).unwrap_or_default();
    let row = rows
        .iter()
        .map(|row| columns_in_order(row, rest))
        .enumerate();
    IndexPath {
        index: index.id,
        keys: OrderedKeys::new(index.parts.iter().map(order).collect::<Vec<_>>()),
        next,
        next_descending: next_part.is_some_and(|part| part.descending),
        row: row
            .filter(|(_, columns)| *columns > 1)
            .max_by_key(|(_, columns)| *columns),
        points,
        walk: None,
        ordered: 0,
        key_places: Vec::new(),
        covered: None,
    }
}

/// How many of a row test's first columns are the first parts, in one direction.
fn columns_in_order(row: &RowTest, parts: &[IndexPart]) -> usize {
    let descending = parts.first().is_some_and(|part| part.descending);
    let is_in_order = |((column, _), part): &(&(ColumnId, SqlType), &IndexPart)| {
        column_of(part) == Some(*column) && part.descending == descending
    };
    let pairs = row.columns.iter().zip(parts);
    pairs.take_while(is_in_order).count()
}

fn column_of(part: &IndexPart) -> Option<ColumnId> {
    match &part.value {
        IndexValue::Column(id) => Some(*id),
        IndexValue::Expression(_) => None,
    }
}
