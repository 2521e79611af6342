//! Writing a run.

use super::record::{Previous, put_record};
use super::{BLOCK_BYTES, BlockPlace, Run, RunIndex, RunRecord, RunRecordKind, header};
use crate::data_file::{DataFiles, PooledFile};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, SqlType, checksum};
use strandline_device::File;

/// Writes the records of one run in order.
#[derive(Debug)]
pub struct RunWriter {
    files: Arc<DataFiles>,
    file: Arc<dyn File>,
    run_id: u64,
    types: Vec<(ColumnId, SqlType)>,
    block: Vec<u8>,
    block_first_row: RowId,
    offset: u64,
    last: Option<RunRecord>,
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
        let file = files.device().create(file_name)?;
        let header = header(run_id);
        file.write_all_at(&header, 0)?;
        Ok(Self {
            files: Arc::clone(files),
            file,
            run_id,
            types: types.to_vec(),
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            block_first_row: RowId(0),
            offset: header.len() as u64,
            last: None,
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
    /// A record out of order is an internal error; otherwise those of the device.
    pub fn push(&mut self, record: &RunRecord) -> Result<()> {
        if let Some(last) = self.last.as_ref().filter(|last| !last.may_precede(record)) {
            return Err(Error::internal(format!(
                "update run {}: record {:?} {:?} at {} pushed after {:?} {:?} at {}",
                self.run_id, record.row, record.kind, record.ts, last.row, last.kind, last.ts
            )));
        }
        let previous = match &self.last {
            Some(last) if !self.block.is_empty() => Previous {
                row: last.row,
                ts: last.ts,
            },
            _ => {
                self.block_first_row = record.row;
                Previous {
                    row: record.row,
                    ts: CommitTs::ZERO,
                }
            }
        };
        put_record(&mut self.block, record, previous);
        self.index.records += 1;
        self.index.max_row = record.row;
        self.index.max_ts = self.index.max_ts.max(record.ts);
        self.index.min_ts = self.index.min_ts.min(record.ts);
        if record.kind != RunRecordKind::OldValue {
            self.index.oldest_version = self.index.oldest_version.min(record.ts);
        }
        let (row, ts, kind) = (record.row, record.ts, record.kind);
        self.last = Some(RunRecord {
            row,
            ts,
            kind,
            columns: Vec::new(),
        });
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
        let file = PooledFile::existing(&self.files, self.file.name().to_owned());
        file.put(self.file);
        Ok(Run::new(file, self.run_id, &self.types, self.index, bytes))
    }
}
