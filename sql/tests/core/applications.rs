//! Random statements of applications, with the row executor and without it. The tests know its
//! switch, not its code: they see what a client sees.
//!
//! `APPLICATIONS_SEEDS=3-9 APPLICATIONS_STEPS=2000 cargo test -p strandline --test core
//! applications` runs other seeds and more steps.

mod changes;
mod draft;
mod queries;
mod schema;
mod twins;

use draft::Draft;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::Connection;
use strandline_base::rng::Rng;
use twins::Twins;

fn seeds(default: &str) -> std::ops::RangeInclusive<u64> {
    let text = std::env::var("APPLICATIONS_SEEDS").unwrap_or_else(|_| default.to_string());
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let number = |text: &str| text.parse::<u64>().expect("a seed");
    number(first)..=number(last)
}

fn steps(default: u64) -> u64 {
    let text = std::env::var("APPLICATIONS_STEPS").ok();
    text.map_or(default, |text| text.parse().expect("a number of steps"))
}

/// Two databases are asked the same by two sessions each, in transactions of all levels, between
/// changes of definitions, merges and reads of the past.
#[test]
fn both_ways_give_the_same_rows_and_the_same_database() {
    let (mut in_row_executor, mut runs) = (0, 0);
    for seed in seeds("1-3") {
        let counts = Twins::new(seed).run(steps(150));
        println!("seed {seed}: {counts:?}");
        assert!(counts.succeeded > counts.failed, "seed {seed}: {counts:?}");
        in_row_executor += counts.in_row_executor;
        runs += 1;
    }
    assert!(
        in_row_executor >= 10 * runs,
        "{in_row_executor} statements of {runs} runs"
    );
}

/// A writer's random transactions until `is_done`. Conflicts with others are part of it.
fn write(connection: &mut Connection, tables: &[schema::Table], seed: u64, is_done: &AtomicBool) {
    let mut rng = Rng::new(seed);
    connection
        .execute("SET lock_timeout = '20ms'", ())
        .expect("a setting");
    while !is_done.load(Ordering::Relaxed) {
        connection.use_row_executor(rng.one_in(2));
        let _ = connection.execute("BEGIN", ());
        let mut end = *schema::pick(&mut rng, &["COMMIT", "COMMIT", "ROLLBACK"]);
        for _ in 0..=rng.below(3) {
            let change = changes::change(Draft::new(&mut rng, tables, None));
            let values = change.draw(&mut rng);
            if connection
                .execute(&change.sql, values.scalars.as_slice())
                .is_err()
            {
                end = "ROLLBACK";
                break;
            }
        }
        let _ = connection.execute(end, ());
    }
}

/// A snapshot shows the same both ways while others change its tables and merges go on.
fn read(connection: &mut Connection, tables: &[schema::Table], seed: u64, reads: u64) {
    let mut rng = Rng::new(seed);
    for read in 0..reads {
        let run = |connection: &mut Connection, sql: &str| {
            connection.execute(sql, ()).expect("a transaction");
        };
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ");
        for _ in 0..3 {
            let query = queries::query(Draft::new(&mut rng, tables, None));
            let values = query.draw(&mut rng);
            run(connection, "SAVEPOINT s");
            let mut seen = [true, false, true].map(|may| {
                connection.use_row_executor(may);
                let seen = twins::run(connection, &query.sql, &values, true);
                run(connection, "ROLLBACK TO SAVEPOINT s");
                seen.sorted(query.is_ordered)
            });
            let [on, off, again] = &mut seen;
            let context = || {
                format!(
                    "APPLICATIONS_SEEDS={seed}, read {read}: {} {:?}",
                    query.sql, values.scalars
                )
            };
            assert_eq!(on, off, "{}", context());
            assert_eq!(again, off, "again, {}", context());
        }
        run(connection, "COMMIT");
    }
}

#[test]
fn a_snapshot_shows_the_same_both_ways_while_others_write() {
    for seed in seeds("1-2") {
        let mut rng = Rng::new(seed);
        let tables = schema::tables(&mut rng);
        let database = super::database();
        let mut reader = database.connect();
        for sql in schema::script(&mut rng, &tables) {
            reader.execute(&sql, ()).expect("the tables are made");
        }
        let is_done = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            for writer in 1..3 {
                let (database, tables, is_done) = (&database, &tables, &is_done);
                scope.spawn(move || {
                    write(&mut database.connect(), tables, seed * 10 + writer, is_done);
                });
            }
            let (database, done) = (&database, &is_done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _ = database.merge_all();
                }
            });
            let read = || read(&mut reader, &tables, seed, steps(150) / 6);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
            is_done.store(true, Ordering::Relaxed);
            outcome
        });
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        let damage = database.check().expect("a check");
        assert!(damage.is_empty(), "seed {seed}: {damage:?}");
    }
}
