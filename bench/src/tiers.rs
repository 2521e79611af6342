//! The suite `tiers`: databases on two tiers, of which the capacity tier is an emulated hard disk.
//!
//! | group | figure | compared with |
//! |---|---|---|
//! | commits | durable single-row updates per second, SQL | all files on the emulated disk |
//! | index_pages | point reads and inserts per second, keys on pages | without SSD cache |
//! | cache_size | TPC-C over the SSD cache's size [SSD-DB Fig 2.3] | lazy cleaning, HDD, SSD |
//! | checkpoints | TPC-C over time with checkpoints [SSD-DB Fig 2.1] | the same |
//! | recovery | seconds of recovery from one log [SSD-DB Tables 2.1, 2.2] | without the cache |
//! | warm_restart | seconds to 95 % of the former rate [SSD-DB Table 2.3] | lazy cleaning |
//!
//! `commits` and `index_pages` use files of the operating system; every read and sync of the
//! capacity tier has the emulated delays. The other groups run TPC-C on the page store
//! (`strandline-bench-tpcc`), with both devices emulated
//! over memory. The rival `foyer` is not measured: it is no cache of pages that are written.

mod cache_size;
mod checkpoints;
mod clients;
mod commits;
mod index_pages;
mod recovery;
mod tpcc;
mod warm_restart;

use crate::Group;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandline_bench_tpcc::experiment::{Image, Window};

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 6] = [
    ("commits", commits::run),
    ("index_pages", index_pages::run),
    ("cache_size", cache_size::run),
    ("checkpoints", checkpoints::run),
    ("recovery", recovery::run),
    ("warm_restart", warm_restart::run),
];

/// The emulated disk is so many times faster than its model.
const TIME_SCALE: u64 = 8;

/// Directories and times of a run.
pub struct Bench {
    directory: PathBuf,
    seed: u64,
    is_quick: bool,
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
            round: Duration::from_secs(if quick { 1 } else { 10 }),
            image: None,
            windows: HashMap::new(),
        }
    }
}
