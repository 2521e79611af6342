//! EXPLAIN of DML shows the node over its input and changes nothing; EXPLAIN ANALYZE runs it.

use super::Fixture;

#[test]
fn explain_shows_the_node() {
    let mut f =
        Fixture::new("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    for (sql, shown) in [
        ("UPDATE t SET v = 2", "UPDATE t set=[v]"),
        ("DELETE FROM t WHERE k = 1", "DELETE t"),
        ("INSERT INTO t VALUES (2, 2)", "INSERT t"),
        (
            "INSERT INTO t VALUES (1, 2) ON CONFLICT DO NOTHING",
            "ConflictProbe",
        ),
        (
            "INSERT INTO t SELECT k + 1, v FROM t RETURNING k",
            "Projection",
        ),
    ] {
        let plan = f.run(&format!("EXPLAIN {sql}")).expect(sql);
        assert!(plan.contains(shown), "{sql}\n{plan}");
        f.is("SELECT * FROM t", "1|1");
    }
    let plan = f.run("EXPLAIN ANALYZE UPDATE t SET v = 5").unwrap();
    assert!(plan.contains("UPDATE t"), "{plan}");
    f.is("SELECT * FROM t", "1|5");
}
