//! The suites of `indexes` with indexes that have LIDBlocks, small ones so that they are moved all
//! the time, and a suite of their two files.

#[path = "../indexes/builds.rs"]
mod builds;
#[path = "../common/mod.rs"]
mod common;
#[path = "../page_indexes/comparisons.rs"]
mod comparisons;
#[path = "../page_indexes/copies.rs"]
mod copies;
#[path = "../indexes/covered.rs"]
mod covered;
#[path = "../indexes/crash.rs"]
mod crash;
#[path = "../indexes/dead_entries.rs"]
mod dead_entries;
#[path = "../indexes/definitions.rs"]
mod definitions;
#[path = "../page_indexes/ended_rows.rs"]
mod ended_rows;
#[path = "../indexes/expressions.rs"]
mod expressions;
#[path = "../page_indexes/faults.rs"]
mod faults;
mod files;
#[path = "../page_indexes/full_disk.rs"]
mod full_disk;
#[path = "../page_indexes/history.rs"]
mod history;
#[path = "../indexes/key_hints.rs"]
mod key_hints;
#[path = "../indexes/left_builds.rs"]
mod left_builds;
#[path = "../indexes/loads.rs"]
mod loads;
#[path = "../page_indexes/machine.rs"]
mod machine;
#[path = "../indexes/maintenance.rs"]
mod maintenance;
#[path = "../indexes/model.rs"]
mod model;
#[path = "../indexes/ordered_keys.rs"]
mod ordered_keys;
#[path = "../indexes/reading.rs"]
mod reading;
#[path = "../indexes/references.rs"]
mod references;
#[path = "../page_indexes/room.rs"]
mod room;
#[path = "../indexes/support.rs"]
mod support;

use strandline_engine::catalog::index::{IndexStorage, LidBlockKind, LidBlocks};

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Blocks(LidBlocks {
    kind: LidBlockKind::Sparse,
    entries: 4,
});
