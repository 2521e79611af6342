//! One file of the log: header, preallocation, recycling, and the list of the segments in a
//! directory.
//!
//! A segment enters the log only after its header, its allocated space and its name are durable. So
//! every log position that was given to an appender has its file after a crash. A file with a
//! broken header is therefore an unfinished preparation, unless intact frames in it prove otherwise
//! (recovery checks).

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Result, checksum};
use strandline_device::{Device, File};

use super::WAL_FORMAT_VERSION;
use crate::stream::Extent;
use crate::version::refuse_unknown;

/// Bytes of the header's block; frames start after it.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// Bytes of the header's fields, checksum included.
const HEADER_USED_BYTES: usize = 56;
const MAGIC: &[u8; 8] = b"STRDWAL1";
const NAME_PREFIX: &str = "wal-";
/// One page of zeros. ext4 caches larger writes in large folios, whose many buffers make every
/// commit's small write and sync slower (measured on Linux 6.18: 97 instead of 84 µs).
static ZERO_CHUNK: [u8; 4 << 10] = [0; 4 << 10];

/// The file name of segment `number`.
pub(super) fn segment_name(number: u64) -> String {
    format!("{NAME_PREFIX}{number:016x}")
}

/// The number in a segment's file name; `None` for other files.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    (digits.len() == 16)
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The fields of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub database_id: u128,
    pub number: u64,
    /// Log position of the first byte after the header.
    pub base: u64,
    /// Length of the file in bytes.
    pub file_bytes: u64,
}

impl SegmentHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_USED_BYTES);
        out.extend_from_slice(MAGIC);
        out.put_u32(WAL_FORMAT_VERSION);
        out.put_u128(self.database_id);
        out.put_u64(self.number);
        out.put_u64(self.base);
        out.put_u64(self.file_bytes);
        let sum = checksum(&[], &out);
        out.put_u32(sum);
        debug_assert_eq!(out.len(), HEADER_USED_BYTES);
        out
    }

    /// The header in `bytes`; `None` if it is damaged or unfinished. An unknown version is an
    /// error.
    fn decode(bytes: &[u8; HEADER_USED_BYTES], name: &str) -> Result<Option<Self>> {
        let (body, sum) = bytes.split_at(HEADER_USED_BYTES - 4);
        if !body.starts_with(MAGIC) || sum != checksum(&[], body).to_le_bytes() {
            return Ok(None);
        }
        let mut r = ByteReader::new(&body[MAGIC.len()..]);
        let whole = "a segment header has a fixed length";
        refuse_unknown(name, r.u32().expect(whole), 1..=WAL_FORMAT_VERSION)?;
        Ok(Some(Self {
            database_id: r.u128().expect(whole),
            number: r.u64().expect(whole),
            base: r.u64().expect(whole),
            file_bytes: r.u64().expect(whole),
        }))
    }
}

/// A used or ready segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub file: Arc<dyn File>,
    pub number: u64,
    pub base: u64,
    pub file_bytes: u64,
}

impl Segment {
    /// The log position after its last byte.
    pub fn end(&self) -> u64 {
        self.base + self.file_bytes - SEGMENT_HEADER_BYTES
    }

    pub fn extent(&self) -> Extent {
        Extent {
            file: Arc::clone(&self.file),
            file_offset: SEGMENT_HEADER_BYTES,
            start: self.base,
            bytes: self.file_bytes - SEGMENT_HEADER_BYTES,
        }
    }

    /// Makes a new durable segment. Its space is allocated, and its first `zeroed_bytes` are
    /// written with zeros: overwriting written space makes a commit's sync cheap.
    pub fn create(device: &dyn Device, header: SegmentHeader, zeroed_bytes: u64) -> Result<Self> {
        let name = segment_name(header.number);
        let file = device.create(&name)?;
        let prepared = (|| {
            file.set_len(header.file_bytes)?;
            let mut at = SEGMENT_HEADER_BYTES;
            let zero_end = header.file_bytes.min(zeroed_bytes);
            while at < zero_end {
                let n = (zero_end - at).min(ZERO_CHUNK.len() as u64);
                file.write_all_at(&ZERO_CHUNK[..n as usize], at)?;
                at += n;
            }
            write_header(&*file, header)?;
            device.sync_directory()
        })();
        if let Err(e) = prepared {
            // Frees the space; if that also fails, the next open removes the file.
            let _ = device.remove(&name);
            return Err(e.context("cannot prepare the next log segment"));
        }
        Ok(Self::of(file, header))
    }

    /// Recycles this segment, whose content is no longer needed, as one after the log's end. Its
    /// old frames have old positions, so they never look like part of the log.
    pub fn recycle(&self, device: &dyn Device, header: SegmentHeader) -> Result<Self> {
        debug_assert_eq!(self.file_bytes, header.file_bytes);
        let name = segment_name(header.number);
        device.rename(&segment_name(self.number), &name)?;
        let recycled = (|| {
            let file = device.open(&name)?;
            write_header(&*file, header)?;
            device.sync_directory()?;
            Ok(Self::of(file, header))
        })();
        if recycled.is_err() {
            // Its header or name may be lost although it is readable, so it never becomes part of
            // the log.
            let _ = device.remove(&name);
        }
        recycled
    }

    fn of(file: Arc<dyn File>, header: SegmentHeader) -> Self {
        let SegmentHeader {
            number,
            base,
            file_bytes,
            ..
        } = header;
        Self {
            file,
            number,
            base,
            file_bytes,
        }
    }
}

fn write_header(file: &dyn File, header: SegmentHeader) -> Result<()> {
    file.write_all_at(&header.encode(), 0)?;
    file.sync()
}

/// A segment file found in the directory.
pub(super) struct FoundSegment {
    pub file: Arc<dyn File>,
    pub number: u64,
    pub file_bytes: u64,
    /// `None` if the header is damaged, unfinished or another segment's.
    pub header: Option<SegmentHeader>,
}

impl FoundSegment {
    /// The segment, if its header is good.
    pub fn segment(&self) -> Option<Segment> {
        self.header
            .map(|header| Segment::of(Arc::clone(&self.file), header))
    }

    /// The file as a part of the log that starts at `base`.
    pub fn extent_at(&self, base: u64) -> Option<Extent> {
        let bytes = self.file_bytes.checked_sub(SEGMENT_HEADER_BYTES)?;
        let file = Arc::clone(&self.file);
        Some(Extent {
            file,
            file_offset: SEGMENT_HEADER_BYTES,
            start: base,
            bytes,
        })
    }
}

/// All segment files, ordered by number.
pub(super) fn find_segments(device: &dyn Device, database_id: u128) -> Result<Vec<FoundSegment>> {
    let mut found = Vec::new();
    for name in device.list()? {
        let Some(number) = parse_segment_name(&name) else {
            continue;
        };
        let file = device.open(&name)?;
        let file_bytes = file.len()?;
        let mut bytes = [0; HEADER_USED_BYTES];
        let mut header = None;
        if file_bytes > SEGMENT_HEADER_BYTES {
            file.read_exact_at(&mut bytes, 0)?;
            header = SegmentHeader::decode(&bytes, &name)?;
        }
        header.take_if(|h| {
            h.number != number || h.database_id != database_id || h.file_bytes != file_bytes
        });
        found.push(FoundSegment {
            file,
            number,
            file_bytes,
            header,
        });
    }
    found.sort_unstable_by_key(|s| s.number);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_headers_round_trip() {
        for number in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(parse_segment_name(&segment_name(number)), Some(number));
        }
        for other in [
            "wal-",
            "wal-1",
            "wal-00000000000000010",
            "wal-000000000000000g",
            "run-1",
        ] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
        let header = SegmentHeader {
            database_id: 7 << 80,
            number: 3,
            base: 4096,
            file_bytes: 1 << 20,
        };
        let mut bytes: [u8; HEADER_USED_BYTES] = header.encode().try_into().expect("fixed length");
        assert_eq!(SegmentHeader::decode(&bytes, "wal").unwrap(), Some(header));
        for i in 0..bytes.len() {
            bytes[i] ^= 0x10;
            assert_eq!(
                SegmentHeader::decode(&bytes, "wal").unwrap(),
                None,
                "byte {i}"
            );
            bytes[i] ^= 0x10;
        }
    }
}
