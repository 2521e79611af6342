//! `strandline.max_staleness`: queries at an older, merged moment.

use super::{database_with_clock, fails, rows, run};
use std::sync::Arc;
use strandline::{Connection, Database, SqlState};
use strandline_base::ManualClock;

const SECOND: u64 = 1_000_000;

/// Two accounts in two tables, merged, and then a transfer half a second ago, a second after it.
fn bank() -> (Database, Arc<ManualClock>, Connection, Connection) {
    let (database, clock) = database_with_clock();
    let (mut writer, mut reader) = (database.connect(), database.connect());
    run(
        &mut writer,
        &[
            "CREATE TABLE a (id int PRIMARY KEY, n int)",
            "CREATE TABLE b (id int PRIMARY KEY, n int)",
            "CREATE VIEW total AS SELECT a.n + b.n AS n FROM a JOIN b ON a.id = b.id",
            "INSERT INTO a VALUES (1, 100)",
            "INSERT INTO b VALUES (1, 0)",
        ],
    );
    database.merge_all().expect("merges");
    clock.advance(SECOND);
    run(
        &mut writer,
        &[
            "BEGIN",
            "UPDATE a SET n = n - 10",
            "UPDATE b SET n = n + 10",
            "COMMIT",
        ],
    );
    clock.advance(SECOND / 2);
    run(&mut reader, &["SET strandline.max_staleness = '2s'"]);
    (database, clock, writer, reader)
}

const BOTH: &str = "SELECT a.n, b.n FROM a, b";

fn moment(c: &mut Connection, sql: &str) -> String {
    let plan = rows(c, &format!("EXPLAIN ANALYZE {sql}"));
    let line = plan.iter().find(|line| line.contains("snapshot="));
    line.cloned().unwrap_or_default()
}

#[test]
fn queries_read_the_newest_merged_moment_that_is_new_enough() {
    let (database, clock, mut writer, mut reader) = bank();
    assert_eq!(rows(&mut writer, BOTH), ["90|10"]);
    assert_eq!(moment(&mut writer, BOTH), "");
    assert_eq!(rows(&mut reader, BOTH), ["100|0"]);
    let shown = moment(&mut reader, BOTH);
    assert_eq!(
        shown,
        "snapshot=2024-01-01 00:00:00.999999+00 (relaxed, 0.5 s old)"
    );
    assert_eq!(rows(&mut reader, "SELECT n FROM total"), ["100"]);
    assert_eq!(
        rows(&mut reader, "SELECT n FROM a WHERE id = 1"),
        ["100"],
        "one table alone"
    );
    // The moment's definitions would be others.
    run(&mut writer, &["CREATE TABLE c (id int)"]);
    assert!(moment(&mut reader, BOTH).contains("(newest: a definition has changed since)"));
    run(&mut reader, &["SET strandline.max_staleness = '400ms'"]);
    assert_eq!(rows(&mut reader, BOTH), ["90|10"]);
    assert!(moment(&mut reader, BOTH).contains("(newest: no moment that is new enough is merged)"));
    run(&mut reader, &["SET strandline.max_staleness = '1 h'"]);
    database.merge_all().expect("merges");
    assert!(moment(&mut reader, BOTH).contains("(newest: everything is merged)"));
    clock.advance(SECOND);
    run(&mut writer, &["UPDATE a SET n = 0"]);
    // Both tables are read at one moment; for the one that is merged alone it is the newest.
    assert_eq!(rows(&mut reader, BOTH), ["90|10"]);
    assert_eq!(rows(&mut reader, "SELECT n FROM b"), ["10"]);
    assert!(moment(&mut reader, "SELECT n FROM b").contains("(newest: everything is merged)"));
    run(&mut reader, &["RESET strandline.max_staleness"]);
    assert_eq!(rows(&mut reader, BOTH), ["0|10"]);
}

#[test]
fn a_session_sees_what_it_has_committed() {
    let (_database, clock, mut writer, mut reader) = bank();
    run(&mut writer, &["SET strandline.max_staleness = '1min'"]);
    assert_eq!(rows(&mut writer, BOTH), ["90|10"]);
    let why = "(newest: no moment since this session's last commit is merged)";
    assert!(moment(&mut writer, BOTH).contains(why));
    // Reading, or rolling back, is no commit of one's own.
    run(
        &mut reader,
        &["BEGIN", "UPDATE a SET n = 5", "ROLLBACK", "BEGIN"],
    );
    assert_eq!(rows(&mut reader, BOTH), ["100|0"]);
    run(&mut reader, &["UPDATE b SET n = 77"]);
    assert_eq!(rows(&mut reader, BOTH), ["90|77"]);
    assert!(moment(&mut reader, BOTH).contains("(newest: the transaction has written)"));
    run(&mut reader, &["COMMIT"]);
    clock.advance(1);
    run(&mut writer, &["UPDATE a SET n = 1"]);
    assert_eq!(rows(&mut reader, BOTH), ["1|77"]);
}

#[test]
fn transactions_that_keep_a_snapshot_keep_it() {
    let (_database, _clock, _writer, mut reader) = bank();
    run(
        &mut reader,
        &["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"],
    );
    assert_eq!(rows(&mut reader, BOTH), ["90|10"]);
    assert!(moment(&mut reader, BOTH).contains("(newest: the transaction keeps one snapshot)"));
    run(&mut reader, &["COMMIT", "BEGIN READ ONLY"]);
    assert_eq!(rows(&mut reader, BOTH), ["100|0"]);
    run(
        &mut reader,
        &[
            "COMMIT",
            "SET default_transaction_isolation = 'repeatable read'",
        ],
    );
    assert_eq!(rows(&mut reader, BOTH), ["100|0"]);
    let inserted = "INSERT INTO b SELECT 2, sum(n) FROM a";
    run(&mut reader, &[inserted]);
    let added = "SELECT n FROM b WHERE id = 2";
    assert_eq!(
        rows(&mut reader, added),
        ["90"],
        "what writes reads the newest"
    );
}

#[test]
fn the_setting_is_a_time() {
    let (_database, _clock, _writer, mut reader) = bank();
    let show = "SHOW strandline.max_staleness";
    assert_eq!(rows(&mut reader, show), ["2s"]);
    run(
        &mut reader,
        &["BEGIN", "SET LOCAL strandline.max_staleness = 0", "COMMIT"],
    );
    assert_eq!(rows(&mut reader, show), ["2s"]);
    run(&mut reader, &["RESET ALL"]);
    assert_eq!(rows(&mut reader, show), ["0"]);
    fails(
        &mut reader,
        "SET strandline.max_staleness = 'a bit'",
        SqlState::INVALID_PARAMETER_VALUE,
    );
}
