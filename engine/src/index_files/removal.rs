//! Files that go: lost ones, and those that no index has.

use super::IndexFiles;
use super::held::{Files, Lost};
use crate::catalog::index_file::IndexFile;
use std::collections::{BTreeMap, BTreeSet};
use strandline_base::Error;

impl IndexFiles {
    /// Closes the page files of an index, which are about to be removed.
    pub fn forget(&self, id: IndexFile) {
        for id in id.page_files() {
            self.pages.close_file(id);
        }
    }

    /// No opening uses this file again. The first cause counts: with it all parts are closed.
    pub fn note_lost(&self, id: IndexFile, cause: Error) {
        let mut files = self.files.lock();
        files.lost.entry(id).or_insert(Lost {
            cause,
            is_named: false,
        });
    }

    /// The manifest names these numbers of lost files: writers may pass over their indexes.
    pub fn note_lost_named(&self, named: &BTreeSet<u32>) {
        for (file, lost) in &mut self.files.lock().lost {
            lost.is_named |= named.contains(&file.number());
        }
    }

    /// The files that no opening uses again, and why.
    pub fn lost(&self) -> BTreeMap<IndexFile, Error> {
        let files = self.files.lock();
        let each = files.lost.iter();
        each.map(|(file, lost)| (*file, lost.cause.clone()))
            .collect()
    }

    /// Those of them that the manifest names.
    pub fn lost_named(&self) -> BTreeMap<IndexFile, Error> {
        let files = self.files.lock();
        let named = files.lost.iter().filter(|(_, lost)| lost.is_named);
        named
            .map(|(file, lost)| (*file, lost.cause.clone()))
            .collect()
    }

    /// Whether there are files that no index in memory has.
    pub fn has_unused(&self) -> bool {
        let files = self.files.lock();
        !files.lost.is_empty() || files.held.values().any(|uses| uses.count == 0)
    }

    /// Removes the files that no index in memory has and that are not `named`. One that cannot be
    /// removed is removed by the next opening. A lost file is one until it is removed: the
    /// transaction that creates its index may commit later.
    pub fn remove_unused(&self, named: &BTreeSet<IndexFile>) {
        let mut files = self.files.lock();
        let unused = files
            .held
            .extract_if(.., |id, uses| uses.count == 0 && !named.contains(id));
        let unused: Vec<IndexFile> = unused.map(|(id, _)| id).collect();
        drop(files);
        let left = self.remove(&unused);
        let mut files = self.files.lock();
        let Files { held, lost } = &mut *files;
        lost.retain(|id, _| named.contains(id) || held.contains_key(id) || left.contains(id));
    }

    /// Removes the parts of files that are there. Returns the files of which a part is left.
    fn remove(&self, unused: &[IndexFile]) -> Vec<IndexFile> {
        unused.iter().for_each(|file| self.forget(*file));
        let present = match unused {
            [] => Ok(BTreeSet::new()),
            _ => self.device.list().map(BTreeSet::from_iter),
        };
        let Ok(present) = present else {
            return unused.to_vec();
        };
        let is_left = |file: &IndexFile| {
            let mut parts = file.names().filter(|part| present.contains(part));
            parts
                .try_for_each(|part| self.device.remove(&part))
                .is_err()
        };
        unused.iter().copied().filter(is_left).collect()
    }
}
