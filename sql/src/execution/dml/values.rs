//! VALUES of an INSERT. As in PostgreSQL, every cell is converted directly to its column's type, so
//! cells of one column may have different forms. Literals are converted here without a plan, and
//! computed cells are planned one by one.
//!
//! The rows become a table in memory with one column per given column of the target. Cells with
//! subqueries are computed once beside it and joined to their row by its number.
//!
//! Literals go into Arrow columns row by row. A long list is parsed here piece by piece
//! ([`long_values`]), so only one piece's syntax tree is in memory.

use super::assignment::{assign, is_assignable, mismatch};
use super::query::plan_scalars;
use super::set_list::NewValue;
use super::source::{Source, SourceValue, field};
use super::target::Target;
use crate::parse::long_values;
use crate::planning::context::StatementContext;
use crate::planning::provider::value_rows::ValueRows;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};
use datafusion::sql::sqlparser::ast;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::ColumnDef;
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::decimal::Shape;
use strandline_semantics::error::convert;
use strandline_semantics::text::number::parse_numeric;
use strandline_semantics::types;

/// The name in plans of the table of rows.
const VALUES: &str = "values";
/// The column with the row's number.
const ROW: &str = "#row";

/// One cell.
pub(super) enum ValuesItem {
    /// DEFAULT
    Default,
    /// NULL
    Null,
    /// a literal, in the form of the column's input function
    Text(String),
    /// an expression
    Computed(Box<ast::Expr>),
}

/// One array per column; `None`: DEFAULT.
pub(super) type Literals = Vec<Option<ArrayRef>>;

/// The cells, column by column.
pub(super) struct Values {
    rows: usize,
    columns: Vec<Cells>,
    /// the error of the first literal that is invalid for its column's type
    refused: Option<Error>,
}

/// The cells of a column.
struct Cells {
    /// the literals, NULL in the other rows
    known: ColumnBuilder,
    /// the rows with DEFAULT, in order
    defaults: Vec<usize>,
    /// the expressions and their rows, in order
    computed: Vec<(usize, Box<ast::Expr>)>,
}

impl Values {
    /// Reads the rows of a list. `columns_for` gives the target's columns for the width of a row.
    /// 42601 if rows differ in width, or for a syntax error in a long list.
    pub fn read(
        target: &Target,
        rows: &[long_values::Row],
        columns_for: impl FnOnce(usize) -> Result<Vec<usize>>,
    ) -> Result<(Self, Vec<usize>)> {
        let width = rows.first().map_or(0, |row| row.content.len());
        let columns = columns_for(width)?;
        let definition = |position: &usize| &target.table.columns[*position];
        let cells = |position| Cells {
            known: ColumnBuilder::new(definition(position).sql_type),
            defaults: Vec::new(),
            computed: Vec::new(),
        };
        let mut values = Self {
            rows: 0,
            columns: columns.iter().map(cells).collect(),
            refused: None,
        };
        for group in long_values::groups(rows) {
            let group = group?;
            if group.iter().any(|row| row.content.len() != width) {
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                ));
            }
            for row in group.iter() {
                for (i, expr) in row.content.iter().enumerate() {
                    values.push(i, expr, definition(&columns[i]))?;
                }
                values.rows += 1;
            }
        }
        Ok((values, columns))
    }

    /// Adds a cell of the present row to the column at `i`.
    fn push(&mut self, i: usize, expr: &ast::Expr, column: &ColumnDef) -> Result<()> {
        let cell = match NewValue::of(expr) {
            NewValue::Default => ValuesItem::Default,
            NewValue::Expr(_) => literal(expr, column)?,
        };
        let cells = &mut self.columns[i];
        match cell {
            ValuesItem::Null => cells.known.push_null(),
            ValuesItem::Text(text) => {
                if let Err(error) = cells.known.push(&text) {
                    cells.known.push_null();
                    self.refused.get_or_insert(error);
                }
            }
            ValuesItem::Default => {
                cells.known.push_null();
                cells.defaults.push(self.rows);
            }
            ValuesItem::Computed(expr) => {
                cells.known.push_null();
                cells.computed.push((self.rows, expr));
            }
        }
        Ok(())
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Per column the literals, `None` for a column of DEFAULTs only. `None` altogether if cells
    /// must be computed or a column mixes DEFAULT with values.
    pub fn into_literals(self) -> Result<Option<Literals>> {
        let is_plain = |cells: &Cells| {
            let defaults = cells.defaults.len();
            cells.computed.is_empty() && (defaults == 0 || defaults == self.rows)
        };
        if !self.columns.iter().all(is_plain) {
            return Ok(None);
        }
        if let Some(error) = self.refused {
            return Err(error);
        }
        let literals = self.columns.into_iter().map(|cells| {
            let Cells {
                mut known,
                defaults,
                ..
            } = cells;
            defaults.is_empty().then(|| known.finish())
        });
        Ok(Some(literals.collect()))
    }

    /// The rows as a plan. Subqueries in them see what `with` has.
    pub async fn into_source(
        mut self,
        context: &StatementContext,
        target: &Target,
        columns: Vec<usize>,
        with: Option<&ast::With>,
    ) -> Result<Source> {
        let mut computed = Computed::plan(context, target, &mut self, &columns, with).await?;
        if let Some(error) = self.refused {
            return Err(error);
        }
        let mut table = TableOfRows::new(self.rows);
        let mut values = Vec::with_capacity(columns.len());
        for (i, mut cells) in self.columns.into_iter().enumerate() {
            let defaults = cells.defaults;
            if defaults.len() == self.rows {
                values.push(SourceValue::Default);
                continue;
            }
            let mut value = table.add(format!("column{}", i + 1), cells.known.finish());
            value = choose(&computed.take(i), 0..self.rows, &value)?;
            if defaults.is_empty() {
                values.push(SourceValue::Expr(value));
                continue;
            }
            let mut which = vec![false; self.rows];
            defaults.into_iter().for_each(|row| which[row] = true);
            let which = BooleanArray::from(which);
            let which = table.add(format!("#default{}", i + 1), Arc::new(which));
            values.push(SourceValue::SomeDefault(which, value));
        }
        let plan = computed.beside(table.into_plan()?)?;
        Ok(Source {
            plan,
            columns,
            values,
        })
    }
}

/// `cells` in their rows, which are in order, and `value` in the others of `rows`. The choice is a
/// binary search by the row's number: a list of thousands makes neither a deep plan nor one that
/// compares each row with each cell.
fn choose(cells: &[(usize, Expr)], rows: Range<usize>, value: &Expr) -> Result<Expr> {
    match cells {
        [] => Ok(value.clone()),
        [(_, expr)] if rows.len() == 1 => Ok(expr.clone()),
        [(row, expr)] => when(field(ROW).eq(lit(*row as i64)), expr.clone())
            .otherwise(value.clone())
            .map_err(convert),
        _ => {
            let (lower, upper) = cells.split_at(cells.len() / 2);
            let middle = upper.first().map_or(rows.end, |(row, _)| *row);
            let below = choose(lower, rows.start..middle, value)?;
            let others = choose(upper, middle..rows.end, value)?;
            when(field(ROW).lt(lit(middle as i64)), below)
                .otherwise(others)
                .map_err(convert)
        }
    }
}

/// A table in memory of the rows.
struct TableOfRows {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl TableOfRows {
    fn new(rows: usize) -> Self {
        let numbers = Int64Array::from_iter_values(0..rows as i64);
        Self {
            fields: vec![Field::new(ROW, DataType::Int64, false)],
            arrays: vec![Arc::new(numbers)],
        }
    }

    fn add(&mut self, name: String, array: ArrayRef) -> Expr {
        let expr = field(&name);
        self.fields
            .push(Field::new(name, array.data_type().clone(), true));
        self.arrays.push(array);
        expr
    }

    fn into_plan(self) -> Result<LogicalPlan> {
        let schema = Arc::new(Schema::new(self.fields));
        let names: Vec<Expr> = schema.fields().iter().map(|f| field(f.name())).collect();
        let batch = RecordBatch::try_new(schema.clone(), self.arrays)
            .map_err(|e| strandline_semantics::error::from_arrow(&e))?;
        let rows = ValueRows::new(schema, batch).map_err(convert)?;
        let scan = LogicalPlanBuilder::scan(VALUES, provider_as_source(Arc::new(rows)), None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(convert)?;
        // The fields lose the table's name, so that the statement cannot refer to it.
        let bare = scan.schema().columns().into_iter().zip(names);
        let exprs = bare.map(|(c, _)| {
            let name = c.name.clone();
            Expr::Column(c).alias(name)
        });
        super::pipeline::project(scan.clone(), exprs.collect())
    }
}

/// The computed cells.
struct Computed {
    /// (column, row, expression)
    cells: Vec<(usize, usize, Expr)>,
    /// the plan that computes the expressions with subqueries
    subqueries: Option<LogicalPlan>,
}

impl Computed {
    async fn plan(
        context: &StatementContext,
        target: &Target,
        values: &mut Values,
        columns: &[usize],
        with: Option<&ast::With>,
    ) -> Result<Self> {
        let mut places = Vec::new();
        let mut written = Vec::new();
        for (i, cells) in values.columns.iter_mut().enumerate() {
            for (row, expr) in cells.computed.drain(..) {
                places.push((i, row));
                written.push(*expr);
            }
        }
        let planned = plan_scalars(context, with, written, "VALUES").await?;
        let mut cells = Vec::with_capacity(places.len());
        let mut subqueries = Vec::new();
        for ((i, row), expr) in places.into_iter().zip(planned) {
            let column = &target.table.columns[columns[i]];
            let expr = assign(expr, &DFSchema::empty(), column)?;
            if has_subquery(&expr)? {
                let name = format!("#subquery{}", subqueries.len());
                subqueries.push(expr.alias(name.clone()));
                cells.push((i, row, field(&name)));
            } else {
                cells.push((i, row, expr));
            }
        }
        let subqueries = if subqueries.is_empty() {
            None
        } else {
            let one = LogicalPlanBuilder::empty(true).build().map_err(convert)?;
            Some(super::pipeline::project(one, subqueries)?)
        };
        Ok(Self { cells, subqueries })
    }

    /// Takes the computed cells of a column.
    fn take(&mut self, column: usize) -> Vec<(usize, Expr)> {
        let (of_column, others) = std::mem::take(&mut self.cells)
            .into_iter()
            .partition(|(i, ..)| *i == column);
        self.cells = others;
        let of_column: Vec<(usize, usize, Expr)> = of_column;
        of_column
            .into_iter()
            .map(|(_, row, expr)| (row, expr))
            .collect()
    }

    /// `rows` with the subqueries' results as additional fields.
    fn beside(self, rows: LogicalPlan) -> Result<LogicalPlan> {
        let Some(subqueries) = self.subqueries else {
            return Ok(rows);
        };
        LogicalPlanBuilder::from(subqueries)
            .cross_join(rows)
            .and_then(LogicalPlanBuilder::build)
            .map_err(convert)
    }
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|e| {
        found |= matches!(
            e,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
        );
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })
    .map_err(convert)?;
    Ok(found)
}

/// Reads a cell as a literal, or as an expression to compute.
pub(super) fn literal(expr: &ast::Expr, column: &ColumnDef) -> Result<ValuesItem> {
    match expr {
        ast::Expr::Nested(inner) => literal(inner, column),
        ast::Expr::UnaryOp {
            op: ast::UnaryOperator::Minus,
            expr: operand,
        } => match operand.as_ref() {
            ast::Expr::Value(ast::ValueWithSpan {
                value: ast::Value::Number(text, _),
                ..
            }) => of_number(format!("-{text}"), expr, column),
            _ => Ok(ValuesItem::Computed(Box::new(expr.clone()))),
        },
        ast::Expr::Value(value) => Ok(match &value.value {
            ast::Value::Null => ValuesItem::Null,
            ast::Value::Number(text, _) => return of_number(text.clone(), expr, column),
            ast::Value::SingleQuotedString(text)
            | ast::Value::EscapedStringLiteral(text)
            | ast::Value::UnicodeStringLiteral(text) => ValuesItem::Text(text.clone()),
            ast::Value::DollarQuotedString(text) => ValuesItem::Text(text.value.clone()),
            ast::Value::Boolean(value) => return of_boolean(*value, column),
            ast::Value::HexStringLiteral(digits) if column.sql_type == SqlType::Bytea => {
                ValuesItem::Text(format!("\\x{digits}"))
            }
            _ => ValuesItem::Computed(Box::new(expr.clone())),
        }),
        ast::Expr::Cast {
            expr: operand,
            data_type,
            ..
        } => {
            let same = !shortens(data_type) && types::from_ast(data_type)? == Some(column.sql_type);
            match literal(operand, column) {
                Ok(ValuesItem::Text(text)) if same && is_quoted(operand) => {
                    Ok(ValuesItem::Text(text))
                }
                _ => Ok(ValuesItem::Computed(Box::new(expr.clone()))),
            }
        }
        _ => Ok(ValuesItem::Computed(Box::new(expr.clone()))),
    }
}

/// Whether a cast to the type loses what an assignment to it would refuse, or keep.
fn shortens(data_type: &ast::DataType) -> bool {
    use ast::DataType as D;
    match data_type {
        D::Timestamp(precision, _) | D::Time(precision, _) => precision.is_some(),
        D::Interval { .. } => true,
        other => matches!(
            types::from_ast(other),
            Ok(Some(SqlType::Varchar(_) | SqlType::Char(_)))
        ),
    }
}

fn is_quoted(expr: &ast::Expr) -> bool {
    matches!(
        expr,
        ast::Expr::Value(ast::ValueWithSpan {
            value: ast::Value::SingleQuotedString(_),
            ..
        })
    )
}

/// Reads a number literal.
fn of_number(text: String, expr: &ast::Expr, column: &ColumnDef) -> Result<ValuesItem> {
    let is_whole = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    Ok(match column.sql_type {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt if !is_whole => {
            // An assignment rounds.
            let rounded = parse_numeric(&text, Shape::new(38, 0))?;
            ValuesItem::Text(rounded.to_string())
        }
        SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double
        | SqlType::Numeric { .. } => ValuesItem::Text(text),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => match text.parse::<i64>() {
            Ok(number) => ValuesItem::Text(number.to_string()),
            Err(_) => ValuesItem::Computed(Box::new(expr.clone())),
        },
        _ if is_whole => return Err(mismatch(column, &DataType::Int32)),
        _ => return Err(mismatch(column, &DataType::Decimal64(18, 1))),
    })
}

fn of_boolean(value: bool, column: &ColumnDef) -> Result<ValuesItem> {
    if !is_assignable(&DataType::Boolean, column.sql_type) {
        return Err(mismatch(column, &DataType::Boolean));
    }
    Ok(ValuesItem::Text(value.to_string()))
}
