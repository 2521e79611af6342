//! Compacts chunk files that are mostly superseded: their columns go into new files.
//!
//! This comes after all merges of a checkpoint, since on a nearly full device what it takes for a
//! while is not to be missing to them. A range whose files cannot be compacted is set aside, on a
//! full device too: it keeps its files, and nothing else depends on their compaction.

use super::storage_part::{StoragePart, columns_max};
use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::checkpoint::terms::Terms;
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{RangeNo, Result};
use strandline_storage::file::data_file::data_file_name;
use strandline_table::lineage::base::{BaseBody, BaseState};
use strandline_table::lineage::range::Range;

/// A range with mostly superseded files.
struct Compactable {
    range: Arc<Range>,
    /// its base as the checkpoint leaves it
    base: Arc<BaseState>,
    /// how many such files it has
    files: usize,
}

impl Db {
    /// Compacts the chunk files of one storage as its part among `ready` leaves them, which are
    /// ordered by storage. A storage without a part gets one. Returns whether there was room: a
    /// full device ends it for this checkpoint.
    pub(in crate::maintenance::checkpoint) fn compact_files(
        &self,
        store: &Arc<Store>,
        table: Option<&TableDef>,
        terms: &Terms,
        ready: &mut Vec<StoragePart>,
    ) -> bool {
        let at = ready.binary_search_by_key(&store.id(), |part| part.store.id());
        let due = self.compactable(store, at.ok().map(|at| &ready[at]), terms);
        if due.is_empty() {
            return true;
        }
        let mut part = match at {
            Ok(at) => ready.remove(at),
            Err(_) => StoragePart::new(store, self.device()),
        };
        let had_room = due.iter().all(|due| {
            let outcome = self.compact_range(&mut part, due);
            !outcome.is_err_and(|error| is_full_disk(&error))
        });
        if let Some(part) = part.finish(columns_max(store, table)) {
            let (Ok(at) | Err(at)) = at;
            ready.insert(at, part);
        }
        had_room
    }

    /// The ranges with mostly superseded files, but for those that are set aside.
    fn compactable(
        &self,
        store: &Store,
        part: Option<&StoragePart>,
        terms: &Terms,
    ) -> Vec<Compactable> {
        let merged = part.into_iter().flat_map(|part| &part.merged);
        let merged: BTreeMap<RangeNo, &Arc<BaseState>> =
            merged.map(|m| (m.range.no(), &m.base)).collect();
        let mut due = Vec::new();
        for range in store.lineage().ranges() {
            let base = merged.get(&range.no()).map(|base| Arc::clone(base));
            let base = base.unwrap_or_else(|| range.load().base.clone());
            let files = match &base.body {
                BaseBody::Chunks(chunks) => chunks.columns_to_move().1,
                BaseBody::Insert(_) => 0,
            };
            let work = Work::Compact(range.no());
            if files == 0 {
                self.note_work(store, work, Ok(()));
            } else if self.pausing_failure(store, work, terms.retries()).is_none() {
                due.push(Compactable { range, base, files });
            }
        }
        due
    }

    fn compact_range(&self, part: &mut StoragePart, due: &Compactable) -> Result<()> {
        let (store, work) = (part.store.clone(), Work::Compact(due.range.no()));
        let held = self.hold_for_merge();
        let compacted = contained(|| store.lineage().compact_range(&due.range, &due.base));
        drop(held);
        self.note_work(&store, work, compacted.as_ref().map(drop));
        if let Some(compacted) = compacted? {
            let file = compacted.file.iter();
            part.files
                .extend(file.map(|file| data_file_name(file.id())));
            part.add_compacted(compacted, due.files);
        }
        Ok(())
    }
}
