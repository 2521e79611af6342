//! Update runs: files of committed tail records sorted by row id, on the fast tier.
//!
//! A checkpoint writes the committed records that are in no run yet; recovery reads them back
//! into tails, and readers find in runs the versions that the base no longer holds. A run is
//! written once, sequentially, and read by range of row ids, as MaSM's materialized sorted runs
//! are \[MaSM §3.1–3.2\]; ordering the records of one row newest first is L-Store's layout of
//! historic tail records \[L-Store §4.3\].
//!
//! A file is a header, blocks of about 32 KiB, and an index with every block's first row id,
//! length and checksum. A block is a sequence of groups. A group is what it has of one row: the
//! times of the versions, then for each column the values that they set, each as a difference to
//! that of the next newer one; so a row's versions are read newest first, and what does not change
//! takes a bit per version (see `group` and `values`). The index (the papers' run index) stays in
//! memory: about 20 bytes per block, one 1,600th of the data.
//!
//! Invariants:
//! 1. records are sorted by row id ascending; the records of a row by commit timestamp
//!    descending, newest first; its old-value records after all others;
//! 2. no byte of a block is interpreted before its checksum matched, and the checksum covers the
//!    run's id and the block's offset;
//! 3. a run is immutable once [`RunWriter::finish`] has returned it;
//! 4. what is read is what was pushed, whatever it shares with its neighbours: nothing of a record
//!    is left out here. That a version need not repeat what the one before it set is for the
//!    writer to know (see `history`);
//! 5. a block needs no other block: its first group is relative to nothing outside.
//!
//! The byte layout is in docs/format.md, section "Update runs".
//!
//! Differences from the papers: a record carries columns of one row at one commit, not a blind
//! update to be merged; runs keep every version that may be asked for rather than one combined
//! update per key. L-Store has pages per column for a range of rows, oldest version first; here a
//! row's columns stand together, as it is rows whose history is read, and the newest version comes
//! first, which is the one that most readers of the past stop at.

#[cfg(test)]
mod format_tests;
mod group;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod values;
mod writer;

pub use reader::{Run, RunCursor};
pub use record::{RunRecord, RunRecordKind};
pub use writer::RunWriter;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{CommitTs, Error, Result, RowId, checksum};

/// The name of run `id`'s file.
pub fn run_file_name(id: u64) -> String {
    format!("run-{id:016x}")
}

/// The id of a run, if `name` is the name of a run's file.
pub fn run_file_id(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name.strip_prefix("run-")?, 16).ok()?;
    (run_file_name(id) == name).then_some(id)
}

/// First eight bytes of a run.
const MAGIC: u64 = u64::from_le_bytes(*b"STRDRUN1");
/// Last four bytes of a run.
const END_MAGIC: u32 = u32::from_le_bytes(*b"RULS");
/// Version of the layout.
const VERSION: u32 = 3;
/// Bytes before the first block.
const HEADER_BYTES: usize = 24;
/// Bytes after the index.
const TRAILER_BYTES: usize = 12;
/// Blocks end after the group that reaches this size.
const BLOCK_BYTES: usize = 32 << 10;
/// Groups end when their records would take about so much one by one, which bounds what is decoded
/// at once ...
const GROUP_BYTES: usize = 256 << 10;
/// ... but not with fewer records than this: large values, too, share what they have in common ...
const GROUP_RECORDS_MIN: usize = 16;
/// ... unless they would take so much.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Second identity word of the header's and the index's checksum; blocks have their offset there.
const HEADER_IDENTITY: u64 = u64::MAX;
const INDEX_IDENTITY: u64 = u64::MAX - 1;

/// Where a block is and what it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPlace {
    first_row: RowId,
    offset: u64,
    len: u32,
    crc: u32,
}

/// What a run's end says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunIndex {
    records: u64,
    min_ts: CommitTs,
    max_ts: CommitTs,
    /// the least timestamp of a record that is no old-value record; the greatest there is, if none
    oldest_version: CommitTs,
    max_row: RowId,
    blocks: Vec<BlockPlace>,
}

fn header(run_id: u64) -> Vec<u8> {
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
    fn encode(&self, run_id: u64) -> Result<Vec<u8>> {
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

    /// Reads an index without its trailer; the caller has checked the checksum. `end` is where
    /// the blocks end. `None`: malformed.
    fn decode(bytes: &[u8], end: u64) -> Option<Self> {
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
