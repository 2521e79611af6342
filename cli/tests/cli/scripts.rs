//! `-c`, `-f` and standard input.

use crate::support::{Scratch, run, run_with_input};

#[test]
fn inputs_run_in_the_order_given() {
    let scratch = Scratch::new();
    let file = scratch.write("two.sql", "SELECT 2 AS two;");
    let arguments = [
        "--format",
        "csv",
        "-c",
        "SELECT 1 AS one",
        "-f",
        &file,
        "-c",
        "SELECT 3 AS three",
    ];
    assert_eq!(run(arguments).ok(), "one\n1\ntwo\n2\nthree\n3\n");
}

#[test]
fn standard_input_is_a_script() {
    let script = "CREATE TABLE t (a integer);\nINSERT INTO t\n  VALUES (1), (2);\n\
                  -- a comment; with a semicolon\nSELECT sum(a) AS total FROM t";
    assert_eq!(
        run_with_input(["--format", "csv"], script).ok(),
        "total\n3\n"
    );
    assert_eq!(
        run_with_input(["-f", "-", "--format", "csv"], "SELECT 1 AS x").ok(),
        "x\n1\n"
    );
    assert_eq!(run_with_input([""; 0], "").ok(), "");
}

#[test]
fn the_database_stays_between_runs() {
    let scratch = Scratch::new();
    let database = scratch.database("db", "CREATE TABLE t (a integer PRIMARY KEY)");
    run([&database, "-c", "INSERT INTO t VALUES (41)"]).ok();
    run([&database, "-c", "UPDATE t SET a = a + 1"]).ok();
    let text = run([&database, "--format", "csv", "-c", "SELECT a FROM t"]).ok();
    assert_eq!(text, "a\n42\n");
}

#[test]
fn transactions_span_statements() {
    let script = "CREATE TABLE t (a integer); BEGIN; INSERT INTO t VALUES (1); ROLLBACK;
        BEGIN; INSERT INTO t VALUES (2); COMMIT; SELECT a FROM t";
    assert_eq!(run(["--format", "csv", "-c", script]).ok(), "a\n2\n");
}

#[test]
fn an_open_transaction_is_rolled_back_at_the_end() {
    let scratch = Scratch::new();
    let database = scratch.database("db", "CREATE TABLE t (a integer)");
    run([&database, "-c", "BEGIN; INSERT INTO t VALUES (1)"]).ok();
    let text = run([
        &database,
        "--format",
        "csv",
        "-c",
        "SELECT count(*) AS n FROM t",
    ])
    .ok();
    assert_eq!(text, "n\n0\n");
}

#[test]
fn scripts_include_scripts() {
    let scratch = Scratch::new();
    let inner = scratch.write("inner.sql", "SELECT 'inner' AS x;\n");
    let outer = scratch.write("outer.sql", format!("\\i {inner}\nSELECT 'outer' AS x;\n"));
    assert_eq!(
        run(["--format", "csv", "-f", &outer]).ok(),
        "x\ninner\nx\nouter\n"
    );
    let endless = scratch.text("endless.sql");
    scratch.write("endless.sql", format!("\\i {endless}\n"));
    assert!(
        run(["-f", &endless])
            .fails(1)
            .contains("include each other too deeply")
    );
}

#[test]
fn meta_commands_work_in_scripts() {
    let scratch = Scratch::new();
    let results = scratch.text("results.csv");
    let script = format!(
        "CREATE TABLE city (name text PRIMARY KEY, people bigint NOT NULL CHECK (people > 0));\n\
         CREATE INDEX ON city (people DESC) WHERE people > 9;\n\
         \\d city\n\\di\n\\dt\n\\echo 'a b'\n\\format csv\n\\o {results}\nSELECT 1 AS x;\n\\o\n\
         \\q\nSELECT 'never';\n"
    );
    let text = run_with_input(["-q"], script).ok();
    for expected in [
        "Table \"public.city\"",
        "not null",
        "PRIMARY KEY (name)",
        "CHECK",
        "    \"city_people_idx\" btree (people DESC) WHERE (people > 9)\n",
        "| city  | btree (people DESC)",
        "a b\n",
    ] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    assert!(!text.contains("never"));
    assert_eq!(std::fs::read_to_string(results).expect("written"), "x\n1\n");
}

#[test]
fn copy_goes_both_ways() {
    let scratch = Scratch::new();
    let csv = scratch.write("cities.csv", "name,people\nOslo,717710\nBergen,291940\n");
    let out = scratch.text("out.csv");
    let script = format!(
        "CREATE TABLE city (name text PRIMARY KEY, people bigint);
         \\copy city FROM '{csv}' WITH (FORMAT csv, HEADER)
         \\copy (SELECT name FROM city ORDER BY people) TO '{out}' WITH (FORMAT csv)
         SELECT sum(people) AS people FROM city;"
    );
    let text = run_with_input(["-q", "--format", "csv"], script).ok();
    assert_eq!(text, "people\n1009650\n");
    assert_eq!(
        std::fs::read_to_string(out).expect("written"),
        "Bergen\nOslo\n"
    );
}

#[test]
fn timing_is_shown_on_request() {
    let text = run_with_input(["-q"], "\\timing on\nSELECT 1;\n").ok();
    assert!(text.contains("Time: ") && text.contains(" ms"), "{text}");
}
