//! The file: a header, then segments of equal size. A segment is a head with the places and
//! checksums of its blocks, then the blocks. Byte layout: docs/format.md, "Block cache".
//!
//! The checksum of a head covers the cache's identity and the segment's number, that of a block the
//! identity and the block's address. So a head or block in the wrong place is detected, and bytes
//! that match are the block's, whenever they were written.

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Checksum, Error, Result, SqlState, checksum};
use strandline_device::{Device, File, Tier};

use crate::block_key::BlockKey;

/// The name of the file.
pub const BLOCK_CACHE_FILE: &str = "block-cache";

const MAGIC: &[u8; 8] = b"STRDBLKC";
const VERSION: u32 = 1;
/// Bytes before the first segment.
pub(super) const HEADER_BYTES: u64 = 4_096;
/// Bytes of the header that mean anything.
const HEADER_USED: usize = 36;

const SEGMENT_MAGIC: &[u8; 4] = b"BSG1";
/// Bytes of a head before its blocks' places.
const HEAD_BYTES: usize = 32;
/// Bytes of a block's place in a head.
const PLACE_BYTES: usize = 24;
/// Bytes of a segment that an opening reads at first.
const FIRST_READ_BYTES: usize = 8 << 10;

/// Bytes of a segment with `blocks` blocks of `bytes` together.
pub(super) fn segment_len(blocks: usize, bytes: usize) -> usize {
    HEAD_BYTES + PLACE_BYTES * blocks + bytes
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub block: BlockKey,
    /// bytes from the start of the segment
    pub at: u32,
    /// the block's checksum
    pub crc: u32,
}

/// The head of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// grows with every segment written
    pub number: u64,
    /// the bound on files' numbers when the segment was written, see `core`
    pub files_end: u64,
    /// the blocks, in order
    pub places: Vec<Place>,
}

/// What is where a segment may be.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Segment(Head),
    /// a head that is torn or damaged
    Damaged,
}

/// The header of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub identity: u128,
    pub segment_bytes: u32,
}

impl Header {
    fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(self.segment_bytes);
        bytes.put_u128(self.identity);
        let sum = checksum(&[], &bytes);
        bytes.put_u32(sum);
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    /// XX001 for a damaged one, 0A000 for one of another version, those of the device.
    pub fn read(file: &dyn File) -> Result<Self> {
        let mut bytes = [0; HEADER_USED];
        file.read_exact_at(&mut bytes, 0)?;
        let damaged = |what| Error::corrupt(format!("\"{BLOCK_CACHE_FILE}\""), what);
        let fields = bytes.strip_prefix(MAGIC);
        let mut r = ByteReader::new(fields.ok_or_else(|| damaged("bad magic"))?);
        let fields = (r.u32(), r.u32(), r.u128(), r.u32());
        let (Some(version), Some(segment_bytes), Some(identity), Some(expected)) = fields else {
            return Err(damaged("too short"));
        };
        let got = checksum(&[], &bytes[..HEADER_USED - 4]);
        if got != expected {
            let place = format!("\"{BLOCK_CACHE_FILE}\"");
            return Err(Error::checksum_mismatch(place, expected, got));
        }
        crate::version::refuse_unknown(BLOCK_CACHE_FILE, version, VERSION..=VERSION)?;
        if segment_bytes == 0 {
            return Err(damaged("segments of no bytes"));
        }
        Ok(Self {
            identity,
            segment_bytes,
        })
    }
}

/// The open file.
#[derive(Debug)]
pub(super) struct SegmentFile {
    file: Arc<dyn File>,
    header: Header,
}

impl SegmentFile {
    /// The open `file`, whose header is or will be `header`.
    pub fn new(file: Arc<dyn File>, header: Header) -> Self {
        Self { file, header }
    }

    /// Opens the file on the fast tier; None if there is none.
    pub fn find(device: &dyn Device) -> Result<Option<Arc<dyn File>>> {
        match device.open(BLOCK_CACHE_FILE) {
            Err(error) if error.sqlstate() == SqlState::UNDEFINED_FILE => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Creates the file on the fast tier, empty, in place of one that may be there.
    pub fn replace(device: &dyn Device) -> Result<Arc<dyn File>> {
        if Self::find(device)?.is_some() {
            device.remove(BLOCK_CACHE_FILE)?;
        }
        device.create_on(Tier::Fast, BLOCK_CACHE_FILE)
    }

    /// Writes the header.
    pub fn write_header(&self) -> Result<()> {
        self.file.write_all_at(&self.header.encode(), 0)
    }

    /// The number of whole segments in the file.
    pub fn slots(&self) -> Result<u32> {
        let bytes = self.file.len()?.saturating_sub(HEADER_BYTES);
        let slots = bytes / u64::from(self.header.segment_bytes);
        Ok(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    /// Allocates or cuts the file to `slots` segments.
    pub fn set_slots(&self, slots: u32) -> Result<()> {
        self.file.set_len(self.offset(slots))
    }

    /// The checksum of a block.
    pub fn block_checksum(&self, block: BlockKey, bytes: &[u8]) -> u32 {
        let BlockKey { file, offset, len } = block;
        let [low, high] = self.identity_words();
        checksum(&[low, high, file, offset, u64::from(len)], bytes)
    }

    /// Reads a block of segment `slot` into `memory`, which has the block's length.
    ///
    /// # Errors
    /// XX001 if other bytes are there; those of the device.
    pub fn read_block(&self, slot: u32, place: Place, memory: &mut [u8]) -> Result<()> {
        let offset = self.offset(slot) + u64::from(place.at);
        self.file.read_exact_at(memory, offset)?;
        let got = self.block_checksum(place.block, memory);
        if got == place.crc {
            return Ok(());
        }
        let block = place.block;
        let at = format!("\"{BLOCK_CACHE_FILE}\" at offset {offset}, {block}");
        Err(Error::checksum_mismatch(at, place.crc, got))
    }

    /// Writes a segment at once. `blocks` are in the order of `head.places`, whose `at` this sets.
    pub fn write_segment<'a>(
        &self,
        slot: u32,
        head: &mut Head,
        blocks: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u64> {
        let mut at = segment_len(head.places.len(), 0) as u32;
        for place in &mut head.places {
            place.at = at;
            at += place.block.len;
        }
        let mut bytes = Vec::with_capacity(at as usize);
        bytes.extend_from_slice(SEGMENT_MAGIC);
        bytes.put_u32(0);
        bytes.put_u64(head.number);
        bytes.put_u64(head.files_end);
        bytes.put_u32(head.places.len() as u32);
        bytes.put_u32(0);
        for Place { block, crc, .. } in &head.places {
            bytes.put_u64(block.file);
            bytes.put_u64(block.offset);
            bytes.put_u32(block.len);
            bytes.put_u32(*crc);
        }
        let sum = self.head_checksum(slot, &bytes[8..]);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        blocks.for_each(|block| bytes.extend_from_slice(block));
        debug_assert_eq!(bytes.len(), at as usize, "blocks as their places say");
        debug_assert!(bytes.len() <= self.header.segment_bytes as usize);
        self.file.write_all_at(&bytes, self.offset(slot))?;
        Ok(bytes.len() as u64)
    }

    /// Reads the head of segment `slot`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_head(&self, slot: u32) -> Result<Found> {
        let segment_bytes = self.header.segment_bytes as usize;
        let mut bytes = vec![0; FIRST_READ_BYTES.min(segment_bytes)];
        self.file.read_exact_at(&mut bytes, self.offset(slot))?;
        let mut r = ByteReader::new(&bytes);
        if r.take(4) != Some(SEGMENT_MAGIC) {
            return Ok(match bytes.iter().all(|&byte| byte == 0) {
                true => Found::Nothing,
                false => Found::Damaged,
            });
        }
        let fields = (r.u32(), r.u64(), r.u64(), r.u32(), r.u32());
        let (Some(crc), Some(number), Some(files_end), Some(count), Some(_)) = fields else {
            return Ok(Found::Damaged);
        };
        let head_bytes = HEAD_BYTES as u64 + PLACE_BYTES as u64 * u64::from(count);
        if head_bytes > segment_bytes as u64 {
            return Ok(Found::Damaged);
        }
        let (read, head_bytes) = (bytes.len().min(head_bytes as usize), head_bytes as usize);
        bytes.resize(head_bytes, 0);
        let rest = self.offset(slot) + read as u64;
        if head_bytes > read {
            self.file.read_exact_at(&mut bytes[read..], rest)?;
        }
        if self.head_checksum(slot, &bytes[8..]) != crc {
            return Ok(Found::Damaged);
        }
        let places = decode_places(&bytes[HEAD_BYTES..], head_bytes, segment_bytes);
        Ok(places.map_or(Found::Damaged, |places| {
            Found::Segment(Head {
                number,
                files_end,
                places,
            })
        }))
    }

    fn head_checksum(&self, slot: u32, bytes: &[u8]) -> u32 {
        let [low, high] = self.identity_words();
        let mut sum = Checksum::of_identity(&[low, high, u64::from(slot)]);
        sum.update(bytes);
        sum.finish()
    }

    fn identity_words(&self) -> [u64; 2] {
        let identity = self.header.identity;
        [identity as u64, (identity >> 64) as u64]
    }

    fn offset(&self, slot: u32) -> u64 {
        HEADER_BYTES + u64::from(slot) * u64::from(self.header.segment_bytes)
    }
}

/// The places in a head; the first block is at `at`. None: blocks beyond the segment's end.
fn decode_places(bytes: &[u8], mut at: usize, segment_bytes: usize) -> Option<Vec<Place>> {
    let mut r = ByteReader::new(bytes);
    let mut places = Vec::with_capacity(bytes.len() / PLACE_BYTES);
    while r.remaining() > 0 {
        let (file, offset, len, crc) = (r.u64()?, r.u64()?, r.u32()?, r.u32()?);
        let block = BlockKey { file, offset, len };
        let begin = at;
        at = at.checked_add(len as usize)?;
        if at > segment_bytes {
            return None;
        }
        let at = begin as u32;
        places.push(Place { block, at, crc });
    }
    Some(places)
}
