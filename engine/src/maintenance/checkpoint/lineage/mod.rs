//! A lineage table's part of a checkpoint: merges of its ranges \[L-Store §4.1\], its update runs
//! \[MaSM §3.1\].
//!
//! These steps name the lineage table because they are what it consists of: which columns a merge
//! rewrites, and which runs are united, follows from base chunks, tails and runs, and another kind
//! of table would have other steps. The checkpoint itself knows of a part its store, its manifest
//! edit, its new files and its report ([`StoragePart`]), that it is prepared (`Db::storage_part`),
//! and that it is published (`Db::publish`). A second kind of table brings these three.

mod compaction;
mod merge;
mod publish;
mod storage_part;
mod unite;

pub(super) use storage_part::StoragePart;
