//! Updates of an indexed column of a small table without history, until the index has had many
//! entries for each of its own: its size and the speed of updates at the end, beside a fresh table.
//!
//! Maintenance works in the background, as always. Before the sizes are read one checkpoint runs,
//! as VACUUM does: it merges and sweeps what is due, and no more than that.

use super::{Bench, Case};
use crate::Result;
use crate::in_process;
use crate::ours::Ours;
use crate::report::{Goal, Report};
use crate::rounds::{Spread, interleave};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::time::Instant;
use strandline_base::rng::Rng;

/// Updates of one transaction.
const UPDATES: u64 = 10;
/// What the column's values are below.
const VALUES: u64 = 1 << 40;

/// A figure of size and one of speed.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (rows, updates) = bench.churned;
    let path = bench.directory.join("churn.strandline");
    let ours = Ours::open(&path, 1)?;
    fill(&ours, "churned", rows, bench.seed)?;
    let fresh_bytes = index_bytes(&ours, "churned")?;
    let most_bytes = Cell::new(0.0_f64);
    let mut rng = Rng::new(bench.seed);
    for _ in 0..10 {
        update(&ours, "churned", rows, updates / 10, &mut rng)?;
        most_bytes.set(most_bytes.get().max(index_bytes(&ours, "churned")?));
    }
    ours.database().checkpoint()?;
    let bytes = index_bytes(&ours, "churned")?;
    let figures = speed(bench, &ours, rows, &mut rng)?;
    check(&ours)?;
    drop(ours);
    remove(&path)?;
    for (name, unit, figures, goal) in [
        (
            "size of an index after updates of its column",
            "bytes",
            [Spread::from(bytes), Spread::from(fresh_bytes)],
            Goal::AtMost(1.5),
        ),
        (
            "updates of the column after that",
            "updates/s",
            figures,
            Goal::AtLeast(1.0 / 1.5),
        ),
    ] {
        let case = Case {
            name,
            unit,
            peer: "strandline, fresh index",
            theirs: Some(figures[1]),
            goal: Some(goal),
            rows,
            settings: json!({
                "in_process": true, "threads": 1, "synchronous_commit": false, "history": "none",
                "updates": updates, "updates_of_a_transaction": UPDATES,
                "maintenance": "in the background, then one checkpoint",
                "bytes_at_most_meanwhile": most_bytes.get(),
            }),
        };
        bench.add(report, &case, figures[0])?;
    }
    Ok(())
}

/// Updates per second of the updated table and of a fresh one, which is made anew each round.
fn speed(bench: &Bench, ours: &Ours, rows: u64, rng: &mut Rng) -> Result<[Spread; 2]> {
    let updates = (bench.churned.1 / 100).max(UPDATES);
    let seed = bench.seed;
    let figures = interleave(
        bench.rounds,
        vec![
            Box::new(|_| update(ours, "churned", rows, updates, rng)),
            Box::new(|round| {
                ours.execute("DROP TABLE IF EXISTS fresh")?;
                fill(ours, "fresh", rows, seed + round)?;
                update(ours, "fresh", rows, updates, &mut Rng::new(seed + round))
            }),
        ],
    )?;
    Ok([figures[0], figures[1]])
}

/// A merged table of so many rows whose column `v` is indexed.
fn fill(ours: &Ours, table: &str, rows: u64, seed: u64) -> Result<()> {
    ours.execute(&format!(
        "CREATE TABLE {table} (id bigint PRIMARY KEY, v bigint NOT NULL) WITH (history = 'none')"
    ))?;
    let mut rng = Rng::new(seed);
    ours.append_bigints(table, 2, rows, |id, row| {
        row.copy_from_slice(&[id as i64, rng.below(VALUES) as i64]);
    })?;
    ours.execute(&format!("CREATE INDEX {table}_v ON {table} (v)"))?;
    ours.checkpoint()
}

/// Updates random rows: how many per second.
fn update(ours: &Ours, table: &str, rows: u64, updates: u64, rng: &mut Rng) -> Result<f64> {
    let mut worker = ours.worker(table, &["v"], false)?;
    let transactions = updates / UPDATES;
    let started = Instant::now();
    for _ in 0..transactions {
        let changes: [(i64, i64); UPDATES as usize] =
            std::array::from_fn(|_| (rng.below(rows) as i64, rng.below(VALUES) as i64));
        worker.transaction(|point| {
            let mut changes = changes.iter();
            changes.try_for_each(|&(id, v)| point.update(id, [v]))
        })?;
    }
    Ok((transactions * UPDATES) as f64 / started.elapsed().as_secs_f64())
}

fn index_bytes(ours: &Ours, table: &str) -> Result<f64> {
    let sql = format!("SELECT pg_relation_size('{table}_v')");
    let found = in_process::numbers(ours.database(), &sql)?;
    Ok(*found.first().ok_or("the index has no size")? as f64)
}

/// Fails if an entry or a row lacks its counterpart.
fn check(ours: &Ours) -> Result<()> {
    let damage = ours.database().check()?;
    if damage.is_empty() {
        return Ok(());
    }
    Err(format!("after the updates: {}", damage.join("; ")).into())
}

fn remove(path: &Path) -> Result<()> {
    Ok(std::fs::remove_dir_all(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_change_rows_and_their_entries() {
        let directory = tempfile::tempdir().unwrap();
        let ours = Ours::open(&directory.path().join("d"), 1).unwrap();
        fill(&ours, "churned", 100, 1).unwrap();
        assert!(index_bytes(&ours, "churned").unwrap() > 0.0);
        let sum = "SELECT sum(v)::bigint, count(*) FROM churned";
        let before = in_process::numbers(ours.database(), sum).unwrap();
        assert!(update(&ours, "churned", 100, 500, &mut Rng::new(2)).unwrap() > 0.0);
        let after = in_process::numbers(ours.database(), sum).unwrap();
        assert_ne!(before[0], after[0]);
        assert_eq!((before[1], after[1]), (100, 100));
        check(&ours).unwrap();
    }
}
