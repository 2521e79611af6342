//! RETURNING.

use super::Fixture;
use strandline::SqlState;

fn fixture() -> Fixture {
    Fixture::new(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text);
         INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y');
         CREATE TABLE u (id int, c int); INSERT INTO u VALUES (1, 7), (2, 8)",
    )
}

#[test]
fn new_values_of_insert_and_update() {
    let mut f = fixture();
    f.is("INSERT INTO t VALUES (3, 30, 'z') RETURNING *", "3|30|z");
    f.is(
        "INSERT INTO t AS i (id) VALUES (4) RETURNING i.id * 2, b, coalesce(a, -1) AS a",
        "8|NULL|-1",
    );
    f.is(
        "UPDATE t SET a = a + 1 WHERE id < 3 RETURNING id, a",
        "1|11 / 2|21",
    );
    f.is(
        "UPDATE t SET id = id + 100 WHERE id = 4 RETURNING t.*",
        "104|NULL|NULL",
    );
    f.is(
        "UPDATE t SET a = u.c FROM u WHERE u.id = t.id RETURNING t.id, a, u.c + 1",
        "1|7|8 / 2|8|9",
    );
    f.is(
        "UPDATE t SET a = u.c FROM u WHERE u.id = t.id AND u.id = 1 RETURNING *",
        "1|7|x|1|7",
    );
}

#[test]
fn old_values_of_delete() {
    let mut f = fixture();
    f.is("DELETE FROM t WHERE id = 1 RETURNING *", "1|10|x");
    f.is(
        "DELETE FROM t USING u WHERE u.id = t.id RETURNING t.b, u.c",
        "y|8",
    );
    f.is("DELETE FROM t RETURNING id", "");
}

#[test]
fn subqueries_and_errors() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET a = 0 WHERE id = 1 RETURNING (SELECT sum(c) FROM u)",
        "15",
    );
    f.is(
        "UPDATE t SET a = 0 WHERE id = 1 RETURNING (SELECT c FROM u WHERE u.id = t.id)",
        "7",
    );
    f.is(
        "DELETE FROM t WHERE id = 2 RETURNING EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
        "t",
    );
    f.fails(
        "UPDATE t SET a = 1 RETURNING count(*)",
        SqlState("42803"),
        "RETURNING",
    );
    f.fails(
        "UPDATE t SET a = 1 RETURNING z",
        SqlState::UNDEFINED_COLUMN,
        "z",
    );
    f.fails(
        "UPDATE t SET a = 1 RETURNING a / 0",
        SqlState::DIVISION_BY_ZERO,
        "",
    );
    f.is("SELECT * FROM t", "1|0|x");
}

#[test]
fn every_row_is_changed_whatever_returning_says() {
    let mut f = Fixture::new("CREATE TABLE t (id int); CREATE TABLE none (x int)");
    f.script("INSERT INTO t SELECT * FROM generate_series(1, 20000)");
    let rows = f
        .connection
        .query(
            "UPDATE t SET id = id + 1 RETURNING (SELECT max(x) FROM none)",
            (),
        )
        .unwrap();
    assert_eq!(rows.row_count(), 20_000);
    f.is("SELECT min(id), max(id), count(*) FROM t", "2|20001|20000");
}
