//! DELETE: USING, alias, subqueries.

use super::Fixture;
use strandline::SqlState;

#[test]
fn using_and_aliases() {
    let mut f = Fixture::new(
        "CREATE TABLE t (id int PRIMARY KEY, g int); CREATE TABLE u (g int, x text);
         INSERT INTO t SELECT x, x % 3 FROM generate_series(1, 9) AS s(x);
         INSERT INTO u VALUES (1, 'a'), (1, 'b'), (2, 'c')",
    );
    f.is(
        "DELETE FROM t USING u WHERE t.g = u.g AND u.x = 'c'",
        "DELETE 3",
    );
    f.is("DELETE FROM t AS d USING u AS o, t AS self WHERE d.g = o.g AND self.id = d.id AND d.id < 5", "DELETE 2");
    f.is("SELECT id FROM t ORDER BY id", "3 / 6 / 7 / 9");
    f.is(
        "WITH w AS (SELECT 6 AS id) DELETE FROM t WHERE id = (SELECT id FROM w)",
        "DELETE 1",
    );
    f.is("DELETE FROM t WHERE t.id > ALL (SELECT 8)", "DELETE 1");
    f.is("SELECT id FROM t ORDER BY id", "3 / 7");
    f.fails("DELETE t FROM t", SqlState::SYNTAX_ERROR, "USING");
    f.fails(
        "DELETE FROM t WHERE count(*) > 1",
        SqlState("42803"),
        "aggregate",
    );
}

#[test]
fn deleted_keys_can_come_back() {
    let mut f =
        Fixture::new("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    for v in 2..20 {
        f.is("DELETE FROM t WHERE k = 1", "DELETE 1");
        f.is(&format!("INSERT INTO t VALUES (1, {v})"), "INSERT 0 1");
    }
    f.is("SELECT * FROM t", "1|19");
}
