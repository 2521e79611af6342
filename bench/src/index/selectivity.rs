//! A sum over a range of values, from one row to all: by the path that is chosen for the indexed
//! column, and by a scan of its copy, which has no index. The largest range at which the chosen
//! path is still faster than the scan is the crossover.

use super::{Bench, Case, both};
use crate::Result;
use crate::report::{Goal, Report};
use crate::rounds::{Spread, median};
use serde_json::json;

/// Executions of which the median counts.
const RUNS: usize = 3;

/// Figures per range, and a verdict.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for client in bench.servers()? {
        client.run("CREATE INDEX IF NOT EXISTS items_v ON items (v)")?;
    }
    let (mut ratios, mut crossover) = (Vec::new(), 0);
    let mut rows = 1;
    while rows <= bench.rows {
        let chosen = sum(bench, "v", rows)?;
        let scan = sum(bench, "u", rows)?;
        let name = format!("sum of {rows} rows by an indexed column");
        let peer = bench.servers()?[1].name().to_string();
        for (peer, theirs, goal) in [
            ("strandline, scan", scan[0], Some(Goal::AtMost(1.2))),
            (peer.as_str(), chosen[1], None),
        ] {
            let case = Case {
                name: &name,
                unit: "ms",
                peer,
                theirs: Some(theirs),
                goal,
                rows: bench.rows,
                settings: json!({ "range": rows, "clients": 1 }),
            };
            bench.add(report, &case, chosen[0])?;
        }
        let ratio = chosen[0].median / scan[0].median;
        if ratio < 1.0 {
            crossover = rows;
        }
        ratios.push(ratio);
        rows *= 10;
    }
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let verdict = format!(
        "the chosen path takes {:.2}x a scan at the median of the ranges, {worst:.2}x at most; it \
         is faster up to {crossover} rows",
        median(ratios)
    );
    report.verdict("selectivity", &verdict)
}

/// Milliseconds of a sum over so many rows, ours and PostgreSQL's.
fn sum(bench: &mut Bench, column: &str, rows: u64) -> Result<[Spread; 2]> {
    let sql = format!("SELECT sum(id) FROM items WHERE {column} BETWEEN $1 AND $2");
    let all = bench.rows;
    both(bench, RUNS, |bench, client, round| {
        let from = (bench.scattered(round) % (all - rows + 1)) as i64;
        let values = [from, from + rows as i64 - 1];
        client.query(&sql, &values)?; // warm
        let started = std::time::Instant::now();
        client.query(&sql, &values)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    })
}
