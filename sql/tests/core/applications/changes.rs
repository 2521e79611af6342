//! Random changes of rows, with and without RETURNING. The rows that they change, and the values
//! that these get, do not depend on the order in which rows are found.

use super::draft::{Draft, Statement};
use super::schema::{Column, Kind, Table};

type Shape = fn(&mut Draft<'_>) -> String;

const SHAPES: [Shape; 16] = [
    insert,
    insert,
    insert,
    insert_of_query,
    upsert,
    upsert,
    update,
    update,
    update,
    update_from,
    take_first,
    delete,
    delete,
    delete_using,
    with_change,
    merge,
];

const PLAIN_SHAPES: [Shape; 5] = [insert, upsert, update, update, delete];

/// INSERT, UPDATE, DELETE or MERGE.
pub fn change(mut draft: Draft<'_>) -> Statement {
    let shape = match draft.is_plain {
        true => draft.pick(&PLAIN_SHAPES),
        false => draft.pick(&SHAPES),
    };
    let sql = shape(&mut draft);
    draft.finish(sql, false)
}

fn returning<'a>(draft: &mut Draft<'a>, table: &'a Table) -> String {
    match draft.rng.below(4) {
        0 => " RETURNING *".to_string(),
        1 => format!(" RETURNING {}", draft.list(&[(table, table.name)])),
        _ => String::new(),
    }
}

/// The columns of an INSERT: the key and some others, or all.
fn columns<'a>(draft: &mut Draft<'a>, table: &'a Table) -> Vec<&'a Column> {
    let all = draft.one_in(2);
    let others = table.columns[table.key().len()..].iter();
    let others: Vec<&Column> = others.filter(|_| all || draft.one_in(2)).collect();
    table.key().iter().chain(others).collect()
}

/// A new value of a column.
fn new_value(draft: &mut Draft<'_>, column: &Column, is_key: bool) -> String {
    let kind = column.kind;
    let form = match draft.is_plain {
        true => draft.pick(&[1, 15, 15, 15]),
        false => draft.rng.below(16),
    };
    match form {
        0 if !is_key => "DEFAULT".to_string(),
        1 if !is_key => "NULL".to_string(),
        2 if kind == Kind::Text => format!("upper({})", draft.value(kind)),
        3 if kind == Kind::Int => format!("{} + 1", draft.value(kind)),
        4 if kind == Kind::Numeric => format!("{} * 2", draft.value(kind)),
        _ => draft.value(kind),
    }
}

fn rows_of(draft: &mut Draft<'_>, columns: &[&Column], key: usize) -> String {
    let count = draft.pick(&[1, 1, 1, 2, 5, 20]);
    let row = |draft: &mut Draft<'_>| {
        let values = columns.iter().enumerate();
        let values = values.map(|(no, column)| new_value(draft, column, no < key));
        format!("({})", values.collect::<Vec<_>>().join(", "))
    };
    let rows: Vec<String> = (0..count).map(|_| row(draft)).collect();
    rows.join(", ")
}

fn names(columns: &[&Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    names.join(", ")
}

fn insert_into<'a>(draft: &mut Draft<'a>, table: &'a Table, conflict: &str) -> String {
    let columns = columns(draft, table);
    let rows = rows_of(draft, &columns, table.key().len());
    let (name, columns) = (table.name, names(&columns));
    let returning = returning(draft, table);
    format!("INSERT INTO {name} ({columns}) VALUES {rows}{conflict}{returning}")
}

fn insert(draft: &mut Draft<'_>) -> String {
    let table = draft.any_table();
    insert_into(draft, table, "")
}

/// Copies the lines of a parent.
fn insert_of_query(draft: &mut Draft<'_>) -> String {
    let line = draft.line();
    let filter = draft.by_key(line, "x");
    let conflict = draft.pick(&["", " ON CONFLICT DO NOTHING"]);
    let returning = returning(draft, line);
    format!(
        "INSERT INTO line (k, n, a, s) SELECT x.k, x.n + 7, x.a, upper(x.s) FROM line AS x \
         WHERE {filter}{conflict}{returning}"
    )
}

fn key_names(table: &Table) -> String {
    names(&table.key().iter().collect::<Vec<_>>())
}

fn upsert(draft: &mut Draft<'_>) -> String {
    let table = draft.any_table();
    let (name, key) = (table.name, key_names(table));
    let conflict = match draft.rng.below(4) {
        0 => " ON CONFLICT DO NOTHING".to_string(),
        1 => format!(" ON CONFLICT ({key}) DO NOTHING"),
        _ => {
            let column = draft.other_column(table);
            let (c, kind) = (column.name, column.kind);
            let value = match draft.rng.below(4) {
                0 => format!("excluded.{c}"),
                1 if kind.is_integer() => format!("{name}.{c} + excluded.{c}"),
                2 if kind.is_integer() => format!("greatest({name}.{c}, excluded.{c}) * 2 - 1"),
                1 if kind.is_text() => format!("{name}.{c} || excluded.{c}"),
                _ => format!("coalesce({name}.{c}, excluded.{c})"),
            };
            let filter = draft.maybe(|draft| format!(" WHERE {}", draft.condition(table, name)));
            let arbiter = match draft.one_in(3) {
                true => format!("ON CONSTRAINT {name}_pkey"),
                false => format!("({key})"),
            };
            format!(" ON CONFLICT {arbiter} DO UPDATE SET {c} = {value}{filter}")
        }
    };
    insert_into(draft, table, &conflict)
}

/// A value for a column of a row that is there.
fn set_value<'a>(draft: &mut Draft<'a>, table: &'a Table, column: &Column) -> String {
    let (c, kind) = (format!("{}.{}", table.name, column.name), column.kind);
    let form = match draft.is_plain {
        true => draft.pick(&[0, 2, 3, 9, 9]),
        false => draft.rng.below(10),
    };
    match form {
        0 => "NULL".to_string(),
        1 => "DEFAULT".to_string(),
        2 | 3 if kind.is_integer() => format!("{c} + {}", draft.value(kind)),
        4 if kind.is_integer() => {
            let condition = draft.condition(table, table.name);
            format!(
                "CASE WHEN {condition} THEN {c} - 1 ELSE {} END",
                draft.value(kind)
            )
        }
        5 if kind == Kind::Int => "(SELECT max(q.a) FROM line AS q WHERE q.n = 3)".to_string(),
        2 if kind.is_text() => format!("upper({c})"),
        3 if kind.is_text() => format!("{c} || {}", draft.value(kind)),
        4 => format!("coalesce({c}, {})", draft.value(kind)),
        2 if kind == Kind::Bool => format!("NOT {c}"),
        2 if kind == Kind::Numeric => format!("{c} * 2"),
        _ => draft.value(kind),
    }
}

fn assignments<'a>(draft: &mut Draft<'a>, table: &'a Table) -> String {
    let mut set: Vec<(&str, String)> = Vec::new();
    for _ in 0..=draft.rng.below(3) {
        let column = match draft.one_in(8) {
            true => draft.column(table),
            false => draft.other_column(table),
        };
        if set.iter().all(|(name, _)| *name != column.name) {
            set.push((column.name, set_value(draft, table, column)));
        }
    }
    let set: Vec<String> = set
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    set.join(", ")
}

fn update(draft: &mut Draft<'_>) -> String {
    let table = draft.any_table();
    let (name, set) = (table.name, assignments(draft, table));
    let filter = draft.filter(table, name);
    let returning = returning(draft, table);
    format!("UPDATE {name} SET {set} WHERE {filter}{returning}")
}

/// Each line has one parent at most, so it gets one value.
fn update_from(draft: &mut Draft<'_>) -> String {
    let (line, parent) = (draft.line(), draft.parent());
    let filter = match draft.one_in(2) {
        true => draft.by_key(parent, "x"),
        false => draft.by_key(line, "line"),
    };
    if draft.one_in(4) {
        // Several lines for one parent.
        let filter = draft.by_key(parent, "parent");
        let returning = draft.pick(&["", " RETURNING parent.k, parent.a"]);
        return format!(
            "UPDATE parent SET a = parent.a + 1, s = DEFAULT FROM line AS x \
             WHERE x.k = parent.k AND {filter}{returning}"
        );
    }
    let set = draft.pick(&[
        "a = x.a",
        "a = coalesce(x.a, 0) + 1, s = x.s",
        "s = lower(x.s)",
    ]);
    let returning = returning(draft, line);
    format!("UPDATE line SET {set} FROM parent AS x WHERE x.k = line.k AND {filter}{returning}")
}

/// A queue: the first rows that nobody has.
fn take_first(draft: &mut Draft<'_>) -> String {
    let table = draft.any_table();
    let key: Vec<String> = table
        .key()
        .iter()
        .map(|c| format!("x.{} = q.{0}", c.name))
        .collect();
    let (name, key) = (table.name, key.join(" AND "));
    let filter = draft.condition(table, "q");
    let order = draft.order(&[(table, "q")]);
    let lock = draft.pick(&["", " FOR UPDATE", " FOR UPDATE SKIP LOCKED"]);
    if table.key().len() == 1 {
        let k = table.key()[0].name;
        return format!(
            "UPDATE {name} SET a = 5, s = 'taken' WHERE {k} = \
             (SELECT q.{k} FROM {name} AS q WHERE {filter}{order} LIMIT 1{lock}) RETURNING {k}, s"
        );
    }
    format!(
        "UPDATE {name} AS x SET a = 5, s = 'taken' \
         FROM (SELECT * FROM {name} AS q WHERE {filter}{order} LIMIT 2{lock}) AS q \
         WHERE {key} RETURNING x.s, q.a"
    )
}

fn delete(draft: &mut Draft<'_>) -> String {
    let table = draft.any_table();
    let name = table.name;
    let filter = draft.filter(table, name);
    let returning = returning(draft, table);
    format!("DELETE FROM {name} WHERE {filter}{returning}")
}

fn delete_using(draft: &mut Draft<'_>) -> String {
    let (line, parent) = (draft.line(), draft.parent());
    let filter = draft.by_key(parent, "x");
    let more = draft.condition(line, "line");
    let returning = draft.pick(&["", " RETURNING line.k, line.n, x.a"]);
    format!(
        "DELETE FROM line USING parent AS x WHERE x.k = line.k AND {filter} AND {more}{returning}"
    )
}

fn with_change(draft: &mut Draft<'_>) -> String {
    let (line, parent) = (draft.line(), draft.parent());
    match draft.rng.below(7) {
        0 => {
            let filter = draft.by_key(parent, "x");
            format!(
                "WITH c AS (SELECT x.k, x.a FROM parent AS x WHERE {filter}) \
                 UPDATE line SET a = c.a FROM c WHERE c.k = line.k RETURNING line.k, line.n, line.a"
            )
        }
        1 => {
            let filter = draft.by_key(line, "line");
            format!(
                "WITH c AS (UPDATE line SET a = 7 WHERE {filter} RETURNING k, n, a) \
                 SELECT c.k, c.n, c.a, x.s FROM c JOIN parent AS x ON x.k = c.k"
            )
        }
        2 => {
            let filter = draft.by_key(line, "line");
            format!(
                "WITH c AS (DELETE FROM line WHERE {filter} RETURNING k, n, s) \
                 INSERT INTO line (k, n, s) SELECT k, n + 20, s FROM c RETURNING k, n"
            )
        }
        3 => {
            // Rows that both change: the first change counts.
            let (first, second) = (draft.by_key(line, "line"), draft.by_key(line, "line"));
            format!(
                "WITH c AS (UPDATE line SET a = 2 WHERE {first} RETURNING a), \
                 d AS (DELETE FROM line WHERE {second} RETURNING n) \
                 SELECT (SELECT count(*) FROM c), (SELECT count(*) FROM d)"
            )
        }
        4 => {
            // A query that two parts name, and a change that nothing reads.
            let (own, gone) = (draft.by_key(parent, "x"), draft.by_key(line, "line"));
            format!(
                "WITH x AS (SELECT * FROM parent AS x WHERE {own}), \
                 d AS (DELETE FROM line WHERE {gone}), \
                 c AS (UPDATE parent SET a = 4 FROM x WHERE x.k = parent.k RETURNING parent.k) \
                 SELECT x.k, x.a FROM x, c WHERE x.k = c.k"
            )
        }
        5 => {
            let event = draft.event();
            let set = assignments(draft, event);
            let filter = draft.by_key(event, "event");
            format!(
                "WITH c AS (UPDATE event SET {set} WHERE {filter} RETURNING *) \
                 SELECT count(*), max(a) FROM c"
            )
        }
        _ => {
            let row = rows_of(draft, &[&parent.columns[0]], 1);
            format!(
                "WITH c AS (INSERT INTO parent (k) VALUES {row} RETURNING k) \
                 INSERT INTO line (k, n) SELECT k, 1 FROM c"
            )
        }
    }
}

fn merge(draft: &mut Draft<'_>) -> String {
    let parent = draft.parent();
    let kind = parent.key()[0].kind;
    let (k, a) = (draft.value(kind), draft.value(Kind::Int));
    let (k, a) = (
        format!("CAST({k} AS {})", kind.sql_type()),
        format!("CAST({a} AS integer)"),
    );
    let gone = draft.maybe(|_| " WHEN MATCHED AND parent.a = 3 THEN DELETE".to_string());
    format!(
        "MERGE INTO parent USING (SELECT {k} AS k, {a} AS a) AS q ON parent.k = q.k{gone} \
         WHEN MATCHED THEN UPDATE SET a = q.a WHEN NOT MATCHED THEN INSERT (k, a) VALUES (q.k, q.a)"
    )
}
