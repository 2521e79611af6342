//! The files of a storage: the files that a checkpoint's state names, and verification of their
//! checksums.

use super::{Shared, Store};
use crate::catalog::TableDef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{Error, RangeNo, Result, StorageId, UPDATE_ROWS};
use strandline_device::path_of;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::run::run_file_name;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::Range;
use strandline_table::lineage::{BasedRange, Lineage};
use strandline_table::update_run::{Run, UpdateCodec};
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail_pages::locate;

/// References to the files of storages, which stay on the device as long as this lives.
#[derive(Default)]
pub(crate) struct HeldFiles {
    data: BTreeMap<u64, Arc<DataFile>>,
    runs: Vec<Arc<Run>>,
}

impl HeldFiles {
    /// How many files there are.
    pub fn len(&self) -> usize {
        self.data.len() + self.runs.len()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        let data = self.data.values().map(|file| file.name().to_owned());
        let runs = self.runs.iter().map(|run| run.file_name().to_owned());
        data.chain(runs).collect()
    }
}

impl Store {
    /// Takes references to the files of the ranges `listed`, which have chunks, and of all runs.
    pub fn hold_files<'a>(
        &self,
        listed: impl Iterator<Item = &'a RangeNo>,
        held: &mut HeldFiles,
    ) -> Result<()> {
        for no in listed {
            let range = self.lineage.range(*no);
            let version = range.map(|range| range.load_full());
            let version = version.ok_or_else(|| Error::internal("a listed range is gone"))?;
            let BaseBody::Chunks(chunks) = &version.base.body else {
                return Err(Error::internal("a listed range has no chunks"));
            };
            let columns = chunks.columns.iter().flatten();
            let columns = columns.map(|column| &column.stored.file);
            for file in columns.chain(chunks.meta.iter().map(|meta| &meta.file)) {
                held.data.insert(file.id(), file.clone());
            }
        }
        held.runs.extend(self.lineage.runs().iter().cloned());
        Ok(())
    }

    /// The storage is dropped: removes all its files when their last readers are done.
    pub fn remove_files(&self) {
        self.lineage.remove_files();
    }

    /// Verifies every checksum of runs and chunks.
    pub fn check_files(&self, damage: &mut Vec<String>) {
        for run in self.lineage.runs().iter() {
            if let Err(e) = run.verify() {
                damage.push(e.to_string());
            }
        }
        for range in self.lineage.ranges() {
            check_chunks(&range, damage);
        }
    }

    /// Verifies that every row map entry leads to a record of its own row, and that chains run to
    /// older records.
    pub fn check_row_maps(&self, table: &TableDef, damage: &mut Vec<String>) {
        for range in self.lineage.ranges() {
            check_row_maps(table, &range, damage);
        }
    }
}

/// Verifies the files of one storage of a database that is not open. Returns the damage, one line
/// each.
pub(crate) fn damage_of(
    id: StorageId,
    schema: Arc<StorageSchema>,
    ranges: impl Iterator<Item = BasedRange>,
    runs: &[u64],
    shared: &Shared,
) -> Result<Vec<String>> {
    let codec = UpdateCodec::of(&schema);
    let lineage = Lineage::new(id, schema, shared.clone());
    let mut files: BTreeMap<u64, Arc<DataFile>> = BTreeMap::new();
    let mut damage = Vec::new();
    for based in ranges {
        lineage.restore_base(&based, &mut |file| {
            let existing = || DataFile::existing(&shared.files, file);
            files.entry(file).or_insert_with(existing).clone()
        })?;
        check_chunks(&lineage.ensure_range(based.no), &mut damage);
    }
    for run in runs {
        let name = run_file_name(*run);
        let run = Run::open(&shared.files, &name, *run, codec.clone());
        if let Err(error) = run.and_then(|run| run.verify()) {
            let path = path_of(&**shared.files.device(), &name);
            damage.push(format!("file {path}: {error}"));
        }
    }
    Ok(damage)
}

/// Every checksum of a range's chunks and row metadata.
fn check_chunks(range: &Range, damage: &mut Vec<String>) {
    let version = range.load_full();
    let BaseBody::Chunks(chunks) = &version.base.body else {
        return;
    };
    let mut checked = BTreeSet::new();
    let metas = chunks.meta.iter().map(|meta| &meta.file);
    let columns = chunks.columns.iter().flatten();
    for file in columns.map(|chunk| &chunk.stored.file).chain(metas) {
        if checked.insert(file.id()) {
            damage.extend(file.verify_header().err().map(|error| error.to_string()));
        }
    }
    for chunk in chunks.columns.iter().flatten() {
        match chunk.stored.verify() {
            Ok(array) if array.len() == chunks.rows as usize => {}
            Ok(array) => damage.push(format!(
                "{}: a chunk has {} rows, its range has {}",
                chunk.stored.place(),
                array.len(),
                chunks.rows
            )),
            Err(e) => damage.push(e.to_string()),
        }
    }
    if let Some(meta) = &chunks.meta
        && let Err(e) = meta.verify()
    {
        damage.push(e.to_string());
    }
}

/// Every row map entry leads to a record of its own row, and chains run to older records.
fn check_row_maps(table: &TableDef, range: &Range, damage: &mut Vec<String>) {
    let version = range.load_full();
    for (at, tail) in version.tails.iter().enumerate() {
        let Some(tail) = tail else { continue };
        for slot in 0..UPDATE_ROWS {
            let entry = tail.row_map().entry(slot);
            let pages = tail.pages();
            let mut next = pages.head(entry);
            while next != 0 {
                let Some((page, i)) = locate(&pages, next - 1) else {
                    break;
                };
                let (of, _) = page.slot_kind(i);
                let back = page.back(i);
                if usize::from(of) != slot || back >= next {
                    damage.push(format!(
                        "table \"{}\", range {}, row {}: tail record {} belongs to row {} and \
                         points back to {}",
                        table.name,
                        range.no(),
                        at * UPDATE_ROWS + slot,
                        next - 1,
                        at * UPDATE_ROWS + usize::from(of),
                        back
                    ));
                    break;
                }
                next = back;
            }
        }
    }
}
