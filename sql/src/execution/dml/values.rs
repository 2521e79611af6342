//! VALUES of an INSERT. PostgreSQL converts every cell straight to its column's type, so cells of
//! one column may be written in different ways; literals are converted here, without a plan, and
//! computed cells are planned each by itself.
//!
//! The rows become a table in memory with a column per given column of the target. Cells with
//! subqueries are computed once beside it and put into their row by its number.

use super::assignment::{assign, is_assignable, mismatch};
use super::insert::{Source, SourceValue, field};
use super::query::plan_scalars;
use super::set_list::NewValue;
use super::target::Target;
use crate::planning::context::StatementContext;
use crate::planning::provider::value_rows::ValueRows;
use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, when};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::ColumnDef;
use strandline_semantics::column_builder::ColumnBuilder;
use strandline_semantics::decimal::Shape;
use strandline_semantics::error::convert;
use strandline_semantics::text::number::parse_numeric;
use strandline_semantics::types;

/// The name of the table of rows in plans.
const VALUES: &str = "values";
/// The column with the row's number.
const ROW: &str = "#row";

/// The rows of a query that is nothing but VALUES.
pub(super) fn rows_of(query: &ast::Query) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty();
    match query.body.as_ref() {
        ast::SetExpr::Values(values) if plain && !values.explicit_row => Some(&values.rows),
        _ => None,
    }
}

/// The number of cells of each row; 42601 if they differ.
pub(super) fn width(rows: &[ast::Parens<Vec<ast::Expr>>]) -> Result<usize> {
    let width = rows.first().map_or(0, |row| row.content.len());
    if rows.iter().any(|row| row.content.len() != width) {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "VALUES lists must all be the same length",
        ));
    }
    Ok(width)
}

/// One cell. There may be millions of them: an expression, which few are, is kept elsewhere.
pub(super) enum Cell {
    /// DEFAULT
    Default,
    /// NULL
    Null,
    /// a literal, as the column's input function reads it
    Text(String),
    /// an expression
    Computed(Box<ast::Expr>),
}

/// One array per column; `None`: DEFAULT.
pub(super) type Literals = Vec<Option<ArrayRef>>;

/// The cells, column by column.
pub(super) struct Values {
    rows: usize,
    columns: Vec<Vec<Cell>>,
}

impl Values {
    /// Sorts out the cells.
    pub fn read(
        target: &Target,
        columns: &[usize],
        rows: &[ast::Parens<Vec<ast::Expr>>],
    ) -> Result<Self> {
        let mut cells: Vec<Vec<Cell>> = columns
            .iter()
            .map(|_| Vec::with_capacity(rows.len()))
            .collect();
        for row in rows {
            for (i, expr) in row.content.iter().enumerate() {
                let column = &target.table.columns[columns[i]];
                cells[i].push(match NewValue::of(expr) {
                    NewValue::Default => Cell::Default,
                    NewValue::Expr(_) => literal(expr, column)?,
                });
            }
        }
        Ok(Self {
            rows: rows.len(),
            columns: cells,
        })
    }

    /// Per column the literals, `None` where it is DEFAULT throughout; `None` altogether if cells
    /// must be computed or DEFAULT is mixed with values.
    pub fn literals(&self, target: &Target, columns: &[usize]) -> Result<Option<Literals>> {
        let mut literals = Vec::with_capacity(columns.len());
        for (cells, position) in self.columns.iter().zip(columns) {
            let defaults = cells.iter().filter(|c| matches!(c, Cell::Default)).count();
            let computed = cells.iter().any(|c| matches!(c, Cell::Computed(_)));
            if computed || (defaults > 0 && defaults < cells.len()) {
                return Ok(None);
            }
            literals.push(if defaults > 0 {
                None
            } else {
                Some(known_values(cells, &target.table.columns[*position])?)
            });
        }
        Ok(Some(literals))
    }

    /// The rows as a plan.
    pub async fn into_source(
        self,
        context: &StatementContext,
        target: &Target,
        columns: Vec<usize>,
    ) -> Result<Source> {
        let mut computed = Computed::plan(context, target, &self, &columns).await?;
        let mut table = TableOfRows::new(self.rows);
        let mut values = Vec::with_capacity(columns.len());
        for (i, (cells, position)) in self.columns.iter().zip(&columns).enumerate() {
            if cells.iter().all(|cell| matches!(cell, Cell::Default)) {
                values.push(SourceValue::Default);
                continue;
            }
            let known = known_values(cells, &target.table.columns[*position])?;
            let mut value = table.add(format!("column{}", i + 1), known);
            for (row, expr) in computed.take(i) {
                value = when(field(ROW).eq(lit(row as i64)), expr)
                    .otherwise(value)
                    .map_err(convert)?;
            }
            if cells.iter().any(|cell| matches!(cell, Cell::Default)) {
                let which: BooleanArray = cells
                    .iter()
                    .map(|c| Some(matches!(c, Cell::Default)))
                    .collect();
                let which = table.add(format!("#default{}", i + 1), Arc::new(which));
                values.push(SourceValue::SomeDefault(which, value));
            } else {
                values.push(SourceValue::Expr(value));
            }
        }
        let plan = computed.beside(table.into_plan()?)?;
        Ok(Source {
            plan,
            columns,
            values,
        })
    }
}

/// The literals of a column; NULL for the other cells.
fn known_values(cells: &[Cell], column: &ColumnDef) -> Result<ArrayRef> {
    let mut builder = ColumnBuilder::new(column.sql_type);
    for cell in cells {
        match cell {
            Cell::Text(text) => builder.push(text)?,
            Cell::Default | Cell::Null | Cell::Computed(_) => builder.push_null(),
        }
    }
    Ok(builder.finish())
}

/// The rows as a table in memory.
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
        // The fields lose the table's name: nothing of the statement may refer to it.
        let bare = scan.schema().columns().into_iter().zip(names);
        let exprs = bare.map(|(c, _)| {
            let name = c.name.clone();
            Expr::Column(c).alias(name)
        });
        super::pipeline::project(scan.clone(), exprs.collect())
    }
}

/// Cells that are expressions.
struct Computed {
    /// (column, row, expression)
    cells: Vec<(usize, usize, Expr)>,
    /// what the expressions with subqueries are computed from
    subqueries: Option<LogicalPlan>,
}

impl Computed {
    async fn plan(
        context: &StatementContext,
        target: &Target,
        values: &Values,
        columns: &[usize],
    ) -> Result<Self> {
        let mut places = Vec::new();
        let mut written = Vec::new();
        for (i, cells) in values.columns.iter().enumerate() {
            for (row, cell) in cells.iter().enumerate() {
                if let Cell::Computed(expr) = cell {
                    places.push((i, row));
                    written.push(expr.as_ref().clone());
                }
            }
        }
        let planned = plan_scalars(context, written, "VALUES").await?;
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

    /// The computed cells of a column.
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

    /// `rows` with the results of the subqueries as further fields.
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

/// A cell that is a literal, or one that must be computed.
pub(super) fn literal(expr: &ast::Expr, column: &ColumnDef) -> Result<Cell> {
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
            _ => Ok(Cell::Computed(Box::new(expr.clone()))),
        },
        ast::Expr::Value(value) => Ok(match &value.value {
            ast::Value::Null => Cell::Null,
            ast::Value::Number(text, _) => return of_number(text.clone(), expr, column),
            ast::Value::SingleQuotedString(text)
            | ast::Value::EscapedStringLiteral(text)
            | ast::Value::UnicodeStringLiteral(text) => Cell::Text(text.clone()),
            ast::Value::DollarQuotedString(text) => Cell::Text(text.value.clone()),
            ast::Value::Boolean(value) => return of_boolean(*value, column),
            ast::Value::HexStringLiteral(digits) if column.sql_type == SqlType::Bytea => {
                Cell::Text(format!("\\x{digits}"))
            }
            _ => Cell::Computed(Box::new(expr.clone())),
        }),
        ast::Expr::Cast {
            expr: operand,
            data_type,
            ..
        } => {
            let same = types::from_ast(data_type)? == Some(column.sql_type);
            match literal(operand, column) {
                Ok(Cell::Text(text)) if same && is_quoted(operand) => Ok(Cell::Text(text)),
                _ => Ok(Cell::Computed(Box::new(expr.clone()))),
            }
        }
        _ => Ok(Cell::Computed(Box::new(expr.clone()))),
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

/// A number literal.
fn of_number(text: String, expr: &ast::Expr, column: &ColumnDef) -> Result<Cell> {
    let is_whole = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    Ok(match column.sql_type {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt if !is_whole => {
            // An assignment rounds.
            let rounded = parse_numeric(&text, Shape::new(38, 0))?;
            Cell::Text(rounded.to_string())
        }
        SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double
        | SqlType::Numeric { .. } => Cell::Text(text),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => match text.parse::<i64>() {
            Ok(number) => Cell::Text(number.to_string()),
            Err(_) => Cell::Computed(Box::new(expr.clone())),
        },
        _ if is_whole => return Err(mismatch(column, &DataType::Int32)),
        _ => return Err(mismatch(column, &DataType::Decimal64(18, 1))),
    })
}

fn of_boolean(value: bool, column: &ColumnDef) -> Result<Cell> {
    if !is_assignable(&DataType::Boolean, column.sql_type) {
        return Err(mismatch(column, &DataType::Boolean));
    }
    Ok(Cell::Text(value.to_string()))
}
