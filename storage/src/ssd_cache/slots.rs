//! The file of slots. A block takes one slot or several adjacent ones: a header of
//! [`HEADER_BYTES`], then the block's bytes. The checksum covers the cache's identity, the slot and
//! the block, so that a block in the wrong slot is detected. Layout: docs/format.md, "SSD cache".

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Checksum, Error, Result, SqlState};
use strandline_device::{Device, File, Tier};

use super::settings::BlockKey;

/// The name of the file.
pub const SLOTS_FILE: &str = "ssd-cache";

const MAGIC: &[u8; 4] = b"SLT1";
/// Bytes before the block in its first slot.
pub(super) const HEADER_BYTES: usize = 32;

/// The open file of slots.
#[derive(Debug)]
pub(super) struct SlotFile {
    file: Arc<dyn File>,
    identity: u128,
    slot_bytes: u32,
}

/// The number of slots of a block.
pub(super) fn slots_for(len: u32, slot_bytes: u32) -> u32 {
    let bytes = HEADER_BYTES as u64 + u64::from(len);
    // At most 2^32 / 512 and one.
    bytes.div_ceil(u64::from(slot_bytes)) as u32
}

impl SlotFile {
    /// Opens the file, or creates it.
    pub fn open(device: &dyn Device, identity: u128, slot_bytes: u32) -> Result<Self> {
        let file = match device.open(SLOTS_FILE) {
            Err(error) if error.sqlstate() == SqlState::UNDEFINED_FILE => {
                device.create_on(Tier::Fast, SLOTS_FILE)?
            }
            opened => opened?,
        };
        Ok(Self {
            file,
            identity,
            slot_bytes,
        })
    }

    /// Opens an existing file; None if there is none.
    pub fn existing(device: &dyn Device, identity: u128, slot_bytes: u32) -> Result<Option<Self>> {
        match device.list()?.iter().any(|name| name == SLOTS_FILE) {
            true => Self::open(device, identity, slot_bytes).map(Some),
            false => Ok(None),
        }
    }

    /// The number of whole slots in the file.
    pub fn slots(&self) -> Result<u32> {
        let slots = self.file.len()? / u64::from(self.slot_bytes);
        Ok(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    /// Allocates or cuts the file to `slots`.
    pub fn set_slots(&self, slots: u32) -> Result<()> {
        self.file.set_len(self.offset(slots))
    }

    /// Writes `bytes` of `block` into the slots from `slot` on.
    pub fn write(&self, slot: u32, block: BlockKey, bytes: &[u8]) -> Result<()> {
        let mut buffer = Vec::with_capacity(HEADER_BYTES + bytes.len());
        buffer.extend_from_slice(MAGIC);
        buffer.put_u32(self.checksum(slot, block, bytes));
        buffer.put_u32(block.len);
        buffer.put_u32(0);
        buffer.put_u64(block.file);
        buffer.put_u64(block.offset);
        buffer.extend_from_slice(bytes);
        self.file.write_all_at(&buffer, self.offset(slot))
    }

    /// The bytes of `block` in the slots from `slot` on.
    ///
    /// # Errors
    /// XX001 if another block or a damaged one is there; those of the device.
    pub fn read(&self, slot: u32, block: BlockKey) -> Result<Vec<u8>> {
        let mut bytes = vec![0; HEADER_BYTES + block.len as usize];
        self.file.read_exact_at(&mut bytes, self.offset(slot))?;
        let (found, expected) = header(&bytes).ok_or_else(|| {
            Error::corrupt(self.place(slot), format!("no block where {block} is"))
        })?;
        if found != block {
            let what = format!("holds {found} where {block} is expected");
            return Err(Error::corrupt(self.place(slot), what));
        }
        let bytes = bytes.split_off(HEADER_BYTES);
        let got = self.checksum(slot, block, &bytes);
        if got != expected {
            let place = format!("{}, {block}", self.place(slot));
            return Err(Error::checksum_mismatch(place, expected, got));
        }
        Ok(bytes)
    }

    /// The block that begins in `slot`, if it is intact. For messages about a lost directory.
    pub fn identify(&self, slot: u32) -> Option<BlockKey> {
        let mut bytes = [0; HEADER_BYTES];
        self.file
            .read_exact_at(&mut bytes, self.offset(slot))
            .ok()?;
        let (block, _) = header(&bytes)?;
        self.read(slot, block).ok().map(|_| block)
    }

    /// Makes all writes durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.slot_bytes)
    }

    fn place(&self, slot: u32) -> String {
        let offset = self.offset(slot);
        format!("\"{SLOTS_FILE}\" at offset {offset} (slot {slot})")
    }

    fn checksum(&self, slot: u32, block: BlockKey, bytes: &[u8]) -> u32 {
        let (low, high) = (self.identity as u64, (self.identity >> 64) as u64);
        let BlockKey { file, offset, len } = block;
        let words = [low, high, u64::from(slot), file, offset, u64::from(len)];
        let mut sum = Checksum::of_identity(&words);
        sum.update(bytes);
        sum.finish()
    }
}

/// Block and checksum of a header.
fn header(bytes: &[u8]) -> Option<(BlockKey, u32)> {
    let mut r = ByteReader::new(bytes.strip_prefix(MAGIC)?);
    let checksum = r.u32()?;
    let len = r.u32()?;
    if r.u32()? != 0 {
        return None;
    }
    let (file, offset) = (r.u64()?, r.u64()?);
    Some((BlockKey { file, offset, len }, checksum))
}
