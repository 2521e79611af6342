//! Merges the ranges of one storage that are due, several at a time, and collects the records that
//! go into the run. A range that cannot be merged is set aside.

use crate::db::Db;
use crate::db::memory_account::HeldBytes;
use crate::db::set_aside::Work;
use crate::maintenance::checkpoint::new_files::NewFiles;
use crate::maintenance::checkpoint::terms::Terms;
use crate::maintenance::due::Due;
use crate::maintenance::effort::Effort;
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::store::{RangeSummary, Store};
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_storage::file::data_file::data_file_name;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::history::pending::PendingRecords;
use strandline_table::lineage::horizon::Horizon;
use strandline_table::lineage::merge::MergeOutput;
use strandline_table::lineage::range::{Range, RangeVersion};
use strandline_tail::release::TailMask;
use strandline_tail::tail::Tail;

/// Inputs shared by the ranges of a storage.
pub(super) struct Preparation<'a> {
    pub store: &'a Arc<Store>,
    pub terms: &'a Terms,
    pub horizon: &'a Horizon,
    pub columns_max: usize,
}

/// A range's part of a checkpoint.
pub(super) struct PreparedRange {
    pub version: Arc<RangeVersion>,
    pub merged: Option<MergeOutput>,
    /// records that are in no run yet
    pub records: PendingRecords,
}

impl Db {
    /// Prepares several ranges, each on a thread of its own.
    pub(super) fn prepare_all(
        &self,
        preparation: &Preparation<'_>,
        ranges: &[Arc<Range>],
        files: &mut NewFiles,
    ) -> Result<Vec<PreparedRange>> {
        let prepare = |range: &Arc<Range>| contained(|| Ok(self.prepare(preparation, range)));
        let prepared: Vec<Result<PreparedRange>> = match ranges {
            [range] => vec![prepare(range)],
            _ => std::thread::scope(|scope| {
                let spawn = |range| scope.spawn(move || prepare(range));
                let threads: Vec<_> = ranges.iter().map(spawn).collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .map(|prepared| {
                        prepared.unwrap_or_else(|_| Err(Error::internal("a merge thread panicked")))
                    })
                    .collect()
            }),
        };
        // Also of those that are in vain because another one has failed.
        let merged = prepared.iter().flatten().flat_map(|p| &p.merged);
        let new = merged.flat_map(|m| &m.file);
        files.extend(new.map(|file| data_file_name(file.id())));
        prepared.into_iter().collect()
    }

    /// Merges a range if it is due, and collects its records for the run.
    fn prepare(&self, preparation: &Preparation<'_>, range: &Arc<Range>) -> PreparedRange {
        let lineage = preparation.store.lineage();
        let version = range.load_full();
        let merged = self.merge_if_due(preparation, range, &version);
        let with_inserts = merged.is_none();
        let (through, columns_max) = (preparation.terms.through, preparation.columns_max);
        let no = range.no();
        let records = lineage.pending_records(no, &version, through, with_inserts, columns_max);
        PreparedRange {
            version,
            merged,
            records,
        }
    }

    /// Ranges that are merged at the same time: as many as an eighth of `memory_bytes` has room
    /// for, at least one and at most `merge_threads`.
    pub(super) fn merges_at_once(&self) -> usize {
        let room = self.settings.memory_bytes / 8 / self.shared.merge_bytes();
        self.settings.merge_threads.min(room).max(1)
    }

    /// Takes the memory of one merge, from the cache if the tails leave none of theirs.
    pub(super) fn hold_for_merge(&self) -> HeldBytes {
        let mut held = self.merge_memory.share();
        held.add(self.shared.merge_bytes());
        self.lend_to_tails();
        held
    }

    /// Merges a range if it is due and neither set aside nor refused by a full disk.
    fn merge_if_due(
        &self,
        preparation: &Preparation<'_>,
        range: &Arc<Range>,
        version: &RangeVersion,
    ) -> Option<MergeOutput> {
        let Preparation {
            store,
            terms,
            horizon,
            columns_max,
        } = *preparation;
        let (no, work) = (range.no(), Work::Merge(range.no()));
        if terms.is_full() || self.pausing_failure(store, work, terms.retries()).is_some() {
            return None;
        }
        let merged = contained(|| {
            let due = match terms.effort {
                Effort::Freeing if has_deletes(version) => Due::All,
                Effort::Freeing | Effort::DropsOnly => Due::No,
                Effort::Due | Effort::All => {
                    self.due(store, no, &RangeSummary::of(version), terms.retries())
                }
            };
            let may_write = !matches!(terms.effort, Effort::Freeing | Effort::DropsOnly);
            let is_wanted = due != Due::No
                || is_dead(version, horizon)?
                || (may_write && is_mostly_dead(version, horizon)?);
            if !is_wanted {
                return Ok(None);
            }
            let all = due == Due::All;
            let lineage = store.lineage();
            let _held = self.hold_for_merge();
            let merged = lineage.merge_range(range, terms.through, horizon, columns_max, all)?;
            if merged.is_none() && due != Due::No {
                // What is pending may be what small rollbacks have left.
                lineage.release_aborted(no, TailMask::MAX);
            }
            Ok(merged)
        });
        match merged {
            Ok(merged) => {
                self.note_work(store, work, Ok(()));
                merged
            }
            // No fault of the range's.
            Err(error) if is_full_disk(&error) => {
                terms.note_full_disk(&error);
                None
            }
            Err(error) => {
                self.note_work(store, work, Err(&error));
                None
            }
        }
    }
}

/// Whether a merge may remove rows of a range.
fn has_deletes(version: &RangeVersion) -> bool {
    let tails = version.tails.iter().flatten();
    let pending = |tail: &Arc<Tail>| tail.pages().iter().any(|page| page.has_deletes());
    let is_marked = match &version.base.body {
        BaseBody::Chunks(chunks) => chunks.deleted > 0,
        BaseBody::Insert(_) => false,
    };
    is_marked || tails.into_iter().any(pending)
}

/// Whether a range holds only deleted rows that no moment within the horizon sees.
fn is_dead(version: &RangeVersion, horizon: &Horizon) -> Result<bool> {
    match &version.base.body {
        BaseBody::Chunks(chunks) if version.has_no_tail() => chunks.is_dead_at(horizon),
        _ => Ok(false),
    }
}

/// Whether most of the bytes of a range's files are of deleted rows that no moment within the
/// horizon sees, by the number of rows. A merge writes the range without them: each rewrite removes
/// more rows than it keeps, so that a row is rewritten O(log n) times for that.
fn is_mostly_dead(version: &RangeVersion, horizon: &Horizon) -> Result<bool> {
    match &version.base.body {
        BaseBody::Chunks(chunks) => chunks.is_mostly_dead_at(horizon),
        BaseBody::Insert(_) => Ok(false),
    }
}
