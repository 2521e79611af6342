//! The cost of old readers: one snapshot held open during minutes of updates of the same few rows,
//! and 200 idle cursors.

use super::{Bench, plot};
use crate::Result;
use crate::foundation::point;
use crate::machine::resident_bytes;
use crate::ours::{Ours, Worker};
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{interleave, median};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Rows that are updated over and over.
const HOT_ROWS: u64 = 100;
/// Updates per second. The updates of ten minutes must fit on the disk of a test machine.
const PACE: u64 = 20_000;
/// Updates of a transaction.
const BATCH: u64 = 10;
/// The time is divided into so many parts; memory and reads are measured in each.
const PARTS: u32 = 10;
/// The largest ratio of the last part to the first.
const FLAT: f64 = 1.1;
/// The number of cursors, and the part of the transaction rate that must remain beside them.
const CURSORS: usize = 200;
const CURSORS_GOAL: f64 = 0.95;

/// Measures memory, latency and the held snapshot's contents, then the cursors.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    // Free the harness's table, which would be most of the process's memory.
    bench.image = None;
    let ours = point::fill(&bench.shared, bench.shared.point_rows)?;
    snapshot(bench, &ours, report)?;
    cursors(bench, &ours, report)
}

/// One part of the time.
struct Part {
    bytes: f64,
    /// microseconds for a read of a hot row's newest version
    read: f64,
}

fn snapshot(bench: &Bench, ours: &Ours, report: &mut Report) -> Result<()> {
    let sum = format!("SELECT SUM(c1) FROM point WHERE id < {HOT_ROWS}");
    let mut held = ours.database().connect();
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ", ())?;
    let before = held.query(&sum, ())?.single::<String>()?;
    let stop = AtomicBool::new(false);
    let (parts, updates) = std::thread::scope(|scope| -> Result<_> {
        let write = || update_hot_rows(ours, bench.shared.seed, &stop).map_err(|e| e.to_string());
        let writer = scope.spawn(write);
        let length = Duration::from_secs_f64(bench.hold / f64::from(PARTS));
        let mut reader = ours.worker("point", &point::COLUMNS, false)?;
        let start = Instant::now();
        let parts = (1..=PARTS)
            .map(|n| part(&mut reader, start + length * n))
            .collect();
        stop.store(true, Ordering::Relaxed);
        let updates = writer.join().expect("the writer does not panic")?;
        let parts: Result<Vec<Part>> = parts;
        Ok((parts?, updates))
    })?;
    let after = held.query(&sum, ())?.single::<String>()?;
    if after != before {
        return Err(format!("the held snapshot's sum went from {before} to {after}").into());
    }
    held.execute("COMMIT", ())?;
    let figure = |case: &str, plotted: &str, unit, of: fn(&Part) -> f64| {
        let series: Vec<f64> = parts.iter().map(of).collect();
        let point = |(n, y): (usize, &f64)| {
            plot(plotted, (n + 1) as f64, config([("Strandline", json!(y))]))
        };
        let plots: Vec<Value> = series.iter().enumerate().map(point).collect();
        Figure {
            case: format!("one snapshot held: {case}"),
            unit,
            ours: series[series.len() - 1].into(),
            peer: "the same in the first tenth".to_string(),
            theirs: Some(series[0].into()),
            goal: Some(Goal::AtMost(FLAT)),
            config: config([
                ("rows", json!(bench.shared.point_rows)),
                ("hot_rows", json!(HOT_ROWS)),
                ("updates", json!(updates)),
                ("updates_per_second", json!(PACE)),
                ("seconds", json!(bench.hold)),
                ("plots", json!(plots)),
            ]),
        }
    };
    report.add(figure("memory", "held-memory", "bytes", |part| part.bytes))?;
    report.add(figure("read of a hot row", "held-read", "µs", |part| {
        part.read
    }))
}

/// Reads hot rows at intervals until `end`; returns the median, and the memory at the end.
fn part(reader: &mut Worker, end: Instant) -> Result<Part> {
    let (mut reads, mut key) = (Vec::new(), 0);
    while reads.is_empty() || Instant::now() < end {
        let began = Instant::now();
        reader.transaction(|point| {
            std::hint::black_box(point.get(key)?);
            Ok(())
        })?;
        reads.push(began.elapsed().as_secs_f64() * 1e6);
        key = (key + 1) % HOT_ROWS as i64;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Part {
        bytes: resident_bytes("self")?,
        read: median(reads),
    })
}

/// Updates at the pace until it is told to stop; returns the number of rows updated.
fn update_hot_rows(ours: &Ours, seed: u64, stop: &AtomicBool) -> Result<u64> {
    let mut worker = ours.worker("point", &point::COLUMNS, false)?;
    let mut rng = Rng::new(seed);
    let (start, mut updates) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(updates as f64 / PACE as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let keys: Vec<i64> = (0..BATCH).map(|_| rng.below(HOT_ROWS) as i64).collect();
        let values: [i64; 4] = std::array::from_fn(|_| rng.below(1 << 30) as i64);
        worker.transaction(|point| keys.iter().try_for_each(|&key| point.update(key, values)))?;
        updates += BATCH;
    }
    Ok(updates)
}

fn cursors(bench: &Bench, ours: &Ours, report: &mut Report) -> Result<()> {
    let run = point::Run {
        rows: bench.shared.point_rows,
        seconds: bench.shared.seconds,
        seed: bench.shared.seed,
    };
    let before = resident_bytes("self")?;
    let mut more = 0.0;
    let medians = interleave(
        super::ROUNDS,
        vec![
            Box::new(|round| {
                let mut connections: Vec<_> =
                    (0..CURSORS).map(|_| ours.database().connect()).collect();
                let open = |connection| first_batch(connection);
                let streams = connections
                    .iter_mut()
                    .map(open)
                    .collect::<Result<Vec<_>>>()?;
                let rate = run.in_round(round).transactions(ours, 1, false);
                more = resident_bytes("self")? - before;
                drop(streams);
                rate
            }),
            Box::new(|round| run.in_round(round).transactions(ours, 1, false)),
        ],
    )?;
    report.add(Figure {
        case: format!("transactions beside {CURSORS} idle cursors"),
        unit: "tx/s",
        ours: medians[0],
        peer: "without cursors".to_string(),
        theirs: Some(medians[1]),
        goal: Some(Goal::AtLeast(CURSORS_GOAL)),
        config: config([
            ("rows", json!(bench.shared.point_rows)),
            ("rounds", json!(super::ROUNDS)),
            ("bytes_per_cursor", json!(more / CURSORS as f64)),
        ]),
    })
}

/// Starts a query and takes one batch from it.
fn first_batch(connection: &mut strandline::Connection) -> Result<strandline::QueryStream<'_>> {
    let mut stream = connection.query_stream("SELECT * FROM point", ())?;
    stream.next().ok_or("the table is empty")??;
    Ok(stream)
}
