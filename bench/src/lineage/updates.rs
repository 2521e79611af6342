//! `SUM` over 10 M rows of a column that one writer updates at a fixed pace, on one scan thread.
//! DuckDB sums the same data without updates. Both are compared by elapsed time.

use super::Bench;
use crate::Result;
use crate::foundation::sum;
use crate::foundation::updates::Writers;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave, median, repeat};
use serde_json::json;

/// Updated rows per second, and the highest allowed ratio of a scan's cost beside them.
const PACES: [(u64, f64); 3] = [(10_000, 1.1), (50_000, 1.2), (200_000, 1.6)];

/// Adds three figures per pace, then the figures against DuckDB.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let shared = &mut bench.shared;
    let file = shared.numbers()?;
    let ours = sum::load(&shared.fresh("paced.strandline")?, &file, 1)?;
    let mut times = Vec::new();
    for (pace, goal) in PACES {
        let writers = Writers {
            threads: 1,
            durable: false,
            pace,
        };
        let seconds = writers.case(shared, &ours, Some(Goal::AtMost(goal)), report)?;
        times.push((format!("SUM with {pace} updates/s"), seconds));
    }
    ours.checkpoint()?;
    let seconds = shared.seconds / 3.0;
    let path = shared.fresh("paced.duckdb")?;
    let mut sides: Vec<Side<'_>> = vec![Box::new(|_| {
        repeat(seconds, || ours.query(sum::SUM).map(drop))
    })];
    if let Some(duckdb) = &mut shared.duckdb {
        sum::load_duckdb(duckdb, &path, &file, 1)?;
        let request = json!({ "op": "repeat", "sql": sum::SUM, "seconds": seconds });
        sides.push(Box::new(move |_| {
            Ok(median(duckdb.numbers(request.clone(), "times")?))
        }));
    }
    let medians = interleave(super::ROUNDS, sides)?;
    times.insert(0, ("SUM without updates".to_string(), medians[0]));
    let (peer, settings) = shared.duckdb_name();
    for (case, ours) in times {
        report.add(Figure {
            case,
            unit: "s",
            ours,
            peer: format!("{peer} without updates"),
            theirs: medians.get(1).copied(),
            goal: Some(Goal::AtMost(1.0)),
            config: config([
                ("rows", json!(shared.sum_rows)),
                ("threads", json!(1)),
                ("theirs", json!(settings)),
            ]),
        })?;
    }
    Ok(())
}
