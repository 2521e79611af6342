//! The statements with which DataFusion's own DML changes whole tables. Here each does what it
//! says.

use super::Fixture;
use strandline::SqlState;

fn fixture() -> Fixture {
    Fixture::new(
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         INSERT INTO t VALUES (1, 10), (2, 20), (3, 30), (4, NULL);
         CREATE TABLE u (id int);
         INSERT INTO u VALUES (2), (3), (3), (99)",
    )
}

const ALL: &str = "1|10 / 2|20 / 3|30 / 4|NULL";
const ROWS: &str = "SELECT * FROM t ORDER BY id";

#[test]
fn delete_in_subquery_deletes_only_the_matches() {
    let mut f = fixture();
    f.is("DELETE FROM t WHERE id IN (SELECT id FROM u)", "DELETE 2");
    f.is(ROWS, "1|10 / 4|NULL");
    f.is(
        "DELETE FROM t WHERE id IN (SELECT id FROM u WHERE false)",
        "DELETE 0",
    );
    f.is(
        "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
        "DELETE 0",
    );
    f.is(
        "DELETE FROM t WHERE id NOT IN (SELECT id FROM u)",
        "DELETE 2",
    );
    f.is(ROWS, "");
}

#[test]
fn delete_where_false_deletes_nothing() {
    let mut f = fixture();
    for condition in [
        "false",
        "NULL",
        "1 = 0",
        "now() < '2000-01-01'",
        "id = 1 AND id = 2",
        "id <> id",
        "v > 100 AND false",
    ] {
        f.is(&format!("DELETE FROM t WHERE {condition}"), "DELETE 0");
        f.is(&format!("UPDATE t SET v = 0 WHERE {condition}"), "UPDATE 0");
        f.is(ROWS, ALL);
    }
}

#[test]
fn limit_on_delete_and_update_is_a_syntax_error() {
    let mut f = fixture();
    f.fails("DELETE FROM t LIMIT 1", SqlState::SYNTAX_ERROR, "LIMIT");
    f.fails(
        "DELETE FROM t ORDER BY id LIMIT 1",
        SqlState::SYNTAX_ERROR,
        "LIMIT",
    );
    f.fails(
        "UPDATE t SET v = 1 LIMIT 1",
        SqlState::SYNTAX_ERROR,
        "LIMIT",
    );
    f.is(ROWS, ALL);
    f.is(
        "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id DESC LIMIT 1)",
        "DELETE 1",
    );
    f.is(ROWS, "1|10 / 2|20 / 3|30");
}

#[test]
fn update_in_subquery_updates_only_the_matches() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET v = -1 WHERE id IN (SELECT id FROM u)",
        "UPDATE 2",
    );
    f.is(ROWS, "1|10 / 2|-1 / 3|-1 / 4|NULL");
    f.is(
        "UPDATE t SET v = 5 WHERE v = (SELECT min(v) FROM t WHERE v > 0)",
        "UPDATE 1",
    );
    f.is(ROWS, "1|5 / 2|-1 / 3|-1 / 4|NULL");
}

#[test]
fn conditions_on_unchanged_columns_and_on_nothing() {
    let mut f = fixture();
    f.is("DELETE FROM t WHERE v > 15 AND id < 3", "DELETE 1");
    f.is("UPDATE t SET v = v + 1 WHERE v IS NOT NULL", "UPDATE 2");
    f.is(ROWS, "1|11 / 3|31 / 4|NULL");
    f.is("UPDATE t SET v = 0", "UPDATE 3");
    f.is("DELETE FROM t", "DELETE 3");
    f.is("DELETE FROM t", "DELETE 0");
    f.is("UPDATE t SET v = 0", "UPDATE 0");
}
