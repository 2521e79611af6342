//! Set operations whose columns have their types before other parts of the statement are planned.
//!
//! DataFusion plans a union with the types of its first input, and finds the common types when the
//! whole statement is planned. By then functions have been chosen, and tables created, for the
//! wrong types. So [`in_from`] moves every set operation of a statement into FROM, under a name
//! that [`Typed`] recognizes. [`Typed`] lets DataFusion plan the operation and aligns its types
//! immediately.

use super::rules::align_unions;
use datafusion::common::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{
    Ident, Query, SetExpr, Statement, TableAlias, TableFactor, Values,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The name of a set operation in FROM; no user can write the control character.
const NAME: &str = "\u{1f}set operation";

/// `a UNION b` as `SELECT * FROM (a UNION b)`.
pub fn in_from(query: &mut Query) {
    if matches!(query.body.as_ref(), SetExpr::SetOperation { .. }) {
        move_into_from(query);
    }
}

/// `IN (VALUES …)` as `IN (SELECT * FROM (VALUES …))`, the form that DataFusion can plan.
pub fn values_in_from(query: &mut Query) {
    if matches!(query.body.as_ref(), SetExpr::Values(_)) {
        move_into_from(query);
    }
}

fn move_into_from(query: &mut Query) {
    let template = format!("SELECT * FROM (SELECT 1) AS \"{NAME}\"");
    let Ok(mut parsed) = Parser::parse_sql(&PostgreSqlDialect {}, &template) else {
        return;
    };
    let Some(Statement::Query(mut outer)) = parsed.pop() else {
        return;
    };
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        std::mem::swap(&mut subquery.body, &mut query.body);
        query.body = outer.body;
    }
}

/// Undoes [`in_from`] for the recursive queries of WITH, which DataFusion recognizes by their form.
pub fn as_written(query: &mut Query) {
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived {
            subquery,
            alias: Some(alias),
            ..
        } = &mut from.relation
        && is_ours(alias)
    {
        let nothing = Box::new(SetExpr::Values(Values {
            explicit_row: false,
            value_keyword: false,
            rows: Vec::new(),
        }));
        query.body = std::mem::replace(&mut subquery.body, nothing);
    }
}

/// The hook into DataFusion's SQL planner.
#[derive(Debug)]
pub struct Typed;

impl RelationPlanner for Typed {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let TableFactor::Derived { alias, .. } = &mut relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        if alias.take_if(|alias| is_ours(alias)).is_none() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let plan = align_unions(context.plan(relation)?)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, None,
        ))))
    }
}

fn is_ours(alias: &TableAlias) -> bool {
    let Ident { value, .. } = &alias.name;
    value == NAME
}
