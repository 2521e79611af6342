//! Reading a run.

use super::{
    BlockPlace, END_MAGIC, HEADER_BYTES, INDEX_IDENTITY, RunCodec, RunIndex, RunItem,
    TRAILER_BYTES, check_header,
};
use crate::file::{Access, DataFiles, Extent, FileKind, StoredFile};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::bytes::ByteReader;
use strandline_base::{CommitTs, Error, Result, RowId, checksum};

/// The most bytes of adjacent blocks that are read together.
const READ_BYTES: u64 = 1 << 20;

pub(super) static KIND: FileKind = FileKind {
    name: "update run",
    header_bytes: HEADER_BYTES as u64,
    bytes_min: (HEADER_BYTES + TRAILER_BYTES) as u64,
    check: |stored, header| check_header(stored.name(), stored.id(), header),
};

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
        let index = read_index(&file, len, Access::Random)?;
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
        let mut cursor = self.cursor(from..to_exclusive, READ_BYTES);
        while let Some(record) = cursor.next_record()? {
            visit(record)?;
        }
        Ok(())
    }

    /// A cursor before the first record of the rows in `rows`. It reads adjacent blocks together,
    /// up to `read_bytes`, and no block before a record of it is asked for.
    pub fn cursor(&self, rows: Range<RowId>, read_bytes: u64) -> RunCursor<'_, C> {
        let cursor = self.sequential_cursor(rows, read_bytes);
        // The versions of one row fill one block, seldom more.
        let access = match cursor.blocks.len() {
            0 | 1 => Access::Random,
            _ => Access::Sequential,
        };
        RunCursor { access, ..cursor }
    }

    fn sequential_cursor(&self, rows: Range<RowId>, read_bytes: u64) -> RunCursor<'_, C> {
        let blocks = &self.index.blocks;
        // A block's rows end at the first row of the next block, and that row may be in both.
        let first = blocks
            .partition_point(|b| b.first_row < rows.start)
            .saturating_sub(1);
        let end = blocks.partition_point(|b| b.first_row < rows.end);
        RunCursor {
            run: self,
            rows,
            read_bytes,
            access: Access::Sequential,
            blocks: first..end.max(first),
            read: first..first,
            bytes: Vec::new(),
            at: 0,
            block: None,
            records: Vec::new().into_iter(),
        }
    }

    fn check_block(&self, block: &BlockPlace, bytes: &[u8]) -> Result<()> {
        let got = checksum(&[self.id(), block.offset], bytes);
        match got == block.crc {
            true => Ok(()),
            false => Err(Error::checksum_mismatch(self.place(block), block.crc, got)),
        }
    }

    fn place(&self, block: &BlockPlace) -> String {
        format!("{} block at offset {}", self.file.name(), block.offset)
    }

    /// Reads everything from the device and checks the order and the number of the records.
    ///
    /// # Errors
    /// The damage as a corruption error; otherwise the device's errors.
    pub fn verify(&self) -> Result<()> {
        self.file.verify_header()?;
        if read_index(&self.file, self.bytes, Access::Sequential)? != self.index {
            return Err(Error::corrupt(self.file.name(), "the index has changed"));
        }
        let mut last: Option<C::Record> = None;
        let mut records = 0u64;
        let mut cursor = self.sequential_cursor(RowId(0)..RowId(u64::MAX), READ_BYTES);
        while let Some(record) = cursor.next_record()? {
            if let Some(last) = last.as_ref().filter(|last| !last.may_precede(&record)) {
                let what = format!("{:?} after {:?}, out of order", record.row(), last.row());
                return Err(Error::corrupt(self.file.name(), what));
            }
            records += 1;
            last = Some(record);
        }
        let max_row = last.map(|r| r.row());
        if records != self.index.records || max_row != Some(self.index.max_row) {
            let expected = (self.index.records, self.index.max_row);
            let what = format!("expected {expected:?} records and last row, got {records}");
            return Err(Error::corrupt(self.file.name(), what));
        }
        Ok(())
    }
}

/// Iterates over the records of a run's rows in order. One group is decoded at a time, so memory
/// does not grow with the number of a row's records.
#[derive(Debug)]
pub struct RunCursor<'a, C: RunCodec> {
    run: &'a Run<C>,
    rows: Range<RowId>,
    read_bytes: u64,
    access: Access,
    /// the blocks that are not open yet
    blocks: Range<usize>,
    /// those of them that are read; their bytes begin at `at`
    read: Range<usize>,
    bytes: Vec<u8>,
    /// the next byte to take
    at: usize,
    block: Option<OpenBlock<C::Origin>>,
    records: std::vec::IntoIter<C::Record>,
}

/// The block that a cursor is in.
#[derive(Clone, Copy, Debug)]
struct OpenBlock<O> {
    /// its number
    no: usize,
    /// where it ends in the bytes that are read
    end: usize,
    origin: O,
    /// of the group before
    row: RowId,
}

impl<C: RunCodec> RunCursor<'_, C> {
    /// The next record, which stays the next one.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn peek(&mut self) -> Result<Option<&C::Record>> {
        while self.records.len() == 0 {
            if !self.decode_group()? {
                return Ok(None);
            }
        }
        Ok(self.head())
    }

    /// What the last [`RunCursor::peek`] found.
    pub fn head(&self) -> Option<&C::Record> {
        self.records.as_slice().first()
    }

    /// The next record, if there is one.
    ///
    /// # Errors
    /// The errors of [`Run::records`].
    pub fn next_record(&mut self) -> Result<Option<C::Record>> {
        self.peek()?;
        Ok(self.records.next())
    }

    /// Decodes the next group of wanted rows; whether there is one.
    fn decode_group(&mut self) -> Result<bool> {
        loop {
            let Some(block) = &mut self.block else {
                if !self.open_block()? {
                    return Ok(false);
                }
                continue;
            };
            if self.at == block.end {
                self.block = None;
                continue;
            }
            let malformed = || {
                let place = &self.run.index.blocks[block.no];
                Error::corrupt(self.run.place(place), "malformed record")
            };
            let mut reader = ByteReader::new(&self.bytes[self.at..block.end]);
            let (row, bytes) = take_group(&mut reader, block.row).ok_or_else(malformed)?;
            self.at = block.end - reader.remaining();
            if row >= self.rows.end {
                // The rows of all further groups are greater.
                self.blocks.start = self.blocks.end;
                self.block = None;
                return Ok(false);
            }
            block.row = row;
            if row >= self.rows.start {
                let records = self.run.codec.take_group(row, bytes, block.origin);
                self.records = records.ok_or_else(malformed)?.into_iter();
                return Ok(true);
            }
        }
    }

    /// Opens the next block; whether there is one.
    fn open_block(&mut self) -> Result<bool> {
        let no = self.blocks.start;
        if no >= self.blocks.end {
            return Ok(false);
        }
        if no >= self.read.end {
            self.read_blocks()?;
        }
        let place = &self.run.index.blocks[no];
        let end = self.at + place.len as usize;
        let bytes = &self.bytes[self.at..end];
        self.run.check_block(place, bytes)?;
        let mut reader = ByteReader::new(bytes);
        let origin = C::take_origin(&mut reader)
            .ok_or_else(|| Error::corrupt(self.run.place(place), "malformed record"))?;
        self.at = end - reader.remaining();
        self.block = Some(OpenBlock {
            no,
            end,
            origin,
            row: place.first_row,
        });
        self.blocks.start += 1;
        Ok(true)
    }

    fn read_blocks(&mut self) -> Result<()> {
        let rest = &self.run.index.blocks[self.blocks.clone()];
        let offset = rest.first().map_or(0, |first| first.offset);
        let fits = |b: &&BlockPlace| b.offset + u64::from(b.len) <= offset + self.read_bytes;
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let extent = Extent {
            offset,
            len: rest[..count].iter().map(|b| u64::from(b.len)).sum(),
        };
        match (self.access, rest) {
            (Access::Random, [block]) => {
                let check = |bytes: &[u8]| self.run.check_block(block, bytes);
                let file = &self.run.file;
                file.read_block(extent, self.access, &mut self.bytes, check)?;
            }
            _ => self.run.file.read(extent, self.access, &mut self.bytes)?,
        }
        self.at = 0;
        self.read = self.blocks.start..self.blocks.start + count;
        Ok(())
    }
}

/// The index of a run of `len` bytes.
fn read_index(file: &StoredFile, len: u64, access: Access) -> Result<RunIndex> {
    let (name, run_id) = (file.name(), file.id());
    let trailer_at = len - TRAILER_BYTES as u64;
    let trailer = Extent {
        offset: trailer_at,
        len: TRAILER_BYTES as u64,
    };
    file.read_block(trailer, access, &mut Vec::new(), |trailer| {
        let mut reader = ByteReader::new(trailer);
        let (Some(index_len), Some(crc), Some(END_MAGIC)) =
            (reader.u32(), reader.u32(), reader.u32())
        else {
            return Err(Error::corrupt(name, "the run does not end as runs do"));
        };
        let place = || format!("{name} index");
        let index_at = trailer_at.checked_sub(u64::from(index_len));
        let index_at = index_at.filter(|&at| at >= HEADER_BYTES as u64);
        let offset = index_at.ok_or_else(|| Error::corrupt(place(), "longer than the file"))?;
        let extent = Extent {
            offset,
            len: u64::from(index_len),
        };
        file.read_block(extent, access, &mut Vec::new(), |bytes| {
            let got = checksum(&[run_id, INDEX_IDENTITY], bytes);
            if got != crc {
                return Err(Error::checksum_mismatch(place(), crc, got));
            }
            let index = RunIndex::decode(bytes, offset);
            index.ok_or_else(|| Error::corrupt(place(), "malformed"))
        })
    })
}

/// The row and the bytes of the next group; `previous` is the row of the preceding group. `None`:
/// malformed.
fn take_group<'a>(reader: &mut ByteReader<'a>, previous: RowId) -> Option<(RowId, &'a [u8])> {
    let row = RowId(previous.0.checked_add(reader.varint()?)?);
    Some((row, reader.bytes()?))
}
