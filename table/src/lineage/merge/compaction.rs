//! Compaction of a range's chunk files: columns of files that are mostly superseded are written
//! into a new file, and the old files are not named any more.
//!
//! Chunks are copied value by value, since the checksums of their blocks contain their place. What
//! they are as of stays the same, and so do the rows' metadata and the tails: readers at any moment
//! find the same values. The moved columns have a file of their own, apart from the columns that
//! merges write, so that further merges of those do not supersede bytes beside them.

use super::MergeOutput;
use super::wide_column::MergedColumn;
use crate::lineage::Lineage;
use crate::lineage::base::row_block::RowBlocks;
use crate::lineage::base::row_meta::RowMeta;
use crate::lineage::base::{BaseBody, BaseState, ChunkBase};
use crate::lineage::range::{Range, RangeVersion};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result};
use strandline_storage::file::data_file::DataFileWriter;
use strandline_txn::{StartWord, Visibility};

impl Lineage {
    /// Moves columns of `base`, which is the range's base or will be, out of its mostly superseded
    /// files (see [`ChunkBase::columns_to_move`]). The result replaces `base`. None if there is no
    /// such file. `publish_merge` publishes it as a merge.
    ///
    /// # Errors
    /// Those of reading the chunks and writing the file, which is removed.
    pub fn compact_range(
        self: &Arc<Self>,
        range: &Arc<Range>,
        base: &Arc<BaseState>,
    ) -> Result<Option<MergeOutput>> {
        let BaseBody::Chunks(old) = &base.body else {
            return Ok(None);
        };
        let (moved, _) = old.columns_to_move();
        if moved.is_empty() {
            return Ok(None);
        }
        self.move_columns(range, base, old, moved).map(Some)
    }

    fn move_columns(
        self: &Arc<Self>,
        range: &Arc<Range>,
        base: &Arc<BaseState>,
        old: &ChunkBase,
        moved: Vec<ColumnId>,
    ) -> Result<MergeOutput> {
        // The base without tails at the latest moment: its values as they are.
        let latest = Visibility {
            ts: CommitTs::MAX,
            own: StartWord(0),
            statement: 0,
        };
        let version = Arc::new(RangeVersion::of(base.clone()));
        let (counters, wanted) = (Arc::default(), Arc::from(moved.as_slice()));
        let snapshot = self.range_snapshot_of(range, &version, &latest, &wanted, &counters)?;
        let (schema, meta) = (self.schema(), RowMeta::uniform(old.rows as usize, 0));
        let mut writer = DataFileWriter::new(&self.shared.files, self.shared.new_file_id());
        let mut columns = old.columns.clone();
        for (at, &column) in moved.iter().enumerate() {
            let spec = schema.column(column);
            let rows = MergedColumn {
                snapshot: &snapshot,
                at,
                spec,
                meta: &meta,
                wide_bytes: self.shared.merge_column_bytes(),
            };
            let written = rows.write(&mut writer)?;
            let chunk = self
                .shared
                .written_chunk(writer.file(), written, spec.sql_type);
            columns[column.0 as usize] = Some(chunk);
        }
        let (file, bytes) = writer.finish()?;
        let base = ChunkBase {
            rows: old.rows,
            superseded: old.superseded_by(&columns, old.meta.as_ref()),
            columns,
            start: old.start.clone(),
            meta: old.meta.clone(),
            start_max: old.start_max,
            last_updated_max: old.last_updated_max,
            deleted: old.deleted,
            merged: old.merged.clone(),
            row_blocks: RowBlocks::default(),
        };
        Ok(MergeOutput {
            range: range.clone(),
            base: BaseState::new(BaseBody::Chunks(Arc::new(base))),
            file: Some(file),
            bytes,
        })
    }
}
