//! EXPLAIN and EXPLAIN ANALYZE.

use super::{database, fails, rows, run};
use strandline::SqlState;

#[test]
fn scans_show_filters_ranges_and_patches() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t AS SELECT g AS a, g % 7 AS b FROM generate_series(1, 140000) s(g)"],
    );
    database.merge_all().expect("merges");
    run(&mut c, &["UPDATE t SET b = 100 WHERE a = 5"]);
    let plan = rows(&mut c, "EXPLAIN SELECT sum(b) FROM t WHERE a < 10").join("\n");
    let scan = plan
        .lines()
        .find(|l| l.contains("TableScan: t"))
        .expect("a scan")
        .to_string();
    assert!(
        scan.contains("columns=[b]") && scan.contains("filters=[a < "),
        "{plan}"
    );
    assert!(!plan.contains("FilterExec"), "{plan}");
    let analyzed = rows(&mut c, "EXPLAIN ANALYZE SELECT sum(b) FROM t WHERE a < 10").join("\n");
    let scan = analyzed
        .lines()
        .find(|l| l.contains("TableScan: t"))
        .expect("a scan");
    let metric = |name: &str| -> u64 {
        let at = scan
            .find(&format!("{name}="))
            .unwrap_or_else(|| panic!("{name} in {scan}"));
        let rest = &scan[at + name.len() + 1..];
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or("")
            .parse()
            .expect("a number")
    };
    assert!(metric("ranges_total") >= 3, "{scan}");
    assert!(metric("ranges_pruned") >= 1, "{scan}");
    assert!(metric("chunks_decoded") >= 1, "{scan}");
    assert!(metric("tail_records_patched") >= 1, "{scan}");
    assert!(analyzed.contains("Execution Time"), "{analyzed}");
}

#[test]
fn forms_of_explain() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int)"]);
    for sql in [
        "EXPLAIN VERBOSE SELECT * FROM t",
        "EXPLAIN (FORMAT TREE) SELECT * FROM t",
        "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM t",
        "EXPLAIN DELETE FROM t",
    ] {
        assert!(!rows(&mut c, sql).is_empty(), "{sql}");
    }
    fails(
        &mut c,
        "EXPLAIN (FORMAT XML) SELECT 1",
        SqlState::INVALID_PARAMETER_VALUE,
    );
    fails(&mut c, "EXPLAIN (NOSUCH) SELECT 1", SqlState::SYNTAX_ERROR);
    fails(
        &mut c,
        "EXPLAIN CREATE TABLE u (a int)",
        SqlState::FEATURE_NOT_SUPPORTED,
    );
}

/// The parts of WITH that change rows are shown before the rest; only ANALYZE runs them.
#[test]
fn changes_in_with_are_shown_by_name() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int)",
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 10) s(g)",
        ],
    );
    let statement = "WITH gone AS (DELETE FROM t WHERE a < 4 RETURNING a), \
                     other AS (UPDATE t SET b = 1 WHERE a = 9) SELECT count(*) FROM gone";
    let count = |c: &mut strandline::Connection| rows(c, "SELECT count(*), sum(b) FROM t").join("");
    let plan = rows(&mut c, &format!("EXPLAIN {statement}"));
    let starts = |with: &str| plan.iter().filter(|line| line.starts_with(with)).count();
    assert_eq!(starts("CTE "), 2, "{plan:#?}");
    let below_name = |plan: &[String]| {
        let lines = plan.iter().skip_while(|line| *line != "CTE gone");
        let lines = lines.skip(1).take_while(|line| line.starts_with(' '));
        lines.cloned().collect::<Vec<_>>().join("\n")
    };
    assert!(below_name(&plan).contains("DELETE t"), "{plan:#?}");
    assert!(
        plan.iter().any(|line| line.contains("UPDATE t set=[b]")),
        "{plan:#?}"
    );
    assert_eq!(count(&mut c), "10|0");
    let plan = rows(&mut c, &format!("EXPLAIN ANALYZE {statement}"));
    let part = below_name(&plan);
    assert!(
        part.contains("DELETE t, metrics=[output_rows=3"),
        "{plan:#?}"
    );
    assert_eq!(count(&mut c), "7|1");
}
