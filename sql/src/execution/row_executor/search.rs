//! The short plan: rows of one table that a key or an index leads to, tested, ordered and cut.
//!
//! A [`Search`] has one access path, applies every test of WHERE to the rows found (an entry of an
//! index leads to rows that had its key), and gives them in the order wanted: the path's own, or
//! sorted. The choice uses only definitions, because values are not known yet: most tests with
//! equality win, then the order. A search that finds many rows when it runs takes the full path.

use super::conditions::{Conditions, Test};
use super::expressions::Expressions;
use super::scope::{Compiler, Scope};
use super::source::Source;
use datafusion::sql::sqlparser::ast::{self, Expr, Value as Literal};
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexValue;
use strandline_engine::catalog::index::{IndexDef, IndexId, IndexMethod, IndexPart, IndexState};
use strandline_engine::{CoveredColumns, Direction, OrderedKeys, PartOrder};

/// Rows of one table; see the module's documentation.
#[derive(Debug)]
pub(super) struct Search {
    pub path: Path,
    pub tests: Vec<Test>,
    /// per test the place of its column among `reads`
    pub test_places: Vec<usize>,
    /// the other conditions of WHERE
    pub residual: Option<Residual>,
    /// the columns that are read of a row: those asked for, then others
    pub reads: Vec<ColumnId>,
    /// None: rows come in the wanted order, or none is wanted
    pub sort: Option<Sort>,
    pub slice: Slice,
}

/// Conditions that are no tests.
#[derive(Debug)]
pub(super) struct Residual {
    pub condition: Expressions,
    /// for EXPLAIN
    pub text: String,
}

/// How rows are found.
#[derive(Debug)]
pub(super) enum Path {
    /// by the hash index of a key
    Key {
        /// index into `TableDef::keys`
        key: usize,
        /// per column of the key its test
        parts: Vec<usize>,
    },
    Index(IndexPath),
}

/// Ranges of a secondary index.
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
    /// Some: the entries are walked over in this direction, in which they have the order wanted
    pub walk: Option<Direction>,
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

/// Rows are sorted by the bytes of a key made of these columns.
#[derive(Debug)]
pub(super) struct Sort {
    pub keys: OrderedKeys,
    /// places among the columns read
    pub places: Vec<usize>,
}

/// LIMIT and OFFSET.
#[derive(Debug, Default)]
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

/// The rank of a path: the greatest is taken.
type Rank = (usize, bool, bool, bool);

impl Search {
    /// The rows are read whatever their entries have: they are to be changed.
    pub fn reads_rows(&mut self) {
        if let Path::Index(path) = &mut self.path {
            path.covered = None;
        }
    }

    /// As EXPLAIN shows it.
    pub fn text(&self, table: &TableDef) -> String {
        let name = |id: ColumnId| table.column_by_id(id).map_or("", |c| c.name.as_str());
        let (by, used) = match &self.path {
            Path::Key { key, parts } => (format!("key={}", table.keys[*key].name), parts.clone()),
            Path::Index(path) => {
                let index = table
                    .index(path.index)
                    .map_or("", |index| index.name.as_str());
                let next = match path.next {
                    Next::Test(at) => Some(at),
                    Next::Open | Next::NotNull => None,
                };
                let used = path.points.iter().copied().chain(next).collect();
                let by = match path.covered {
                    Some(_) => "index_only",
                    None => "index",
                };
                (format!("{by}={index}"), used)
            }
        };
        let text = |at: &usize| self.tests[*at].text(name(self.tests[*at].column));
        let used_text: Vec<String> = used.iter().map(text).collect();
        let mut shown = by;
        if !used_text.is_empty() {
            shown.push_str(&format!(" ({})", used_text.join(" AND ")));
        }
        let others = (0..self.tests.len()).filter(|at| !used.contains(at));
        let mut others: Vec<String> = others.map(|at| text(&at)).collect();
        others.extend(self.residual.as_ref().map(|residual| residual.text.clone()));
        if !others.is_empty() {
            shown.push_str(&format!(", filters=[{}]", others.join(", ")));
        }
        if let Path::Index(IndexPath {
            walk: Some(direction),
            ..
        }) = &self.path
        {
            shown.push_str(match direction {
                Direction::Forward => ", order=forward",
                Direction::Backward => ", order=backward",
            });
        }
        if self.sort.is_some() {
            shown.push_str(", order=sorted");
        }
        if self.slice.limit.is_some() {
            shown.push_str(", limit");
        }
        shown
    }
}

impl Compiler<'_> {
    /// A search for the rows of which `conditions` hold; `wanted` are the columns asked for.
    pub(super) fn search(
        &self,
        scope: &Scope<'_>,
        conditions: Conditions,
        order: Vec<OrderColumn>,
        slice: Slice,
        wanted: &[ColumnId],
    ) -> Option<Search> {
        let Conditions { tests, others } = conditions;
        let table = scope.table;
        let mut search = Search::of(table, tests, order, slice, wanted, self.uses_indexes)?;
        if !others.is_empty() {
            search.residual = Some(self.residual(scope, &others, &mut search.reads)?);
            search.cover(table)?;
        }
        Some(search)
    }

    fn residual(
        &self,
        scope: &Scope<'_>,
        conditions: &[Expr],
        reads: &mut Vec<ColumnId>,
    ) -> Option<Residual> {
        let columns = &scope.table.columns;
        let mut place = |position: usize| place(reads, columns[position].id);
        let condition = self.condition(scope, conditions, &mut place)?;
        let text: Vec<String> = conditions.iter().map(Expr::to_string).collect();
        Some(Residual {
            condition,
            text: text.join(" AND "),
        })
    }

    /// Whether a path leads to the rows that pass `tests`, in any order.
    pub(super) fn has_path(&self, table: &TableDef, tests: &[Test]) -> bool {
        let slice = Slice::default();
        let by_index = || index_path(table, tests, &[], &slice, &mut Vec::new()).is_some();
        key_path(table, tests).is_some() || (self.uses_indexes && by_index())
    }
}

impl Search {
    /// A search without a residual condition; secondary indexes are asked if `uses_indexes`.
    pub fn of(
        table: &TableDef,
        tests: Vec<Test>,
        mut order: Vec<OrderColumn>,
        slice: Slice,
        wanted: &[ColumnId],
        uses_indexes: bool,
    ) -> Option<Self> {
        // What is equal in all rows does not order them.
        order.retain(|by| !tests.iter().any(|t| t.column == by.column && t.is_equal()));
        let mut reads = wanted.to_vec();
        let test_places = tests.iter().map(|test| place(&mut reads, test.column));
        let test_places = test_places.collect();
        let path = match key_path(table, &tests) {
            Some(path) => path,
            None if uses_indexes => {
                Path::Index(index_path(table, &tests, &order, &slice, &mut reads)?)
            }
            None => return None,
        };
        let walks = matches!(&path, Path::Index(IndexPath { walk: Some(_), .. }));
        let sort = (!walks && !order.is_empty()).then(|| sort(&order, &mut reads));
        let mut search = Self {
            path,
            tests,
            test_places,
            residual: None,
            reads,
            sort,
            slice,
        };
        search.cover(table)?;
        Some(search)
    }

    /// Decides whether the entries of the search's index have all that it reads.
    fn cover(&mut self, table: &TableDef) -> Option<()> {
        if let Path::Index(path) = &mut self.path {
            let index = table.index(path.index)?;
            path.covered = CoveredColumns::of(table, index, &self.reads);
        }
        Some(())
    }
}

fn index_path(
    table: &TableDef,
    tests: &[Test],
    order: &[OrderColumn],
    slice: &Slice,
    reads: &mut Vec<ColumnId>,
) -> Option<IndexPath> {
    let indexes = table.indexes.iter().filter(|index| {
        index.state == IndexState::Valid && index.method == IndexMethod::Ordered && index.is_plain()
    });
    let paths = indexes.flat_map(|index| {
        let walk = walk_of(table, index, tests, order);
        // All rows in order are no short plan.
        let walk = walk.filter(|_| !tests.is_empty() || slice.limit.is_some());
        let walk = walk.map(|(rank, path)| (rank, index.as_ref(), path));
        let ranges = ranges_of(index, tests);
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

/// The place of a column among those read, one of which it becomes.
pub(super) fn place<C: PartialEq>(reads: &mut Vec<C>, column: C) -> usize {
    let known = reads.iter().position(|read| *read == column);
    known.unwrap_or_else(|| {
        reads.push(column);
        reads.len() - 1
    })
}

/// The path by a key whose columns all have values.
fn key_path(table: &TableDef, tests: &[Test]) -> Option<Path> {
    let test_of = |id: &ColumnId| {
        let mut tests = tests.iter();
        tests.position(|test| test.column == *id && test.is_points())
    };
    table.keys.iter().enumerate().find_map(|(key, def)| {
        let parts = def
            .columns
            .iter()
            .map(test_of)
            .collect::<Option<Vec<_>>>()?;
        Some(Path::Key { key, parts })
    })
}

/// The path over ranges of an index in no order, if the index's first part is tested.
fn ranges_of(index: &IndexDef, tests: &[Test]) -> Option<(Rank, IndexPath)> {
    let test_of = |part: &IndexPart| {
        let column = column_of(part)?;
        tests.iter().position(|test| test.column == column)
    };
    let tested = index.parts.iter().map_while(test_of);
    let points: Vec<usize> = tested.take_while(|at| tests[*at].is_points()).collect();
    let next = index.parts.get(points.len());
    let next_test = next.and_then(test_of);
    let rank = (points.len(), false, next_test.is_some(), false);
    let is_restricted = !points.is_empty() || next_test.is_some();
    is_restricted.then(|| {
        let next_is = next_test.map_or(Next::Open, Next::Test);
        (rank, path(index, points, next_is, None))
    })
}

/// The path over an index in the wanted order.
fn walk_of(
    table: &TableDef,
    index: &IndexDef,
    tests: &[Test],
    order: &[OrderColumn],
) -> Option<(Rank, IndexPath)> {
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
    if rest.len() < order.len() {
        return None;
    }
    let mut directions = rest.iter().zip(order).map(|(part, by)| {
        let column = table.column_by_id(by.column)?;
        let is_tested = test_of(by.column).is_some();
        let has_null = !column.not_null && !is_tested && !by.skips_null;
        let direction = direction_of(part, by, has_null)?;
        (column_of(part) == Some(by.column)).then_some(direction)
    });
    let direction = directions.next()??;
    if !directions.all(|other| other == Some(direction)) {
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
    let rank = (points.len(), is_exact, has_range, true);
    Some((rank, path(index, points, next, Some(direction))))
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

fn path(index: &IndexDef, points: Vec<usize>, next: Next, walk: Option<Direction>) -> IndexPath {
    let order = |part: &IndexPart| PartOrder {
        descending: part.descending,
        nulls_first: part.nulls_first,
    };
    let next_part = index.parts.get(points.len());
    IndexPath {
        index: index.id,
        keys: OrderedKeys::new(index.parts.iter().map(order).collect::<Vec<_>>()),
        next,
        next_descending: next_part.is_some_and(|part| part.descending),
        points,
        walk,
        key_places: Vec::new(),
        covered: None,
    }
}

fn column_of(part: &IndexPart) -> Option<ColumnId> {
    match &part.value {
        IndexValue::Column(id) => Some(*id),
        IndexValue::Expression(_) => None,
    }
}

fn sort(order: &[OrderColumn], reads: &mut Vec<ColumnId>) -> Sort {
    let parts: Vec<PartOrder> = order.iter().map(|by| by.order).collect();
    Sort {
        keys: OrderedKeys::new(parts),
        places: order.iter().map(|by| place(reads, by.column)).collect(),
    }
}

/// An ORDER BY of columns; `output` has the names of the query's columns, and the positions of
/// those that are the table's.
pub(super) fn order_of(
    scope: &Scope<'_>,
    output: &[(Option<usize>, &str)],
    order_by: Option<&ast::OrderBy>,
) -> Option<Vec<OrderColumn>> {
    let Some(order_by) = order_by else {
        return Some(Vec::new());
    };
    let ast::OrderBy {
        kind: ast::OrderByKind::Expressions(exprs),
        interpolate: None,
    } = order_by
    else {
        return None;
    };
    let mut order: Vec<OrderColumn> = Vec::with_capacity(exprs.len());
    for by in exprs {
        if by.with_fill.is_some() {
            return None;
        }
        let column = &scope.table.columns[ordered_position(scope, output, &by.expr)?];
        if matches!(column.sql_type, SqlType::Char(_) | SqlType::Json) {
            return None;
        }
        let descending = by.options.asc == Some(false);
        if !order.iter().any(|known| known.column == column.id) {
            order.push(OrderColumn {
                column: column.id,
                order: PartOrder {
                    descending,
                    nulls_first: by.options.nulls_first.unwrap_or(descending),
                },
                skips_null: false,
            });
        }
    }
    Some(order)
}

/// The position in the table of what an ORDER BY names: a column of the output by its name or
/// number, or else one of the table.
fn ordered_position(
    scope: &Scope<'_>,
    output: &[(Option<usize>, &str)],
    expr: &Expr,
) -> Option<usize> {
    match expr {
        Expr::Identifier(name) => {
            let name = crate::parse::names::fold(name);
            let mut named = output.iter().filter(|(_, known)| *known == name);
            match named.next() {
                Some((Some(position), _)) => {
                    let same = named.all(|(other, _)| *other == Some(*position));
                    same.then_some(*position)
                }
                Some((None, _)) => None,
                None => scope.column(expr),
            }
        }
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, false) => {
                let number: usize = digits.parse().ok()?;
                output.get(number.checked_sub(1)?)?.0
            }
            _ => None,
        },
        _ => scope.column(expr),
    }
}

impl Compiler<'_> {
    /// LIMIT and OFFSET.
    pub(super) fn slice(&self, clause: Option<&ast::LimitClause>) -> Option<Slice> {
        let Some(clause) = clause else {
            return Some(Slice::default());
        };
        let ast::LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        } = clause
        else {
            return None;
        };
        let constant = |expr: Option<&Expr>| match expr {
            None => Some(None),
            Some(expr) => self.constant(expr).map(Some),
        };
        limit_by.is_empty().then_some(())?;
        Some(Slice {
            limit: constant(limit.as_ref())?,
            offset: constant(offset.as_ref().map(|offset| &offset.value))?,
        })
    }
}
