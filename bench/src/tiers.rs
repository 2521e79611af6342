//! The suite `tiers`: databases on two tiers, of which the capacity tier is an emulated hard disk.
//!
//! | group | figure | compared with |
//! |---|---|---|
//! | commits | durable single-row updates per second, SQL | all files on the emulated disk |
//! | random_reads | random pages, a scan, a frame in memory | the device, raw |
//! | tpch | TPC-H with little memory, cold and warm | DuckDB with the same memory |
//! | object_store | TPC-H in an emulated object store | a directory; DataFusion on Parquet |
//! | all_ssd | point transactions on data 10 x memory; a cold read | SQLite, RocksDB |
//! | index_pages | point reads and inserts per second, keys on pages | without SSD cache |
//! | cache_size | TPC-C over the cache's size [SSD-DB Fig 2.3] | lazy cleaning, HDD, SSD, foyer |
//! | checkpoints | TPC-C over time with checkpoints [SSD-DB Fig 2.1] | the same |
//! | recovery | seconds of recovery from one log [SSD-DB Tables 2.1, 2.2] | without the cache |
//! | warm_restart | seconds to 95 % of the former rate [SSD-DB Table 2.3] | lazy cleaning |
//!
//! `commits` and `index_pages` use files of the operating system; every read and sync of the
//! capacity tier has the emulated delays. `random_reads`, `tpch` and `all_ssd` emulate nothing. The
//! last four groups run TPC-C on the page store (`strandline-bench-tpcc`), with both devices
//! emulated over memory. The rival foyer, as a cache of reads, takes the feature `foyer`: its crate
//! is compiled only then.
//!
//! Each group has a budget of seconds, which is printed; a group that exceeds it says so in its
//! results. `checkpoints` needs its own only when it runs alone: otherwise `cache_size` has
//! measured its windows. The others' sum is 20 minutes, with --quick 3; foyer adds 2 minutes.

mod all_ssd;
mod cache_size;
mod checkpoints;
mod clients;
mod cold_column;
mod commits;
mod files;
mod index_pages;
mod memory_group;
mod object_store;
mod random_reads;
mod recovery;
mod tpcc;
mod tpch;
mod warm_restart;

pub use all_ssd::own_process::serve as serve_own_process;

use crate::report::Report;
use crate::{Group, Result, tpch as tpch_data};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline_bench_tpcc::experiment::{Image, Window};

/// Defines [`GROUPS`], in the order they run: a module each, the seconds that it may take, and
/// those with --quick.
macro_rules! groups {
    ($count:literal: $($name:ident $full:expr, $quick:expr;)+) => {
        /// Every group.
        pub const GROUPS: [(&str, Group<Bench>); $count] = [$((
            stringify!($name),
            |bench, report| {
                let budget = bench.sized($full, $quick);
                within((stringify!($name), budget), $name::run, bench, report)
            },
        ),)+];

        /// The budgets, by name.
        #[cfg(test)]
        const BUDGETS: [(&str, [u64; 2]); $count] = [$((stringify!($name), [$full, $quick]),)+];
    };
}

groups! { 10:
    commits 30, 8;
    random_reads 60, 10;
    tpch 110, 20;
    object_store 70, 12;
    all_ssd 100, 25;
    index_pages 200, 20;
    cache_size 396 + FOYER_SECONDS[0], 40 + FOYER_SECONDS[1];
    checkpoints 110, 36;
    recovery 120, 13;
    warm_restart 110, 30;
}

/// What the rival foyer adds to the budget of `cache_size`.
const FOYER_SECONDS: [u64; 2] = match tpcc::FOYER.is_built() {
    true => [110, 14],
    false => [0, 0],
};

/// Runs a group and says how long it took; a verdict names a group that exceeds its budget.
fn within(
    (name, budget): (&str, u64),
    group: Group<Bench>,
    bench: &mut Bench,
    report: &mut Report,
) -> Result<()> {
    eprintln!("{name}: at most {budget} s");
    let begun = Instant::now();
    let done = group(bench, report);
    let seconds = begun.elapsed().as_secs();
    eprintln!("{name}: took {seconds} s of {budget}");
    done?;
    match seconds > budget {
        true => report.verdict(name, &format!("took {seconds} s, its budget is {budget} s")),
        false => Ok(()),
    }
}

/// The emulated disk is so many times faster than its model.
const TIME_SCALE: u64 = 8;

/// Directories and times of a run.
pub struct Bench {
    directory: PathBuf,
    seed: u64,
    is_quick: bool,
    /// scale factor of TPC-H
    scale: f64,
    /// the number of processors, all of which every engine may use
    cores: usize,
    /// duration of one round
    round: Duration,
    /// the loaded database of TPC-C, made on first use
    image: Option<Image>,
    /// windows that are measured already, with what was emulated: groups share them
    windows: HashMap<String, (Window, String)>,
}

impl Bench {
    /// A run that keeps its files in `directory`.
    pub fn new(directory: &Path, quick: bool, seed: u64) -> Self {
        Self {
            directory: directory.to_path_buf(),
            seed,
            is_quick: quick,
            scale: if quick { 0.1 } else { 1.0 },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            round: Duration::from_millis(if quick { 500 } else { 4_000 }),
            image: None,
            windows: HashMap::new(),
        }
    }

    /// The first value, or with --quick the second.
    fn sized<T>(&self, full: T, quick: T) -> T {
        match self.is_quick {
            true => quick,
            false => full,
        }
    }

    /// The folder with TPC-H as Parquet files, made on first use.
    fn tpch_files(&self) -> Result<PathBuf> {
        let folder = self.directory.join("tpch");
        let is_made = folder.join("made");
        if !is_made.exists() {
            eprintln!("generating TPC-H SF {} ...", self.scale);
            std::fs::create_dir_all(&folder)?;
            tpch_data::generate(self.scale, &folder)?;
            std::fs::write(&is_made, "")?;
        }
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_are_those_of_the_suite() {
        let own = BUDGETS.iter().filter(|(name, _)| *name != "checkpoints");
        let [full, quick] = own.fold([0, 0], |[full, quick], (_, budget)| {
            [full + budget[0], quick + budget[1]]
        });
        let [full, quick] = [full - FOYER_SECONDS[0], quick - FOYER_SECONDS[1]];
        assert!(full <= 20 * 60 && quick <= 3 * 60, "{full} s, {quick} s");
    }
}
