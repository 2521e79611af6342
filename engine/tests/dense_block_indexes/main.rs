//! Suites of indexes with dense LIDBlocks: each block has the entries of one value. `block_indexes`
//! has all suites with sparse ones.

#[path = "../common/mod.rs"]
mod common;
#[path = "../page_indexes/copies.rs"]
mod copies;
#[path = "../indexes/crash.rs"]
mod crash;
#[path = "../indexes/dead_entries.rs"]
mod dead_entries;
#[path = "../page_indexes/ended_rows.rs"]
mod ended_rows;
#[path = "../page_indexes/faults.rs"]
mod faults;
#[path = "../block_indexes/files.rs"]
mod files;
#[path = "../page_indexes/full_disk.rs"]
mod full_disk;
#[path = "../indexes/loads.rs"]
mod loads;
#[path = "../page_indexes/machine.rs"]
mod machine;
#[path = "../indexes/maintenance.rs"]
mod maintenance;
#[path = "../indexes/model.rs"]
mod model;
#[path = "../indexes/reading.rs"]
mod reading;
#[path = "../page_indexes/room.rs"]
mod room;
#[path = "../indexes/support.rs"]
mod support;

use strandline_engine::catalog::index::{IndexStorage, LidBlockKind, LidBlocks};

/// The storage of all indexes but hash indexes.
const STORAGE: IndexStorage = IndexStorage::Blocks(LidBlocks {
    kind: LidBlockKind::Dense,
    entries: 4,
});
