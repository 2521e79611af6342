//! Unique index inference [PostgreSQL, INSERT: conflict_target]. ON CONFLICT's target selects the
//! keys and unique indexes with exactly its columns and expressions, in any order. The predicate of
//! a partial index must follow from the target's predicate.

use super::arbiter::Arbiter;
use super::target::Target;
use crate::parse::conflict_targets::{self, InferenceTarget};
use crate::parse::{self, names};
use crate::planning::context::StatementContext;
use crate::planning::provider::access::is_implied_by;
use crate::planning::provider::table_schema::condition_schema;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, Ident, ObjectNamePart, VisitorMut,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::index::{IndexDef, IndexValue};
use strandline_semantics::sql::walk::walk_mut;

/// The arbiters for the target `columns`, in the parser's form.
///
/// # Errors
/// 42P10 if no key or index matches.
pub(super) fn infer(
    context: &StatementContext,
    target: &Target,
    columns: &[Ident],
) -> Result<Vec<Arbiter>> {
    let table = &target.table;
    let written = conflict_targets::read(columns)?;
    let wanted = Wanted::of(target, &written)?;
    let schema = Arc::new(condition_schema(table)?);
    for expression in &wanted.expressions {
        context.plan_expression(expression, &schema)?;
    }
    if let Some(predicate) = &wanted.predicate {
        context.plan_expression(predicate, &schema)?;
    }
    let mut fitting = Vec::new();
    for arbiter in Arbiter::all(table) {
        let fits = match arbiter {
            Arbiter::Key(at) => wanted.is(&table.keys[at].columns, &[]),
            Arbiter::Index(at) => {
                let index = &table.indexes[at];
                let (columns, expressions) = parts(index)?;
                wanted.is(&columns, &expressions) && is_covered(context, target, index, &wanted)?
            }
        };
        if fits {
            fitting.push(arbiter);
        }
    }
    if fitting.is_empty() {
        return Err(Error::invalid(
            SqlState("42P10"),
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        ));
    }
    Ok(fitting)
}

/// A target with its names resolved.
struct Wanted {
    /// sorted, without duplicates
    columns: Vec<ColumnId>,
    /// in canonical form
    expressions: Vec<Expr>,
    /// in canonical form
    predicate: Option<Expr>,
}

impl Wanted {
    fn of(target: &Target, written: &InferenceTarget) -> Result<Self> {
        let (mut columns, mut expressions) = (Vec::new(), Vec::new());
        for part in &written.parts {
            let mut part = part;
            while let Expr::Nested(inner) | Expr::Collate { expr: inner, .. } = part {
                part = inner;
            }
            match part {
                Expr::Identifier(name) => {
                    columns.push(target.table.require_column(&names::fold(name))?.id);
                }
                other => expressions.push(canonical(other)),
            }
        }
        columns.sort_unstable();
        columns.dedup();
        Ok(Self {
            columns,
            expressions,
            predicate: written.predicate.as_ref().map(canonical),
        })
    }

    fn is(&self, columns: &[ColumnId], expressions: &[Expr]) -> bool {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        columns == self.columns
            && expressions.iter().all(|e| self.expressions.contains(e))
            && self.expressions.iter().all(|e| expressions.contains(e))
    }
}

fn parts(index: &IndexDef) -> Result<(Vec<ColumnId>, Vec<Expr>)> {
    let (mut columns, mut expressions) = (Vec::new(), Vec::new());
    for part in &index.parts {
        match &part.value {
            IndexValue::Column(id) => columns.push(*id),
            IndexValue::Expression(expression) => {
                expressions.push(canonical(&parse::expression(&expression.sql)?));
            }
        }
    }
    Ok((columns, expressions))
}

/// Whether `index` contains every row that satisfies the target's predicate.
fn is_covered(
    context: &StatementContext,
    target: &Target,
    index: &IndexDef,
    wanted: &Wanted,
) -> Result<bool> {
    let Some(own) = &index.predicate else {
        return Ok(true);
    };
    let Some(given) = &wanted.predicate else {
        return Ok(false);
    };
    let own = canonical(&parse::expression(&own.sql)?);
    let given_parts = conjuncts(given);
    if conjuncts(&own)
        .iter()
        .all(|part| given_parts.contains(part))
    {
        return Ok(true);
    }
    is_implied_by(index, &target.table, given, &context.state)
}

fn conjuncts(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => [conjuncts(left), conjuncts(right)].concat(),
        other => vec![other],
    }
}

/// The canonical form of an expression: no parentheses around it or its operands, columns without
/// qualifiers, folded names, casts by CAST.
fn canonical(expression: &Expr) -> Expr {
    let mut expression = expression.clone();
    let _ = walk_mut(&mut expression, &mut Canonical);
    expression
}

struct Canonical;

impl VisitorMut for Canonical {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        while let Expr::Nested(inner) = expr {
            let inner = std::mem::replace(inner.as_mut(), Expr::Identifier(Ident::new("")));
            *expr = inner;
        }
        match expr {
            Expr::Identifier(name) => *name = names::ident(&names::fold(name)),
            Expr::CompoundIdentifier(parts) => {
                if let Some(column) = parts.last() {
                    *expr = Expr::Identifier(names::ident(&names::fold(column)));
                }
            }
            Expr::Function(call) => {
                for part in &mut call.name.0 {
                    if let ObjectNamePart::Identifier(name) = part {
                        *name = names::ident(&names::fold(name));
                    }
                }
            }
            Expr::Cast { kind, .. } => *kind = CastKind::Cast,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
