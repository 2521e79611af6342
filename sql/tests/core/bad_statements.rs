//! Statements that fail, hundreds of them: each has an SQLSTATE and a message in words of SQL, and
//! names that do not exist are shown in the text.
//!
//! `bad_statements.txt` lists them. The states and places were PostgreSQL 15's answers to the same
//! statements over the same tables.

use super::{database, run};

const TABLES: &[&str] = &[
    "CREATE TABLE t (a int PRIMARY KEY, b text NOT NULL, c numeric(8,2), d date, \
     f double precision, ok boolean, j json, ts timestamptz, i interval, by bytea, s smallint, \
     big bigint, vc varchar(3), u uuid)",
    "CREATE TABLE p (a int, g int, CHECK (a > 0))",
    "CREATE VIEW v AS SELECT a, b FROM t",
    "INSERT INTO t (a, b, c, d, ok) VALUES (1, 'one', 1.5, '2024-01-01', true), \
     (2, 'two', NULL, NULL, false)",
    "INSERT INTO p VALUES (1, 1), (2, 1)",
];

/// What no message may have in it: names of Rust, Arrow and DataFusion, and their syntax trees.
const FOREIGN: &[&str] = &[
    "Arrow",
    "Binary",
    "Boolean",
    "DataFusion",
    "Date32",
    "Decimal1",
    "Decimal6",
    "Did you mean",
    "Error during planning",
    "Exec",
    "Expr",
    "Float",
    "Ident",
    "Int16",
    "Int32",
    "Int64",
    "Internal error",
    "List(",
    "LogicalPlan",
    "MonthDayNano",
    "Physical",
    "Schema error",
    "Some(",
    "Span(",
    "Struct(",
    "Struct,",
    "Timestamp(",
    "UDF",
    "Utf8",
    "backtrace",
    "caused by",
    "coercion",
    "signature",
    "sqltorel",
    "{ ",
    "~~~",
];

#[test]
fn messages_are_in_words_of_sql_and_say_where() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/core/bad_statements.txt");
    let list = std::fs::read_to_string(path).expect("the list");
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLES);
    let (mut count, mut wrong) = (0, Vec::new());
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.splitn(3, ' ');
        let (state, place) = (
            parts.next().expect("a state"),
            parts.next().expect("a place"),
        );
        let sql = parts.next().unwrap_or_default();
        run(&mut c, &["BEGIN"]);
        let outcome = c.query(sql, ());
        run(&mut c, &["ROLLBACK"]);
        count += 1;
        let Err(error) = outcome else {
            wrong.push(format!("{sql}\n    succeeds"));
            continue;
        };
        let text = error.to_string();
        let foreign = FOREIGN.iter().find(|word| text.contains(**word));
        let found = error.position().map_or("-".to_string(), |p| p.to_string());
        let (is_state, is_place) = match state {
            "-" => (error.sqlstate().0 != "XX000", true),
            state => (error.sqlstate().0 == state, place == "-" || found == place),
        };
        if foreign.is_some() || !is_state || !is_place {
            let state = error.sqlstate().0;
            wrong.push(format!("{sql}\n    {foreign:?} {state} {found} {text}"));
        }
    }
    assert!(count > 400, "{count}");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
