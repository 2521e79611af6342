//! The suite `soak`: our server under every kind of work at once, for any length of time.
//!
//! [`clients`] run side by side under a small memory limit: a queue, hot counters, wide rows,
//! definitions, checkpoints, sums and connections that never read. The server is killed every few
//! minutes and started again. Memory, files and latencies are sampled once a second.
//!
//! The suite fails if a counter differs from the acknowledged additions, if a statement fails
//! unexpectedly, or if a curve is not flat. For flatness the last quarter of the time is compared
//! with the second quarter, since the first one fills caches and the first history.

mod clients;

use crate::Result;
use crate::report::{Figure, Goal, Report, Stamp, config};
use crate::rounds::{Spread, median};
use crate::served::Served;
use clients::{Counters, Shared};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Options of `soak`.
#[derive(clap::Args)]
pub struct Options {
    /// How long.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seconds from one kill of the server to the next; 0: none.
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    kill_every: f64,
    /// The server's `memory_bytes`.
    #[arg(long, default_value = "256MiB")]
    memory: String,
    /// Also write the JSON lines into this file, which `plots` draws.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of what the clients draw.
    #[arg(long, default_value_t = 20_261_120)]
    seed: u64,
}

/// The interval between samples of memory and files.
const SAMPLE: Duration = Duration::from_secs(1);

/// A curve over time.
struct Curve {
    name: &'static str,
    unit: &'static str,
    number: fn(&Sample) -> Option<f64>,
    /// The limit for the last quarter's median, as a multiple of the second quarter's.
    most: f64,
}

const CURVES: [Curve; 3] = [
    Curve {
        name: "memory",
        unit: "bytes",
        number: |sample| Some(sample.memory),
        most: 1.25,
    },
    Curve {
        name: "files",
        unit: "bytes",
        number: |sample| Some(sample.files),
        most: 1.5,
    },
    Curve {
        name: "latency",
        unit: "ms",
        number: |sample| sample.latency,
        most: 3.0,
    },
];

/// One second of the run.
struct Sample {
    minutes: f64,
    memory: f64,
    files: f64,
    /// p99 of the counters' updates in milliseconds; None if there were none, as after a kill
    latency: Option<f64>,
}

/// Runs the suite; returns the number of faults.
pub fn run(options: &Options) -> Result<usize> {
    let parent =
        std::env::var_os("STRANDLINE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::Builder::new()
        .prefix("strandline-soak-")
        .tempdir_in(parent)?;
    let path = directory.path().join("soak");
    let runtime = tokio::runtime::Runtime::new()?;
    let mut served = Served::ours(&path, &options.memory)?;
    let shared = Arc::new(Shared::new(served.port(), options.seed));
    runtime.block_on(clients::define(&shared))?;
    let tasks = clients::start(&runtime, &shared);
    let mut samples = Vec::new();
    let (began, mut kills) = (Instant::now(), 0_u32);
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    while began.elapsed() < length && !shared.has_failed() {
        std::thread::sleep(SAMPLE);
        samples.push(sample(&served, &path, &shared, began)?);
        let next_kill = options.kill_every * f64::from(kills + 1);
        if options.kill_every > 0.0 && began.elapsed().as_secs_f64() >= next_kill {
            served.kill()?;
            served = Served::ours(&path, &options.memory)?;
            shared.moved_to(served.port());
            kills += 1;
        }
    }
    shared.stop();
    let ended = runtime.block_on(async {
        for task in tasks {
            task.await?;
        }
        clients::counters(&shared).await
    })?;
    drop(served);
    let file = options.json.as_ref().map(File::create).transpose()?;
    let mut report = Report::new(stamp(options, directory.path())?, file);
    let failures = conclude(options, &samples, kills, (&shared, &ended), &mut report)?;
    println!("{}", report.summary());
    Ok(failures)
}

fn stamp(options: &Options, directory: &Path) -> Result<Stamp> {
    let mut config = crate::machine::describe(directory)?;
    config.extend(crate::report::config([
        ("minutes", json!(options.minutes)),
        ("kill_every_seconds", json!(options.kill_every)),
        ("memory", json!(options.memory)),
    ]));
    Ok(Stamp {
        suite: "soak",
        config,
        seed: options.seed,
    })
}

fn sample(served: &Served, path: &Path, shared: &Shared, began: Instant) -> Result<Sample> {
    let mut files = 0;
    for entry in std::fs::read_dir(path)? {
        // A file may disappear between the listing and the look-up.
        files += entry?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(Sample {
        minutes: began.elapsed().as_secs_f64() / 60.0,
        memory: served.resident_bytes()?.unwrap_or_default(),
        files: files as f64,
        latency: shared.take_p99(),
    })
}

/// Prints the figures; returns the faults.
fn conclude(
    options: &Options,
    samples: &[Sample],
    kills: u32,
    (shared, ended): (&Shared, &Counters),
    report: &mut Report,
) -> Result<usize> {
    let mut failures = shared.failures();
    let lost = shared.compare(ended);
    for failure in failures.iter().chain(&lost) {
        eprintln!("soak: {failure}");
    }
    failures.extend(lost);
    let mut not_flat = 0;
    for curve in CURVES {
        let Curve {
            name,
            unit,
            number,
            most,
        } = curve;
        let quarter = |n: usize| -> Vec<f64> {
            let minutes = options.minutes / 4.0;
            let within = |sample: &&Sample| (sample.minutes / minutes) as usize == n;
            samples.iter().filter(within).filter_map(number).collect()
        };
        let (second, last) = (quarter(1), quarter(3));
        if second.is_empty() || last.is_empty() {
            return Err(format!("no {name} to compare: the run was too short").into());
        }
        let points = |sample: &Sample| -> Option<Value> {
            let points = json!({ "Strandline": number(sample)? });
            Some(json!({ "figure": format!("soak-{name}"), "x": sample.minutes, "points": points }))
        };
        let plots: Vec<Value> = samples.iter().filter_map(points).collect();
        let figure = Figure {
            case: format!("soak: {name}, last quarter"),
            unit,
            ours: Spread::of(last),
            peer: "the second quarter".to_string(),
            theirs: Some(median(second).into()),
            goal: Some(Goal::AtMost(most)),
            config: config([
                ("kills", json!(kills)),
                ("done", json!(shared.done())),
                ("plots", json!(plots)),
            ]),
        };
        not_flat += usize::from(figure.meets() == Some(false));
        report.add(figure)?;
    }
    let verdict = format!(
        "{kills} kills, {} acknowledged updates of counters, {} failures, {not_flat} curves not \
         flat, {:.0} ms for the longest update of a counter",
        shared.done()["counters"],
        failures.len(),
        shared.longest()
    );
    report.verdict("soak", &verdict)?;
    Ok(failures.len() + not_flat)
}
