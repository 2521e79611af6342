//! What results look like.

use crate::support::run;

const ROWS: &str = "SELECT * FROM (VALUES (1, 'ä|b', true), (20, NULL, false)) AS t (id, name, ok)
    ORDER BY id";

#[test]
fn table() {
    let expected = concat!(
        " id | name | ok\n",
        "----+------+----\n",
        "  1 | ä|b  | t\n",
        " 20 |      | f\n",
        "(2 rows)\n\n",
    );
    assert_eq!(run(["-c", ROWS]).ok(), expected);
    let bare = run(["--no-header", "--null", "(null)", "-c", ROWS]).ok();
    assert_eq!(bare, "  1 | ä|b    | t\n 20 | (null) | f\n");
}

#[test]
fn csv() {
    assert_eq!(
        run(["--format", "csv", "-c", ROWS]).ok(),
        "id,name,ok\n1,ä|b,t\n20,,f\n"
    );
    let quoted = run(["--format", "csv", "--no-header", "-c", "SELECT 'a,\"b', ''"]).ok();
    assert_eq!(quoted, "\"a,\"\"b\",\"\"\n");
}

#[test]
fn json() {
    let text = run(["--format", "json", "-c", ROWS]).ok();
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let expected = serde_json::json!([
        {"id": 1, "name": "ä|b", "ok": true},
        {"id": 20, "name": null, "ok": false},
    ]);
    assert_eq!(value, expected);
}

#[test]
fn json_lines() {
    let text = run(["--format", "jsonlines", "-c", ROWS]).ok();
    let expected =
        "{\"id\":1,\"name\":\"ä|b\",\"ok\":true}\n{\"id\":20,\"name\":null,\"ok\":false}\n";
    assert_eq!(text, expected);
}

#[test]
fn markdown() {
    let text = run(["--format", "markdown", "-c", ROWS]).ok();
    assert_eq!(
        text,
        "| id | name | ok |\n| ---: | --- | --- |\n| 1 | ä\\|b | t |\n| 20 |  | f |\n\n"
    );
}

#[test]
fn machine_formats_print_no_tags() {
    let sql = "CREATE TABLE t (a integer); INSERT INTO t VALUES (1); SELECT a FROM t";
    assert_eq!(run(["--format", "csv", "-c", sql]).ok(), "a\n1\n");
    let table = run(["-c", sql]).ok();
    assert!(
        table.starts_with("CREATE TABLE\nINSERT 0 1\n a\n"),
        "{table}"
    );
    let quiet = run(["-q", "-c", sql]).ok();
    assert!(quiet.starts_with(" a\n"), "{quiet}");
}

#[test]
fn values_of_every_type_print_like_postgresql() {
    let sql = "SELECT true, 7::smallint, -3::bigint, 0.1::real, 1e300::double precision,
        1.50::numeric(10,2), 'x'::text, '\\x00ff'::bytea, date '2024-02-29', time '12:00:00.5',
        timestamp '2024-02-29 12:00:00', interval '1 year 2 months 3 days 04:05:06'";
    let text = run(["--no-header", "--format", "csv", "-c", sql]).ok();
    let expected = "t,7,-3,0.1,1e+300,1.50,x,\\x00ff,2024-02-29,12:00:00.5,2024-02-29 12:00:00,\
                    1 year 2 mons 3 days 04:05:06\n";
    assert_eq!(text, expected);
}

#[test]
fn many_rows_arrive_whole() {
    let sql = "SELECT value FROM generate_series(1, 30000) AS s (value)";
    let text = run(["--format", "csv", "--no-header", "-c", sql]).ok();
    let sum: u64 = text
        .lines()
        .map(|line| line.parse::<u64>().expect("a number"))
        .sum();
    assert_eq!((text.lines().count(), sum), (30_000, 450_015_000));
}
