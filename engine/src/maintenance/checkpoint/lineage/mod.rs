//! A lineage table's part of a checkpoint: merges of its ranges \[L-Store §4.1\], its update runs
//! \[MaSM §3.1\].
//!
//! These steps are specific to the lineage table: base chunks, tails and runs determine which
//! columns a merge rewrites and which runs are united. The checkpoint itself uses only a part's
//! store, manifest edit, new files and report ([`StoragePart`]), its preparation
//! (`Db::storage_part`) and its publication (`Db::publish`). A second kind of table brings these
//! three.

mod compact_files;
mod compaction;
mod merge;
mod publish;
mod storage_part;
mod unite;

pub(super) use storage_part::StoragePart;
