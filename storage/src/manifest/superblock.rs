//! The superblock: the name of the manifest file in force.
//!
//! Two slots of 4 KiB with the same content are written one after the other (slot g mod 2 first),
//! so that a crash or damage spares one of them. The valid slot with the highest generation is in
//! force. [`switch`] writes the first slot, which is the moment of the change, [`complete`] the
//! second.
//!
//! Generation 0 is written first when a database is created and means "not finished". Such a
//! directory may be created again, while a directory that lost its superblock is never taken for an
//! empty one. A database is used only after both slots have a later generation.
//!
//! A slot that is not intact is either a torn write of a crash or damage. A torn slot is a mix of
//! its old content and the written content, which the manifest files determine (see [`Torn`]).
//! Everything else is damage, which is tolerated but reported.

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Result, checksum};
use strandline_device::{Device, File};

use super::{KNOWN, MANIFEST_FORMAT_VERSION};
use crate::version::refuse_unknown;

pub(super) const SUPERBLOCK_FILE: &str = "superblock";
const SLOT_BYTES: usize = 4096;
const CHECKSUM_AT: usize = SLOT_BYTES - 4;
const MAGIC: &[u8; 8] = b"STRDSUP1";

/// The content of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The manifest file in force; 0 while the database is being created.
    pub generation: u64,
    pub database_id: u128,
}

impl Slot {
    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend_from_slice(MAGIC);
        out.put_u32(MANIFEST_FORMAT_VERSION);
        out.put_u64(self.generation);
        out.put_u128(self.database_id);
        out.resize(CHECKSUM_AT, 0);
        let sum = checksum(&[], &out);
        out.put_u32(sum);
        out
    }

    /// The version and content of an intact slot. Magic, version and checksum have the same
    /// positions in every version of the format.
    fn decode(bytes: &[u8]) -> Option<(u32, Self)> {
        let (body, sum) = bytes.split_at_checked(CHECKSUM_AT)?;
        let fields = body.strip_prefix(MAGIC)?;
        if sum != checksum(&[], body).to_le_bytes() {
            return None;
        }
        let mut r = ByteReader::new(fields);
        Some((
            r.u32()?,
            Self {
                generation: r.u64()?,
                database_id: r.u128()?,
            },
        ))
    }
}

/// The state of a superblock file.
pub(super) enum Content {
    /// The slot in force, and the state of the other one.
    Valid { slot: Slot, other: OtherSlot },
    /// Only zeros and unfinished writes of a first slot.
    Unfinished,
    /// Damaged slots that were written before.
    Damaged,
    /// Not a superblock.
    Foreign,
}

/// The slot that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OtherSlot {
    /// It has the same content.
    Same,
    /// It has an older generation: a crash came before [`complete`].
    Older,
    /// It is not intact; its index and bytes.
    Broken(usize, Vec<u8>),
}

/// The ways in which a crash may have torn the slot beside an intact one of generation g: while g
/// was being completed there, or while g + 1 was being put in force. Either leaves a manifest file:
/// of g − 1 or of g + 1.
pub(super) struct Torn {
    /// the manifest of g − 1 exists, or the database was being created; the manifest of g has no
    /// edits
    pub completing: bool,
    /// the manifest of g + 1 exists
    pub switching: bool,
}

impl Torn {
    /// Whether a crash explains the slot `index` with `bytes` beside the intact `slot`.
    pub fn explains(&self, slot: Slot, index: usize, bytes: &[u8]) -> bool {
        // Slot (g + 1) mod 2 is written last for generation g and first for g + 1.
        let is_next_to_write = index as u64 == (slot.generation + 1) % 2;
        let is_mix = |from: u64, to: u64| {
            let of = |generation| Slot { generation, ..slot }.encode();
            let (from, to) = (of(from), of(to));
            let mut pieces = bytes.iter().zip(from.iter().zip(&to));
            pieces.all(|(byte, (from, to))| byte == from || byte == to)
        };
        let g = slot.generation;
        is_next_to_write
            && ((self.completing && is_mix(g.saturating_sub(1), g))
                || (self.switching && is_mix(g, g + 1)))
    }
}

/// Reads both slots; an unknown format version is an error.
pub(super) fn read(file: &dyn File) -> Result<Content> {
    let len = file.len()?;
    if len > 2 * SLOT_BYTES as u64 {
        return Ok(Content::Foreign);
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    bytes.resize(2 * SLOT_BYTES, 0);
    let slots: Vec<_> = bytes.chunks_exact(SLOT_BYTES).map(Slot::decode).collect();
    let intact = slots.iter().flatten();
    if let Some(&(version, slot)) = intact.max_by_key(|(_, slot)| slot.generation) {
        refuse_unknown(SUPERBLOCK_FILE, version, KNOWN)?;
        let other = match slots.iter().position(Option::is_none) {
            Some(index) => {
                let slot = bytes.chunks_exact(SLOT_BYTES).nth(index);
                OtherSlot::Broken(index, slot.unwrap_or_default().to_vec())
            }
            None if slots.iter().flatten().all(|(_, other)| *other == slot) => OtherSlot::Same,
            None => OtherSlot::Older,
        };
        return Ok(Content::Valid { slot, other });
    }
    let (first, second) = bytes.split_at(SLOT_BYTES);
    if first
        .iter()
        .zip(MAGIC)
        .any(|(&found, &magic)| found != magic && found != 0)
    {
        return Ok(Content::Foreign);
    }
    // Slot 1 is written after slot 0 is durable, so a torn creation leaves slot 1 untouched.
    let untouched = second.iter().all(|&b| b == 0);
    Ok(if untouched {
        Content::Unfinished
    } else {
        Content::Damaged
    })
}

/// Creates the file with generation 0; durable with its name on return.
pub(super) fn create(device: &dyn Device, database_id: u128) -> Result<Arc<dyn File>> {
    let file = device.create(SUPERBLOCK_FILE)?;
    file.set_len(2 * SLOT_BYTES as u64)?;
    switch(
        &*file,
        Slot {
            generation: 0,
            database_id,
        },
    )?;
    device.sync_directory()?;
    Ok(file)
}

/// Puts `slot` in force by writing its first place; durable on return.
pub(super) fn switch(file: &dyn File, slot: Slot) -> Result<()> {
    write_at(file, slot, slot.generation % 2)
}

/// Writes the slot in force to its second place too; durable on return.
pub(super) fn complete(file: &dyn File, slot: Slot) -> Result<()> {
    write_at(file, slot, (slot.generation + 1) % 2)
}

fn write_at(file: &dyn File, slot: Slot, index: u64) -> Result<()> {
    file.write_all_at(&slot.encode(), index * SLOT_BYTES as u64)?;
    file.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_slot_is_told_from_a_damaged_one() {
        let slot = |generation| Slot {
            generation,
            database_id: 77,
        };
        let torn = |completing, switching| Torn {
            completing,
            switching,
        };
        let mut bytes = slot(5).encode();
        bytes[512..].copy_from_slice(&slot(4).encode()[512..]);
        assert!(torn(true, false).explains(slot(5), 0, &bytes));
        assert!(
            !torn(false, true).explains(slot(5), 0, &bytes),
            "not the next one"
        );
        assert!(
            !torn(false, false).explains(slot(5), 0, &bytes),
            "nothing was under way"
        );
        assert!(
            !torn(true, true).explains(slot(5), 1, &bytes),
            "written before the other"
        );
        assert!(torn(false, true).explains(slot(4), 1, &bytes));
        bytes[1000] ^= 1;
        assert!(
            !torn(true, true).explains(slot(5), 0, &bytes),
            "a flipped bit"
        );
    }

    #[test]
    fn slot_round_trips_and_every_damaged_byte_is_found() {
        let slot = Slot {
            generation: 9,
            database_id: u128::MAX - 5,
        };
        let mut bytes = slot.encode();
        assert_eq!(bytes.len(), SLOT_BYTES);
        assert_eq!(Slot::decode(&bytes), Some((MANIFEST_FORMAT_VERSION, slot)));
        for i in (0..64).chain(SLOT_BYTES - 8..SLOT_BYTES) {
            bytes[i] ^= 1;
            assert_eq!(Slot::decode(&bytes), None, "byte {i}");
            bytes[i] ^= 1;
        }
        assert_eq!(Slot::decode(&bytes[..100]), None);
    }
}
