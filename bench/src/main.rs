//! `strandline-bench`: suites of figures against peers measured in the same run.
//!
//! Every suite prints one JSON line per result as it arrives, then a table. Rivals run in separate
//! processes ([`peer`]) and take turns with us ([`rounds`]). One seed determines all data and keys.

mod cpu_time;
mod foundation;
mod in_process;
mod index;
mod lineage;
mod machine;
mod ours;
mod peer;
mod plots;
mod report;
mod rounds;
#[path = "../rivals/src/script.rs"]
mod script;
mod served;
mod server;
mod soak;
mod statements;
mod tiers;
mod tpch;

use clap::{Parser, Subcommand};
use report::{Report, Stamp};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A failure ends a case, never a suite.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Cases of a suite that share data. `B` has the suite's sizes, directories and peers.
pub type Group<B> = fn(&mut B, &mut Report) -> Result<()>;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks of Strandline against other databases and against the designs it competes with.
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
    /// The evaluation of the L-Store paper, point transactions against key-value stores, latency.
    ///
    /// Tables of 10 M rows (1 M for the key-value stores), at most 30 minutes, 10 of which one
    /// snapshot is held open; with --quick 1 M and 200 K rows and 10 seconds, at most 3 minutes.
    Lineage(Options),
    /// What one statement costs, from its text to its result: in process by key and planned; 70 of
    /// applications beside PostgreSQL and SQLite; of many clients on few rows.
    ///
    /// Tables of up to 1 M rows; at most 15 minutes, with --quick 3. Needs Debian's packages
    /// postgresql and postgresql-contrib, psycopg (server/tests/clients/install.sh), and the
    /// program `strandline` beside this one.
    Statements(Options),
    /// What secondary indexes and foreign keys give to readers and cost writers, beside PostgreSQL,
    /// DuckDB and SQLite; the FD+ paper's figures.
    ///
    /// A table of 10 M rows, at most 20 minutes; with --quick 1 M, at most 3 minutes. Needs
    /// Debian's package postgresql, and the program `strandline` beside this one.
    Index {
        #[command(flatten)]
        options: Options,
        /// The paper's 90 M entries, too: hours, and 8 GB of memory.
        #[arg(long)]
        full: bool,
    },
    /// `strandline serve` against PostgreSQL, with PostgreSQL's own clients.
    ///
    /// pgbench at scale 20 and TPC-H SF 1, at most 15 minutes; with --quick scale 5 and SF 0.1, at
    /// most 3 minutes. Needs Debian's packages postgresql and postgresql-contrib, and the program
    /// `strandline` beside this one.
    Server(Options),
    /// Databases on two tiers with an emulated hard disk or object store, with little memory, and
    /// TPC-C through the persistent SSD cache as in the SSD-DB thesis.
    ///
    /// TPC-H SF 1, tables of 8 and 20 M rows and 5 warehouses, at most 20 minutes; with --quick SF
    /// 0.1, 2 M and 1 M rows and 1 warehouse, at most 3 minutes. Needs 3 GB of memory, DuckDB (pip
    /// install duckdb), and root for control groups that bound the peers' memory. Delays are
    /// emulated, and every result says so.
    Tiers(Options),
    /// A server under every kind of work at once, killed every few minutes: memory, files and
    /// latency stay flat, and nothing acknowledged is lost.
    Soak(soak::Options),
    /// Answers the requests of another process of this program.
    #[command(hide = true)]
    OwnProcess,
    /// Draws the figures of a run of `lineage`, `soak` or `tiers` as SVG and PNG.
    Plots(plots::Options),
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
    let done = match Arguments::parse().suite {
        Suite::Foundation(options) => {
            let bench =
                |directory: &Path| foundation::Bench::new(directory, options.quick, options.seed);
            run("foundation", &options, &foundation::GROUPS, bench)
        }
        Suite::Lineage(options) => {
            let bench =
                |directory: &Path| lineage::Bench::new(directory, options.quick, options.seed);
            run("lineage", &options, &lineage::GROUPS, bench)
        }
        Suite::Statements(options) => {
            let bench =
                |directory: &Path| statements::Bench::new(directory, options.quick, options.seed);
            run("statements", &options, &statements::GROUPS, bench)
        }
        Suite::Index { options, full } => {
            let sizes = (options.quick, full);
            let bench = |directory: &Path| index::Bench::new(directory, sizes, options.seed);
            run("index", &options, &index::GROUPS, bench)
        }
        Suite::Server(options) => {
            let bench = |directory: &Path| server::Bench::new(directory, options.quick);
            run("server", &options, &server::GROUPS, bench)
        }
        Suite::Tiers(options) => {
            let bench =
                |directory: &Path| tiers::Bench::new(directory, options.quick, options.seed);
            run("tiers", &options, &tiers::GROUPS, bench)
        }
        Suite::Soak(options) => soak::run(&options),
        Suite::OwnProcess => {
            let (requests, answers) = (std::io::stdin().lock(), std::io::stdout().lock());
            tiers::serve_own_process(requests, answers).map(|()| 0)
        }
        Suite::Plots(options) => plots::draw(&options).map(|()| 0),
    };
    match done {
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

/// Runs a suite; returns the number of failed groups.
fn run<B>(
    suite: &'static str,
    options: &Options,
    groups: &[(&str, Group<B>)],
    bench: impl FnOnce(&Path) -> B,
) -> Result<usize> {
    let parent =
        std::env::var_os("STRANDLINE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::Builder::new()
        .prefix("strandline-bench-")
        .tempdir_in(parent)?;
    let mut config = machine::describe(directory.path())?;
    config.extend(report::config([("quick", json!(options.quick))]));
    let seed = options.seed;
    let file = options.json.as_ref().map(File::create).transpose()?;
    let mut report = Report::new(
        Stamp {
            suite,
            config,
            seed,
        },
        file,
    );
    let mut bench = bench(directory.path());
    let mut failures = 0;
    let chosen = |name: &str| {
        options
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    if !groups.iter().any(|(name, _)| chosen(name)) {
        let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
        let only = options.only.as_deref().unwrap_or_default();
        let names = names.join(", ");
        return Err(format!("no group of {suite} has \"{only}\" in its name: {names}").into());
    }
    for (name, group) in groups.iter().filter(|(name, _)| chosen(name)) {
        eprintln!("{name} …");
        if let Err(error) = group(&mut bench, &mut report) {
            eprintln!("{name}: {error}");
            failures += 1;
        }
    }
    println!("{}", report.summary());
    Ok(failures)
}
