//! From an optimized logical plan to a short plan. `None` everywhere: the statement is not short,
//! because it reads what no key or index bounds, or has a form that only the full path runs.

mod aggregate;
mod changes;
mod comparisons;
mod demand;
mod expressions;
mod inner_joins;
mod join;
mod table;

use super::node::{Node, Operator};
use super::operators::{Filter, Limit, Nothing, Project, Sort, Union, Values};
use super::plan::{History, Part, Scalar, ShortPlan};
use super::slots::Slots;
use crate::execution::dml::DmlForm;
use crate::execution::row_executor::Compiled;
use crate::planning::provider::access::AccessSettings;
use crate::planning::template::Template;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinType, NullEquality, plan_datafusion_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{self as logical, Expr, LogicalPlan, ScalarUDF};
use datafusion::scalar::ScalarValue;
use demand::{Demand, First, Order};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_engine::Db;
use strandline_engine::catalog::Catalog;
use strandline_semantics::functions::as_signed;

/// The depth of the deepest plan: a run needs stack for each level, and takes the caller's.
const DEPTH_MAX: usize = 48;

/// What a plan is compiled for, and with.
pub(crate) struct Surroundings<'a> {
    pub state: &'a SessionState,
    pub db: &'a Db,
    pub catalog: &'a Arc<Catalog>,
    pub template: &'a Arc<Template>,
    /// the types of the parameters
    pub parameters: Vec<DataType>,
    /// functions of the current moment, whose values are further parameters
    pub moments: Vec<Arc<ScalarUDF>>,
    /// the result's columns with the names that users see
    pub output: &'a SchemaRef,
    /// None: a query
    pub form: Option<DmlForm>,
}

/// Compiles a statement. `parts`: what runs before `plan`, with its name.
pub(crate) fn compile(
    parts: &[(String, LogicalPlan)],
    plan: &LogicalPlan,
    around: Surroundings<'_>,
) -> Option<ShortPlan> {
    let moments = around.moments.iter();
    let moments = moments.map(|moment| moment.return_type(&[]).ok());
    let mut parameters = around.parameters;
    parameters.extend(moments.collect::<Option<Vec<_>>>()?);
    let access = around.state.config().get_extension::<AccessSettings>();
    let mut compiler = Compiler {
        state: around.state,
        db: around.db,
        catalog: around.catalog,
        uses_indexes: access.is_none_or(|access| access.indexes),
        slots: Arc::default(),
        parameters,
        constants: Vec::new(),
        scalars: Vec::new(),
        subqueries: Vec::new(),
        absorbed: BTreeSet::new(),
        nodes: 0,
        depth: 0,
    };
    let mut compiled_parts = Vec::with_capacity(parts.len());
    for (name, part) in parts {
        let known = compiler.scalars.len();
        let node = compiler.plan(part, &Demand::default(), Vec::new())?;
        compiled_parts.push(Part {
            name: name.clone(),
            scalars: compiler.scalars.len() - known,
            node,
        });
    }
    let root = compiler.plan(plan, &Demand::default(), Vec::new())?;
    Some(ShortPlan {
        parts: compiled_parts,
        root,
        form: around.form,
        scalars: compiler.scalars,
        slots: compiler.slots,
        parameters: compiler.parameters,
        moments: around.moments,
        constants: compiler.constants,
        nodes: compiler.nodes,
        compiled: Compiled {
            catalog: around.catalog.clone(),
            template: around.template.clone(),
            statement: None,
            asks_now: false,
        },
        output: around.output.clone(),
        history: History::default(),
    })
}

struct Compiler<'a> {
    state: &'a SessionState,
    db: &'a Db,
    catalog: &'a Arc<Catalog>,
    uses_indexes: bool,
    slots: Arc<Slots>,
    parameters: Vec<DataType>,
    /// the first values of the slots behind those of the parameters
    constants: Vec<ScalarValue>,
    scalars: Vec<Scalar>,
    /// the subqueries that have slots
    subqueries: Vec<(Arc<LogicalPlan>, usize)>,
    /// slots of demanded equalities that an access path stands for exactly
    absorbed: BTreeSet<usize>,
    nodes: usize,
    /// how deep the plan that is being compiled is
    depth: usize,
}

impl Compiler<'_> {
    /// Compiles `plan`, of whose rows those are wanted for which all of `above` hold.
    fn plan(&mut self, plan: &LogicalPlan, demand: &Demand, above: Vec<Expr>) -> Option<Node> {
        if self.depth == DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let node = self.at_depth(plan, demand, above);
        self.depth -= 1;
        node
    }

    fn at_depth(&mut self, plan: &LogicalPlan, demand: &Demand, above: Vec<Expr>) -> Option<Node> {
        match plan {
            LogicalPlan::Filter(filter) => {
                let mut conditions = above;
                let parts = split_conjunction(&filter.predicate).into_iter();
                conditions.extend(parts.cloned());
                return self.plan(&filter.input, demand, conditions);
            }
            LogicalPlan::TableScan(scan) => return self.table(scan, demand, above),
            plan if is_inner_join(plan) => return self.inner_joins(plan, demand, above),
            LogicalPlan::Projection(project) => return self.project(project, demand, above),
            _ => {}
        }
        // Not the first rows are wanted, but the first that pass.
        let demand = match above.is_empty() {
            true => demand.clone(),
            false => demand.without_first(),
        };
        let node = match plan {
            LogicalPlan::SubqueryAlias(alias) => {
                let inner = alias.input.schema();
                let demand = demand.through(|column| {
                    let at = alias.schema.maybe_index_of_column(column)?;
                    Some(inner.qualified_field(at).into())
                });
                self.plan(&alias.input, &demand, Vec::new())
            }
            LogicalPlan::Join(join) => self.join(join, &demand),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, &demand),
            LogicalPlan::Sort(sort) => self.sort(sort, &demand),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::Extension(node) => self.extension(node),
            LogicalPlan::EmptyRelation(empty) => Some(self.node(
                Nothing {
                    schema: empty.schema.inner().clone(),
                    has_row: empty.produce_one_row,
                },
                1,
            )),
            _ => None,
        }?;
        self.filtered(node, plan.schema(), &above)
    }

    fn node(&mut self, operator: impl Operator + 'static, estimate: usize) -> Node {
        self.nodes += 1;
        Node {
            number: self.nodes - 1,
            operator: Box::new(operator),
            estimate,
        }
    }

    /// The rows of `node`, whose columns are those of `schema`, for which all conditions hold.
    fn filtered(&mut self, node: Node, schema: &DFSchema, conditions: &[Expr]) -> Option<Node> {
        if conditions.is_empty() {
            return Some(node);
        }
        let estimate = node.estimate;
        let filter = Filter {
            input: node,
            conditions: self.expressions(conditions, schema)?,
            text: texts(conditions, " AND "),
        };
        Some(self.node(filter, estimate))
    }

    /// `above` is tested below, where access paths are: DataFusion computes common parts of
    /// conditions in a projection.
    fn project(
        &mut self,
        project: &logical::Projection,
        demand: &Demand,
        above: Vec<Expr>,
    ) -> Option<Node> {
        let above = above.into_iter().map(|condition| below(condition, project));
        let above = above.collect::<Option<Vec<_>>>()?;
        let demand = demand.through(|column| {
            let at = project.schema.maybe_index_of_column(column)?;
            match project.expr.get(at)? {
                Expr::Column(column) => Some(column.clone()),
                _ => None,
            }
        });
        let input = self.plan(&project.input, &demand, above)?;
        let estimate = input.estimate;
        let operator = Project {
            input,
            columns: self.expressions(&project.expr, project.input.schema())?,
            schema: project.schema.inner().clone(),
            text: texts(&project.expr, ", "),
        };
        Some(self.node(operator, estimate))
    }

    fn sort(&mut self, sort: &logical::Sort, demand: &Demand) -> Option<Node> {
        let enough = match sort.fetch {
            Some(fetch) => Some(self.new_slot(ScalarValue::from(i64::try_from(fetch).ok()?))),
            None => {
                let first = demand.first.as_ref().filter(|first| first.order.is_empty());
                first.map(|first| first.enough)
            }
        };
        let column = |by: &logical::SortExpr| match as_signed(&by.expr) {
            Expr::Column(column) => Some(Order {
                column: column.clone(),
                descending: !by.asc,
                nulls_first: by.nulls_first,
            }),
            _ => None,
        };
        let order = sort.expr.iter().map(column).collect::<Option<Vec<_>>>();
        let first = enough.zip(order);
        let demand = Demand {
            // Of the rows with a key others may be the first.
            equal: match sort.fetch {
                Some(_) => Vec::new(),
                None => demand.equal.clone(),
            },
            first: first.map(|(enough, order)| First { order, enough }),
            of_changed: false,
        };
        let input = self.plan(&sort.input, &demand, Vec::new())?;
        let schema = sort.input.schema();
        let by = sort.expr.iter().map(|by| {
            let options = SortOptions {
                descending: !by.asc,
                nulls_first: by.nulls_first,
            };
            Some((self.expression(&by.expr, schema)?, options))
        });
        let by = by.collect::<Option<Vec<_>>>()?;
        let estimate = input.estimate;
        let text: Vec<String> = sort.expr.iter().map(ToString::to_string).collect();
        let operator = Sort {
            input,
            by,
            fetch: sort.fetch,
            text: text.join(", "),
        };
        Some(self.node(operator, estimate))
    }

    fn limit(&mut self, limit: &logical::Limit) -> Option<Node> {
        let enough = limit
            .fetch
            .is_some()
            .then(|| self.new_slot(ScalarValue::Int64(None)));
        // Which rows are the first must not depend on an outer row's key.
        let demand = Demand {
            equal: Vec::new(),
            first: enough.map(|enough| First {
                order: Vec::new(),
                enough,
            }),
            of_changed: false,
        };
        let input = self.plan(&limit.input, &demand, Vec::new())?;
        let none = DFSchema::empty();
        let mut number = |expr: &Option<Box<Expr>>| match expr {
            None => Some(None),
            Some(expr) => self.expression(expr, &none).map(Some),
        };
        let (skip, fetch) = (number(&limit.skip)?, number(&limit.fetch)?);
        let estimate = input.estimate;
        let operator = Limit {
            input,
            skip,
            fetch,
            enough,
        };
        Some(self.node(operator, estimate))
    }

    fn union(&mut self, union: &logical::Union) -> Option<Node> {
        let inputs = union.inputs.iter();
        let inputs = inputs.map(|input| self.plan(input, &Demand::default(), Vec::new()));
        let inputs = inputs.collect::<Option<Vec<_>>>()?;
        let estimate = inputs.iter().map(|input| input.estimate).sum();
        let operator = Union {
            inputs,
            schema: union.schema.inner().clone(),
        };
        Some(self.node(operator, estimate))
    }

    fn values(&mut self, values: &logical::Values) -> Option<Node> {
        let none = DFSchema::empty();
        let rows = values.values.iter().map(|row| self.expressions(row, &none));
        let rows = rows.collect::<Option<Vec<_>>>()?;
        let estimate = rows.len();
        let operator = Values {
            schema: values.schema.inner().clone(),
            rows,
        };
        Some(self.node(operator, estimate))
    }
}

/// Whether a plan is an inner join of equal values, or columns or rows of one.
fn is_inner_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => {
            join.join_type == JoinType::Inner
                && join.null_equality == NullEquality::NullEqualsNothing
        }
        LogicalPlan::Projection(project) => {
            let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
            project.expr.iter().all(is_column) && is_inner_join(&project.input)
        }
        LogicalPlan::Filter(filter) => is_inner_join(&filter.input),
        _ => false,
    }
}

/// A condition of a projection's columns as one of the columns of its input.
fn below(condition: Expr, project: &logical::Projection) -> Option<Expr> {
    let replaced = condition.transform_up(|expr| {
        let Expr::Column(column) = &expr else {
            return Ok(Transformed::no(expr));
        };
        let at = project.schema.index_of_column(column)?;
        let computed = project.expr.get(at);
        let computed = computed.ok_or_else(|| plan_datafusion_err!("no column {at}"))?;
        Ok(Transformed::yes(computed.clone().unalias()))
    });
    replaced.ok().map(|replaced| replaced.data)
}

fn texts(exprs: &[Expr], between: &str) -> String {
    let texts: Vec<String> = exprs.iter().map(ToString::to_string).collect();
    texts.join(between)
}
