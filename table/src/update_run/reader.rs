//! Reading a run.

use super::record::{Previous, take_record};
use super::{
    BlockPlace, END_MAGIC, HEADER_BYTES, INDEX_IDENTITY, RunIndex, RunRecord, TRAILER_BYTES,
    check_header,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::bytes::ByteReader;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, SqlType, checksum};
use strandline_device::{Device, File};

/// Adjacent blocks are read together up to this many bytes.
const READ_BYTES: u64 = 1 << 20;

/// A finished run, open for reading from any thread. Its index stays in memory.
#[derive(Debug)]
pub struct Run {
    device: Arc<dyn Device>,
    pub(super) file: Arc<dyn File>,
    run_id: u64,
    /// Sorted by column.
    types: Vec<(ColumnId, SqlType)>,
    pub(super) index: RunIndex,
    bytes: u64,
    doomed: AtomicBool,
}

impl Run {
    pub(super) fn new(
        device: Arc<dyn Device>,
        file: Arc<dyn File>,
        run_id: u64,
        types: &[(ColumnId, SqlType)],
        index: RunIndex,
        bytes: u64,
    ) -> Self {
        let mut types = types.to_vec();
        types.sort_by_key(|(column, _)| *column);
        Self {
            device,
            file,
            run_id,
            types,
            index,
            bytes,
            doomed: AtomicBool::new(false),
        }
    }

    /// Opens the run in `file_name`. `types` are the columns to read; values of all others (of
    /// dropped columns) are passed over.
    ///
    /// # Errors
    /// A file that is not this run, or whose header or index is damaged, is a corruption error; a
    /// version this program does not know is not supported; otherwise those of the device.
    pub fn open(
        device: &Arc<dyn Device>,
        file_name: &str,
        run_id: u64,
        types: &[(ColumnId, SqlType)],
    ) -> Result<Self> {
        let file = device.open(file_name)?;
        let len = file.len()?;
        if len < (HEADER_BYTES + TRAILER_BYTES) as u64 {
            return Err(Error::corrupt(
                file_name,
                format!("only {len} bytes, no update run"),
            ));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        check_header(file_name, run_id, &header)?;
        let mut trailer = [0; TRAILER_BYTES];
        let trailer_at = len - TRAILER_BYTES as u64;
        file.read_exact_at(&mut trailer, trailer_at)?;
        let mut reader = ByteReader::new(&trailer);
        let (Some(index_len), Some(crc), Some(END_MAGIC)) =
            (reader.u32(), reader.u32(), reader.u32())
        else {
            return Err(Error::corrupt(file_name, "the run does not end as runs do"));
        };
        let place = || format!("{file_name} index");
        let index_at = trailer_at.checked_sub(u64::from(index_len));
        let index_at = index_at.filter(|&at| at >= HEADER_BYTES as u64);
        let index_at = index_at.ok_or_else(|| Error::corrupt(place(), "longer than the file"))?;
        let mut bytes = vec![0; index_len as usize];
        file.read_exact_at(&mut bytes, index_at)?;
        let got = checksum(&[run_id, INDEX_IDENTITY], &bytes);
        if got != crc {
            return Err(Error::checksum_mismatch(place(), crc, got));
        }
        let index = RunIndex::decode(&bytes, index_at)
            .ok_or_else(|| Error::corrupt(place(), "malformed"))?;
        Ok(Self::new(
            Arc::clone(device),
            file,
            run_id,
            types,
            index,
            len,
        ))
    }

    /// The run's id.
    pub fn id(&self) -> u64 {
        self.run_id
    }

    /// The file's name.
    pub fn file_name(&self) -> &str {
        self.file.name()
    }

    /// The least timestamp of the records; old-value records carry their row's start time.
    pub fn min_ts(&self) -> CommitTs {
        self.index.min_ts
    }

    /// The greatest timestamp of the records.
    pub fn max_ts(&self) -> CommitTs {
        self.index.max_ts
    }

    /// Number of records, at least one.
    pub fn record_count(&self) -> u64 {
        self.index.records
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first record's row.
    pub fn min_row(&self) -> RowId {
        self.index
            .blocks
            .first()
            .expect("a run has a block")
            .first_row
    }

    /// The last record's row.
    pub fn max_row(&self) -> RowId {
        self.index.max_row
    }

    /// Bytes the run takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<RunIndex>() + size_of_val(&self.index.blocks[..])
    }

    /// Removes the file when the last reference to the run goes.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }

    /// Visits the records of the rows `from..to_exclusive` in order. Reads only the blocks that
    /// may hold them.
    ///
    /// # Errors
    /// Damaged blocks are corruption errors; otherwise those of the device and of `visit`, which
    /// end the visit.
    pub fn records(
        &self,
        from: RowId,
        to_exclusive: RowId,
        visit: &mut dyn FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let blocks = &self.index.blocks;
        // The rows of a block end where the next one begins, and that row may be in both.
        let first = blocks
            .partition_point(|b| b.first_row < from)
            .saturating_sub(1);
        let end = blocks.partition_point(|b| b.first_row < to_exclusive);
        let mut rest = blocks.get(first..end).unwrap_or_default();
        let mut buffer = Vec::new();
        while let Some(head) = rest.first() {
            let fits = |b: &BlockPlace| b.offset + u64::from(b.len) <= head.offset + READ_BYTES;
            let count = rest.iter().take_while(|b| fits(b)).count().max(1);
            let (group, tail) = rest.split_at(count);
            let len: usize = group.iter().map(|b| b.len as usize).sum();
            buffer.resize(len, 0);
            self.file.read_exact_at(&mut buffer, head.offset)?;
            let mut bytes = &buffer[..];
            for block in group {
                let (stored, others) = bytes.split_at(block.len as usize);
                self.visit_block(block, stored, from, to_exclusive, visit)?;
                bytes = others;
            }
            rest = tail;
        }
        Ok(())
    }

    fn visit_block(
        &self,
        block: &BlockPlace,
        bytes: &[u8],
        from: RowId,
        to_exclusive: RowId,
        visit: &mut dyn FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let got = checksum(&[self.run_id, block.offset], bytes);
        if got != block.crc {
            return Err(Error::checksum_mismatch(self.place(block), block.crc, got));
        }
        let mut reader = ByteReader::new(bytes);
        let mut previous = Previous {
            row: block.first_row,
            ts: CommitTs::ZERO,
        };
        while reader.remaining() > 0 {
            let wanted = |row| row >= from && row < to_exclusive;
            let record = take_record(&mut reader, previous, wanted, |c| self.type_of(c))
                .ok_or_else(|| Error::corrupt(self.place(block), "malformed record"))?;
            if record.row >= to_exclusive {
                break;
            }
            previous = Previous {
                row: record.row,
                ts: record.ts,
            };
            if record.row >= from {
                visit(record)?;
            }
        }
        Ok(())
    }

    fn type_of(&self, column: ColumnId) -> Option<SqlType> {
        let at = self.types.binary_search_by_key(&column, |(c, _)| *c).ok()?;
        Some(self.types[at].1)
    }

    fn place(&self, block: &BlockPlace) -> String {
        format!("{} block at offset {}", self.file.name(), block.offset)
    }

    /// Reads every block and checks that the records are in order and as many as the index says.
    ///
    /// # Errors
    /// What is wrong, as a corruption error; otherwise those of the device.
    pub fn verify(&self) -> Result<()> {
        let mut last: Option<RunRecord> = None;
        let mut records = 0u64;
        self.records(RowId(0), RowId(u64::MAX), &mut |record| {
            if let Some(last) = last.as_ref().filter(|last| !last.may_precede(&record)) {
                let what = format!("{:?} after {:?}, out of order", record.row, last.row);
                return Err(Error::corrupt(self.file.name(), what));
            }
            records += 1;
            last = Some(record);
            Ok(())
        })?;
        let max_row = last.map(|r| r.row);
        if records != self.index.records || max_row != Some(self.index.max_row) {
            let expected = (self.index.records, self.index.max_row);
            let what = format!("expected {expected:?} records and last row, got {records}");
            return Err(Error::corrupt(self.file.name(), what));
        }
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if *self.doomed.get_mut() {
            // A file that cannot be removed now is an orphan, removed at the next open.
            let _ = self.device.remove(self.file.name());
        }
    }
}
