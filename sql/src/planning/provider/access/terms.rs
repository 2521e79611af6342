//! The terms that conditions and orders are about: a table's columns, and the expressions of its
//! indexes, which count as further columns.
//!
//! An expression of a statement is an index's if both are equal in canonical form: analyzed, with
//! their casts in place and constants folded, without qualifiers, aliases and the metadata of
//! literals. What the text looks like does not matter.
//!
//! Invariant: two expressions with one canonical form have the same value for every row.

use crate::parse::{self, index_names};
use crate::planning::expressions::{Role, analyze, plan_parsed, simplify};
use crate::planning::provider::table_schema::condition_schema;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, ScalarValue};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, Value};
use strandline_engine::catalog::index::{IndexDef, IndexExpression, IndexPart, IndexValue};
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_semantics::error::convert;

/// Keeps the names of expressions from those of columns: no user can write it.
const EXPRESSION: &str = "\u{1f}expression ";

/// The terms of one table.
pub struct Terms {
    /// the table's definition with the expressions as columns behind its own
    columns: Arc<TableDef>,
    expressions: Vec<Term>,
}

/// An expression of indexes.
struct Term {
    id: ColumnId,
    /// as its indexes have it
    declared: Vec<IndexExpression>,
    canonical: Expr,
    /// over the table's columns
    physical: Arc<dyn PhysicalExpr>,
    /// as EXPLAIN shows it
    text: String,
}

impl Terms {
    /// Those of `table`, whose names the expressions of `indexes` use.
    pub fn of<'a>(
        table: &Arc<TableDef>,
        indexes: impl Iterator<Item = &'a IndexDef>,
        state: &SessionState,
    ) -> Result<Self> {
        let mut terms = Self {
            columns: table.clone(),
            expressions: Vec::new(),
        };
        for part in indexes.flat_map(|index| &index.parts) {
            if let IndexValue::Expression(expression) = &part.value
                && terms.id_of(part).is_none()
            {
                terms.add(expression, table, state)?;
            }
        }
        Ok(terms)
    }

    fn add(
        &mut self,
        expression: &IndexExpression,
        table: &TableDef,
        state: &SessionState,
    ) -> Result<()> {
        let schema = Arc::new(condition_schema(table)?);
        let parsed = parse::expression(&expression.sql)?;
        let stands_alone = index_names::stands_alone(&parsed);
        let analyzed = analyzed(parsed, Role::Value, &schema, state)?;
        let canonical = bare(&analyzed);
        let mut known = self.expressions.iter_mut();
        if let Some(same) = known.find(|term| term.canonical == canonical) {
            same.declared.push(expression.clone());
            return Ok(());
        }
        let physical = create_physical_expr(
            &analyzed,
            &schema,
            state.execution_props(),
            &PhysicalPlanningContext::default(),
        );
        let number = self.expressions.len();
        let id = ColumnId(u32::MAX - number as u32);
        self.expressions.push(Term {
            id,
            canonical,
            physical: physical.map_err(convert)?,
            text: match stands_alone {
                true => expression.sql.clone(),
                false => format!("({})", expression.sql),
            },
            declared: vec![expression.clone()],
        });
        Arc::make_mut(&mut self.columns).columns.push(ColumnDef {
            id,
            name: format!("{EXPRESSION}{number}"),
            sql_type: expression.sql_type,
            not_null: false,
            default: None,
            missing: Value::Null,
            identity: None,
            comment: None,
        });
        Ok(())
    }

    /// A definition whose columns are all terms.
    pub fn columns(&self) -> &TableDef {
        &self.columns
    }

    /// The term that a part of an index is.
    pub fn id_of(&self, part: &IndexPart) -> Option<ColumnId> {
        match &part.value {
            IndexValue::Column(id) => Some(*id),
            IndexValue::Expression(expression) => {
                let mut terms = self.expressions.iter();
                let term = terms.find(|term| term.declared.contains(expression));
                term.map(|term| term.id)
            }
        }
    }

    /// The term that an expression over columns of `schema` is.
    pub fn id_of_physical(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> Option<ColumnId> {
        let is_same = |term: &&Term| {
            let known = reassign_expr_columns(term.physical.clone(), schema);
            known.is_ok_and(|known| &known == expression)
        };
        self.expressions.iter().find(is_same).map(|term| term.id)
    }

    /// A term as EXPLAIN shows it.
    pub fn text(&self, id: ColumnId) -> &str {
        let mut expressions = self.expressions.iter();
        match expressions.find(|term| term.id == id) {
            Some(term) => &term.text,
            None => self.columns.column_by_id(id).map_or("", |c| &c.name),
        }
    }

    /// A condition with columns of [`Terms::columns`] in the places of expressions; None: it has
    /// none of them.
    pub fn in_terms(&self, condition: &Expr) -> Option<Expr> {
        if self.expressions.is_empty() {
            return None;
        }
        let replaced = bare(condition).transform_down(|part| {
            let term = self.expressions.iter().find(|term| term.canonical == part);
            let name = term.and_then(|term| self.columns.column_by_id(term.id));
            Ok(match name {
                Some(column) => Transformed::new(
                    Expr::Column(Column::new_unqualified(&column.name)),
                    true,
                    TreeNodeRecursion::Jump,
                ),
                None => Transformed::no(part),
            })
        });
        let replaced = replaced.ok()?;
        replaced.transformed.then_some(replaced.data)
    }
}

/// An expression over the columns of `schema`, analyzed and simplified.
pub fn analyzed(
    parsed: ast::Expr,
    role: Role,
    schema: &DFSchemaRef,
    state: &SessionState,
) -> Result<Expr> {
    let planned = plan_parsed(parsed, schema, state)?;
    let analyzed = analyze(planned, role, schema, state)?;
    simplify(analyzed, schema, state).map_err(convert)
}

/// An analyzed and simplified expression in canonical form.
pub fn bare(expression: &Expr) -> Expr {
    let bared = expression.clone().transform_up(|part| {
        Ok(match part {
            Expr::Alias(alias) => Transformed::yes(*alias.expr),
            Expr::Column(Column {
                relation: Some(_),
                name,
                ..
            }) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
            Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text), _) => {
                Transformed::yes(Expr::Literal(ScalarValue::Utf8View(text), None))
            }
            Expr::Literal(value, Some(_)) => Transformed::yes(Expr::Literal(value, None)),
            other => Transformed::no(other),
        })
    });
    bared.map_or_else(|_| expression.clone(), |bared| bared.data)
}
