//! The fourth step of a checkpoint: merged ranges and new runs take the places of the old ones,
//! whose files go; storages that may not be asked for any more are forgotten.

use super::moment::Moment;
use super::storage_part::StoragePart;
use crate::catalog::versions::kept_storages;
use crate::db::Db;
use crate::store::Store;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::CommitTs;
use strandline_storage::file::data_file::DataFile;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::merge::MergedRange;

impl Db {
    pub(super) fn publish(&self, part: StoragePart, through: CommitTs) {
        let lineage = part.store.lineage();
        if let Some(runs) = part.runs {
            lineage.set_runs(runs);
        }
        part.replaced.iter().for_each(|run| run.doom());
        for version in &part.versions {
            lineage.note_persisted(version, through);
        }
        for merged in &part.merged {
            doom_replaced(&merged.range.load().base.body, merged);
            lineage.publish_merge(merged);
            self.merge_schedule
                .note_merged(part.store.id(), merged.range.no());
        }
        let listed = part.listed;
        part.store.unlisted.lock().retain(|no| !listed.contains(no));
    }

    /// Forgets storages that may not be asked for any more and no transaction is creating.
    pub(super) fn drop_storages(&self, moment: &Moment) {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        // In this order: a creating transaction publishes its catalog before it lets go.
        let free: Vec<_> = stores
            .into_iter()
            .filter(|store| !store.is_held())
            .collect();
        let catalogs = self.catalogs.through(CommitTs::MAX);
        let begins = |policy| moment.time.begin_of(policy);
        let live = kept_storages(&catalogs, begins, moment.oldest);
        for store in free.into_iter().filter(|store| !live.contains(&store.id())) {
            let mut stores = self.stores.write();
            if stores
                .get(&store.id())
                .is_some_and(|s| Arc::ptr_eq(s, &store))
            {
                stores.remove(&store.id());
                store.lineage().doom_files();
            }
        }
    }
}

/// Removes the files that lie entirely in what a merge replaces.
fn doom_replaced(old: &BaseBody, merged: &MergedRange) {
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
            DataFile::doom(file);
        }
    }
}
