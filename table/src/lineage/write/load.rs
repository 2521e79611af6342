//! Loading a range in bulk: encode, write, publish under the loader's start word.

use crate::lineage::base::row_block::RowBlocks;
use crate::lineage::base::{BaseBody, BaseState, ChunkBase, SupersededBytes};
use crate::lineage::{BasedRange, Lineage};
use arrow_array::ArrayRef;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, SqlType};
use strandline_column::chunk::{ChunkEncoder, ChunkFooter, encode_chunk};
use strandline_column::row_bytes::array_bytes;
use strandline_storage::file::Extent;
use strandline_storage::file::data_file::{DataFile, DataFileWriter};
use strandline_tail::change::{PendingStamp, UniformStart, Writer};
use strandline_tail::merge_watermarks::MergeWatermarks;

impl Lineage {
    /// Makes a range of `rows` rows whose columns `ids` are `arrays`. The file is written and
    /// synced; the caller syncs the directory before it logs the commit. The range is visible to
    /// the writer at once, to others when the returned record is stamped.
    pub fn load_range(
        &self,
        ids: &[ColumnId],
        arrays: &[ArrayRef],
        rows: usize,
        writer: &Writer,
    ) -> Result<(BasedRange, Arc<DataFile>, PendingStamp)> {
        let schema = self.schema();
        let mut file = DataFileWriter::new(&self.shared.files, self.shared.new_file_id());
        let mut columns = vec![None; schema.len()];
        for (&id, array) in ids.iter().zip(arrays) {
            let spec = schema.column(id);
            let written = self.write_column(&mut file, spec.sql_type, array)?;
            let chunk = self
                .shared
                .written_chunk(file.file(), written, spec.sql_type);
            columns[id.0 as usize] = Some(chunk);
        }
        let (data, _) = file.finish()?;
        let start = UniformStart::new(writer.word, writer.statement);
        let base = ChunkBase {
            row_blocks: RowBlocks::default(),
            rows: u32::try_from(rows).map_err(|_| Error::internal("a range is too long"))?,
            columns,
            start: start.clone(),
            meta: None,
            start_max: 0,
            last_updated_max: 0,
            deleted: 0,
            merged: MergeWatermarks::default(),
            superseded: SupersededBytes::default(),
        };
        let range = self.reserve_range()?;
        let mut based = base.describe(range.no());
        based.start = CommitTs::ZERO; // the commit decides
        let right = range.lock();
        let mut version = (*range.load_full()).clone();
        version.base = BaseState::new(BaseBody::Chunks(Arc::new(base)));
        range.publish(&right, version);
        Ok((based, data, PendingStamp::Range(start)))
    }

    /// Encodes and writes a column. Of a column of more than [`Shared::merge_column_bytes`] the
    /// encoded bytes are not in memory as a whole.
    ///
    /// [`Shared::merge_column_bytes`]: crate::lineage::Shared::merge_column_bytes
    fn write_column(
        &self,
        file: &mut DataFileWriter,
        t: SqlType,
        array: &ArrayRef,
    ) -> Result<(Extent, ChunkFooter)> {
        if array_bytes(array) <= self.shared.merge_column_bytes() {
            return file.blob(|identity, out| encode_chunk(t, array, identity, out));
        }
        file.blob_in_pieces(|identity, pieces| {
            let mut encoder = ChunkEncoder::new(t, array, identity)?;
            while encoder.next_block(pieces.buffer())? {
                pieces.written()?;
            }
            encoder.finish(pieces.buffer())
        })
    }
}
