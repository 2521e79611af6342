//! Writing a run.

use super::group::{BlockTimes, put_group};
use super::reader::KIND;
use super::{
    BLOCK_BYTES, BlockPlace, GROUP_BYTES, GROUP_BYTES_MAX, GROUP_RECORDS_MIN, Run, RunIndex,
    RunRecord, RunRecordKind, header,
};
use std::sync::Arc;
use strandline_base::value_words::bytes_of;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, SqlType, Value, checksum};
use strandline_device::File;
use strandline_storage::file::{DataFiles, StoredFile};

/// Writes the records of one run in order.
#[derive(Debug)]
pub struct RunWriter {
    files: Arc<DataFiles>,
    file: Arc<dyn File>,
    run_id: u64,
    types: Vec<(ColumnId, SqlType)>,
    /// the last records pushed, all of one row
    group: Vec<RunRecord>,
    /// about what they would take one by one
    group_bytes: usize,
    block: Vec<u8>,
    block_first_row: RowId,
    block_last_row: RowId,
    block_times: BlockTimes,
    offset: u64,
    index: RunIndex,
}

impl RunWriter {
    /// Creates the file `file_name`, which must not exist. `types` are the columns that the
    /// finished [`Run`] will read back.
    ///
    /// # Errors
    /// Those of the device.
    pub fn create(
        files: &Arc<DataFiles>,
        file_name: &str,
        run_id: u64,
        types: &[(ColumnId, SqlType)],
    ) -> Result<Self> {
        let file = files.create(file_name)?;
        let header = header(run_id);
        file.write_all_at(&header, 0)?;
        Ok(Self {
            files: Arc::clone(files),
            file,
            run_id,
            types: types.to_vec(),
            group: Vec::new(),
            group_bytes: 0,
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            block_first_row: RowId(0),
            block_last_row: RowId(0),
            block_times: BlockTimes::near(&[]),
            offset: header.len() as u64,
            index: RunIndex {
                records: 0,
                min_ts: CommitTs::MAX,
                max_ts: CommitTs::ZERO,
                oldest_version: CommitTs::MAX,
                max_row: RowId(0),
                blocks: Vec::new(),
            },
        })
    }

    /// Appends a record, which must not sort before the one pushed last.
    ///
    /// # Errors
    /// A record out of order or with a column twice is an internal error; otherwise those of the
    /// device.
    pub fn push(&mut self, record: RunRecord) -> Result<()> {
        if let Some(last) = self.group.last() {
            if !last.may_precede(&record) {
                return Err(Error::internal(format!(
                    "update run {}: record {:?} {:?} at {} pushed after {:?} {:?} at {}",
                    self.run_id, record.row, record.kind, record.ts, last.row, last.kind, last.ts
                )));
            }
            let is_full = self.group_bytes >= GROUP_BYTES_MAX
                || self.group_bytes >= GROUP_BYTES && self.group.len() >= GROUP_RECORDS_MIN;
            if is_full || last.row != record.row {
                self.end_group()?;
            }
        }
        self.index.records += 1;
        self.index.max_row = record.row;
        self.index.max_ts = self.index.max_ts.max(record.ts);
        self.index.min_ts = self.index.min_ts.min(record.ts);
        if record.kind != RunRecordKind::OldValue {
            self.index.oldest_version = self.index.oldest_version.min(record.ts);
        }
        self.group_bytes += single_bytes(&record);
        self.group.push(record);
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let Some(row) = self.group.first().map(|record| record.row) else {
            return Ok(());
        };
        if self.block.is_empty() {
            self.block_times = BlockTimes::near(&self.group);
            self.block_times.put(&mut self.block);
            (self.block_first_row, self.block_last_row) = (row, row);
        }
        let previous = std::mem::replace(&mut self.block_last_row, row);
        if !put_group(&mut self.block, &self.group, previous, self.block_times) {
            let what = format!("update run {}: {row:?} with a column twice", self.run_id);
            return Err(Error::internal(what));
        }
        self.group.clear();
        self.group_bytes = 0;
        if self.block.len() >= BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<()> {
        let len = u32::try_from(self.block.len()).map_err(|_| {
            Error::unsupported(format!(
                "update run {}: a row of more than 4 GiB",
                self.run_id
            ))
        })?;
        self.file.write_all_at(&self.block, self.offset)?;
        self.index.blocks.push(BlockPlace {
            first_row: self.block_first_row,
            offset: self.offset,
            len,
            crc: checksum(&[self.run_id, self.offset], &self.block),
        });
        self.offset += u64::from(len);
        self.block.clear();
        Ok(())
    }

    /// Writes the index and makes the file's contents durable; the caller syncs the directory.
    ///
    /// # Errors
    /// A run without records is an internal error; otherwise those of the device.
    pub fn finish(mut self) -> Result<Run> {
        self.end_group()?;
        if !self.block.is_empty() {
            self.write_block()?;
        }
        if self.index.blocks.is_empty() {
            return Err(Error::internal(format!(
                "update run {} without records",
                self.run_id
            )));
        }
        let index = self.index.encode(self.run_id)?;
        self.file.write_all_at(&index, self.offset)?;
        self.file.sync()?;
        let bytes = self.offset + index.len() as u64;
        let name = self.file.name().to_owned();
        let file = StoredFile::new(&KIND, self.run_id, name, &self.files);
        file.put(self.file);
        Ok(Run::new(file, &self.types, self.index, bytes))
    }
}

/// About what a record would take by itself.
fn single_bytes(record: &RunRecord) -> usize {
    let bytes = |value: &Value| bytes_of(value).map_or(8, <[u8]>::len);
    let columns = record.columns.iter();
    8 + columns.map(|(_, value)| 2 + bytes(value)).sum::<usize>()
}
