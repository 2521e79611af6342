//! Sorted runs: files of records sorted by row id, on the fast tier.
//!
//! Like MaSM's materialized sorted runs \[MaSM §3.1–3.2\], a run is written once, sequentially, and
//! read by range of row ids. A file is a header, blocks of about 32 KiB, and an index with every
//! block's first row id, length and checksum. A block is a sequence of groups, each of which has
//! records of one row. A [`RunCodec`] defines records and the bytes of a group, so that all kinds
//! of sorted runs share files, index and merge. The index stays in memory: about 20 bytes per
//! block, one 1,600th of the data.
//!
//! Invariants:
//! 1. records are sorted by row id ascending; the order of a row's records is the codec's;
//! 2. no byte of a block is interpreted before its checksum matched, and the checksum covers the
//!    run's id and the block's offset;
//! 3. a run is immutable once [`RunWriter::finish`] has returned it;
//! 4. a group begins with its length, so that a reader skips the groups of other rows;
//! 5. a block needs no other block: its first group is relative to nothing outside.
//!
//! The byte layout is in docs/format.md, section "Update runs".

mod merge;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use merge::RunMerge;
pub use reader::{Run, RunCursor};
pub use writer::RunWriter;

use std::fmt::Debug;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{CommitTs, Error, Result, RowId, checksum};

/// The interface of a record for runs.
pub trait RunItem: Debug + PartialEq {
    /// The row.
    fn row(&self) -> RowId;
    /// The timestamp for the run's time bounds.
    fn ts(&self) -> CommitTs;
    /// Whether it is a version of its row; only versions bound the run's oldest version.
    fn is_version(&self) -> bool;
    /// Whether `next` may follow this record in a run.
    fn may_precede(&self, next: &Self) -> bool;
    /// The approximate bytes of the record by itself.
    fn single_bytes(&self) -> usize;
}

/// Turns the records of one row into bytes and back.
pub trait RunCodec: Debug {
    /// The records of the runs.
    type Record: RunItem;
    /// The origin of relative values in a block, stored at the block's start.
    type Origin: Copy + Debug;

    /// The origin of a block that begins with `group`.
    fn origin(group: &[Self::Record]) -> Self::Origin;
    /// Appends an origin.
    fn put_origin(origin: Self::Origin, out: &mut Vec<u8>);
    /// Reads an origin. `None`: malformed.
    fn take_origin(reader: &mut ByteReader<'_>) -> Option<Self::Origin>;
    /// Appends the records of one row, at least one.
    ///
    /// # Errors
    /// Internal, if they cannot be encoded; `out` is then invalid.
    fn put_group(out: &mut Vec<u8>, group: &[Self::Record], origin: Self::Origin) -> Result<()>;
    /// The records of `row` from all the bytes of a group. `None`: malformed.
    fn take_group(
        &self,
        row: RowId,
        bytes: &[u8],
        origin: Self::Origin,
    ) -> Option<Vec<Self::Record>>;
}

/// The name of run `id`'s file.
pub fn run_file_name(id: u64) -> String {
    format!("run-{id:016x}")
}

/// The id in a run's file name; None for other names.
pub fn run_file_id(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name.strip_prefix("run-")?, 16).ok()?;
    (run_file_name(id) == name).then_some(id)
}

/// First eight bytes of a run.
const MAGIC: u64 = u64::from_le_bytes(*b"STRDRUN1");
/// Last four bytes of a run.
const END_MAGIC: u32 = u32::from_le_bytes(*b"RULS");
/// Version of the layout.
pub const VERSION: u32 = 3;
/// Bytes before the first block.
pub const HEADER_BYTES: usize = 24;
/// Bytes after the index.
pub const TRAILER_BYTES: usize = 12;
/// Blocks end after the group that reaches this size.
const BLOCK_BYTES: usize = 32 << 10;
/// The approximate bytes, encoded separately, at which a group ends. It bounds the decoded memory
/// ...
const GROUP_BYTES: usize = 256 << 10;
/// ... except for groups of fewer records than this, so that large values also share common parts
/// ...
const GROUP_RECORDS_MIN: usize = 16;
/// ... unless the records would exceed this.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// The second identity word of the header's and the index's checksum; blocks have their offset
/// there.
pub const HEADER_IDENTITY: u64 = u64::MAX;
const INDEX_IDENTITY: u64 = u64::MAX - 1;

/// The position of a block, and its first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// the row of the first record
    pub first_row: RowId,
    /// bytes from the start of the file
    pub offset: u64,
    /// bytes
    pub len: u32,
    /// the checksum of the run's id, the offset and the bytes
    pub crc: u32,
}

/// The index at the end of a run.
#[doc(alias = "run index")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunIndex {
    /// the number of records
    pub records: u64,
    /// the least timestamp of a record
    pub min_ts: CommitTs,
    /// the greatest timestamp of a record
    pub max_ts: CommitTs,
    /// the least timestamp of a version; [`CommitTs::MAX`] without versions
    pub oldest_version: CommitTs,
    /// the row of the last record
    pub max_row: RowId,
    /// the blocks, in order
    pub blocks: Vec<BlockPlace>,
}

/// The bytes before the first block.
pub fn header(run_id: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.put_u64(MAGIC);
    out.put_u32(VERSION);
    out.put_u64(run_id);
    let crc = checksum(&[run_id, HEADER_IDENTITY], &out);
    out.put_u32(crc);
    out
}

/// Checks a header; `file` names the file in errors.
fn check_header(file: &str, run_id: u64, bytes: &[u8]) -> Result<()> {
    let mut reader = ByteReader::new(bytes);
    let fields = (reader.u64(), reader.u32(), reader.u64(), reader.u32());
    let (Some(magic), Some(version), Some(id), Some(crc)) = fields else {
        return Err(Error::corrupt(file, "the header is cut off"));
    };
    if magic != MAGIC {
        return Err(Error::corrupt(
            file,
            format!("not an update run, magic {magic:#018x}"),
        ));
    }
    if version != VERSION {
        let what = format!("update run of version {version}, this program reads {VERSION}");
        return Err(Error::unsupported(format!("{file}: {what}"))
            .with_hint("Open the database with the program that wrote it, or a newer one."));
    }
    if id != run_id {
        return Err(Error::corrupt(
            file,
            format!("holds run {id}, expected run {run_id}"),
        ));
    }
    let got = checksum(&[run_id, HEADER_IDENTITY], &bytes[..HEADER_BYTES - 4]);
    if got != crc {
        return Err(Error::checksum_mismatch(format!("{file} header"), crc, got));
    }
    Ok(())
}

impl RunIndex {
    /// The index and the trailer.
    pub fn encode(&self, run_id: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        out.put_varint(self.records);
        out.put_u64(self.min_ts.0);
        out.put_u64(self.max_ts.0);
        out.put_u64(self.oldest_version.0);
        out.put_u64(self.max_row.0);
        out.put_varint(self.blocks.len() as u64);
        let mut last = 0;
        for block in &self.blocks {
            out.put_varint(block.first_row.0 - last);
            out.put_varint(u64::from(block.len));
            out.put_u32(block.crc);
            last = block.first_row.0;
        }
        let len = u32::try_from(out.len())
            .map_err(|_| Error::internal("an update run whose index exceeds 4 GiB"))?;
        let crc = checksum(&[run_id, INDEX_IDENTITY], &out);
        out.put_u32(len);
        out.put_u32(crc);
        out.put_u32(END_MAGIC);
        Ok(out)
    }

    /// Reads an index without its trailer, whose checksum the caller has checked. `end` is the end
    /// of the blocks. `None`: malformed.
    pub fn decode(bytes: &[u8], end: u64) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let records = reader.varint()?;
        let (min_ts, max_ts) = (CommitTs(reader.u64()?), CommitTs(reader.u64()?));
        let oldest_version = CommitTs(reader.u64()?);
        let max_row = RowId(reader.u64()?);
        let count = usize::try_from(reader.varint()?)
            .ok()
            .filter(|&n| n <= bytes.len())?;
        let (mut blocks, mut offset, mut row) =
            (Vec::with_capacity(count), HEADER_BYTES as u64, 0u64);
        for _ in 0..count {
            row = row.checked_add(reader.varint()?)?;
            let len = u32::try_from(reader.varint()?).ok()?;
            let crc = reader.u32()?;
            blocks.push(BlockPlace {
                first_row: RowId(row),
                offset,
                len,
                crc,
            });
            offset = offset.checked_add(u64::from(len))?;
        }
        let complete = reader.remaining() == 0 && offset == end && !blocks.is_empty();
        complete.then_some(Self {
            records,
            min_ts,
            max_ts,
            oldest_version,
            max_row,
            blocks,
        })
    }
}
