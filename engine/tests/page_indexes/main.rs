//! The suites of `indexes` with indexes on pages, and suites of their page files.

#[path = "../indexes/builds.rs"]
mod builds;
mod cache_sizes;
mod cached;
mod cached_faults;
#[path = "../common/mod.rs"]
mod common;
mod comparisons;
mod copies;
#[path = "../indexes/covered.rs"]
mod covered;
#[path = "../indexes/crash.rs"]
mod crash;
#[path = "../indexes/dead_entries.rs"]
mod dead_entries;
#[path = "../indexes/definitions.rs"]
mod definitions;
mod ended_rows;
#[path = "../indexes/expressions.rs"]
mod expressions;
mod faults;
mod files;
mod full_disk;
mod history;
#[path = "../indexes/key_hints.rs"]
mod key_hints;
#[path = "../indexes/left_builds.rs"]
mod left_builds;
#[path = "../indexes/loads.rs"]
mod loads;
mod looks;
mod machine;
#[path = "../indexes/maintenance.rs"]
mod maintenance;
mod memory;
#[path = "../indexes/model.rs"]
mod model;
#[path = "../indexes/ordered_keys.rs"]
mod ordered_keys;
#[path = "../indexes/reading.rs"]
mod reading;
#[path = "../indexes/references.rs"]
mod references;
mod room;
mod serial_keys;
#[path = "../indexes/support.rs"]
mod support;
mod tier_damage;
mod tier_space;

use strandline_engine::catalog::index::IndexStorage;

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Pages;
