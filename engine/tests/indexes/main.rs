//! Secondary indexes in memory: what is read by them is what a scan finds. The binary
//! `page_indexes` has the same suites with indexes on pages.

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
mod loads;
mod maintenance;
mod model;
mod ordered_keys;
mod reading;
mod references;
mod support;

use strandline_engine::catalog::index::IndexStorage;

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Memory;
