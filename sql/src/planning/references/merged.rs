//! Rewrites `JOIN … USING` and `NATURAL JOIN` to joins ON a condition, before the query is
//! normalized.
//!
//! DataFusion takes a merged column for the left one in every join. In PostgreSQL it is the left
//! column of an inner or left join, the right one of a right join, and `coalesce(left, right)` of a
//! full join. It is the meaning of the bare name in every clause and comes first in `*`. Its type
//! is the common type of both columns. An inner join takes the column that has this type; the other
//! joins cast a column of another type. So the bare names of merged columns become these
//! expressions, wildcards of such a SELECT become lists, and the joins get conditions.
//!
//! Only the planner knows the columns of a table. [`expand`] rewrites a copy of the query up to the
//! first relation whose columns it needs, asks for them, and starts over with the answer. A
//! question depends only on the answers before it.

mod scope;

use super::{RelationColumn, TableNames, file_path};
use crate::parse;
use crate::parse::names::{self, fold};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    Cte, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, SetExpr,
    TableAlias, TableFactor, TableWithJoins, VisitorMut, With,
};
use scope::Walk;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};
use strandline_semantics::sql::walk::walk_mut;

/// The reason to stop a pass over the query before its end.
enum Stop {
    /// The columns of a relation are not known yet.
    Question(Box<Question>),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

/// A question for the columns of a FROM list, with the WITH queries that it may use.
struct Question {
    with: Option<With>,
    from: Vec<TableWithJoins>,
}

/// Rewrites all joins of `query` that merge columns; see the module's header.
pub async fn expand(query: &mut Query, names: &dyn TableNames, state: &SessionState) -> Result<()> {
    let _ = walk_mut(query, &mut AliasedJoins);
    let mut answers: Vec<Vec<RelationColumn>> = Vec::new();
    loop {
        let mut rewritten = query.clone();
        match walk_mut(&mut rewritten, &mut Walk::new(&answers)) {
            ControlFlow::Continue(()) => {
                *query = rewritten;
                return Ok(());
            }
            ControlFlow::Break(Stop::Question(question)) => {
                answers.push(columns(*question, names, state).await?);
            }
            ControlFlow::Break(Stop::Error(error)) => return Err(error),
        }
    }
}

/// The columns of a FROM list.
async fn columns(
    question: Question,
    names: &dyn TableNames,
    state: &SessionState,
) -> Result<Vec<RelationColumn>> {
    if question.with.is_none()
        && let [from] = question.from.as_slice()
        && from.joins.is_empty()
        && let TableFactor::Table {
            name,
            alias,
            args: None,
            version: None,
            ..
        } = &from.relation
        && file_path(name).is_none()
        && alias.as_ref().is_none_or(|a| a.columns.is_empty())
    {
        let default_schema = &state.config_options().catalog.default_schema;
        let (schema, table) = names::qualified(name, default_schema)?;
        let found = names.resolve(&schema, &table, false).await?;
        let found = found.ok_or_else(|| names.undefined(&schema, &table))?;
        let schema = found.schema();
        return Ok(RelationColumn::all_of(&schema));
    }
    let mut query = parse::query("SELECT * FROM t")?;
    query.with = question.with;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from = question.from;
    }
    names.columns_of(state, query).await
}

/// Whether a join of a FROM list, at any depth of parentheses, merges columns.
pub(crate) fn merges(from: &[TableWithJoins]) -> bool {
    let nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => merges(std::slice::from_ref(table_with_joins)),
        _ => false,
    };
    from.iter().any(|item| {
        nested(&item.relation)
            || item.joins.iter().any(|join| {
                let merging = constraint(&join.join_operator).is_some_and(|c| {
                    matches!(c, JoinConstraint::Using(_) | JoinConstraint::Natural)
                });
                merging || nested(&join.relation)
            })
    })
}

/// A join's condition; `None` for joins without one.
pub(crate) fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator as J;
    match operator {
        J::Join(c)
        | J::Inner(c)
        | J::Left(c)
        | J::LeftOuter(c)
        | J::Right(c)
        | J::RightOuter(c)
        | J::FullOuter(c)
        | J::CrossJoin(c)
        | J::Semi(c)
        | J::LeftSemi(c)
        | J::RightSemi(c)
        | J::Anti(c)
        | J::LeftAnti(c)
        | J::RightAnti(c)
        | J::StraightJoin(c)
        | J::AsOf { constraint: c, .. } => Some(c),
        J::CrossApply | J::OuterApply | J::ArrayJoin | J::LeftArrayJoin | J::InnerArrayJoin => None,
    }
}

/// Rewrites `(a JOIN b USING (k)) AS j`, whose alias hides `a` and `b`, to the derived table
/// `(SELECT * FROM a JOIN b USING (k)) AS j`.
struct AliasedJoins;

impl VisitorMut for AliasedJoins {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::NestedJoin {
            table_with_joins,
            alias: alias @ Some(_),
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let (true, Ok(mut subquery)) = (
            merges(std::slice::from_ref(table_with_joins)),
            parse::query("SELECT * FROM t"),
        ) else {
            return ControlFlow::Continue(());
        };
        if let SetExpr::Select(select) = subquery.body.as_mut()
            && let Some(from) = select.from.first_mut()
        {
            std::mem::swap(from, table_with_joins);
        }
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(subquery),
            alias: alias.take(),
            sample: None,
        };
        ControlFlow::Continue(())
    }
}

/// The qualifier of a relation's columns; a relation without one gets `unnamed`.
fn relation_name(factor: &mut TableFactor, unnamed: &str) -> Option<Ident> {
    let given = |alias: &mut Option<TableAlias>, default: Option<&ObjectName>| {
        if alias.is_none() && default.is_none() {
            *alias = Some(TableAlias {
                explicit: true,
                name: names::ident(unnamed),
                columns: Vec::new(),
                at: None,
            });
        }
        match (alias, default.and_then(|name| name.0.last())) {
            (Some(alias), _) => Some(alias.name.clone()),
            (None, Some(ObjectNamePart::Identifier(name))) => Some(name.clone()),
            _ => None,
        }
    };
    match factor {
        TableFactor::Table { name, alias, .. } => match file_path(name) {
            Some(_) if alias.is_none() => Some(super::default_alias(name)),
            _ => given(alias, Some(name)),
        },
        TableFactor::Function { name, alias, .. } => given(alias, Some(name)),
        TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => {
            given(alias, None)
        }
        _ => None,
    }
}

/// The WITH queries that are visible at a place of a statement, outermost first.
#[derive(Default)]
struct Withs(Vec<(Option<With>, usize)>);

impl Withs {
    /// The visitor enters `query`; it visits the bodies of the WITH queries first.
    fn enter(&mut self, query: &Query) {
        self.0.push((query.with.clone(), 0));
    }

    /// The visitor leaves its present query, whose rewritten form is `left`.
    fn leave(&mut self, left: &Query) {
        self.0.pop();
        if let Some((Some(with), visited)) = self.0.last_mut()
            && let Some(cte) = with.cte_tables.get_mut(*visited)
        {
            *cte.query = left.clone();
            *visited += 1;
        }
    }

    /// All visible WITH queries.
    fn in_force(&self) -> Option<With> {
        let mut all: Option<With> = None;
        for (with, visited) in &self.0 {
            let Some(with) = with else { continue };
            let seen = match with.recursive {
                true => with.cte_tables.as_slice(),
                false => &with.cte_tables[..*visited],
            };
            if seen.is_empty() {
                continue;
            }
            let all = all.get_or_insert_with(|| With {
                cte_tables: Vec::new(),
                ..with.clone()
            });
            all.recursive |= with.recursive;
            let replaced = |old: &Cte| {
                let name = fold(&old.alias.name);
                seen.iter().any(|new| fold(&new.alias.name) == name)
            };
            all.cte_tables.retain(|old| !replaced(old));
            all.cte_tables.extend_from_slice(seen);
        }
        all
    }
}
