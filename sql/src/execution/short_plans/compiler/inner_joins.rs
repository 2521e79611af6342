//! Inner joins of several relations, in an order in which keys lead from one to the next.
//!
//! The joins of a plan are taken apart into relations and conditions. The relation that is expected
//! to give the fewest rows comes first, then always one whose key is known from those before it.

use super::demand::Demand;
use super::join::{Driven, Output, Pair, Side, side};
use super::{Compiler, is_inner_join};
use crate::execution::short_plans::node::Node;
use crate::execution::short_plans::operators::JoinKind;
use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{self as logical, BinaryExpr, Expr, LogicalPlan, Operator};
use std::collections::BTreeSet;

/// So many relations are ordered at most: orders are tried out.
const RELATIONS_MAX: usize = 8;

/// The parts of inner joins.
#[derive(Default)]
struct Joins<'a> {
    relations: Vec<&'a LogicalPlan>,
    /// conditions that no operator stands for yet
    conditions: Vec<Expr>,
}

impl<'a> Joins<'a> {
    fn add(&mut self, plan: &'a LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_inner_join(plan) => {
                self.add(&join.left);
                self.add(&join.right);
                for (left, right) in &join.on {
                    let equal = logical::binary_expr(left.clone(), Operator::Eq, right.clone());
                    self.conditions.push(equal);
                }
                let filter = join.filter.iter().flat_map(split_conjunction);
                self.conditions.extend(filter.cloned());
            }
            LogicalPlan::Projection(project) if is_inner_join(plan) => self.add(&project.input),
            LogicalPlan::Filter(filter) if is_inner_join(plan) => {
                let parts = split_conjunction(&filter.predicate).into_iter();
                self.conditions.extend(parts.cloned());
                self.add(&filter.input);
            }
            other => self.relations.push(other),
        }
    }

    /// Takes the conditions that have columns of `schema` only.
    fn take_within(&mut self, schema: &DFSchema) -> Vec<Expr> {
        let (within, others) = std::mem::take(&mut self.conditions)
            .into_iter()
            .partition(|condition| is_within(condition, schema));
        self.conditions = others;
        within
    }

    /// The equalities of columns of `outer` and of `inner`, with their places among the conditions.
    fn pairs(&self, outer: &DFSchema, inner: &DFSchema) -> (Vec<usize>, Vec<Pair>) {
        let pair = |condition: &Expr| {
            let Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) = condition
            else {
                return None;
            };
            let (left, right) = (left.as_ref(), right.as_ref());
            let has_sides = |a, b| is_within(a, outer) && is_within(b, inner);
            let sides = if has_sides(left, right) {
                Some((left, right))
            } else {
                has_sides(right, left).then_some((right, left))
            };
            sides.map(|(outer, inner)| Pair {
                outer: outer.clone(),
                inner: inner.clone(),
                operator: Operator::Eq,
            })
        };
        let conditions = self.conditions.iter().enumerate();
        conditions
            .filter_map(|(at, condition)| Some((at, pair(condition)?)))
            .unzip()
    }
}

/// Whether all columns of an expression are of `schema`.
fn is_within(expr: &Expr, schema: &DFSchema) -> bool {
    let mut columns = expr.column_refs().into_iter();
    columns.all(|column| schema.has_column(column))
}

/// A relation that may be the next.
struct Next {
    /// its place among the relations that are left
    at: usize,
    driven: Driven,
    /// the places of the conditions that its keys stand for
    decided: Vec<usize>,
    absorbed: BTreeSet<usize>,
}

impl Compiler<'_> {
    pub(super) fn inner_joins(
        &mut self,
        plan: &LogicalPlan,
        demand: &Demand,
        above: Vec<Expr>,
    ) -> Option<Node> {
        let mut joins = Joins::default();
        joins.add(plan);
        joins.conditions.extend(above);
        if joins.relations.len() > RELATIONS_MAX {
            return None;
        }
        let relations = std::mem::take(&mut joins.relations);
        let own = |relation: &&LogicalPlan| joins.take_within(relation.schema());
        let own: Vec<Vec<Expr>> = relations.iter().map(own).collect();
        let mut left: Vec<(&LogicalPlan, Vec<Expr>)> = relations.into_iter().zip(own).collect();
        let mut bound = self.first_of(&mut left, demand)?;
        while !left.is_empty() {
            let next = self.next_of(&bound, &left, &joins, demand)?;
            left.remove(next.at);
            self.absorbed = next.absorbed;
            let mut places = 0..;
            joins.conditions.retain(|_| {
                let at = places.next();
                at.is_none_or(|at| !next.decided.contains(&at))
            });
            let inner = next.driven.side;
            let schema = bound.schema.join(&inner.schema).ok()?;
            let conditions = joins.take_within(&schema);
            let output = match left.is_empty() {
                true => output_of(plan.schema(), &schema)?,
                false => Output {
                    wanted: (0..schema.fields().len()).collect(),
                    schema: schema.inner().clone(),
                },
            };
            let inner = (inner, next.driven.keys);
            let node = self.joined(JoinKind::Inner, bound, inner, &conditions, output)?;
            bound = Side { node, schema };
        }
        joins.conditions.is_empty().then_some(bound.node)
    }

    /// Takes the relation that alone gives the fewest rows.
    fn first_of(
        &mut self,
        left: &mut Vec<(&LogicalPlan, Vec<Expr>)>,
        demand: &Demand,
    ) -> Option<Side> {
        let before = self.absorbed.clone();
        let mut best: Option<(usize, Node, BTreeSet<usize>)> = None;
        for (at, (relation, own)) in left.iter().enumerate() {
            let demand = within(demand, relation.schema());
            let found = self.plan(relation, &demand, own.clone());
            let absorbed = std::mem::replace(&mut self.absorbed, before.clone());
            let Some(node) = found else { continue };
            let is_better = best
                .as_ref()
                .is_none_or(|(_, b, _)| node.estimate < b.estimate);
            if is_better {
                best = Some((at, node, absorbed));
            }
        }
        let (at, node, absorbed) = best?;
        self.absorbed = absorbed;
        let (relation, _) = left.remove(at);
        Some(side(node, relation))
    }

    /// The relation to join next: one that is found by keys, of these the one with the fewest rows.
    fn next_of(
        &mut self,
        bound: &Side,
        left: &[(&LogicalPlan, Vec<Expr>)],
        joins: &Joins<'_>,
        demand: &Demand,
    ) -> Option<Next> {
        let before = self.absorbed.clone();
        let mut best: Option<Next> = None;
        for (at, (relation, own)) in left.iter().enumerate() {
            let (places, pairs) = joins.pairs(&bound.schema, relation.schema());
            let demand = within(demand, relation.schema());
            let found = self.driven(bound, relation, &pairs, &demand, own.clone());
            let absorbed = std::mem::replace(&mut self.absorbed, before.clone());
            let Some(driven) = found else { continue };
            let rank = |driven: &Driven| (driven.keys.is_empty(), driven.side.node.estimate);
            let is_better = best
                .as_ref()
                .is_none_or(|best| rank(&driven) < rank(&best.driven));
            if is_better {
                let decided = driven.decided.iter().filter_map(|pair| places.get(*pair));
                best = Some(Next {
                    at,
                    decided: decided.copied().collect(),
                    driven,
                    absorbed,
                });
            }
        }
        best
    }
}

/// The demand for columns of `schema`.
fn within(demand: &Demand, schema: &DFSchema) -> Demand {
    let known = demand.without_first();
    known.through(|column| schema.has_column(column).then(|| column.clone()))
}

/// The columns of `wanted` among those of a pair.
fn output_of(wanted: &DFSchema, pair: &DFSchema) -> Option<Output> {
    let columns = wanted.columns();
    let places = columns
        .iter()
        .map(|column| pair.maybe_index_of_column(column));
    Some(Output {
        wanted: places.collect::<Option<_>>()?,
        schema: wanted.inner().clone(),
    })
}
