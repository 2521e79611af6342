//! The short plan: rows of one table that a key or an index leads to, tested, ordered and cut.
//!
//! A [`Search`] has one access path, applies every test of WHERE to the rows found (an entry of an
//! index leads to rows that had its key), and gives them in the order wanted: the path's own, or
//! sorted. The choice uses only definitions, because values are not known yet: most tests with
//! equality win, then the order. A search that finds many rows when it runs takes the full path.
//!
//! The index of a key has no order. A range of integers is looked up number by number: all of a
//! short range, or the first rows in the numbers' order.

use super::conditions::{Choice, Conditions, RowTest, Test};
use super::expressions::Expressions;
pub(super) use super::paths::{Asked, IndexPath, KeyPath, Next, OrderColumn, Slice, place};
use super::paths::{index_path, integers_path, key_path};
use super::scope::{Compiler, Scope};
use super::source::Source;
use datafusion::sql::sqlparser::ast::{self, Expr, Value as Literal};
use strandline_base::{ColumnId, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_engine::{CoveredColumns, Direction, OrderedKeys, PartOrder};

/// Rows of one table; see the module's documentation.
#[derive(Debug)]
pub(super) struct Search {
    pub path: Path,
    pub tests: Vec<Test>,
    /// per test the place of its column among `reads`
    pub test_places: Vec<usize>,
    pub rows: Vec<RowTest>,
    /// per row test the places of its columns
    pub row_places: Vec<Vec<usize>>,
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
    Key(KeyPath),
    Index(IndexPath),
    /// by the paths of any of these, which have only tests and read the same columns
    Either(Vec<Search>),
}

/// Rows are sorted by the bytes of a key made of these columns.
#[derive(Debug)]
pub(super) struct Sort {
    pub keys: OrderedKeys,
    /// places among the columns read
    pub places: Vec<usize>,
}

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
        let text = |at: &usize| self.tests[*at].text(name(self.tests[*at].column));
        let (mut shown, used) = self.path_text(table);
        if !used.is_empty() {
            let used: Vec<String> = used.iter().map(text).collect();
            shown.push_str(&format!(" ({})", used.join(" AND ")));
        }
        // LIKE is shown as it is written, with the other conditions.
        let is_shown = |at: &usize| self.tests[*at].is_all_that_is_tested();
        let others = (0..self.tests.len()).filter(|at| !used.contains(at) && is_shown(at));
        let mut others: Vec<String> = others.map(|at| text(&at)).collect();
        let rows = self.rows.iter();
        others.extend(rows.map(|row| row.text(|id| name(id).to_string())));
        others.extend(self.residual.as_ref().map(|residual| residual.text.clone()));
        if !others.is_empty() {
            shown.push_str(&format!(", filters=[{}]", others.join(", ")));
        }
        if let Some(direction) = self.path.walk() {
            shown.push_str(match direction {
                Direction::Forward => ", order=forward",
                Direction::Backward => ", order=backward",
            });
            if self.sort.is_some() {
                shown.push_str(" and sorted");
            }
        } else if self.sort.is_some() {
            shown.push_str(", order=sorted");
        }
        if self.slice.limit.is_some() {
            shown.push_str(", limit");
        }
        shown
    }

    /// The path, and the tests that it uses.
    fn path_text(&self, table: &TableDef) -> (String, Vec<usize>) {
        match &self.path {
            Path::Key(KeyPath { key, parts, .. }) => {
                (format!("key={}", table.keys[*key].name), parts.clone())
            }
            Path::Index(path) => {
                let index = table.index(path.index);
                let index = index.map_or("", |index| index.name.as_str());
                let next = match path.next {
                    Next::Test(at) => Some(at),
                    Next::Open | Next::NotNull => None,
                };
                let by = match path.covered {
                    Some(_) => "index_only",
                    None => "index",
                };
                let used = path.points.iter().copied().chain(next);
                (format!("{by}={index}"), used.collect())
            }
            Path::Either(sides) => {
                let sides = sides.iter().map(|side| side.text(table));
                (sides.collect::<Vec<_>>().join(" or "), Vec::new())
            }
        }
    }
}

impl Path {
    /// The direction of a walk in the order wanted, or in the order of its first columns.
    pub fn walk(&self) -> Option<Direction> {
        match self {
            Self::Key(path) => path.walk,
            Self::Index(path) => path.walk,
            Self::Either(_) => None,
        }
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
        let Conditions {
            tests,
            rows,
            mut choices,
            mut others,
        } = conditions;
        let table = scope.table;
        let asked = Asked {
            tests,
            rows,
            order,
            slice,
            wanted,
        };
        let has_paths = |choice: &Choice| self.has_paths(table, choice);
        let chosen = match self.has_path_of(table, &asked.tests) {
            true => None,
            false => choices.iter().position(has_paths),
        };
        let mut search = match chosen.map(|at| choices.remove(at)) {
            Some(Choice { sides, .. }) => Search::either(table, asked, sides, self.uses_indexes)?,
            None => Search::of(table, asked, self.uses_indexes)?,
        };
        others.extend(choices.into_iter().map(|choice| choice.written));
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

    /// Whether a path leads to the rows of which `conditions` hold, in any order.
    pub(super) fn has_path(&self, table: &TableDef, conditions: &Conditions) -> bool {
        let mut choices = conditions.choices.iter();
        self.has_path_of(table, &conditions.tests)
            || choices.any(|choice| self.has_paths(table, choice))
    }

    fn has_paths(&self, table: &TableDef, choice: &Choice) -> bool {
        let mut sides = choice.sides.iter();
        sides.all(|tests| self.has_path_of(table, tests))
    }

    fn has_path_of(&self, table: &TableDef, tests: &[Test]) -> bool {
        let asked = Asked {
            tests: tests.to_vec(),
            ..Asked::default()
        };
        Search::of(table, asked, self.uses_indexes).is_some()
    }
}

impl Search {
    /// A search without a residual condition; secondary indexes are asked if `uses_indexes`.
    pub fn of(table: &TableDef, mut asked: Asked<'_>, uses_indexes: bool) -> Option<Self> {
        asked.drop_equal();
        let mut search = asked.begin();
        search.path = match key_path(table, &asked.tests) {
            Some(path) => Path::Key(path),
            None => {
                let by_index = uses_indexes.then(|| index_path(table, &asked, &mut search.reads));
                match by_index.flatten() {
                    Some(path) => Path::Index(path),
                    None => Path::Key(integers_path(table, &asked)?),
                }
            }
        };
        let has_order = match &search.path {
            Path::Index(path) => path.walk.is_some() && path.ordered == asked.order.len(),
            path => path.walk().is_some(),
        };
        search.finish(asked, has_order);
        search.cover(table)?;
        Some(search)
    }

    /// A search for rows that pass all tests of a side.
    fn either(
        table: &TableDef,
        mut asked: Asked<'_>,
        sides: Vec<Vec<Test>>,
        uses_indexes: bool,
    ) -> Option<Self> {
        asked.drop_equal();
        let mut search = asked.begin();
        let mut paths = Vec::with_capacity(sides.len());
        for tests in sides {
            let asked = Asked {
                tests,
                wanted: &search.reads,
                ..Asked::default()
            };
            let mut side = Self::of(table, asked, uses_indexes)?;
            side.reads_rows();
            search.reads.clone_from(&side.reads);
            paths.push(side);
        }
        for side in &mut paths {
            side.reads.clone_from(&search.reads);
        }
        search.path = Path::Either(paths);
        search.finish(asked, false);
        Some(search)
    }

    /// Moves what is asked for into the search, whose path is known.
    fn finish(&mut self, asked: Asked<'_>, has_order: bool) {
        if !has_order && !asked.order.is_empty() {
            self.sort = Some(sort(&asked.order, &mut self.reads));
        }
        self.tests = asked.tests;
        self.rows = asked.rows;
        self.slice = asked.slice;
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

impl Asked<'_> {
    /// What is equal in all rows does not order them.
    fn drop_equal(&mut self) {
        let tests = &self.tests;
        let is_equal = |column| tests.iter().any(|t| t.column == column && t.is_equal());
        self.order.retain(|by| !is_equal(by.column));
    }

    /// A search that reads what is asked for and tested, and has no path yet.
    fn begin(&self) -> Search {
        let mut reads = self.wanted.to_vec();
        let tests = self.tests.iter();
        let test_places = tests.map(|test| place(&mut reads, test.column)).collect();
        let rows = self.rows.iter().map(|row| {
            let columns = row.columns.iter();
            columns.map(|(id, _)| place(&mut reads, *id)).collect()
        });
        let row_places = rows.collect();
        Search {
            path: Path::Either(Vec::new()),
            tests: Vec::new(),
            test_places,
            rows: Vec::new(),
            row_places,
            residual: None,
            reads,
            sort: None,
            slice: Slice::default(),
        }
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
        if matches!(
            column.sql_type,
            SqlType::Char(_) | SqlType::Json | SqlType::Point | SqlType::Box
        ) {
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
            // The full path knows no subquery here.
            Some(expr) => match self.constant(expr)? {
                Source::Query(..) => None,
                source => Some(Some(source)),
            },
        };
        limit_by.is_empty().then_some(())?;
        Some(Slice {
            limit: constant(limit.as_ref())?,
            offset: constant(offset.as_ref().map(|offset| &offset.value))?,
        })
    }
}
