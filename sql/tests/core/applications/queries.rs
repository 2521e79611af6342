//! Random queries of applications. Where a query takes only some of the rows, its order is total.

use super::draft::{Draft, Statement};
use super::schema::{Kind, Table};

type Shape = fn(&mut Draft<'_>) -> (String, bool);

const SHAPES: [Shape; 21] = [
    one_table,
    one_table,
    one_table,
    one_table,
    in_order,
    in_order,
    aggregate,
    grouped,
    distinct,
    set_operation,
    join_of_two,
    join_of_two,
    join_of_three,
    self_join,
    exists,
    in_subquery,
    scalar_subquery,
    with_query,
    derived,
    of_an_orm,
    pages,
];

/// Those of which many are one table's columns.
const PLAIN_SHAPES: [Shape; 5] = [one_table, one_table, in_order, aggregate, pages];

/// A query that locks nothing.
pub fn query(mut draft: Draft<'_>) -> Statement {
    let shape = match draft.is_plain {
        true => draft.pick(&PLAIN_SHAPES),
        false => draft.pick(&SHAPES),
    };
    let (sql, is_ordered) = shape(&mut draft);
    draft.finish(sql, is_ordered)
}

/// A query with a locking clause.
pub fn locking(mut draft: Draft<'_>) -> Statement {
    let table = draft.any_table();
    let list = draft.list(&[(table, "x")]);
    let (item, by_key) = (draft.item(table, "x"), draft.filter(table, "x"));
    let strength = draft.pick(&["UPDATE", "UPDATE", "SHARE", "NO KEY UPDATE", "KEY SHARE"]);
    let wait = draft.pick(&["", "", " NOWAIT", " SKIP LOCKED"]);
    let mut sql = format!("SELECT {list} FROM {item} WHERE {by_key}");
    let is_ordered = draft.one_in(2);
    if is_ordered {
        sql += &draft.order(&[(table, "x")]);
        sql += &draft.maybe(Draft::limit);
    }
    draft.finish(format!("{sql} FOR {strength}{wait}"), is_ordered)
}

/// An order of all rows, or none.
fn maybe_order(draft: &mut Draft<'_>, tables: &[(&Table, &str)]) -> (String, bool) {
    match draft.one_in(2) {
        true => (draft.order(tables), true),
        false => (String::new(), false),
    }
}

fn one_table(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let list = draft.list(&[(table, "x")]);
    let (item, filter) = (draft.item(table, "x"), draft.filter(table, "x"));
    let (mut order, is_ordered) = maybe_order(draft, &[(table, "x")]);
    if is_ordered {
        order += &draft.maybe(Draft::limit);
    }
    let sql = format!("SELECT {list} FROM {item} WHERE {filter}{order}");
    (sql, is_ordered)
}

/// A walk in an order, of which only the first rows are taken.
fn in_order(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let list = draft.list(&[(table, "x")]);
    let item = draft.item(table, "x");
    let filter = draft.maybe(|draft| format!(" WHERE {}", draft.filter(table, "x")));
    let column = draft.column(table).name;
    let by = draft.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
    let key = draft.order(&[(table, "x")]);
    let key = key.trim_start_matches(" ORDER BY ").to_string();
    let limit = draft.limit();
    let sql = format!("SELECT {list} FROM {item}{filter} ORDER BY x.{column}{by}, {key}{limit}");
    (sql, true)
}

/// Aggregates whose result does not depend on the order of the rows.
fn aggregates(draft: &mut Draft<'_>, table: &Table, alias: &str) -> String {
    let count = 1 + draft.rng.below(4);
    let one = |draft: &mut Draft<'_>| {
        let column = &table.columns[draft.rng.below(table.columns.len() as u64) as usize];
        let c = format!("{alias}.{}", column.name);
        let is_number = column.kind.is_integer() || column.kind == Kind::Numeric;
        let form = match draft.is_plain {
            true => draft.pick(&[0, 2, 3, 5, 6, 8]),
            false => draft.rng.below(8),
        };
        match form {
            0 => format!("count({c})"),
            1 => format!("count(DISTINCT {c})"),
            2 if is_number => format!("sum({c})"),
            3 if is_number => format!("avg({c})"),
            4 if column.kind == Kind::Bool => format!("bool_or({c})"),
            4 | 5 if column.kind != Kind::Bool => format!("max({c})"),
            6 if column.kind != Kind::Bool => format!("min({c})"),
            7 => format!("count(*) FILTER (WHERE {c} IS NOT NULL)"),
            _ => "count(*)".to_string(),
        }
    };
    let all: Vec<String> = (0..count).map(|_| one(draft)).collect();
    all.join(", ")
}

fn aggregate(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let aggregates = aggregates(draft, table, "x");
    let (item, filter) = (draft.item(table, "x"), draft.filter(table, "x"));
    (
        format!("SELECT {aggregates} FROM {item} WHERE {filter}"),
        true,
    )
}

fn grouped(draft: &mut Draft<'_>) -> (String, bool) {
    let (line, parent) = (draft.line(), draft.parent());
    if draft.one_in(3) {
        let aggregates = aggregates(draft, line, "y");
        let (x, y) = (draft.item(parent, "x"), draft.item(line, "y"));
        let filter = draft.by_key(parent, "x");
        let sql = format!(
            "SELECT x.k, {aggregates} FROM {x} LEFT JOIN {y} ON y.k = x.k WHERE {filter} GROUP BY x.k"
        );
        return (sql, false);
    }
    let table = draft.any_table();
    let aggregates = aggregates(draft, table, "x");
    let (item, filter) = (draft.item(table, "x"), draft.filter(table, "x"));
    let group = draft.column(table).name;
    let having = draft.pick(&["", "", " HAVING count(*) > 1"]);
    let sql = format!(
        "SELECT x.{group}, {aggregates} FROM {item} WHERE {filter} GROUP BY x.{group}{having} \
         ORDER BY x.{group}"
    );
    (sql, true)
}

fn distinct(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let list = draft.list(&[(table, "x")]);
    let (item, filter) = (draft.item(table, "x"), draft.filter(table, "x"));
    (
        format!("SELECT DISTINCT {list} FROM {item} WHERE {filter}"),
        false,
    )
}

fn set_operation(draft: &mut Draft<'_>) -> (String, bool) {
    let (line, parent) = (draft.line(), draft.parent());
    let (x, y) = (draft.item(parent, "x"), draft.item(line, "y"));
    let (left, right) = (draft.filter(parent, "x"), draft.filter(line, "y"));
    let operation = draft.pick(&["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"]);
    let sql = format!(
        "SELECT x.k, x.a, x.s FROM {x} WHERE {left} {operation} \
         SELECT y.k, y.a, y.s FROM {y} WHERE {right}"
    );
    match draft.one_in(2) {
        true => (format!("{sql} ORDER BY 1, 2, 3"), true),
        false => (sql, false),
    }
}

/// The parts of a query that joins the tables `x` and `y`.
fn join_of_two(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, line, event) = (draft.parent(), draft.line(), draft.event());
    let (right, column) = draft.pick(&[(line, "k"), (event, "r")]);
    let list = draft.list(&[(parent, "x"), (right, "y")]);
    let (x, y) = (draft.item(parent, "x"), draft.item(right, "y"));
    let kind = draft.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"]);
    let on = draft.maybe(|draft| format!(" AND {}", draft.condition(right, "y")));
    let filter = match draft.one_in(2) {
        true => draft.by_key(parent, "x"),
        false => draft.filter(right, "y"),
    };
    let (order, is_ordered) = maybe_order(draft, &[(parent, "x"), (right, "y")]);
    let mut sql =
        format!("SELECT {list} FROM {x} {kind} {y} ON y.{column} = x.k{on} WHERE {filter}{order}");
    if is_ordered {
        sql += &draft.maybe(Draft::limit);
    }
    (sql, is_ordered)
}

fn join_of_three(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, line, event) = (draft.parent(), draft.line(), draft.event());
    let tables = [(parent, "x"), (line, "y"), (event, "z")];
    let list = draft.list(&tables);
    let items = tables
        .map(|(table, alias)| draft.item(table, alias))
        .join(", ");
    let filter = draft.by_key(parent, "x");
    let more = draft.maybe(|draft| format!(" AND {}", draft.condition(line, "y")));
    let sql =
        format!("SELECT {list} FROM {items} WHERE y.k = x.k AND z.r = x.k AND {filter}{more}");
    (sql, false)
}

fn self_join(draft: &mut Draft<'_>) -> (String, bool) {
    let parent = draft.parent();
    let list = draft.list(&[(parent, "x"), (parent, "y")]);
    let (x, y) = (draft.item(parent, "x"), draft.item(parent, "y"));
    let kind = draft.pick(&["JOIN", "LEFT JOIN"]);
    let filter = draft.by_key(parent, "x");
    let on = draft.pick(&["y.k = x.up", "y.up = x.k"]);
    (
        format!("SELECT {list} FROM {x} {kind} {y} ON {on} WHERE {filter}"),
        false,
    )
}

fn exists(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, line, event) = (draft.parent(), draft.line(), draft.event());
    let (inner, column) = draft.pick(&[(line, "k"), (event, "r")]);
    let (x, y) = (draft.item(parent, "x"), draft.item(inner, "y"));
    let more = draft.maybe(|draft| format!(" AND {}", draft.condition(inner, "y")));
    let not = draft.pick(&["", "NOT "]);
    if draft.one_in(4) {
        let filter = draft.filter(inner, "y");
        return (
            format!("SELECT {not}EXISTS (SELECT 1 FROM {y} WHERE {filter})"),
            true,
        );
    }
    let list = draft.list(&[(parent, "x")]);
    let filter = draft.filter(parent, "x");
    let sql = format!(
        "SELECT {list} FROM {x} WHERE {filter} AND {not}EXISTS \
         (SELECT 1 FROM {y} WHERE y.{column} = x.k{more})"
    );
    (sql, false)
}

fn in_subquery(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, event) = (draft.parent(), draft.event());
    let list = draft.list(&[(parent, "x")]);
    let (x, z) = (draft.item(parent, "x"), draft.item(event, "z"));
    let not = draft.pick(&["", "", "NOT "]);
    let inner = draft.filter(event, "z");
    let more = draft.maybe(|draft| format!(" AND {}", draft.filter(parent, "x")));
    let sql = format!(
        "SELECT {list} FROM {x} WHERE x.k {not}IN (SELECT z.r FROM {z} WHERE {inner}){more}"
    );
    (sql, false)
}

fn scalar_subquery(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, line) = (draft.parent(), draft.line());
    let expression = draft.expression(parent, "x");
    let (x, y) = (draft.item(parent, "x"), draft.item(line, "y"));
    let filter = draft.by_key(parent, "x");
    let aggregate = aggregates(draft, line, "y");
    let aggregate = aggregate
        .split(", ")
        .next()
        .unwrap_or("count(*)")
        .to_string();
    let subquery = match draft.rng.below(4) {
        0 => format!(
            "SELECT {aggregate} FROM {y} WHERE {}",
            draft.by_key(line, "y")
        ),
        1 => format!("SELECT y.a FROM {y} WHERE y.k = x.k ORDER BY y.n DESC LIMIT 1"),
        // More than one row is an error.
        2 if draft.one_in(3) => format!("SELECT y.a FROM {y} WHERE y.k = x.k"),
        _ => format!("SELECT {aggregate} FROM {y} WHERE y.k = x.k"),
    };
    let sql = match draft.one_in(4) {
        true => format!("SELECT {expression} FROM {x} WHERE {filter} AND x.a > ({subquery})"),
        false => format!("SELECT {expression}, ({subquery}) FROM {x} WHERE {filter}"),
    };
    (sql, false)
}

fn with_query(draft: &mut Draft<'_>) -> (String, bool) {
    let (parent, line) = (draft.parent(), draft.line());
    let (x, y) = (draft.item(parent, "x"), draft.item(line, "y"));
    let first = draft.filter(parent, "x");
    let more = draft.maybe(|draft| format!(" WHERE {}", draft.condition(line, "y")));
    let sql = format!(
        "WITH c AS (SELECT x.k, x.a FROM {x} WHERE {first}) \
         SELECT c.k, c.a, y.n, y.s FROM c JOIN {y} ON y.k = c.k{more}"
    );
    (sql, false)
}

fn derived(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let (item, filter) = (draft.item(table, "x"), draft.filter(table, "x"));
    let sql = match draft.one_in(2) {
        true => format!("SELECT count(*) FROM (SELECT 1 FROM {item} WHERE {filter} LIMIT 5) AS q"),
        false => format!(
            "SELECT q.a, q.s FROM (SELECT x.a, x.s FROM {item} WHERE {filter}) AS q WHERE q.a > 2"
        ),
    };
    (sql, false)
}

fn of_an_orm(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let alias = format!("\"{}\"", table.name);
    let item = draft.item(table, &alias);
    let filter = draft.by_key(table, &alias);
    if draft.one_in(3) {
        return (
            format!("SELECT 1 AS one FROM {item} WHERE {filter} LIMIT 1"),
            true,
        );
    }
    let columns = table.columns.iter().map(|column| {
        let name = column.name;
        format!("{alias}.\"{name}\" AS \"{}_{name}\"", table.name)
    });
    let columns: Vec<String> = columns.collect();
    let order = draft.order(&[(table, &alias)]);
    let sql = format!(
        "SELECT {} FROM {item} WHERE {filter}{order} LIMIT 21",
        columns.join(", ")
    );
    (sql, true)
}

/// A page behind the last row of the page before.
fn pages(draft: &mut Draft<'_>) -> (String, bool) {
    let table = draft.any_table();
    let (item, list) = (
        draft.item(table, "x"),
        draft.pick(&["*", "x.s, x.a", "x.a + 1 AS e"]),
    );
    let columns = draft.row_columns(table);
    let is_backward = draft.one_in(3);
    let operators = match is_backward {
        true => ["<", "<="],
        false => [">", ">="],
    };
    let operator = draft.pick(&operators);
    let page = draft.row_comparison(&columns, "x", operator);
    let more = draft.maybe(|draft| format!(" AND {}", draft.condition(table, "x")));
    let all = columns.iter().copied().chain(table.key_order());
    let order = all.map(|c| match is_backward {
        true => format!("x.{} DESC", c.name),
        false => format!("x.{}", c.name),
    });
    let order = order.collect::<Vec<_>>().join(", ");
    let limit = draft.limit();
    let sql = format!("SELECT {list} FROM {item} WHERE {page}{more} ORDER BY {order}{limit}");
    (sql, true)
}
