//! Chunk files that a range uses only in part.
//!
//! A merge writes some columns and the rows' metadata into a new file. The older files of the range
//! keep the chunks that these supersede as long as one other chunk of the file is in use. A base
//! knows how many bytes of each of its files are superseded, so that nobody asks the device.
//!
//! Invariant: a file that has superseded bytes has a chunk or the metadata in use. The newest file
//! of a range has no superseded bytes, so ranges with one file have none.

use super::{BaseBody, BaseState, ChunkBase, ChunkColumn, MetaBlob};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ColumnId;
use strandline_storage::file::Extent;

/// Bytes superseded, by number of chunk file.
pub type SupersededBytes = BTreeMap<u64, u64>;

/// A blob by its file and its place there.
type Blob = (u64, Extent);

/// The blobs of columns and metadata.
fn blobs<'a>(
    columns: &'a [Option<Arc<ChunkColumn>>],
    meta: Option<&'a Arc<MetaBlob>>,
) -> impl Iterator<Item = Blob> + 'a {
    let columns = columns.iter().flatten();
    let columns = columns.map(|column| (column.stored.file.id(), column.stored.extent));
    columns.chain(meta.map(|meta| (meta.file.id(), meta.extent)))
}

impl BaseState {
    /// [`ChunkBase::superseded_by`]; nothing of an insert range, which has no files.
    pub(in crate::lineage) fn superseded_by(
        &self,
        columns: &[Option<Arc<ChunkColumn>>],
        meta: Option<&Arc<MetaBlob>>,
    ) -> SupersededBytes {
        match &self.body {
            BaseBody::Chunks(chunks) => chunks.superseded_by(columns, meta),
            BaseBody::Insert(_) => SupersededBytes::default(),
        }
    }
}

impl ChunkBase {
    /// What is superseded once `columns` and `meta` are the range's base: what is now, and the
    /// blobs of this base that are not among them. Files without a blob in use are left out.
    pub(in crate::lineage) fn superseded_by(
        &self,
        columns: &[Option<Arc<ChunkColumn>>],
        meta: Option<&Arc<MetaBlob>>,
    ) -> SupersededBytes {
        let used: Vec<Blob> = blobs(columns, meta).collect();
        let mut superseded = self.superseded.clone();
        let old = blobs(&self.columns, self.meta.as_ref());
        for (file, extent) in old.filter(|blob| !used.contains(blob)) {
            *superseded.entry(file).or_default() += extent.len;
        }
        superseded.retain(|file, _| used.iter().any(|(in_use, _)| in_use == file));
        superseded
    }

    /// Bytes of the range's files that are superseded.
    pub fn superseded_bytes(&self) -> u64 {
        self.superseded.values().sum()
    }

    /// The columns to move out of files whose superseded bytes are at least as many as their bytes
    /// in use, and the number of these files. Each byte written anew frees at least one. A file
    /// with a column that is behind the rows is left out: the next merge writes this column.
    pub fn columns_to_move(&self) -> (Vec<ColumnId>, usize) {
        let (mut columns, mut files) = (Vec::new(), 0);
        for (&file, &superseded) in &self.superseded {
            let used = blobs(&self.columns, self.meta.as_ref());
            let used = used.filter(|blob| blob.0 == file);
            let used: u64 = used.map(|(_, extent)| extent.len).sum();
            let of_file = || self.columns_of(file);
            let mut lagging = self.merged.lagging();
            let waits = lagging.any(|(lagging, _)| of_file().any(|column| column == lagging));
            if superseded >= used && !waits {
                columns.extend(of_file());
                files += 1;
            }
        }
        columns.sort_unstable();
        (columns, files)
    }

    /// The columns whose chunks are in `file`.
    fn columns_of(&self, file: u64) -> impl Iterator<Item = ColumnId> + '_ {
        let columns = (0..).map(ColumnId).zip(&self.columns);
        columns.filter_map(move |(id, column)| {
            let column = column.as_ref()?;
            (column.stored.file.id() == file).then_some(id)
        })
    }
}
