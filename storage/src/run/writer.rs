//! Writing a run.

use super::{
    BLOCK_BYTES, BlockPlace, GROUP_BYTES, GROUP_BYTES_MAX, GROUP_RECORDS_MIN, Run, RunCodec,
    RunIndex, RunItem, header,
};
use crate::file::{DataFiles, Tier};
use std::sync::Arc;
use strandline_base::bytes::PutBytes;
use strandline_base::{CommitTs, Error, Result, RowId, checksum};
use strandline_device::File;

/// Writes the records of one run in order.
#[derive(Debug)]
pub struct RunWriter<C: RunCodec> {
    files: Arc<DataFiles>,
    file: Arc<dyn File>,
    run_id: u64,
    codec: C,
    /// the last records pushed, all of one row
    group: Vec<C::Record>,
    /// the approximate bytes of these records, encoded separately
    group_bytes: usize,
    block: Vec<u8>,
    block_first_row: RowId,
    block_last_row: RowId,
    /// the block's origin, if the block has a group
    origin: Option<C::Origin>,
    offset: u64,
    index: RunIndex,
}

impl<C: RunCodec> RunWriter<C> {
    /// Creates the file `file_name`, which must not exist, on `tier`. The finished [`Run`] decodes
    /// with `codec`.
    ///
    /// # Errors
    /// The device's errors.
    pub fn create(
        files: &Arc<DataFiles>,
        tier: Tier,
        file_name: &str,
        run_id: u64,
        codec: C,
    ) -> Result<Self> {
        let file = files.create(tier, file_name)?;
        let header = header(run_id);
        file.write_all_at(&header, 0)?;
        Ok(Self {
            files: Arc::clone(files),
            file,
            run_id,
            codec,
            group: Vec::new(),
            group_bytes: 0,
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            block_first_row: RowId(0),
            block_last_row: RowId(0),
            origin: None,
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

    /// Appends a record, which must not sort before the last pushed one.
    ///
    /// # Errors
    /// A record out of order or with a column twice is an internal error; otherwise the device's
    /// errors.
    pub fn push(&mut self, record: C::Record) -> Result<()> {
        if let Some(last) = self.group.last() {
            if !last.may_precede(&record) {
                return Err(Error::internal(format!(
                    "run {}: record {:?} at {} pushed after {:?} at {}",
                    self.run_id,
                    record.row(),
                    record.ts(),
                    last.row(),
                    last.ts()
                )));
            }
            let is_full = self.group_bytes >= GROUP_BYTES_MAX
                || self.group_bytes >= GROUP_BYTES && self.group.len() >= GROUP_RECORDS_MIN;
            if is_full || last.row() != record.row() {
                self.end_group()?;
            }
        }
        self.index.records += 1;
        self.index.max_row = record.row();
        self.index.max_ts = self.index.max_ts.max(record.ts());
        self.index.min_ts = self.index.min_ts.min(record.ts());
        if record.is_version() {
            self.index.oldest_version = self.index.oldest_version.min(record.ts());
        }
        self.group_bytes += record.single_bytes();
        self.group.push(record);
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let Some(row) = self.group.first().map(RunItem::row) else {
            return Ok(());
        };
        let origin = match self.origin {
            Some(origin) => origin,
            None => {
                let origin = *self.origin.insert(C::origin(&self.group));
                C::put_origin(origin, &mut self.block);
                (self.block_first_row, self.block_last_row) = (row, row);
                origin
            }
        };
        let previous = std::mem::replace(&mut self.block_last_row, row);
        let mut bytes = Vec::new();
        let encoded = C::put_group(&mut bytes, &self.group, origin);
        encoded.map_err(|e| e.context(format!("run {}", self.run_id)))?;
        self.block.put_varint(row.0 - previous.0);
        self.block.put_bytes(&bytes);
        self.group.clear();
        self.group_bytes = 0;
        if self.block.len() >= BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<()> {
        let len = u32::try_from(self.block.len()).map_err(|_| {
            Error::unsupported(format!("run {}: a row of more than 4 GiB", self.run_id))
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
        self.origin = None;
        Ok(())
    }

    /// Writes the index and makes the file's contents durable; the caller syncs the directory.
    ///
    /// # Errors
    /// A run without records is an internal error; otherwise the device's errors.
    pub fn finish(mut self) -> Result<Run<C>> {
        self.end_group()?;
        if !self.block.is_empty() {
            self.write_block()?;
        }
        if self.index.blocks.is_empty() {
            return Err(Error::internal(format!(
                "run {} without records",
                self.run_id
            )));
        }
        let index = self.index.encode(self.run_id)?;
        self.file.write_all_at(&index, self.offset)?;
        self.file.sync()?;
        let bytes = self.offset + index.len() as u64;
        let name = self.file.name().to_owned();
        let file = Run::<C>::file(&self.files, &name, self.run_id);
        file.put(self.file);
        Ok(Run::new(file, self.codec, self.index, bytes))
    }
}
