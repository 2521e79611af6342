//! Indexes by the position of points and boxes: what they find is what a scan finds, under changes,
//! in old snapshots, after openings, crashes and damage.

#[path = "../common/mod.rs"]
mod common;
mod definitions;
mod faults;
#[path = "../page_indexes/machine.rs"]
#[allow(dead_code, reason = "other suites make more faults")]
mod machine;
mod maintenance;
mod model;
mod places;
#[path = "../indexes/support.rs"]
#[allow(dead_code, reason = "parts are about keys in order")]
mod support;

use strandline_engine::catalog::index::IndexStorage;

/// The storage of all indexes.
const STORAGE: IndexStorage = IndexStorage::Pages;
