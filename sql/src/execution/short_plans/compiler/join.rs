//! Joins of an outer and an inner side: outer, semi, anti and mark joins, and what inner joins have
//! in common with them.

use super::comparisons::column_of;
use super::demand::{Demand, Equal};
use super::{Compiler, texts};
use crate::execution::row_executor::SlotRef;
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::{Aggregate, Join, JoinKind, Key};
use crate::execution::short_plans::run::Expression;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Column, DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{self as logical, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;
use strandline_semantics::types::sql_type_of_arrow;

/// An equality of an outer and an inner expression.
pub(super) struct Pair {
    pub outer: Expr,
    pub inner: Expr,
    pub operator: Operator,
}

impl Pair {
    pub fn condition(&self) -> Expr {
        logical::binary_expr(self.outer.clone(), self.operator, self.inner.clone())
    }
}

/// A compiled side with its columns.
pub(super) struct Side {
    pub node: Node,
    pub schema: DFSchema,
}

/// An inner side that is run with an outer row's keys.
pub(super) struct Driven {
    pub side: Side,
    /// the keys that it looks for; none: it does not depend on the outer side
    pub keys: Vec<Key>,
    /// the numbers of the pairs that it stands for
    pub decided: Vec<usize>,
}

/// A pair's key that an inner side may look for.
struct Candidate {
    pair: usize,
    column: Column,
    slot: SlotRef,
    value: Expression,
}

/// The columns that a join gives.
pub(super) struct Output {
    /// columns of a pair of rows
    pub wanted: Vec<usize>,
    pub schema: SchemaRef,
}

impl Compiler<'_> {
    pub(super) fn join(&mut self, join: &logical::Join, demand: &Demand) -> Option<Node> {
        let (kind, is_swapped) = kind_of(join)?;
        let (left, right) = (join.left.as_ref(), join.right.as_ref());
        let (outer, inner) = match is_swapped {
            false => (left, right),
            true => (right, left),
        };
        let pairs = pairs_of(join, is_swapped);
        let filter = join.filter.iter().flat_map(split_conjunction);
        let filter: Vec<Expr> = filter.cloned().collect();
        let of_outer = demand.without_first().through(|column| {
            let is_outer = outer.schema().has_column(column);
            is_outer.then(|| column.clone())
        });
        let known = self.absorbed.clone();
        let Some(node) = self.plan(outer, &of_outer, Vec::new()) else {
            self.absorbed = known;
            let is_plain = kind == JoinKind::Semi && filter.is_empty();
            return match is_plain {
                true => self.reversed_semi(join, (outer, inner), &pairs),
                false => None,
            };
        };
        let outer = side(node, outer);
        let Driven {
            side: inner,
            keys,
            decided,
        } = self.driven(&outer, inner, &pairs, &Demand::default(), Vec::new())?;
        let others = pairs.iter().enumerate();
        let others = others.filter(|(at, _)| !decided.contains(at));
        let mut conditions: Vec<Expr> = others.map(|(_, pair)| pair.condition()).collect();
        conditions.extend(filter);
        let (outers, inners) = (width(&outer), width(&inner));
        let wanted = match kind {
            JoinKind::Inner | JoinKind::Outer if is_swapped => {
                (outers..outers + inners).chain(0..outers).collect()
            }
            JoinKind::Inner | JoinKind::Outer => (0..outers + inners).collect(),
            JoinKind::Semi | JoinKind::Anti | JoinKind::Mark => (0..outers).collect(),
        };
        let output = Output {
            wanted,
            schema: join.schema.inner().clone(),
        };
        self.joined(kind, outer, (inner, keys), &conditions, output)
    }

    /// The inner side for rows of `outer`: of the rows that agree in all pairs, and perhaps others.
    pub(super) fn driven(
        &mut self,
        outer: &Side,
        inner: &LogicalPlan,
        pairs: &[Pair],
        demand: &Demand,
        above: Vec<Expr>,
    ) -> Option<Driven> {
        let mut candidates = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            candidates.extend(self.candidate(at, pair, outer, inner.schema()));
        }
        let mut demand = demand.without_first();
        demand.equal.extend(candidates.iter().map(|key| Equal {
            column: key.column.clone(),
            slot: key.slot,
        }));
        let node = self.plan(inner, &demand, above)?;
        let mut found = Driven {
            side: side(node, inner),
            keys: Vec::new(),
            decided: Vec::new(),
        };
        for key in candidates {
            if self.absorbed.contains(&key.slot.at) {
                found.decided.push(key.pair);
                found.keys.push(Key {
                    slot: key.slot.at,
                    value: key.value,
                });
            }
        }
        Some(found)
    }

    fn candidate(
        &mut self,
        number: usize,
        pair: &Pair,
        outer: &Side,
        inner: &DFSchema,
    ) -> Option<Candidate> {
        if pair.operator != Operator::Eq {
            return None;
        }
        let column = column_of(&pair.inner, inner)?.clone();
        let sql_type = sql_type_of_arrow(&pair.outer.get_type(&outer.schema).ok()?)?;
        let value = self.expression(&pair.outer, &outer.schema)?;
        let at = self.new_slot(ScalarValue::Null);
        Some(Candidate {
            pair: number,
            column,
            slot: SlotRef { at, sql_type },
            value,
        })
    }

    /// A join of compiled sides.
    pub(super) fn joined(
        &mut self,
        kind: JoinKind,
        outer: Side,
        (inner, keys): (Side, Vec<Key>),
        conditions: &[Expr],
        output: Output,
    ) -> Option<Node> {
        let pair = outer.schema.join(&inner.schema).ok()?;
        let estimate = match kind {
            JoinKind::Inner | JoinKind::Outer => {
                outer.node.estimate.saturating_mul(inner.node.estimate)
            }
            JoinKind::Semi | JoinKind::Anti | JoinKind::Mark => outer.node.estimate,
        };
        let operator = Join {
            kind,
            outer: outer.node,
            keys,
            conditions: self.expressions(conditions, &pair)?,
            inner_schema: inner.schema.inner().clone(),
            inner: inner.node,
            pair_schema: pair.inner().clone(),
            wanted: output.wanted,
            schema: output.schema,
            text: texts(conditions, " AND "),
        };
        Some(self.node(operator, estimate))
    }

    /// A semi join whose outer rows are found by the distinct keys of the inner side.
    fn reversed_semi(
        &mut self,
        join: &logical::Join,
        (outer, inner): (&LogicalPlan, &LogicalPlan),
        pairs: &[Pair],
    ) -> Option<Node> {
        let is_equality = |pair: &Pair| pair.operator == Operator::Eq;
        if pairs.is_empty() || !pairs.iter().all(is_equality) {
            return None;
        }
        let input = self.plan(inner, &Demand::default(), Vec::new())?;
        let keys: Vec<Expr> = pairs.iter().map(|pair| pair.inner.clone()).collect();
        let field = |(at, key): (usize, &Expr)| {
            let (_, field) = key.to_field(inner.schema().as_ref()).ok()?;
            Some(Arc::new(
                field.as_ref().clone().with_name(format!("\u{1}key{at}")),
            ))
        };
        let fields = keys.iter().enumerate().map(field);
        let fields: Vec<_> = fields.collect::<Option<_>>()?;
        let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new()).ok()?;
        let back: Vec<Pair> = schema
            .columns()
            .into_iter()
            .zip(pairs)
            .map(|(key, pair)| Pair {
                outer: Expr::Column(key),
                inner: pair.outer.clone(),
                operator: Operator::Eq,
            })
            .collect();
        let estimate = input.estimate;
        let distinct = Aggregate {
            input,
            groups: self.expressions(&keys, inner.schema())?,
            calls: Vec::new(),
            schema: schema.inner().clone(),
            text: texts(&keys, ", "),
        };
        let distinct = Side {
            node: self.node(distinct, estimate),
            schema,
        };
        let found = self.driven(&distinct, outer, &back, &Demand::default(), Vec::new())?;
        if found.keys.is_empty() {
            return None;
        }
        let others = back.iter().enumerate();
        let others = others.filter(|(at, _)| !found.decided.contains(at));
        let conditions: Vec<Expr> = others.map(|(_, pair)| pair.condition()).collect();
        let (outers, inners) = (width(&distinct), width(&found.side));
        let output = Output {
            wanted: (outers..outers + inners).collect(),
            schema: join.schema.inner().clone(),
        };
        let inner = (found.side, found.keys);
        self.joined(JoinKind::Inner, distinct, inner, &conditions, output)
    }
}

pub(super) fn side(node: Node, plan: &LogicalPlan) -> Side {
    Side {
        node,
        schema: plan.schema().as_ref().clone(),
    }
}

pub(super) fn width(side: &Side) -> usize {
    side.schema.fields().len()
}

/// What a join gives, and whether its right side is the outer one.
fn kind_of(join: &logical::Join) -> Option<(JoinKind, bool)> {
    use JoinType as T;
    let found = match join.join_type {
        T::Inner => (JoinKind::Inner, false),
        T::Left => (JoinKind::Outer, false),
        T::Right => (JoinKind::Outer, true),
        T::LeftSemi => (JoinKind::Semi, false),
        T::RightSemi => (JoinKind::Semi, true),
        T::LeftAnti => (JoinKind::Anti, false),
        T::RightAnti => (JoinKind::Anti, true),
        T::LeftMark => (JoinKind::Mark, false),
        T::RightMark => (JoinKind::Mark, true),
        T::Full => return None,
    };
    // NOT IN of a subquery with NULLs is unknown for every row.
    (!join.null_aware).then_some(found)
}

fn pairs_of(join: &logical::Join, is_swapped: bool) -> Vec<Pair> {
    let operator = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let pairs = join.on.iter().map(|(left, right)| {
        let (outer, inner) = match is_swapped {
            false => (left, right),
            true => (right, left),
        };
        Pair {
            outer: outer.clone(),
            inner: inner.clone(),
            operator,
        }
    });
    pairs.collect()
}
