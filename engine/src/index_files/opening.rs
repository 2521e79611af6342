//! The files that an opening finds, and the replay of the log on them.

use super::IndexFiles;
use crate::catalog::index_file::IndexFile;
use std::collections::{BTreeMap, BTreeSet};
use strandline_base::sync::Ordering;
use strandline_base::{Error, Result, SqlState};
use strandline_device::Device;
use strandline_storage::pages::{Redo, page_file_name};

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
    /// opened. An opening that only looks keeps these, and those of `lost`.
    pub fn open(
        &self,
        device: &dyn Device,
        named: &BTreeSet<IndexFile>,
        lost: &BTreeSet<IndexFile>,
    ) -> Result<BTreeMap<IndexFile, Error>> {
        let found = device.list()?;
        let only_looks = self.settings.only_looks;
        let kept = named.iter().chain(lost.iter().filter(|_| only_looks));
        let kept_parts: BTreeSet<String> = kept.flat_map(|file| file.names()).collect();
        for name in &found {
            let Some(id) = IndexFile::of_name(name) else {
                continue;
            };
            self.raise_next(id.next_number());
            if !kept_parts.contains(name) {
                self.forget(id);
                device.remove(name)?;
            }
        }
        let mut missing = BTreeMap::new();
        for file in named {
            self.raise_next(file.next_number());
            let unusable = self.lost_part(*file).or(missing_part(*file, &found));
            let opened = match unusable {
                None => self.open_pages(*file),
                Some(error) => {
                    let parts = file.names().filter(|part| found.contains(part));
                    for part in parts.filter(|_| !only_looks) {
                        device.remove(&part)?;
                    }
                    Err(error)
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
        let opened = parts.try_for_each(|id| self.pages.open_file(id));
        opened.inspect_err(|_| self.forget(file))
    }

    /// The redo of the log's records on the open files.
    pub fn redo(&self) -> Redo<'_> {
        Redo::new(&self.pages)
    }

    /// The error of a file of which a part is lost with the SSD cache.
    fn lost_part(&self, file: IndexFile) -> Option<Error> {
        let (lost, cause) = self.lost_with_cache.as_ref()?;
        let part = file.page_files().find(|id| lost.contains(id))?;
        let what = format!(
            "its newest pages were lost with the SSD cache: {}",
            cause.message()
        );
        Some(Error::corrupt(
            format!("file \"{}\"", page_file_name(part)),
            what,
        ))
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
