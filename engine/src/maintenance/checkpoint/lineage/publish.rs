//! The fourth step of a checkpoint: merged and compacted ranges and new runs replace the old ones,
//! whose files are removed.

use super::storage_part::StoragePart;
use crate::db::Db;
use std::collections::BTreeSet;
use strandline_base::CommitTs;
use strandline_storage::file::data_file::DataFile;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::merge::MergeOutput;

impl Db {
    /// Publishes the prepared part to readers; the manifest already names its files.
    pub(in crate::maintenance::checkpoint) fn publish(&self, part: StoragePart, through: CommitTs) {
        let lineage = part.store.lineage();
        if let Some(runs) = part.runs {
            lineage.set_runs(runs);
        }
        part.replaced
            .iter()
            .for_each(|run| run.remove_when_unused());
        for version in &part.versions {
            lineage.note_persisted(version, through);
        }
        for new in part.merged.iter().chain(&part.compacted) {
            remove_replaced(&new.range.load().base.body, new);
            lineage.publish_merge(new);
        }
        for merged in &part.merged {
            self.merge_schedule
                .note_merged(part.store.id(), merged.range.no());
        }
        let listed = part.listed;
        part.store.unlisted.lock().retain(|no| !listed.contains(no));
    }
}

/// Removes the files that hold only data that the merge has replaced.
fn remove_replaced(old: &BaseBody, merged: &MergeOutput) {
    let BaseBody::Chunks(old) = old else { return };
    let new = merged.chunks();
    let kept: BTreeSet<u64> = new
        .columns
        .iter()
        .flatten()
        .map(|c| c.stored.file.id())
        .chain(new.meta.as_ref().map(|m| m.file.id()))
        .collect();
    let files = old.columns.iter().flatten().map(|c| &c.stored.file);
    for file in files.chain(old.meta.as_ref().map(|m| &m.file)) {
        if !kept.contains(&file.id()) {
            DataFile::remove_when_unused(file);
        }
    }
}
