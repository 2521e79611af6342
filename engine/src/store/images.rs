//! A storage as plain data for inspection: its ranges, the records of its runs, and sizes of its
//! chunks.

use super::Store;
use std::collections::BTreeSet;
use strandline_base::{ColumnId, CommitTs, Result, RowId};
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::image::RangeImage;
use strandline_table::update_run::RunRecord;

/// The chunks of one column.
#[derive(Default)]
pub(crate) struct ColumnChunks {
    /// how many there are
    pub chunks: u64,
    /// their encoded bytes
    pub bytes: u64,
    /// their rows
    pub rows: u64,
    /// the names of their codecs
    pub codecs: BTreeSet<String>,
}

impl Store {
    /// Contents of base, row map and tails of every range. Reads all of it.
    pub fn images(&self) -> Result<Vec<RangeImage>> {
        let ranges = self.lineage.ranges();
        let images = ranges.iter().map(|range| self.lineage.image(range));
        images.collect()
    }

    /// All records of the update runs: by row, newest first, old values last.
    pub fn run_records(&self) -> Result<Vec<RunRecord>> {
        let all = (RowId(0), RowId(u64::MAX));
        self.lineage.history_records(all.0, all.1, CommitTs::MAX)
    }

    /// The chunks of `column`. Reads their footers.
    pub fn column_chunks(&self, column: ColumnId) -> Result<ColumnChunks> {
        let mut found = ColumnChunks::default();
        for range in self.lineage.ranges() {
            let version = range.load_full();
            let BaseBody::Chunks(base) = &version.base.body else {
                continue;
            };
            let Some(chunk) = base.column(column) else {
                continue;
            };
            found.chunks += 1;
            found.bytes += chunk.stored.extent.len;
            found.rows += u64::from(base.rows);
            found
                .codecs
                .insert(chunk.stored.footer()?.codec().to_string());
        }
        Ok(found)
    }
}
