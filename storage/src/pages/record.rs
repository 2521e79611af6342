//! The log record of a change: per page a full image or the changed byte ranges.
//!
//! ```text
//! u8      version: 1; 2: with slots
//! u32     file id
//! varint  pages, at least 1; for each:
//!   u32     page number
//!   u8      1 image: the ranges lie over zeros; 2 delta: over the body with the LSN that follows;
//!           3 slot: over a body with the LSN that follows or a later one
//!   u64     (delta, slot) this LSN
//!   varint  ranges; for each, ascending and disjoint:
//!     varint  bytes between the end of the previous range and this one
//!     varint  length, at least 1
//!     bytes
//! ```

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result};

use super::frame::SlotWrite;
use super::header::{PAGE_BODY_BYTES, PageBody};
use super::{PageFileId, PageNumber};
use crate::version::refuse_unknown;
use crate::wal::Lsn;

const VERSION: u8 = 1;
const VERSION_SLOTS: u8 = 2;
const IMAGE: u8 = 1;
const DELTA: u8 = 2;
const SLOT: u8 = 3;
/// Equal bytes between two changed ones from which two ranges are smaller than one.
const GAP_BYTES: usize = 8;

/// Begins a record about a file of `pages` pages.
pub(super) fn begin(file: PageFileId, pages: usize) -> Vec<u8> {
    begin_version(VERSION, file, pages)
}

/// Begins a record about one slot of a page.
pub(super) fn begin_slot(file: PageFileId) -> Vec<u8> {
    begin_version(VERSION_SLOTS, file, 1)
}

fn begin_version(version: u8, file: PageFileId, pages: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.put_u8(version);
    out.put_u32(file.0);
    out.put_varint(pages as u64);
    out
}

/// Adds a slot of a page whose committed body has the LSN `base`.
pub(super) fn put_slot(out: &mut Vec<u8>, number: PageNumber, base: Lsn, slot: &SlotWrite) {
    out.put_u32(number.0);
    out.put_u8(SLOT);
    out.put_u64(base.0);
    out.put_varint(1);
    out.put_varint(slot.offset as u64);
    out.put_bytes(&slot.bytes);
}

/// Adds a page's whole body.
pub(super) fn put_image(out: &mut Vec<u8>, number: PageNumber, body: &[u8]) {
    out.put_u32(number.0);
    out.put_u8(IMAGE);
    put_ranges(out, &PageBody::zeroed(), body);
}

/// Adds the difference between two bodies of a page.
pub(super) fn put_delta(
    out: &mut Vec<u8>,
    number: PageNumber,
    base: Lsn,
    before: &[u8],
    after: &[u8],
) {
    out.put_u32(number.0);
    out.put_u8(DELTA);
    out.put_u64(base.0);
    put_ranges(out, before, after);
}

fn put_ranges(out: &mut Vec<u8>, before: &[u8], after: &[u8]) {
    let ranges = changed_ranges(before, after);
    out.put_varint(ranges.len() as u64);
    let mut end = 0;
    for range in ranges {
        out.put_varint((range.start - end) as u64);
        end = range.end;
        out.put_bytes(after.get(range).unwrap_or_default());
    }
}

/// The ranges in which two bodies differ.
fn changed_ranges(before: &[u8], after: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    let words = before.chunks(8).zip(after.chunks(8)).enumerate();
    for (word, (old, new)) in words.filter(|(_, (old, new))| old != new) {
        let differs = |(_, (old, new)): &(usize, (&u8, &u8))| old != new;
        for (at, _) in old.iter().zip(new).enumerate().filter(differs) {
            let at = word * 8 + at;
            match ranges.last_mut() {
                Some(last) if at - last.end < GAP_BYTES => last.end = at + 1,
                _ => ranges.push(at..at + 1),
            }
        }
    }
    ranges
}

/// The body under the ranges of a page's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// zeros
    Zeros,
    /// the body with this LSN
    Exactly(Lsn),
    /// a body with this LSN or a later one: the change is of a slot that no other change between
    /// the two has written
    AtLeast(Lsn),
}

/// The change of one page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageRedo<'a> {
    pub number: PageNumber,
    pub base: Base,
    ranges: Vec<(usize, &'a [u8])>,
}

impl PageRedo<'_> {
    /// Overwrites the ranges in `body`.
    pub fn apply(&self, body: &mut [u8]) {
        for (offset, bytes) in &self.ranges {
            let place = body.get_mut(*offset..*offset + bytes.len());
            place
                .expect("decoded ranges lie within a body")
                .copy_from_slice(bytes);
        }
    }
}

/// Decodes a record.
///
/// # Errors
/// XX001 for damage, 0A000 for a newer version.
pub(super) fn decode(record: &[u8]) -> Result<(PageFileId, Vec<PageRedo<'_>>)> {
    let mut reader = ByteReader::new(record);
    let file = decode_file(&mut reader)?;
    let count = reader.varint().ok_or_else(|| damaged(&reader))?;
    let mut pages = Vec::new();
    for _ in 0..count {
        pages.push(decode_page(&mut reader).ok_or_else(|| damaged(&reader))?);
    }
    if reader.remaining() > 0 {
        return Err(damaged(&reader));
    }
    Ok((file, pages))
}

fn decode_file(reader: &mut ByteReader<'_>) -> Result<PageFileId> {
    let version = reader.u8().ok_or_else(|| damaged(reader))?;
    refuse_unknown(
        "log record of pages",
        version.into(),
        1..=VERSION_SLOTS.into(),
    )?;
    reader.u32().map(PageFileId).ok_or_else(|| damaged(reader))
}

fn damaged(reader: &ByteReader<'_>) -> Error {
    let place = format!("log record of pages, byte {}", reader.position());
    Error::corrupt(place, "the record cannot be decoded")
}

fn decode_page<'a>(reader: &mut ByteReader<'a>) -> Option<PageRedo<'a>> {
    let number = PageNumber(reader.u32()?);
    let base = match reader.u8()? {
        IMAGE => Base::Zeros,
        DELTA => Base::Exactly(Lsn(reader.u64()?)),
        SLOT => Base::AtLeast(Lsn(reader.u64()?)),
        _ => return None,
    };
    let mut ranges = Vec::new();
    let mut end = 0usize;
    for _ in 0..reader.varint()? {
        let start = end.checked_add(usize::try_from(reader.varint()?).ok()?)?;
        let bytes = reader.bytes()?;
        end = start.checked_add(bytes.len())?;
        if end > PAGE_BODY_BYTES {
            return None;
        }
        ranges.push((start, bytes));
    }
    Some(PageRedo {
        number,
        base,
        ranges,
    })
}

/// The file that a record is about.
///
/// # Errors
/// XX001 for damage before the file's number, 0A000 for a newer version.
pub fn file_of_record(record: &[u8]) -> Result<PageFileId> {
    decode_file(&mut ByteReader::new(record))
}

/// One line about a record, for inspection.
pub fn describe_record(record: &[u8]) -> Result<String> {
    let (file, pages) = decode(record)?;
    let page = |page: &PageRedo<'_>| {
        let bytes: usize = page.ranges.iter().map(|(_, bytes)| bytes.len()).sum();
        let kind = match page.base {
            Base::Zeros => "image",
            Base::Exactly(_) => "delta",
            Base::AtLeast(_) => "slot",
        };
        format!("{} {kind} of {bytes} bytes", page.number)
    };
    let pages: Vec<String> = pages.iter().map(page).collect();
    Ok(format!("page file {file}: {}", pages.join(", ")))
}
