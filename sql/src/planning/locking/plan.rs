//! Puts locks into a plan: scans with row ids, nodes that pass the ids on, and the node that locks.

use super::node::{LockNode, LockTarget};
use super::{Lock, Locks, not_allowed};
use crate::parse::names::ROW_ID;
use crate::planning::provider::table::Table;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    Expr, Extension, FetchType, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, SkipType,
    SubqueryAlias, TableScan,
};
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::{convert, raise};

/// `plan` with row locks of `statement` according to `all`.
pub fn apply(plan: LogicalPlan, all: &[Locks], statement: &Arc<Statement>) -> Result<LogicalPlan> {
    let mut plan = plan;
    let mut number = 0;
    for locks in all {
        let mut weaver = Weaver {
            locks,
            statement,
            number: &mut number,
            targets: Vec::new(),
        };
        plan = match &locks.wrapped {
            None => weaver.query(&plan)?,
            Some(name) => weaver.wrapped(plan, name).map_err(convert)?,
        };
    }
    Ok(plan)
}

struct Weaver<'a> {
    locks: &'a Locks,
    statement: &'a Arc<Statement>,
    /// the number of row id columns in the whole plan
    number: &'a mut usize,
    targets: Vec<PlanTarget>,
}

struct PlanTarget {
    table: Arc<TableDef>,
    lock: Lock,
}

/// A plan and its columns of row ids, each with the index of its target.
type Woven = (LogicalPlan, Vec<(Column, usize)>);

impl Weaver<'_> {
    /// Locks in the query whose derived table is called `name`.
    fn wrapped(&mut self, plan: LogicalPlan, name: &str) -> Result<LogicalPlan, DataFusionError> {
        let done = plan.transform_up_with_subqueries(|node| match &node {
            LogicalPlan::SubqueryAlias(alias) if alias.alias.table() == name => {
                let input = self.query(&alias.input).map_err(raise)?;
                let alias = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
                Ok(Transformed::yes(LogicalPlan::SubqueryAlias(alias)))
            }
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(done.data)
    }

    /// Locks the rows of the query's tables, below its LIMIT.
    fn query(&mut self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let (limit, core) = match plan {
            LogicalPlan::Limit(limit) => (Some(limit), limit.input.as_ref()),
            _ => (None, plan),
        };
        // The rows are locked where all columns of ORDER BY are: the order is then an order of the
        // locking node's input, which it requires.
        let (projection, core) = match core {
            LogicalPlan::Projection(projection)
                if matches!(projection.input.as_ref(), LogicalPlan::Sort(_)) =>
            {
                (Some(projection), projection.input.as_ref())
            }
            _ => (None, core),
        };
        let fetch = match limit {
            None => None,
            Some(limit) => {
                let skip = limit.get_skip_type().map_err(convert)?;
                let fetch = limit.get_fetch_type().map_err(convert)?;
                match (skip, fetch) {
                    (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) => {
                        Some(skip.saturating_add(fetch))
                    }
                    _ => None,
                }
            }
        };
        self.targets.clear();
        let (input, row_ids) = self.weave(core, None)?;
        if row_ids.is_empty() {
            return Ok(plan.clone());
        }
        let targets = row_ids.into_iter().map(|(column, at)| LockTarget {
            column,
            table: self.targets[at].table.clone(),
            lock: self.targets[at].lock,
        });
        let node = LockNode {
            targets: targets.collect::<Vec<_>>().into(),
            fetch,
            statement: self.statement.clone(),
            input,
        };
        let locked = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        let columns = match projection {
            Some(projection) => projection.expr.clone(),
            None => {
                let columns = core.schema().columns().into_iter();
                columns.map(Expr::Column).collect()
            }
        };
        let shown = Projection::try_new(columns, Arc::new(locked)).map_err(convert)?;
        let shown = LogicalPlan::Projection(shown);
        match limit {
            None => Ok(shown),
            Some(_) => plan
                .with_new_exprs(plan.expressions(), vec![shown])
                .map_err(convert),
        }
    }

    /// `plan` with row ids. `lock` is the lock of the surrounding item of FROM, if there is one.
    fn weave(&mut self, plan: &LogicalPlan, lock: Option<Lock>) -> Result<Woven> {
        let clause = self.locks.clause;
        let item = |name: &TableReference| lock.or(self.locks.items.get(name.table()).copied());
        match plan {
            LogicalPlan::TableScan(scan) => match item(&scan.table_name) {
                Some(lock) => self.scan(scan, lock),
                None => Ok((plan.clone(), Vec::new())),
            },
            LogicalPlan::SubqueryAlias(alias) => match item(&alias.alias) {
                Some(lock) => {
                    let (input, row_ids) = self.weave(&alias.input, Some(lock))?;
                    let name = alias.alias.clone();
                    let again = SubqueryAlias::try_new(Arc::new(input), name).map_err(convert)?;
                    let requalified = |(column, at): (Column, usize)| {
                        (Column::new(Some(alias.alias.clone()), column.name), at)
                    };
                    let row_ids = row_ids.into_iter().map(requalified).collect();
                    Ok((LogicalPlan::SubqueryAlias(again), row_ids))
                }
                None => Ok((plan.clone(), Vec::new())),
            },
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Join(_) => self.inner(plan, lock),
            LogicalPlan::Aggregate(_) => Err(not_allowed(clause, "aggregate functions")),
            LogicalPlan::Window(_) => Err(not_allowed(clause, "window functions")),
            LogicalPlan::Distinct(_) => Err(not_allowed(clause, "DISTINCT clause")),
            LogicalPlan::Union(_) => Err(not_allowed(clause, "UNION/INTERSECT/EXCEPT")),
            LogicalPlan::Unnest(_) => Err(not_allowed(
                clause,
                "set-returning functions in the target list",
            )),
            // It is locked by its own clause, or has no rows to lock.
            _ => Ok((plan.clone(), Vec::new())),
        }
    }

    fn inner(&mut self, plan: &LogicalPlan, lock: Option<Lock>) -> Result<Woven> {
        let mut inputs = Vec::new();
        let mut row_ids = Vec::new();
        for (side, input) in plan.inputs().into_iter().enumerate() {
            let (input, found) = self.weave(input, lock)?;
            if !found.is_empty() && is_nullable(plan, side) {
                return Err(Error::unsupported(format!(
                    "{} cannot be applied to the nullable side of an outer join",
                    self.locks.clause
                )));
            }
            inputs.push(input);
            row_ids.extend(found);
        }
        let mut exprs = plan.expressions();
        if let LogicalPlan::Projection(_) = plan {
            exprs.extend(
                row_ids
                    .iter()
                    .map(|(column, _)| Expr::Column(column.clone())),
            );
        }
        let plan = plan.with_new_exprs(exprs, inputs).map_err(convert)?;
        Ok((plan, row_ids))
    }

    /// A scan with row ids under a unique name.
    fn scan(&mut self, scan: &TableScan, lock: Lock) -> Result<Woven> {
        let unchanged = || Ok((LogicalPlan::TableScan(scan.clone()), Vec::new()));
        let provider = source_as_provider(&scan.source).map_err(convert)?;
        let Some(table) = provider.downcast_ref::<Table>() else {
            return unchanged();
        };
        let with_row_ids = Arc::new(table.with_row_ids(self.statement.clone().into()));
        let mut columns = scan.projected_schema.columns();
        let name = scan.table_name.clone();
        let source = provider_as_source(with_row_ids);
        let builder = LogicalPlanBuilder::scan(name.clone(), source, None).map_err(convert)?;
        let row_id = format!("\u{1}row{}", self.number);
        *self.number += 1;
        let all = columns.drain(..).map(Expr::Column);
        let exprs = all.chain([Expr::Column(Column::new(Some(name.clone()), ROW_ID))
            .alias_qualified(Some(name.clone()), &row_id)]);
        let input = builder.build().map_err(convert)?;
        let plan = Projection::try_new(exprs.collect(), Arc::new(input)).map_err(convert)?;
        let target = self.targets.len();
        self.targets.push(PlanTarget {
            table: table.definition().clone(),
            lock,
        });
        let column = Column::new(Some(name), row_id);
        Ok((LogicalPlan::Projection(plan), vec![(column, target)]))
    }
}

/// Whether an outer join may fill input `side` with NULLs.
fn is_nullable(plan: &LogicalPlan, side: usize) -> bool {
    let LogicalPlan::Join(join) = plan else {
        return false;
    };
    match join.join_type {
        JoinType::Left => side == 1,
        JoinType::Right => side == 0,
        JoinType::Full => true,
        _ => false,
    }
}
