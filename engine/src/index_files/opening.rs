//! The files that an opening finds, and the replay of the log on them.

use super::IndexFiles;
use crate::catalog::index_file::IndexFile;
use std::collections::{BTreeMap, BTreeSet};
use strandline_base::sync::Ordering;
use strandline_base::{Error, Result, SqlState};
use strandline_device::Device;
use strandline_storage::pages::{PageFileId, Redo};

/// How much of the log images of level files have to cover: bytes and 1.
#[derive(Default)]
pub(crate) struct WantedLevels {
    /// by number, as of the last checkpoint
    pub known: BTreeMap<u32, u64>,
    /// that of files that were made later
    pub others: u64,
}

impl WantedLevels {
    pub(super) fn of(&self, number: u32) -> u64 {
        self.known.get(&number).copied().unwrap_or(self.others)
    }
}

impl IndexFiles {
    /// Recovery: the manifest has these positions.
    pub fn recover_wanted(&self, wanted: WantedLevels) {
        *self.wanted.lock() = wanted;
    }

    /// Removes the files that are not `named` and opens the others. Returns those that cannot be
    /// opened.
    pub fn open(
        &self,
        device: &dyn Device,
        named: &BTreeSet<IndexFile>,
    ) -> Result<BTreeMap<IndexFile, Error>> {
        let found = device.list()?;
        let named_parts: BTreeSet<String> = named.iter().flat_map(|file| file.names()).collect();
        for name in &found {
            let Some(id) = IndexFile::of_name(name) else {
                continue;
            };
            self.raise_next(id.next_number());
            if !named_parts.contains(name) {
                self.forget(id);
                device.remove(name)?;
            }
        }
        let mut missing = BTreeMap::new();
        for file in named {
            self.raise_next(file.next_number());
            let opened = match missing_part(*file, &found) {
                None => self.open_pages(*file),
                Some(error) => {
                    for part in file.names().filter(|part| found.contains(part)) {
                        device.remove(&part)?;
                    }
                    let mut pages = file.page_files();
                    let lost = pages.find(|id| self.lost_with_cache.contains(id));
                    Err(lost.map_or(error.clone(), |id| self.cause_of_loss(id, error)))
                }
            };
            match opened {
                Ok(()) => self.enter(*file, 0),
                Err(error) => drop(missing.insert(*file, error)),
            }
        }
        Ok(missing)
    }

    /// Opens all page files of an index, or none. Level files are read when their index is opened.
    fn open_pages(&self, file: IndexFile) -> Result<()> {
        let mut parts = file.page_files();
        let opened = parts.try_for_each(|id| {
            let opened = self.pages.open_file(id);
            opened.map_err(|error| self.cause_of_loss(id, error))
        });
        opened.inspect_err(|_| self.forget(file))
    }

    /// The redo of the log's records on the open files.
    pub fn redo(&self) -> Redo<'_> {
        Redo::new(&self.pages)
    }

    fn cause_of_loss(&self, id: PageFileId, error: Error) -> Error {
        match self.lost_with_cache.contains(&id) {
            true => error.context("its newest pages were lost with the SSD cache"),
            false => error,
        }
    }

    /// Makes a step of the SSD cache that is due, until one fails: without free slots pages go to
    /// their files. The maintenance tells of the failure.
    pub fn make_step_of_replay(&self) {
        if let Some(cache) = self.cache()
            && !self.has_failing_steps.load(Ordering::Relaxed)
            && cache.is_step_due()
            && cache.step().is_err()
        {
            self.has_failing_steps.store(true, Ordering::Relaxed);
        }
    }
}

/// The error of a file of which a part is not among the names.
fn missing_part(file: IndexFile, names: &[String]) -> Option<Error> {
    let part = file.names().find(|part| !names.contains(part))?;
    let what = format!("file \"{part}\" does not exist");
    Some(Error::invalid(SqlState::UNDEFINED_FILE, what))
}
