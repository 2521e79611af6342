//! Secondary indexes in memory: what is read by them is what a scan finds. The binaries
//! `page_indexes` and `level_indexes` have the same suites with indexes in files.

mod builds;
#[path = "../common/mod.rs"]
mod common;
mod covered;
mod crash;
mod dead_entries;
mod definitions;
mod expressions;
mod key_hints;
mod left_builds;
mod live_sweeps;
mod loads;
mod maintenance;
mod model;
mod moves;
mod ordered_keys;
mod reading;
mod references;
mod support;

use strandline_engine::catalog::index::IndexStorage;

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Memory;
