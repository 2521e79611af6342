//! `strandline-bench`: suites of figures against peers measured in the same run.
//!
//! Every suite prints one JSON line per result as it comes, then a table. Rivals run in processes
//! of their own ([`peer`]) and take turns with us ([`rounds`]); data and keys follow from one seed.

mod cpu_time;
mod foundation;
mod machine;
mod ours;
mod peer;
mod report;
mod rounds;
mod tpch;

use clap::{Parser, Subcommand};
use report::{Figure, Stamp, config};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Failures end a case, never a suite.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks of Strandline against DuckDB, SQLite and DataFusion.
#[derive(Parser)]
#[command(name = "strandline-bench", version)]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// Loads, scans, TPC-H queries, point transactions, scans under updates, size on disk.
    ///
    /// Minimum sizes: TPC-H SF 1, 10 M rows to sum, 1 M rows for point transactions (at most 20
    /// minutes); with --quick SF 0.1, 2 M and 200 K (at most 3 minutes). Databases are made below
    /// STRANDLINE_BENCH_DIR (default: the temporary directory), which must be on a disk.
    Foundation(Options),
}

/// Options of every suite.
#[derive(clap::Args)]
struct Options {
    /// Smaller data and shorter runs, at most 3 minutes.
    #[arg(long)]
    quick: bool,
    /// Also write the JSON lines into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run only cases of groups whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seed of all data and keys.
    #[arg(long, default_value_t = 20_261_120)]
    seed: u64,
}

fn main() -> ExitCode {
    let Suite::Foundation(options) = Arguments::parse().suite;
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            eprintln!("{failures} groups failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("strandline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the suite; the number of groups of cases that failed.
fn run(options: &Options) -> Result<usize> {
    let parent =
        std::env::var_os("STRANDLINE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::Builder::new()
        .prefix("strandline-bench-")
        .tempdir_in(parent)?;
    let mut common = machine::describe(directory.path())?;
    common.extend(config([("quick", json!(options.quick))]));
    let stamp = Stamp {
        suite: "foundation",
        config: common,
        seed: options.seed,
    };
    let mut file = options.json.as_ref().map(File::create).transpose()?;
    let mut bench = foundation::Bench::new(directory.path(), options.quick, options.seed);
    let (mut figures, mut failures) = (Vec::new(), 0);
    for (name, group) in foundation::GROUPS {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        eprintln!("{name} …");
        let found: Vec<Figure> = group(&mut bench).unwrap_or_else(|error| {
            eprintln!("{name}: {error}");
            failures += 1;
            Vec::new()
        });
        for figure in found {
            let line = figure.json(&stamp);
            println!("{line}");
            if let Some(file) = &mut file {
                writeln!(file, "{line}")?;
            }
            figures.push(figure);
        }
    }
    println!("{}", report::table(&figures));
    let (met, goals) = figures
        .iter()
        .filter_map(Figure::meets)
        .fold((0, 0), |(met, goals), m| (met + usize::from(m), goals + 1));
    println!("{met} of {goals} goals met");
    Ok(failures)
}
