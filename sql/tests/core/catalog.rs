//! The queries with which clients ask about the schema, recorded from the clients themselves, and
//! what they get. The expected results were compared with PostgreSQL 15's when they were written;
//! `REWRITE_EXPECTED=1 cargo test` writes them anew.

use super::{database, fails, rows, run};
use std::fmt::Write;
use std::path::Path;
use strandline::{Connection, Database, SqlState};

/// The schema that the queries were recorded on.
const SCHEMA: &[&str] = &[
    "CREATE SCHEMA sales",
    "CREATE TABLE customer (id bigint PRIMARY KEY, name text NOT NULL, email varchar(80) UNIQUE,
        balance numeric(12,2) DEFAULT 0 CHECK (balance >= 0), born date)",
    "CREATE TABLE sales.orders (customer_id bigint, line integer, placed timestamptz DEFAULT now(),
        note char(3), item_no integer GENERATED ALWAYS AS IDENTITY,
        PRIMARY KEY (customer_id, line))",
    "CREATE VIEW rich AS SELECT id, name FROM customer WHERE balance > 1000",
    "COMMENT ON TABLE customer IS 'who buys'",
    "COMMENT ON COLUMN customer.name IS 'full name'",
];

/// The relations that queries name by oid.
const RELATIONS: [&str; 7] = [
    "customer",
    "customer_pkey",
    "customer_email_key",
    "rich",
    "sales.orders",
    "sales.orders_pkey",
    "sales.orders_item_no_seq",
];

/// With more rows than this only their number is compared.
const FEW_ROWS: usize = 12;

fn sample() -> (Database, Connection) {
    let database = database();
    let mut connection = database.connect();
    run(&mut connection, SCHEMA);
    (database, connection)
}

/// Runs the queries of `catalog/name.sql` and compares with `catalog/name.expected`.
fn check(name: &str) {
    let (_database, mut c) = sample();
    let oids: Vec<(String, String)> = RELATIONS
        .iter()
        .map(|relation| {
            let oid = rows(&mut c, &format!("SELECT '{relation}'::regclass::oid"));
            (format!("{{{relation}}}"), oid[0].clone())
        })
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalog");
    let text = std::fs::read_to_string(folder.join(format!("{name}.sql"))).expect("queries");
    let mut results = String::new();
    for (i, query) in text.split("\n;;\n").enumerate() {
        let mut sql = query.to_string();
        for (placeholder, oid) in &oids {
            sql = sql.replace(placeholder, oid);
        }
        let found = rows(&mut c, &sql);
        writeln!(results, "query {}: {} rows", i + 1, found.len()).expect("writes");
        // How many bytes there are is not the point.
        let sizes = sql.contains("_size(") || sql.contains("pg_stat_activity");
        if found.len() > FEW_ROWS || sizes {
            continue;
        }
        let named = |row: String| {
            let mut row = row.replace('\n', "\\n");
            for (placeholder, oid) in &oids {
                row = row.replace(oid.as_str(), placeholder);
            }
            row
        };
        // Most of these queries leave the order of some rows open.
        let mut found: Vec<String> = found.into_iter().map(named).collect();
        found.sort();
        for row in found {
            writeln!(results, "  {row}").expect("writes");
        }
    }
    let path = folder.join(format!("{name}.expected"));
    if std::env::var_os("REWRITE_EXPECTED").is_some() {
        std::fs::write(&path, &results).expect("written");
    }
    let expected = std::fs::read_to_string(&path).expect("expected results");
    for (got, wanted) in results.lines().zip(expected.lines()) {
        assert_eq!(got, wanted, "{name}");
    }
    assert_eq!(results.lines().count(), expected.lines().count(), "{name}");
}

#[test]
fn psql_describes() {
    check("psql");
}

#[test]
fn sqlalchemy_reflects() {
    check("sqlalchemy");
}

#[test]
fn jdbc_s_metadata() {
    check("jdbc");
}

#[test]
fn tools_look_around() {
    check("tools");
}

#[test]
fn names_and_numbers_of_relations() {
    let (_database, mut c) = sample();
    assert_eq!(
        rows(&mut c, "SELECT 'sales.orders'::regclass"),
        ["sales.orders"]
    );
    let text = "SELECT oid::regclass::text FROM pg_class WHERE oid = 'customer'::regclass";
    assert_eq!(rows(&mut c, text), ["customer"]);
    assert_eq!(
        rows(&mut c, "SELECT 'numeric'::regtype, 23::regtype"),
        ["numeric|integer"]
    );
    assert_eq!(rows(&mut c, "SELECT to_regclass('nowhere') IS NULL"), ["t"]);
    fails(
        &mut c,
        "SELECT 'nowhere'::regclass",
        SqlState::UNDEFINED_TABLE,
    );
    fails(
        &mut c,
        "SELECT 'nonsense'::regtype",
        SqlState::UNDEFINED_OBJECT,
    );
}

#[test]
fn tables_keep_their_oid() {
    let (_database, mut c) = sample();
    let oid = "SELECT oid FROM pg_class WHERE relkind = 'r' AND relname ~ '^(customer|client)$'";
    let before = rows(&mut c, oid);
    run(
        &mut c,
        &[
            "DROP VIEW rich",
            "ALTER TABLE customer RENAME TO client",
            "TRUNCATE client",
        ],
    );
    assert_eq!(rows(&mut c, oid), before);
}

#[test]
fn system_tables_show_the_statement_s_definitions() {
    let (database, mut c) = sample();
    let mut other = database.connect();
    let count = "SELECT count(*) FROM pg_class WHERE relname = 'draft'";
    run(&mut c, &["BEGIN", "CREATE TABLE draft (a int)"]);
    assert_eq!(
        (rows(&mut c, count), rows(&mut other, count)),
        (vec!["1".into()], vec!["0".into()])
    );
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, count), ["0"]);
}

#[test]
fn views_over_system_tables_list_themselves_without_columns() {
    let (_database, mut c) = sample();
    run(
        &mut c,
        &["CREATE VIEW mine AS SELECT attname FROM pg_attribute WHERE attnum > 0"],
    );
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'rich'::regclass";
    assert_eq!(rows(&mut c, columns), ["2"]);
    assert_eq!(rows(&mut c, "SELECT count(*) > 100 FROM mine"), ["t"]);
}

#[test]
fn subqueries_that_no_join_answers() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE a (x int, y int)",
            "CREATE TABLE b (x int, z int)",
            "INSERT INTO a VALUES (1, 10), (2, 20), (3, NULL)",
            "INSERT INTO b VALUES (1, 5), (2, 15), (2, 25), (NULL, 7)",
        ],
    );
    // Comparisons other than =, outer columns in the SELECT list and below an outer join.
    let less = "SELECT x, (SELECT max(z) FROM b WHERE b.z < a.y) FROM a ORDER BY x";
    assert_eq!(rows(&mut c, less), ["1|7", "2|15", "3|NULL"]);
    let sum = "SELECT x, (SELECT sum(b.z + a.y) FROM b WHERE b.x <> a.x) FROM a ORDER BY x";
    assert_eq!(rows(&mut c, sum), ["1|60", "2|25", "3|NULL"]);
    let joined = "SELECT x, (SELECT count(*) FROM (VALUES (1), (2)) v(i)
        LEFT JOIN b ON b.x = v.i AND b.z > a.y) FROM a ORDER BY x";
    assert_eq!(rows(&mut c, joined), ["1|3", "2|2", "3|2"]);
    // IN and EXISTS as values, and NULL in what is looked through.
    let values = "SELECT x, x IN (SELECT b.x FROM b), x NOT IN (SELECT b.x FROM b WHERE b.x > 0),
        EXISTS (SELECT 1 FROM b WHERE b.z > a.y) FROM a ORDER BY x";
    assert_eq!(rows(&mut c, values), ["1|t|f|t", "2|t|f|t", "3|NULL|t|f"]);
    let arrays = "SELECT x, ARRAY(SELECT z FROM b WHERE b.x = a.x ORDER BY z DESC) FROM a
        ORDER BY x";
    assert_eq!(rows(&mut c, arrays), ["1|{5}", "2|{25,15}", "3|{}"]);
    // One inside the other, the inner one with a column of the outermost.
    let nested = "SELECT x, (SELECT max(z) FROM b WHERE b.z < a.y
        AND EXISTS (SELECT 1 FROM a AS c WHERE c.x >= b.x AND c.y > a.y)) FROM a ORDER BY x";
    assert_eq!(rows(&mut c, nested), ["1|5", "2|NULL", "3|NULL"]);
    let message = fails(
        &mut c,
        "SELECT (SELECT z FROM b WHERE b.z > a.y) FROM a",
        SqlState("21000"),
    );
    assert_eq!(
        message,
        "more than one row returned by a subquery used as an expression"
    );
}

#[test]
fn arrays_are_read_from_text() {
    let database = database();
    let mut c = database.connect();
    assert_eq!(
        rows(&mut c, "SELECT '{a,\"b c\",NULL}'::text[]"),
        ["{a,\"b c\",NULL}"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT 2 = ANY ('{1,2}'), 'x' = ANY ('{a,b}'::text[])"
        ),
        ["t|f"]
    );
    assert_eq!(
        rows(&mut c, "SELECT ARRAY[1,2] = '{1,2}', ARRAY[1] = '{}'"),
        ["t|f"]
    );
    fails(&mut c, "SELECT '{1,'::int[]", SqlState("22P02"));
}
