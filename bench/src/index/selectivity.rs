//! A sum over a range of an indexed column, from one row to all: by the index
//! (`enable_seqscan = off`), by a scan (`enable_indexscan = off`), and by the path that is chosen.
//! The crossover is the range at which the index becomes slower than the scan.

use super::{Bench, Case, of_sides};
use crate::Result;
use crate::report::{Goal, Report};
use crate::rounds::{Spread, median};
use serde_json::json;
use std::time::{Duration, Instant};

/// Rounds of each range.
const ROUNDS: usize = 3;
/// Executions before those that count: from the second on a plan is kept.
const WARM: usize = 2;
/// How long short executions are repeated in a round; their median counts.
const REPEATED: Duration = Duration::from_millis(10);

/// The sides of a range: server, and what it must not use.
const SIDES: [(usize, &str); 4] = [
    (0, "RESET enable_seqscan; RESET enable_indexscan"),
    (0, "SET enable_seqscan = off; SET enable_indexscan = on"),
    (0, "SET enable_seqscan = on; SET enable_indexscan = off"),
    (1, ""),
];

/// Milliseconds of one range by each path of ours.
#[derive(Clone, Copy)]
struct Paths {
    rows: u64,
    chosen: f64,
    index: f64,
    scan: f64,
}

impl Paths {
    /// The chosen path's time relative to the better one's.
    fn ratio(self) -> f64 {
        self.chosen / self.index.min(self.scan)
    }
}

/// Figures per range, one of the chosen path at the median, and the crossover.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for client in bench.with_items()? {
        client.run("CREATE INDEX IF NOT EXISTS items_v ON items (v)")?;
    }
    let postgres = bench.servers()?[1].name().to_string();
    let mut paths = Vec::new();
    for rows in ranges(bench.rows) {
        let figures = sums(bench, rows)?;
        let name = format!("sum of {rows} rows by an indexed column");
        for (peer, theirs) in [
            ("strandline, index", figures[1]),
            ("strandline, scan", figures[2]),
            (postgres.as_str(), figures[3]),
        ] {
            let case = Case {
                name: &name,
                unit: "ms",
                peer,
                theirs: Some(theirs),
                goal: None,
                rows: bench.rows,
                settings: json!({ "range": rows, "clients": 1, "prepared": true }),
            };
            bench.add(report, &case, figures[0])?;
        }
        paths.push(Paths {
            rows,
            chosen: figures[0].median,
            index: figures[1].median,
            scan: figures[2].median,
        });
    }
    bench.servers()?[0].run(SIDES[0].1)?;
    let ratios: Vec<f64> = paths.iter().map(|paths| paths.ratio()).collect();
    let case = Case {
        name: "the chosen path, at the median of the ranges",
        unit: "x",
        peer: "strandline, the better path",
        theirs: Some(Spread::from(1.0)),
        goal: Some(Goal::AtMost(1.2)),
        rows: bench.rows,
        settings: json!({ "ranges": ratios.len() }),
    };
    bench.add(report, &case, Spread::of(ratios.iter().copied()))?;
    report.verdict("selectivity", &verdict(&paths, bench.rows))
}

/// From one row to all, two ranges in each power of ten.
fn ranges(all: u64) -> Vec<u64> {
    let mut ranges = Vec::new();
    let mut rows = 1;
    while rows < all {
        ranges.extend([rows, 3 * rows]);
        rows *= 10;
    }
    ranges.retain(|&rows| rows < all);
    ranges.push(all);
    ranges
}

/// The rows at which the index takes as long as the scan: between two ranges, times grow as powers
/// of the rows. None if one path is faster at all ranges.
fn crossover(paths: &[Paths]) -> Option<f64> {
    let is_faster = |paths: &Paths| paths.index < paths.scan;
    let last = paths.iter().rposition(is_faster)?;
    let (before, after) = (paths[last], paths.get(last + 1)?);
    let lead = |paths: Paths| (paths.scan / paths.index).ln();
    let part = lead(before) / (lead(before) - lead(*after));
    let (from, to) = ((before.rows as f64).ln(), (after.rows as f64).ln());
    Some((from + part * (to - from)).exp())
}

fn verdict(paths: &[Paths], all: u64) -> String {
    let ratios = || paths.iter().map(|paths| paths.ratio());
    let worst = ratios().fold(0.0, f64::max);
    let median = median(ratios().collect());
    let crossover = match crossover(paths) {
        Some(rows) => {
            let percent = rows * 100.0 / all as f64;
            format!("index and scan take the same time at {rows:.0} rows ({percent:.2} %)")
        }
        None => "one path is faster at all ranges".to_string(),
    };
    format!(
        "the chosen path takes {median:.2}x the better one at the median of the ranges, \
         {worst:.2}x at most; {crossover}"
    )
}

/// Milliseconds of a sum over so many rows, of each side.
fn sums(bench: &mut Bench, rows: u64) -> Result<Vec<Spread>> {
    let sql = "SELECT sum(id) FROM items WHERE v BETWEEN $1 AND $2";
    let all = bench.rows;
    let servers = SIDES.map(|(server, _)| server);
    of_sides(bench, ROUNDS, &servers, |bench, client, side, round| {
        client.run(SIDES[side].1)?;
        let from = (bench.scattered(round) % (all - rows + 1)) as i64;
        let values = [from, from + rows as i64 - 1];
        for _ in 0..WARM {
            client.query(sql, &values)?;
        }
        let (deadline, mut times) = (Instant::now() + REPEATED, Vec::new());
        while times.is_empty() || Instant::now() < deadline {
            let started = Instant::now();
            client.query(sql, &values)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(times))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(rows: u64, chosen: f64, index: f64, scan: f64) -> Paths {
        Paths {
            rows,
            chosen,
            index,
            scan,
        }
    }

    #[test]
    fn ranges_begin_with_one_row_and_end_with_all() {
        assert_eq!(ranges(1_000), [1, 3, 10, 30, 100, 300, 1_000]);
        assert_eq!(ranges(20), [1, 3, 10, 20]);
    }

    #[test]
    fn the_crossover_lies_between_the_last_range_of_the_index_and_the_next() {
        let measured = [
            paths(1, 1.0, 1.0, 8.0),
            paths(100, 2.0, 4.0, 8.0),
            paths(10_000, 9.0, 16.0, 8.0),
        ];
        let rows = crossover(&measured).unwrap();
        assert!((rows - 1_000.0).abs() < 1e-6, "{rows}");
        assert_eq!(crossover(&measured[..2]), None);
        assert_eq!(crossover(&measured[2..]), None);
        // Noise: the scan was faster once before.
        let mut noisy = measured.to_vec();
        noisy[0].scan = 0.5;
        assert_eq!(crossover(&noisy), Some(rows));
    }

    #[test]
    fn the_verdict_says_how_far_the_chosen_path_is_from_the_better_one() {
        let measured = [
            paths(1, 1.1, 1.0, 8.0),
            paths(100, 6.0, 4.0, 8.0),
            paths(10_000, 9.6, 16.0, 8.0),
        ];
        let verdict = verdict(&measured, 10_000);
        let expected = "the chosen path takes 1.20x the better one at the median of the ranges, \
                        1.50x at most; index and scan take the same time at 1000 rows (10.00 %)";
        assert_eq!(verdict, expected);
    }
}
