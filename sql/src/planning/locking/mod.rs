//! `SELECT … FOR UPDATE`, `FOR NO KEY UPDATE`, `FOR SHARE` and `FOR KEY SHARE`.
//!
//! Locking clauses are taken out of a query before DataFusion plans it ([`take`]) and put into the
//! plan afterwards ([`plan`]). The scans of the tables to lock also return row ids, which are
//! passed up through ORDER BY. There a node of our own ([`node`]) locks the rows in their order,
//! below LIMIT and OFFSET. A query with locking clauses inside another query becomes a derived
//! table with a name that no user can write, by which its plan is found.
//!
//! NO KEY UPDATE locks like UPDATE, and KEY SHARE like SHARE. This is stronger than in PostgreSQL,
//! where the weaker locks spare foreign keys.

pub mod node;
pub mod plan;

use crate::parse::cte_scopes::CteScopes;
use crate::parse::locking_clauses::{Strength, is_qualified, read};
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{
    Distinct, GroupByExpr, Ident, LockClause, NonBlock, ObjectName, ObjectNamePart, Query, Select,
    SetExpr, TableFactor, TableWithJoins, VisitorMut,
};
use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::{LockWait, RowLock};
use strandline_semantics::sql::walk::walk_mut;

/// The prefix of wrapped queries' names; no user can write the control character.
const WRAPPED: &str = "\u{1}locks";

/// How the rows of an item of FROM are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// the clause's strength
    pub strength: Strength,
    /// the action on rows that other transactions have locked
    pub wait: LockWait,
}

impl Lock {
    /// The engine's lock on the row.
    pub fn row_lock(self) -> RowLock {
        match self.strength {
            Strength::Update | Strength::NoKeyUpdate => RowLock::Exclusive,
            Strength::Share | Strength::KeyShare => RowLock::Shared,
        }
    }

    /// The lock on the one table of a query, which is called `alias` in it; None: another form of
    /// clause, or a wrong one.
    pub fn of_table(query: &Query, alias: &str) -> Option<Self> {
        let [clause] = query.locks.as_slice() else {
            return None;
        };
        let (strength, of) = read(clause);
        let names_it = of.is_empty() || (!is_qualified(clause) && of == [alias]);
        names_it.then_some(Self {
            strength,
            wait: wait_of(clause),
        })
    }

    /// Combines two locks of one item: the stronger lock, and an error rather than a skipped row.
    fn and(self, other: Self) -> Self {
        let rank = |wait| match wait {
            LockWait::NoWait => 2,
            LockWait::SkipLocked => 1,
            LockWait::Wait => 0,
        };
        let wait = if rank(self.wait) >= rank(other.wait) {
            self.wait
        } else {
            other.wait
        };
        Self {
            strength: self.strength.min(other.strength),
            wait,
        }
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.strength.clause())?;
        f.write_str(match self.wait {
            LockWait::Wait => "",
            LockWait::NoWait => " NOWAIT",
            LockWait::SkipLocked => " SKIP LOCKED",
        })
    }
}

fn wait_of(clause: &LockClause) -> LockWait {
    match clause.nonblock {
        None => LockWait::Wait,
        Some(NonBlock::Nowait) => LockWait::NoWait,
        Some(NonBlock::SkipLocked) => LockWait::SkipLocked,
    }
}

/// The locks of one query: items of its FROM by alias.
#[derive(Clone, Debug)]
pub struct Locks {
    /// the wrapped query; None: the outermost
    pub wrapped: Option<String>,
    /// by alias
    pub items: HashMap<String, Lock>,
    /// the relations whose rows are locked, as they are written
    pub relations: Vec<ObjectName>,
    /// for messages
    pub clause: &'static str,
}

/// Takes the locking clauses out of `query`.
pub fn take(query: &mut Query) -> Result<Vec<Locks>> {
    let mut taker = Taker {
        ctes: CteScopes::default(),
        depth: 0,
        found: Vec::new(),
    };
    match walk_mut(query, &mut taker) {
        ControlFlow::Continue(()) => Ok(taker.found),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Taker {
    ctes: CteScopes,
    depth: usize,
    found: Vec<Locks>,
}

impl VisitorMut for Taker {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.depth += 1;
        self.ctes.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.depth -= 1;
        let locks = (!query.locks.is_empty()).then(|| self.locks_of(query));
        self.ctes.leave();
        let Some(locks) = locks else {
            return ControlFlow::Continue(());
        };
        match locks {
            Err(error) => return ControlFlow::Break(error),
            Ok(mut locks) => {
                query.locks.clear();
                if self.depth > 0 {
                    let name = format!("{WRAPPED}{}", self.found.len());
                    *query = wrap(query, &name);
                    locks.wrapped = Some(name);
                }
                self.found.push(locks);
            }
        }
        ControlFlow::Continue(())
    }
}

/// `SELECT * FROM (query) AS name`
fn wrap(query: &Query, name: &str) -> Query {
    let text = format!("SELECT * FROM (SELECT 1) AS {}", names::quote(name));
    let mut outer = crate::parse::query(&text).expect("a query of our own");
    if let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(TableWithJoins {
            relation: TableFactor::Derived { subquery, .. },
            ..
        }) = select.from.first_mut()
    {
        **subquery = query.clone();
    }
    outer
}

impl Taker {
    fn locks_of(&self, query: &Query) -> Result<Locks> {
        let (strongest, _) = query
            .locks
            .iter()
            .map(read)
            .min_by_key(|(s, _)| *s)
            .unwrap_or((Strength::Update, Vec::new()));
        let select = lockable_select(&query.body, strongest)?;
        let mut items = Vec::new();
        for from in &select.from {
            self.collect(from, &mut items);
        }
        let mut locks: HashMap<String, Lock> = HashMap::new();
        let mut relations = Vec::new();
        for clause in &query.locks {
            let (strength, of) = read(clause);
            if is_qualified(clause) {
                let words = strength.clause();
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    format!("{words} must specify unqualified relation names"),
                ));
            }
            let wait = wait_of(clause);
            for alias in chosen(&items, strength, &of)? {
                let named = items.iter().filter(|item| item.alias == alias);
                relations.extend(named.flat_map(|item| item.relations.clone()));
                let lock = Lock { strength, wait };
                let known = locks.entry(alias).or_insert(lock);
                *known = known.and(lock);
            }
        }
        Ok(Locks {
            wrapped: None,
            items: locks,
            relations,
            clause: strongest.clause(),
        })
    }

    fn collect(&self, from: &TableWithJoins, items: &mut Vec<Item>) {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            let (alias, kind) = match factor {
                TableFactor::NestedJoin {
                    table_with_joins, ..
                } => {
                    self.collect(table_with_joins, items);
                    continue;
                }
                TableFactor::Table {
                    name,
                    alias,
                    args,
                    version,
                    ..
                } => {
                    let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
                        continue;
                    };
                    let is_cte = name.0.len() == 1 && self.ctes.has(&names::fold(last));
                    let kind = match version {
                        _ if args.is_some() => Kind::Other("a function"),
                        _ if last.quote_style == Some('\'') => Kind::Other("a file"),
                        Some(_) => Kind::Past,
                        None if is_cte => Kind::Other("a WITH query"),
                        None => Kind::Table,
                    };
                    (Some(alias.as_ref().map_or(last, |alias| &alias.name)), kind)
                }
                TableFactor::Derived {
                    subquery, alias, ..
                } => {
                    let kind = match subquery.body.as_ref() {
                        SetExpr::Values(_) => Kind::Other("VALUES"),
                        _ => Kind::Table,
                    };
                    (alias.as_ref().map(|alias| &alias.name), kind)
                }
                TableFactor::Function { alias, name, .. } => {
                    let last = name.0.last().and_then(ObjectNamePart::as_ident);
                    let alias = alias.as_ref().map(|alias| &alias.name).or(last);
                    (alias, Kind::Other("a function"))
                }
                other => (alias_of(other), Kind::Other("a function")),
            };
            let alias = alias.map(names::fold).unwrap_or_default();
            let mut relations = Vec::new();
            relations_in(factor, &mut relations);
            items.push(Item {
                alias,
                kind,
                relations,
            });
        }
    }
}

/// Adds the relations that the rows of `query` are made of: those of its FROM, of queries in there
/// and of its WITH.
pub fn relations_of(query: &Query, found: &mut Vec<ObjectName>) {
    for table in query.with.iter().flat_map(|with| &with.cte_tables) {
        relations_of(&table.query, found);
    }
    relations_of_body(&query.body, found);
}

fn relations_of_body(body: &SetExpr, found: &mut Vec<ObjectName>) {
    match body {
        SetExpr::Select(select) => {
            for from in &select.from {
                relations_of_joins(from, found);
            }
        }
        SetExpr::Query(query) => relations_of(query, found),
        SetExpr::SetOperation { left, right, .. } => {
            relations_of_body(left, found);
            relations_of_body(right, found);
        }
        _ => {}
    }
}

fn relations_of_joins(from: &TableWithJoins, found: &mut Vec<ObjectName>) {
    relations_in(&from.relation, found);
    for join in &from.joins {
        relations_in(&join.relation, found);
    }
}

fn relations_in(factor: &TableFactor, found: &mut Vec<ObjectName>) {
    match factor {
        TableFactor::Table {
            name, args: None, ..
        } => found.push(name.clone()),
        TableFactor::Derived { subquery, .. } => relations_of(subquery, found),
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => relations_of_joins(table_with_joins, found),
        _ => {}
    }
}

fn alias_of(factor: &TableFactor) -> Option<&Ident> {
    match factor {
        TableFactor::TableFunction { alias, .. } | TableFactor::UNNEST { alias, .. } => {
            alias.as_ref().map(|alias| &alias.name)
        }
        _ => None,
    }
}

/// An item of FROM that a clause may lock.
struct Item {
    alias: String,
    kind: Kind,
    /// that it is made of
    relations: Vec<ObjectName>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// a table, a view or a derived table
    Table,
    /// a table at a moment of the past
    Past,
    /// an item without rows to lock
    Other(&'static str),
}

/// The aliases that a clause locks: those after OF, else all lockable ones.
fn chosen(items: &[Item], strength: Strength, of: &[String]) -> Result<Vec<String>> {
    let clause = strength.clause();
    let past = || Error::unsupported(format!("{clause} cannot be applied to the past of a table"));
    let mut chosen = Vec::new();
    if of.is_empty() {
        for item in items {
            match item.kind {
                Kind::Table => chosen.push(item.alias.clone()),
                Kind::Past => return Err(past()),
                Kind::Other(_) => {}
            }
        }
        return Ok(chosen);
    }
    for name in of {
        let item = items.iter().find(|item| item.alias == *name);
        match item.map(|item| item.kind) {
            Some(Kind::Table) => chosen.push(name.clone()),
            Some(Kind::Past) => return Err(past()),
            Some(Kind::Other(what)) => {
                return Err(Error::unsupported(format!(
                    "{clause} cannot be applied to {what}"
                )));
            }
            None => {
                return Err(Error::invalid(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{name}\" in {clause} clause not found in FROM clause"),
                ));
            }
        }
    }
    Ok(chosen)
}

/// 0A000: the rows of the query are not rows of tables.
pub(super) fn not_allowed(clause: &str, with: &str) -> Error {
    Error::unsupported(format!("{clause} is not allowed with {with}"))
}

fn lockable_select(body: &SetExpr, strength: Strength) -> Result<&Select> {
    let clause = strength.clause();
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return lockable_select(&query.body, strength),
        SetExpr::Values(_) => {
            return Err(Error::unsupported(format!(
                "{clause} cannot be applied to VALUES"
            )));
        }
        _ => return Err(not_allowed(clause, "UNION/INTERSECT/EXCEPT")),
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(by, _) => !by.is_empty(),
    };
    if matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_))) {
        return Err(not_allowed(clause, "DISTINCT clause"));
    }
    if is_grouped {
        return Err(not_allowed(clause, "GROUP BY clause"));
    }
    if select.having.is_some() {
        return Err(not_allowed(clause, "HAVING clause"));
    }
    Ok(select)
}
