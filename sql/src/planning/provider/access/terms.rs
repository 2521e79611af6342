//! Terms: a table's columns, and the expressions of its indexes, which conditions and orders use
//! like further columns. With them, the predicates of its partial indexes.
//!
//! An expression of a statement is an index's if both have the same canonical form: analyzed, with
//! casts inserted and constants folded, without qualifiers and aliases. Spelling does not matter.
//! Literals keep their types, because a function may depend on them.
//!
//! Invariant: two expressions with one canonical form have the same value for every row.
//! Expressions of indexes are immutable, so this holds at any time and in any session.
//!
//! Planning an expression costs more than planning a short statement. So the terms of a table are
//! planned once for each of its definitions, and kept in [`KeptTerms`], with evaluators that have
//! no statement's options.

use super::condition::{Conjunction, exact};
use super::intervals::Intervals;
use crate::parse::{self, index_names};
use crate::planning::expressions::{Role, analyze, plan_parsed, simplify};
use crate::planning::provider::table_schema::condition_schema;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, Result as PlanResult};
use datafusion::config::ConfigOptions;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, create_physical_expr};
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use strandline_base::{ColumnId, Result, TableId};
use strandline_engine::catalog::index::{
    IndexDef, IndexExpression, IndexId, IndexPart, IndexValue,
};
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_semantics::error::convert;

#[cfg(test)]
mod tests;

/// Prefix of an expression's name as a column. No user can write it.
const EXPRESSION: &str = "\u{1f}expression ";

/// The terms of a database's tables that have indexes over expressions or partial ones.
#[derive(Default)]
pub struct KeptTerms {
    tables: Mutex<HashMap<TableId, Kept>>,
}

/// A definition of a table, and its terms.
type Kept = (Arc<TableDef>, Arc<Terms>);

impl KeptTerms {
    /// The terms of `table` and its own indexes.
    pub fn of(&self, table: &Arc<TableDef>, state: &SessionState) -> Result<Arc<Terms>> {
        if let Some((def, terms)) = self.tables.lock().get(&table.id)
            && Arc::ptr_eq(def, table)
        {
            return Ok(terms.clone());
        }
        let indexes = table.indexes.iter().map(AsRef::as_ref);
        let terms = Arc::new(Terms::of(table, indexes, state)?);
        let mut tables = self.tables.lock();
        // A definition that nobody else has is of the past.
        tables.retain(|_, (def, _)| Arc::strong_count(def) > 1);
        tables.insert(table.id, (table.clone(), terms.clone()));
        Ok(terms)
    }
}

/// The terms of one table.
pub struct Terms {
    /// the table's definition, with the expressions as columns after its own
    columns: Arc<TableDef>,
    expressions: Vec<Term>,
    predicates: Vec<(IndexId, Predicate)>,
}

/// An expression of indexes.
struct Term {
    id: ColumnId,
    /// as its indexes declare it
    declared: Vec<IndexExpression>,
    canonical: Expr,
    /// over the table's columns, [without options](without_options)
    evaluator: Arc<dyn PhysicalExpr>,
    /// as EXPLAIN shows it
    text: String,
}

/// The predicate of a partial index.
pub struct Predicate {
    pub conjuncts: Vec<Conjunct>,
}

/// One conjunct of a predicate.
pub struct Conjunct {
    pub canonical: Expr,
    /// the values of columns for which it is true, if these are all that it depends on
    pub values: Option<BTreeMap<ColumnId, Intervals>>,
}

impl Terms {
    /// The columns of a table whose indexes have neither expressions nor predicates.
    pub fn of_columns(table: &Arc<TableDef>) -> Self {
        Self {
            columns: table.clone(),
            expressions: Vec::new(),
            predicates: Vec::new(),
        }
    }

    /// The terms of `table`, whose names the expressions of `indexes` use.
    pub fn of<'a>(
        table: &Arc<TableDef>,
        indexes: impl Iterator<Item = &'a IndexDef>,
        state: &SessionState,
    ) -> Result<Self> {
        let mut terms = Self::of_columns(table);
        let mut indexes = indexes.filter(|index| !index.is_plain()).peekable();
        if indexes.peek().is_none() {
            return Ok(terms);
        }
        let schema = Arc::new(condition_schema(table)?);
        for index in indexes {
            for part in &index.parts {
                if let IndexValue::Expression(expression) = &part.value
                    && terms.id_of(part).is_none()
                {
                    terms.add(expression, &schema, state)?;
                }
            }
            if let Some(predicate) = &index.predicate {
                let predicate = Predicate::of(predicate, table, &schema, state)?;
                terms.predicates.push((index.id, predicate));
            }
        }
        Ok(terms)
    }

    fn add(
        &mut self,
        expression: &IndexExpression,
        schema: &DFSchemaRef,
        state: &SessionState,
    ) -> Result<()> {
        let parsed = parse::expression(&expression.sql)?;
        let stands_alone = index_names::stands_alone(&parsed);
        let analyzed = analyzed(parsed, Role::Value, schema, state)?;
        let canonical = bare(&analyzed);
        let mut known = self.expressions.iter_mut();
        if let Some(same) = known.find(|term| term.canonical == canonical) {
            same.declared.push(expression.clone());
            return Ok(());
        }
        let evaluator = physical(&analyzed, schema, state)?;
        let number = self.expressions.len();
        let id = ColumnId(u32::MAX - number as u32);
        self.expressions.push(Term {
            id,
            canonical,
            evaluator: without_options(evaluator).map_err(convert)?,
            text: match stands_alone {
                true => expression.sql.clone(),
                false => format!("({})", expression.sql),
            },
            declared: vec![expression.clone()],
        });
        let column = ColumnDef::new(id, format!("{EXPRESSION}{number}"), expression.sql_type);
        Arc::make_mut(&mut self.columns).columns.push(column);
        Ok(())
    }

    /// A definition whose columns are all terms.
    pub fn columns(&self) -> &TableDef {
        &self.columns
    }

    /// The predicate of a partial index.
    pub fn predicate(&self, index: IndexId) -> Option<&Predicate> {
        let mut predicates = self.predicates.iter();
        let found = predicates.find(|(id, _)| *id == index);
        found.map(|(_, predicate)| predicate)
    }

    /// The term of a part of an index.
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

    /// The term that is computed by `expression`, over columns of `schema`, which are the table's.
    pub fn computed_by(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
    ) -> Option<ColumnId> {
        if self.expressions.is_empty() {
            return None;
        }
        let expression = without_options(expression.clone()).ok()?;
        let is_same = |term: &&Term| {
            let known = reassign_expr_columns(term.evaluator.clone(), schema);
            known.is_ok_and(|known| known.eq(&expression))
        };
        self.expressions.iter().find(is_same).map(|term| term.id)
    }

    /// The text of a term in EXPLAIN.
    pub fn text(&self, id: ColumnId) -> &str {
        let mut expressions = self.expressions.iter();
        match expressions.find(|term| term.id == id) {
            Some(term) => &term.text,
            None => self.columns.column_by_id(id).map_or("", |c| &c.name),
        }
    }

    /// The values of terms that `filters`, conjuncts over the table's columns, let through.
    pub fn values_of(&self, filters: &[Expr]) -> Conjunction {
        let mut all = Conjunction::default();
        for filter in filters {
            all.add(filter, &self.columns);
            if let Some(filter) = self.in_terms(filter) {
                all.add(&filter, &self.columns);
            }
        }
        all
    }

    /// A condition with columns of [`Terms::columns`] in place of expressions; None if it has no
    /// expression of an index.
    fn in_terms(&self, condition: &Expr) -> Option<Expr> {
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

impl Predicate {
    /// The predicate `declared` of an index of `table`, which has `schema`.
    pub fn of(
        declared: &IndexExpression,
        table: &TableDef,
        schema: &DFSchemaRef,
        state: &SessionState,
    ) -> Result<Self> {
        let parsed = parse::expression(&declared.sql)?;
        let analyzed = analyzed(parsed, Role::Condition, schema, state)?;
        let conjunct = |conjunct: &Expr| {
            Ok(Conjunct {
                canonical: bare(conjunct),
                values: exact(&physical(conjunct, schema, state)?, table),
            })
        };
        let conjuncts = split_conjunction(&analyzed).into_iter().map(conjunct);
        Ok(Self {
            conjuncts: conjuncts.collect::<Result<_>>()?,
        })
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

/// The evaluator of an analyzed expression.
pub fn physical(
    expression: &Expr,
    schema: &DFSchemaRef,
    state: &SessionState,
) -> Result<Arc<dyn PhysicalExpr>> {
    let props = state.execution_props();
    let context = PhysicalPlanningContext::default();
    create_physical_expr(expression, schema, props, &context).map_err(convert)
}

/// An evaluator with default options in all its functions. Functions with the options of different
/// statements differ, although the value of an immutable expression depends on no option.
fn without_options(evaluator: Arc<dyn PhysicalExpr>) -> PlanResult<Arc<dyn PhysicalExpr>> {
    static DEFAULT: LazyLock<Arc<ConfigOptions>> = LazyLock::new(Default::default);
    let changed = evaluator.transform_up(|part| {
        let Some(call) = part.downcast_ref::<ScalarFunctionExpr>() else {
            return Ok(Transformed::no(part));
        };
        let changed = ScalarFunctionExpr::new(
            call.name(),
            Arc::new(call.fun().clone()),
            call.args().to_vec(),
            call.return_field(&Schema::empty())?,
            DEFAULT.clone(),
        );
        Ok(Transformed::yes(Arc::new(changed) as _))
    })?;
    Ok(changed.data)
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
            other => Transformed::no(other),
        })
    });
    bared.map_or_else(|_| expression.clone(), |bared| bared.data)
}
