//! The suites of `indexes` with indexes in levels, and the suites of their files.

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
#[path = "../page_indexes/files.rs"]
mod files;
#[path = "../page_indexes/full_disk.rs"]
mod full_disk;
mod gathered;
#[path = "../page_indexes/history.rs"]
mod history;
mod inspection;
#[path = "../indexes/key_hints.rs"]
mod key_hints;
#[path = "../indexes/left_builds.rs"]
mod left_builds;
#[path = "../indexes/loads.rs"]
mod loads;
#[path = "../page_indexes/looks.rs"]
mod looks;
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
mod replays;
#[path = "../page_indexes/room.rs"]
mod room;
#[path = "../page_indexes/serial_keys.rs"]
mod serial_keys;
#[path = "../indexes/support.rs"]
mod support;

use strandline_engine::catalog::index::IndexStorage;

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Levels;
