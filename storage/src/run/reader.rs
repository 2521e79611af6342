//! Reading a run.

use super::{
    BlockPlace, END_MAGIC, HEADER_BYTES, INDEX_IDENTITY, RunCodec, RunIndex, RunItem,
    TRAILER_BYTES, check_header,
};
use crate::file::{Access, DataFiles, Extent, FileKind, StoredFile};
use std::sync::Arc;
use strandline_base::bytes::ByteReader;
use strandline_base::{CommitTs, Error, Result, RowId, checksum};
use strandline_device::File;

/// The most bytes of adjacent blocks that are read together.
const READ_BYTES: u64 = 1 << 20;

pub(super) static KIND: FileKind = FileKind { check: check_file };

/// Checks length and header of a newly opened file.
fn check_file(stored: &StoredFile, file: &dyn File) -> Result<()> {
    let (name, len) = (stored.name(), file.len()?);
    if len < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        let what = format!("only {len} bytes, no update run");
        return Err(Error::corrupt(name, what));
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    check_header(name, stored.id(), &header)
}

/// A finished run, open for reading from any thread. Its index stays in memory.
#[derive(Debug)]
pub struct Run<C> {
    file: StoredFile,
    codec: C,
    index: RunIndex,
    bytes: u64,
}

impl<C: RunCodec> Run<C> {
    /// The run in `file`, `bytes` long, with its known index.
    pub fn new(file: StoredFile, codec: C, index: RunIndex, bytes: u64) -> Self {
        Self {
            file,
            codec,
            index,
            bytes,
        }
    }

    /// The file of a run that exists, or that will be created.
    pub fn file(files: &Arc<DataFiles>, file_name: &str, run_id: u64) -> StoredFile {
        StoredFile::new(&KIND, run_id, file_name.to_owned(), files)
    }

    /// Opens the run in `file_name`.
    ///
    /// # Errors
    /// A file that is not this run, or whose header or index is damaged, is a corruption error. An
    /// unknown version is not supported. Otherwise the device's errors.
    pub fn open(files: &Arc<DataFiles>, file_name: &str, run_id: u64, codec: C) -> Result<Self> {
        let file = Self::file(files, file_name, run_id);
        let len = file.len()?;
        let mut trailer = Vec::new();
        let trailer_at = len - TRAILER_BYTES as u64;
        let extent = Extent {
            offset: trailer_at,
            len: TRAILER_BYTES as u64,
        };
        file.read(extent, Access::Random, &mut trailer)?;
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
        let extent = Extent {
            offset: index_at,
            len: u64::from(index_len),
        };
        let mut bytes = Vec::new();
        file.read(extent, Access::Random, &mut bytes)?;
        let got = checksum(&[run_id, INDEX_IDENTITY], &bytes);
        if got != crc {
            return Err(Error::checksum_mismatch(place(), crc, got));
        }
        let index = RunIndex::decode(&bytes, index_at)
            .ok_or_else(|| Error::corrupt(place(), "malformed"))?;
        Ok(Self::new(file, codec, index, len))
    }

    /// The run's index.
    pub fn index(&self) -> &RunIndex {
        &self.index
    }

    /// The run's id.
    pub fn id(&self) -> u64 {
        self.file.id()
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

    /// The least timestamp of the records that are not old-value records: the oldest version that
    /// compaction may still remove. [`CommitTs::MAX`] if there is none.
    pub fn oldest_version(&self) -> CommitTs {
        self.index.oldest_version
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

    /// Removes the file when the last reference to the run is dropped.
    pub fn remove_when_unused(&self) {
        self.file.remove_when_unused();
    }

    /// Visits the records of the rows `from..to_exclusive` in order. Reads only the blocks that
    /// may hold them.
    ///
    /// # Errors
    /// Damaged blocks are corruption errors. Errors of the device and of `visit` end the visit.
    pub fn records(
        &self,
        from: RowId,
        to_exclusive: RowId,
        visit: &mut dyn FnMut(C::Record) -> Result<()>,
    ) -> Result<()> {
        let blocks = &self.index.blocks;
        // A block's rows end at the first row of the next block, and that row may be in both.
        let first = blocks
            .partition_point(|b| b.first_row < from)
            .saturating_sub(1);
        let end = blocks.partition_point(|b| b.first_row < to_exclusive);
        let mut rest = blocks.get(first..end).unwrap_or_default();
        let mut buffer = Vec::new();
        // The versions of one row rarely take more than one block.
        let access = match rest.len() {
            0 | 1 => Access::Random,
            _ => Access::Sequential,
        };
        while let Some(head) = rest.first() {
            let fits = |b: &BlockPlace| b.offset + u64::from(b.len) <= head.offset + READ_BYTES;
            let count = rest.iter().take_while(|b| fits(b)).count().max(1);
            let (group, tail) = rest.split_at(count);
            let extent = Extent {
                offset: head.offset,
                len: group.iter().map(|b| u64::from(b.len)).sum(),
            };
            self.file.read(extent, access, &mut buffer)?;
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

    /// A cursor before the first record.
    pub fn cursor(&self) -> RunCursor<'_, C> {
        RunCursor {
            run: self,
            block: 0,
            records: Vec::new().into_iter(),
        }
    }

    fn visit_block(
        &self,
        block: &BlockPlace,
        bytes: &[u8],
        from: RowId,
        to_exclusive: RowId,
        visit: &mut dyn FnMut(C::Record) -> Result<()>,
    ) -> Result<()> {
        let got = checksum(&[self.id(), block.offset], bytes);
        if got != block.crc {
            return Err(Error::checksum_mismatch(self.place(block), block.crc, got));
        }
        let malformed = || Error::corrupt(self.place(block), "malformed record");
        let mut reader = ByteReader::new(bytes);
        let origin = C::take_origin(&mut reader).ok_or_else(malformed)?;
        let mut previous = block.first_row;
        while reader.remaining() > 0 {
            let (row, bytes) = take_group(&mut reader, previous).ok_or_else(malformed)?;
            if row >= to_exclusive {
                break;
            }
            previous = row;
            if row >= from {
                let records = self.codec.take_group(row, bytes, origin);
                let records = records.ok_or_else(malformed)?;
                records.into_iter().try_for_each(&mut *visit)?;
            }
        }
        Ok(())
    }

    fn place(&self, block: &BlockPlace) -> String {
        format!("{} block at offset {}", self.file.name(), block.offset)
    }

    /// Reads every block and checks the order and the number of the records.
    ///
    /// # Errors
    /// The damage as a corruption error; otherwise the device's errors.
    pub fn verify(&self) -> Result<()> {
        let mut last: Option<C::Record> = None;
        let mut records = 0u64;
        self.records(RowId(0), RowId(u64::MAX), &mut |record| {
            if let Some(last) = last.as_ref().filter(|last| !last.may_precede(&record)) {
                let what = format!("{:?} after {:?}, out of order", record.row(), last.row());
                return Err(Error::corrupt(self.file.name(), what));
            }
            records += 1;
            last = Some(record);
            Ok(())
        })?;
        let max_row = last.map(|r| r.row());
        if records != self.index.records || max_row != Some(self.index.max_row) {
            let expected = (self.index.records, self.index.max_row);
            let what = format!("expected {expected:?} records and last row, got {records}");
            return Err(Error::corrupt(self.file.name(), what));
        }
        Ok(())
    }
}

/// Iterates over a run's records in order, one block at a time.
#[derive(Debug)]
pub struct RunCursor<'a, C: RunCodec> {
    run: &'a Run<C>,
    /// the block to read next
    block: usize,
    records: std::vec::IntoIter<C::Record>,
}

impl<C: RunCodec> RunCursor<'_, C> {
    /// The row of the next record, if there is one.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn row(&mut self) -> Result<Option<RowId>> {
        while self.records.len() == 0 {
            let Some(block) = self.run.index.blocks.get(self.block) else {
                return Ok(None);
            };
            self.block += 1;
            let extent = Extent {
                offset: block.offset,
                len: u64::from(block.len),
            };
            let mut bytes = Vec::new();
            let file = &self.run.file;
            file.read(extent, Access::Sequential, &mut bytes)?;
            let mut records = Vec::new();
            let (from, to) = (RowId(0), RowId(u64::MAX));
            self.run
                .visit_block(block, &bytes, from, to, &mut |record| {
                    records.push(record);
                    Ok(())
                })?;
            self.records = records.into_iter();
        }
        Ok(self.records.as_slice().first().map(RunItem::row))
    }

    /// Moves the next records to `out` while they belong to `row`.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn take_row(&mut self, row: RowId, out: &mut Vec<C::Record>) -> Result<()> {
        while self.row()? == Some(row) {
            out.extend(self.records.next());
        }
        Ok(())
    }
}

/// The row and the bytes of the next group; `previous` is the row of the preceding group. `None`:
/// malformed.
fn take_group<'a>(reader: &mut ByteReader<'a>, previous: RowId) -> Option<(RowId, &'a [u8])> {
    let row = RowId(previous.0.checked_add(reader.varint()?)?);
    Some((row, reader.bytes()?))
}
