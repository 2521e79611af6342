//! Random queries: joins, groups, windows, set operations, WITH.

use super::data::TABLES;
use super::generator::{Generator, numbered};
use super::scope::{Column, Kind, Scope};

/// A query's text and the types of its columns.
pub(super) struct Query {
    pub sql: String,
    pub kinds: Vec<Kind>,
}

/// A FROM item, or several that are joined.
struct Source {
    sql: String,
    /// name, and what refers to the column
    columns: Vec<(String, Column)>,
    keys: Vec<String>,
}

impl Source {
    fn columns(&self) -> Vec<Column> {
        self.columns
            .iter()
            .map(|(_, column)| column.clone())
            .collect()
    }

    /// How many of its columns have the name.
    fn named(&self, name: &str) -> usize {
        self.columns.iter().filter(|(n, _)| n == name).count()
    }
}

impl Generator {
    /// A query whose subqueries may refer to `around.outer`, with columns of the types `wanted` or
    /// of any.
    pub(super) fn query(&mut self, around: &Scope, wanted: Option<&[Kind]>) -> Query {
        let kinds = match wanted {
            Some(kinds) => kinds.to_vec(),
            None => (0..1 + self.rng.below(4)).map(|_| self.kind()).collect(),
        };
        let known = self.with.len();
        let mut sql = String::new();
        if around.subqueries > 0 && self.rng.one_in(10) {
            let query = self.query(&lower(around), None);
            let name = self.alias();
            let names: Vec<String> = (1..=query.kinds.len()).map(|i| format!("c{i}")).collect();
            sql = format!("WITH {name} ({}) AS ({}) ", names.join(", "), query.sql);
            self.with.push((name, query.kinds));
        }
        match around.subqueries > 0 && self.rng.one_in(6) {
            true => sql.push_str(&self.set_operation(around, &kinds)),
            false => sql.push_str(&self.select(around, &kinds)),
        }
        self.with.truncate(known);
        if self.rng.one_in(8) {
            sql.push_str(&self.order_by_all(kinds.len()));
            sql.push_str(&format!(" LIMIT {}", 1 + self.rng.below(8)));
            if self.rng.one_in(4) {
                sql.push_str(&format!(" OFFSET {}", self.rng.below(3)));
            }
        }
        Query { sql, kinds }
    }

    /// An order that leaves only equal rows in any order.
    pub(super) fn order_by_all(&mut self, columns: usize) -> String {
        let terms: Vec<String> = (1..=columns)
            .map(|i| format!("{i}{}", self.direction()))
            .collect();
        format!(" ORDER BY {}", terms.join(", "))
    }

    fn direction(&mut self) -> &'static str {
        self.pick::<&str>(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
    }

    fn set_operation(&mut self, around: &Scope, kinds: &[Kind]) -> String {
        let around = lower(around);
        let mut sql = self.select(&around, kinds);
        for _ in 0..1 + self.rng.below(2) {
            let operation = *self.pick(&["UNION", "INTERSECT", "EXCEPT"]);
            let all = *self.pick(&["", " ALL"]);
            let other = self.select(&around, kinds);
            sql.push_str(&format!(" {operation}{all} {other}"));
        }
        sql
    }

    fn select(&mut self, around: &Scope, kinds: &[Kind]) -> String {
        let (from, rows) = self.clause_of_from(around);
        let filter = match self.rng.below(5) {
            0..=2 => String::new(),
            _ => format!(" WHERE {}", self.condition(3, &rows)),
        };
        let distinct = match self.rng.one_in(5) {
            true => "DISTINCT ",
            false => "",
        };
        let (list, rest) = match self.rng.below(10) {
            0..=3 => (self.select_list(kinds, &rows, false), String::new()),
            4..=6 => self.grouped(kinds, &rows),
            7 => {
                let all = Scope {
                    columns: Vec::new(),
                    grouped_rows: Some(Box::new(rows.own())),
                    ..rows.clone()
                };
                let having = match self.rng.one_in(6) {
                    true => format!(" HAVING {}", self.condition(2, &all)),
                    false => String::new(),
                };
                // Without an aggregate call it would be no query of one group.
                let list: Vec<String> = kinds
                    .iter()
                    .map(|kind| match self.rng.one_in(3) {
                        true => format!(
                            "coalesce({}, {})",
                            self.aggregate(*kind, &rows.own()),
                            self.expression(*kind, 2, &all)
                        ),
                        false => self.aggregate(*kind, &rows.own()),
                    })
                    .collect();
                (list, having)
            }
            _ => (self.select_list(kinds, &rows, true), String::new()),
        };
        let list = list.join(", ");
        format!("SELECT {distinct}{list} FROM {from}{filter}{rest}")
    }

    /// Expressions of the types `kinds`; an earlier one may come again in another form.
    fn select_list(&mut self, kinds: &[Kind], scope: &Scope, windows: bool) -> Vec<String> {
        let mut list: Vec<String> = Vec::new();
        for (i, kind) in kinds.iter().enumerate() {
            let earlier = kinds[..i].iter().position(|k| k == kind);
            let item = match earlier {
                Some(earlier) if self.rng.one_in(4) => {
                    let earlier = list[earlier].clone();
                    self.wrapped(*kind, &earlier)
                }
                _ if windows && self.rng.one_in(2) => self.window(*kind, scope),
                _ => {
                    let depth = self.rng.below(4) as u32;
                    self.expression(*kind, depth, scope)
                }
            };
            list.push(item);
        }
        list
    }

    /// The select list of a query with groups, and its GROUP BY and HAVING.
    fn grouped(&mut self, kinds: &[Kind], rows: &Scope) -> (Vec<String>, String) {
        let plain = rows.own();
        let mut columns: Vec<Column> = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let kind = match self.rng.one_in(2) {
                true => *self.pick(kinds),
                false => self.kind(),
            };
            let mut sql = match columns.iter().find(|c| c.kind == kind).cloned() {
                Some(earlier) if self.rng.one_in(4) => self.wrapped(kind, &earlier.sql),
                _ => {
                    let depth = *self.pick(&[0, 0, 1, 2]);
                    self.expression(kind, depth, &plain)
                }
            };
            // A bare constant would be a column's number, or refused.
            if sql.starts_with(|c: char| c.is_ascii_digit()) || sql == "true" || sql == "false" {
                sql = format!("CAST({sql} AS {})", kind.sql());
            }
            columns.push(Column { sql, kind });
        }
        let terms: Vec<&str> = columns.iter().map(|c| c.sql.as_str()).collect();
        // PostgreSQL 15 does not take a constant for NULL where a grouping set leaves it out.
        let names_column = |term: &&str| rows.columns.iter().any(|c| term.contains(&c.sql));
        let is_varied = terms.iter().all(names_column)
            && (1..terms.len()).all(|i| !terms[..i].contains(&terms[i]));
        let form = self.rng.below(12);
        let terms = match form {
            _ if !is_varied => terms.join(", "),
            0 => format!("ROLLUP ({})", terms.join(", ")),
            1 => format!("CUBE ({})", terms.join(", ")),
            2 => format!("GROUPING SETS (({}), ({}))", terms.join(", "), terms[0]),
            _ => terms.join(", "),
        };
        let groups = Scope {
            columns,
            grouped_rows: Some(Box::new(plain)),
            ..rows.clone()
        };
        let mut rest = format!(" GROUP BY {terms}");
        if self.rng.one_in(4) {
            rest.push_str(&format!(" HAVING {}", self.condition(2, &groups)));
        }
        (self.select_list(kinds, &groups, false), rest)
    }

    /// A window function's call whose order leaves only equal rows in any order.
    fn window(&mut self, kind: Kind, rows: &Scope) -> String {
        let argument = |generator: &mut Self, kind| generator.expression(kind, 1, rows);
        let call = match (kind, self.rng.below(6)) {
            (Kind::Bigint, 0) => "row_number()".to_string(),
            (Kind::Bigint, 1) => (*self.pick(&["rank()", "dense_rank()"])).to_string(),
            (Kind::Bigint, 2) => "count(*)".to_string(),
            (Kind::Bigint, 3) => format!("sum({})", argument(self, Kind::Integer)),
            (Kind::Numeric, 0 | 1) => format!("sum({})", argument(self, Kind::Numeric)),
            (_, 0 | 1) if kind != Kind::Boolean => {
                let function = *self.pick(&["min", "max"]);
                format!("{function}({})", argument(self, kind))
            }
            (_, 2) => format!("lag({}, {})", argument(self, kind), 1 + self.rng.below(2)),
            (_, 3) => format!("lead({})", argument(self, kind)),
            (_, 4) => format!("first_value({})", argument(self, kind)),
            _ => format!("last_value({})", argument(self, kind)),
        };
        let partition = match self.rng.below(3) {
            0 => String::new(),
            _ => {
                let kind = self.kind();
                format!("PARTITION BY {} ", self.expression(kind, 1, &rows.own()))
            }
        };
        let mut order = Vec::new();
        if self.rng.one_in(2) {
            let kind = self.kind();
            let term = self.expression(kind, 1, &rows.own());
            order.push(format!("{term}{}", self.direction()));
        }
        order.extend(rows.keys.iter().cloned());
        let frame = *self.pick(&[
            "",
            "",
            " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        ]);
        let order = order.join(", ");
        format!("{call} OVER ({partition}ORDER BY {order}{frame})")
    }

    /// One to three joined items: the text behind FROM, and what the rest of the query sees.
    pub(super) fn clause_of_from(&mut self, around: &Scope) -> (String, Scope) {
        let mut source = self.item(around);
        for _ in 0..*self.pick(&[0, 0, 0, 1, 1, 1, 2]) {
            source = self.join(source, around);
        }
        let scope = Scope {
            columns: source.columns(),
            outer: around.outer.clone(),
            keys: source.keys,
            grouped_rows: None,
            subqueries: around.subqueries,
        };
        (source.sql, scope)
    }

    fn item(&mut self, around: &Scope) -> Source {
        match self.rng.below(12) {
            0 | 1 if around.subqueries > 0 => {
                let query = self.query(&lower(around), None);
                self.derived(&query.sql, &query.kinds)
            }
            2 if !self.with.is_empty() => {
                let index = self.rng.below(self.with.len() as u64) as usize;
                let (name, kinds) = self.with[index].clone();
                let alias = self.alias();
                source(format!("{name} AS {alias}"), &alias, &kinds)
            }
            3 if self.rng.one_in(3) => {
                let kinds: Vec<Kind> = (0..1 + self.rng.below(3)).map(|_| self.kind()).collect();
                let rows: Vec<String> = (0..1 + self.rng.below(4))
                    .map(|_| {
                        let row: Vec<String> = kinds.iter().map(|k| self.literal(*k)).collect();
                        format!("({})", row.join(", "))
                    })
                    .collect();
                self.derived(&format!("VALUES {}", rows.join(", ")), &kinds)
            }
            _ => {
                // The empty table is the last one.
                let table = match self.rng.one_in(20) {
                    true => &TABLES[4],
                    false => self.pick(&TABLES[..4]),
                };
                let alias = self.alias();
                let column = |(name, kind, _): &(&str, Kind, &str)| {
                    let sql = format!("{alias}.{name}");
                    (name.to_string(), Column { sql, kind: *kind })
                };
                Source {
                    sql: format!("{} AS {alias}", table.name),
                    columns: table.columns.iter().map(column).collect(),
                    keys: vec![format!("{alias}.id")],
                }
            }
        }
    }

    fn derived(&mut self, query: &str, kinds: &[Kind]) -> Source {
        let alias = self.alias();
        let names: Vec<String> = (1..=kinds.len()).map(|i| format!("c{i}")).collect();
        let sql = format!("({query}) AS {alias} ({})", names.join(", "));
        source(sql, &alias, kinds)
    }

    fn join(&mut self, left: Source, around: &Scope) -> Source {
        if around.subqueries > 0 && self.rng.one_in(20) {
            let mut inner = lower(around);
            inner.outer.extend(
                left.columns()
                    .into_iter()
                    .filter(|c| c.sql.starts_with('r')),
            );
            let query = self.query(&inner, None);
            let right = self.derived(&query.sql, &query.kinds);
            let sql = match self.rng.one_in(2) {
                true => format!("{} CROSS JOIN LATERAL {}", left.sql, right.sql),
                false => format!("{} LEFT JOIN LATERAL {} ON true", left.sql, right.sql),
            };
            return joined(left, right, sql);
        }
        let right = self.item(around);
        let kind = *self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let merged = ["k", "id", "s"]
            .into_iter()
            .find(|name| left.named(name) == 1 && right.named(name) == 1 && self.rng.one_in(6));
        if let Some(name) = merged {
            return merge(left, right, kind, name);
        }
        if self.rng.one_in(8) {
            let sql = format!("{} CROSS JOIN {}", left.sql, right.sql);
            return joined(left, right, sql);
        }
        let on = self.join_condition(&left, &right, kind == "FULL JOIN");
        let sql = format!("{} {kind} {} ON {on}", left.sql, right.sql);
        joined(left, right, sql)
    }

    /// Mostly an equality. A full join takes no other condition alone.
    fn join_condition(&mut self, left: &Source, right: &Source, is_full: bool) -> String {
        let mut both = Scope {
            columns: left.columns(),
            ..Scope::default()
        };
        both.columns.extend(right.columns());
        let numbers = |kind| matches!(kind, Kind::Integer | Kind::Bigint | Kind::Numeric);
        let mut pairs = Vec::new();
        for l in left.columns() {
            for r in right.columns() {
                if l.kind == r.kind || numbers(l.kind) && numbers(r.kind) {
                    let names_match = l.sql.rsplit('.').next() == r.sql.rsplit('.').next();
                    let weight = if names_match { 4 } else { 1 };
                    pairs.extend(vec![format!("{} = {}", l.sql, r.sql); weight]);
                }
            }
        }
        if pairs.is_empty() || !is_full && self.rng.one_in(8) {
            return match is_full {
                true => "1 = 1".to_string(),
                false => self.condition(2, &both),
            };
        }
        let mut parts = vec![self.pick(&pairs).clone()];
        if self.rng.one_in(5) {
            parts.push(self.pick(&pairs).clone());
        }
        if self.rng.one_in(if is_full { 12 } else { 4 }) {
            parts.push(self.condition(2, &both));
        }
        parts.join(" AND ")
    }
}

/// The scope for a query one level further down.
fn lower(around: &Scope) -> Scope {
    Scope {
        subqueries: around.subqueries.saturating_sub(1),
        ..around.clone()
    }
}

/// An item of columns `c1`, `c2`, …
fn source(sql: String, alias: &str, kinds: &[Kind]) -> Source {
    let columns = numbered(alias, kinds);
    Source {
        sql,
        keys: columns.iter().map(|c| c.sql.clone()).collect(),
        columns: columns
            .into_iter()
            .enumerate()
            .map(|(i, column)| (format!("c{}", i + 1), column))
            .collect(),
    }
}

fn joined(left: Source, right: Source, sql: String) -> Source {
    // A merged column's name would become ambiguous beside another of that name.
    let is_clear =
        |(name, column): &(String, Column)| column.sql != *name || right.named(name) == 0;
    let mut columns: Vec<_> = left.columns.into_iter().filter(is_clear).collect();
    columns.extend(right.columns);
    Source {
        sql,
        columns,
        keys: [left.keys, right.keys].concat(),
    }
}

/// A join with USING of one column, or NATURAL where that is the only name in common.
fn merge(left: Source, right: Source, kind: &str, name: &str) -> Source {
    let common: Vec<&String> = left.columns.iter().map(|(n, _)| n).collect();
    let common = common.into_iter().filter(|n| right.named(n) > 0).count();
    let sql = match common {
        1 => format!("{} NATURAL {kind} {}", left.sql, right.sql),
        _ => format!("{} {kind} {} USING ({name})", left.sql, right.sql),
    };
    let find = |source: &Source| {
        let found = source.columns.iter().find(|(n, _)| n == name);
        found.map(|(_, column)| column.kind)
    };
    let merged = match (find(&left), find(&right)) {
        (Some(Kind::Integer), Some(other)) => other,
        (one, _) => one.unwrap_or(Kind::Integer),
    };
    let keys = [left.keys, right.keys].concat();
    let others = left.columns.into_iter().chain(right.columns);
    let mut columns: Vec<_> = others.filter(|(n, _)| n != name).collect();
    let column = Column {
        sql: name.to_string(),
        kind: merged,
    };
    columns.push((name.to_string(), column));
    Source { sql, columns, keys }
}
