//! Reads of an index alone give what scans give while others write, and fetch rows only where they
//! must.
//!
//! `INDEX_ONLY_SEEDS=3-9 cargo test -p strandline-tests --test index_only` runs other seeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::{Connection, Database, cell};
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;

const ROWS: u64 = 600;
const READS: usize = 25;

fn rows(connection: &mut Connection, sql: &str) -> Vec<String> {
    let result = connection.query(sql, ());
    let result = result.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let mut rows = Vec::new();
    for batch in result.batches() {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let cells = columns.map(|c| cell(c, row).unwrap_or("NULL".into()));
            rows.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    rows
}

fn run(connection: &mut Connection, sql: &str) {
    let done = connection.execute_script(sql);
    done.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// A metric of EXPLAIN ANALYZE, and whether the plan reads entries only.
fn analyzed(connection: &mut Connection, sql: &str, metric: &str) -> (usize, bool) {
    let plan = rows(connection, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
    let after = plan.split(&format!("{metric}=")).nth(1);
    let after = after.unwrap_or_else(|| panic!("no {metric} in {plan}"));
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    let is_index_only = plan.contains("IndexOnlyScan: t") || plan.contains("IndexOnlyWalk: t");
    (digits.parse().expect("a number"), is_index_only)
}

fn table(device: &Arc<MemoryDevice>) -> (Database, Connection) {
    let database = Database::on_device(device.clone()).build().expect("open");
    let mut connection = database.connect();
    run(
        &mut connection,
        "CREATE TABLE t (id int PRIMARY KEY, a int, s text, n numeric(9,2), other int);
         CREATE INDEX t_a ON t (a, s DESC NULLS LAST, n);
         CREATE INDEX t_s ON t (s, id);
         INSERT INTO t SELECT x, CASE WHEN x % 50 = 0 THEN NULL ELSE x % 40 END,
             CASE WHEN x % 30 = 0 THEN NULL ELSE 'w' || x % 7 END, (x % 9 - 4) * 0.25, x
         FROM generate_series(1, 600) AS g(x)",
    );
    (database, connection)
}

#[test]
fn rows_are_fetched_after_an_update_of_a_key_column_only() {
    let device = Arc::new(MemoryDevice::new());
    let (database, mut c) = table(&device);
    database.merge_all().expect("merged");
    c.use_row_executor(false);
    let count = "SELECT count(*) FROM t WHERE a = 7";
    let values = "SELECT a, s, n FROM t WHERE a BETWEEN 7 AND 8";
    let first = "SELECT a, s FROM t ORDER BY a, s DESC NULLS LAST LIMIT 5";
    let ends = "SELECT min(a), max(a) FROM t";
    let fetched = |c: &mut Connection, context: &str, wanted: [usize; 4]| {
        for (sql, wanted) in [count, values, first, ends].into_iter().zip(wanted) {
            let (fetched, is_index_only) = analyzed(c, sql, "rows_fetched");
            assert!(is_index_only, "{context}: {sql}");
            assert_eq!(fetched, wanted, "{context}: {sql}");
            run(c, "SET enable_indexscan = off");
            let expected = rows(c, sql);
            run(c, "RESET enable_indexscan");
            assert_eq!(rows(c, sql), expected, "{context}: {sql}");
        }
    };
    fetched(&mut c, "quiet", [0; 4]);
    run(&mut c, "UPDATE t SET other = -1 WHERE a = 7");
    run(&mut c, "DELETE FROM t WHERE a = 7 AND n = 0");
    fetched(&mut c, "another column, deletes", [0; 4]);
    run(&mut c, "UPDATE t SET n = n + 1 WHERE id = 47");
    fetched(&mut c, "one row", [1, 1, 0, 0]);
    run(&mut c, "BEGIN; UPDATE t SET a = -3 WHERE id = 87");
    // The old entry of the row that has left the key leads to it.
    fetched(&mut c, "in the transaction", [2, 2, 1, 1]);
    run(&mut c, "COMMIT");
    database.merge_all().expect("merged");
    drop(c);
    database.close().expect("closed");
    let database = Database::on_device(device).build().expect("open");
    let mut c = database.connect();
    c.use_row_executor(false);
    fetched(&mut c, "opened again", [2, 2, 1, 1]);
    let whole = "SELECT a, other FROM t WHERE a = 9";
    assert!(
        !analyzed(&mut c, whole, "rows_fetched").1,
        "a column besides"
    );
}

/// One random statement of a writer. Conflicts with others are part of it.
fn write(c: &mut Connection, rng: &mut Rng) {
    let id = 1 + rng.below(ROWS);
    let to = id + rng.below(20);
    let sql = match rng.below(8) {
        0 => format!("DELETE FROM t WHERE id = {id}"),
        1 | 2 => format!(
            "INSERT INTO t VALUES ({id}, {}, 'w{}', {}.5, 0) ON CONFLICT DO NOTHING",
            rng.below(40),
            rng.below(7),
            rng.below(9)
        ),
        3 => format!("UPDATE t SET other = other + 1 WHERE id BETWEEN {id} AND {to}"),
        4 => format!("UPDATE t SET s = 'w{}' WHERE id = {id}", rng.below(7)),
        5 => format!("UPDATE t SET n = -n, a = NULL WHERE id BETWEEN {id} AND {to}"),
        _ => format!(
            "UPDATE t SET a = {} WHERE id BETWEEN {id} AND {to}",
            rng.below(40)
        ),
    };
    let end = match rng.below(4) {
        0 => "ROLLBACK",
        _ => "COMMIT",
    };
    let _ = c.execute("BEGIN", ());
    let done = c.execute(&sql, ());
    let end = if done.is_err() { "ROLLBACK" } else { end };
    let _ = c.execute(end, ());
}

/// A query of an index's columns.
fn query(rng: &mut Rng) -> String {
    let (low, word) = (rng.below(40), rng.below(7));
    match rng.below(6) {
        0 => format!("SELECT a, s, n FROM t WHERE a = {low}"),
        1 => format!("SELECT a, n FROM t WHERE a BETWEEN {low} AND {}", low + 5),
        2 => format!("SELECT count(*), sum(n) FROM t WHERE a > {low} AND s = 'w{word}'"),
        3 => format!("SELECT s, id FROM t WHERE s = 'w{word}'"),
        4 => "SELECT a, s FROM t WHERE a IS NULL".to_string(),
        _ => format!("SELECT min(a), max(a) FROM t WHERE a >= {low}"),
    }
}

/// Compares index-only reads with scans in one snapshot, `READS` times. The reads of entries.
fn read(c: &mut Connection, rng: &mut Rng, seed: u64) -> usize {
    let mut index_only = 0;
    for _ in 0..READS {
        run(c, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        for _ in 0..3 {
            let sql = query(rng);
            c.use_row_executor(rng.one_in(2));
            run(c, "SET enable_indexscan = on; SET enable_seqscan = off");
            let by_index = rows(c, &sql);
            let plan = rows(c, &format!("EXPLAIN {sql}")).join("");
            index_only += usize::from(plan.contains("IndexOnly"));
            c.use_row_executor(false);
            run(c, "SET enable_indexscan = off; SET enable_seqscan = on");
            assert_eq!(by_index, rows(c, &sql), "INDEX_ONLY_SEEDS={seed}: {sql}");
        }
        run(c, "COMMIT");
    }
    index_only
}

#[test]
fn entries_say_what_rows_say_while_others_write() {
    let text = std::env::var("INDEX_ONLY_SEEDS").unwrap_or_else(|_| "1-2".to_string());
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let number = |text: &str| text.parse::<u64>().expect("a seed");
    for seed in number(first)..=number(last) {
        let (database, mut reader) = table(&Arc::new(MemoryDevice::new()));
        if seed % 2 == 0 {
            // Sweeps take out whatever no snapshot needs.
            run(&mut reader, "ALTER TABLE t SET (history = 'none')");
        }
        let is_done = AtomicBool::new(false);
        let going = || !is_done.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let (database, going) = (&database, &going);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + writer);
                    let mut c = database.connect();
                    while going() {
                        write(&mut c, &mut rng);
                    }
                });
            }
            let (database, going) = (&database, &going);
            // Merges, and sweeps that take entries out.
            scope.spawn(move || {
                let mut c = database.connect();
                while going() {
                    let _ = database.merge_all();
                    let _ = c.execute("VACUUM", ());
                }
            });
            let mut rng = Rng::new(seed);
            let read = std::panic::AssertUnwindSafe(|| read(&mut reader, &mut rng, seed));
            let outcome = std::panic::catch_unwind(read);
            is_done.store(true, Ordering::Relaxed);
            match outcome {
                Ok(index_only) => assert!(index_only > READS, "{index_only} of entries only"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
    }
}
