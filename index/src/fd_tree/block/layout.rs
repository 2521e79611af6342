//! The bytes of a block of entries, in one of two layouts.
//!
//! ```text
//! 0   u32  CRC-32C over tree, number, and the bytes from 4 up to the used bytes
//! 4   u16  layout
//! 6   u16  entries
//! 8   u32  used bytes, this header included
//! 12  u64  run: the level's identity, never used twice in a tree
//! 20  u64  ordinal of the block in its run
//!
//! Layout 1, a sequence
//! 28  ...  entries: u8 kind (0 insert, 1 delete, 2 fence), varint bytes shared with the entry
//!          before, varint length of the rest and the rest, for a fence varint ordinal
//!
//! Layout 2, a table of entries of one width
//! 28  ...  varint width; a bit for each byte of an entry, from the lowest bit on: 1 if entries
//!          differ there; the bytes in which no entries differ; u8 kind of all entries, or 3: two
//!          bits for each entry follow, from the lowest on; for each fence varint ordinal; for each
//!          entry the bytes in which entries differ
//! ```
//!
//! Entries of one width are a table, which is searched as it is, unless more of them fit into a
//! block as a sequence. A table is smaller where entries share bytes in their middle, as row ids
//! do, or where neighbours share few.

use super::key_list::{KeyList, common_bytes};
use super::key_table::KeyTable;
use super::{Block, EntryKey, Identity, Keys, Kind, KindCode, Kinds, index_name};
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, checksum};

const SEQUENCE: u16 = 1;
const TABLE: u16 = 2;
/// Bytes before the entries.
pub(in crate::fd_tree) const HEADER_BYTES: usize = 28;
const CHECKSUM_BYTES: usize = 4;
/// The most bytes of an entry in a block besides its own: kind, two lengths, ordinal.
pub(in crate::fd_tree) const ENTRY_OVERHEAD_MAX: usize = 1 + 2 + 2 + 10;
/// The kinds of a table's entries differ.
const MIXED_KINDS: u8 = 3;
const KIND_BITS: usize = 2;
const KINDS_A_BYTE: usize = u8::BITS as usize / KIND_BITS;

/// Bytes of the kinds of a table.
pub(super) fn kinds_bytes(entries: usize, is_one_kind: bool) -> usize {
    match is_one_kind {
        true => 1,
        false => 1 + entries.div_ceil(KINDS_A_BYTE),
    }
}

impl Block {
    /// The bytes on the device, filled up to `block_bytes`.
    pub fn encode(&self, at: Identity, block_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(block_bytes);
        bytes.put_u32(0);
        bytes.put_u16(match &self.keys {
            Keys::List(_) => SEQUENCE,
            Keys::Table(_) => TABLE,
        });
        bytes.put_u16(self.len() as u16);
        bytes.put_u32(self.used_bytes() as u32);
        bytes.put_u64(at.run);
        bytes.put_u64(at.ordinal);
        match &self.keys {
            Keys::List(_) => self.put_sequence(&mut bytes),
            Keys::Table(keys) => {
                keys.put_constant(&mut bytes);
                put_kinds(&self.kinds, &mut bytes);
                keys.put_rows(&mut bytes);
            }
        }
        debug_assert_eq!(bytes.len(), self.used_bytes());
        let sum = checksum(
            &[at.tree, at.number],
            bytes.get(CHECKSUM_BYTES..).unwrap_or_default(),
        );
        if let Some(place) = bytes.get_mut(..CHECKSUM_BYTES) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        bytes.resize(block_bytes, 0);
        bytes
    }

    fn put_sequence(&self, bytes: &mut Vec<u8>) {
        let mut before = EntryKey::new();
        for (key, kind) in self.iter() {
            bytes.put_u8(kind.code() as u8);
            let shared = common_bytes(&before, &key);
            bytes.put_varint(shared as u64);
            bytes.put_bytes(key.get(shared..).unwrap_or_default());
            if let Kind::Fence(to) = kind {
                bytes.put_varint(to);
            }
            before = key;
        }
    }

    /// The entries of the block that belongs at `at`.
    ///
    /// # Errors
    /// XX001 if the bytes are damaged or another block's.
    pub fn decode(bytes: Vec<u8>, at: Identity) -> Result<Self> {
        let place = || {
            let Identity { tree, number, .. } = at;
            format!("block {number} of {}", index_name(tree))
        };
        let damaged = || Error::corrupt(place(), "its bytes are damaged: build the index anew");
        let mut header = ByteReader::new(&bytes);
        let parts = (|| {
            let sum = header.u32()?;
            let layout = header.u16()?;
            let (entries, used) = (header.u16()?, header.u32()? as usize);
            let rest = bytes.get(CHECKSUM_BYTES..used)?;
            let is_whole = checksum(&[at.tree, at.number], rest) == sum && used >= HEADER_BYTES;
            Some((
                is_whole,
                layout,
                entries,
                used,
                header.u64()?,
                header.u64()?,
            ))
        })();
        let Some((true, layout, entries, used, run, ordinal)) = parts else {
            return Err(damaged());
        };
        if ![SEQUENCE, TABLE].contains(&layout) {
            let what = format!("layout {layout}; this program reads layouts up to {TABLE}");
            return Err(Error::corrupt(place(), what));
        }
        if (run, ordinal) != (at.run, at.ordinal) {
            let what = format!(
                "block {ordinal} of run {run}, expected block {} of run {}",
                at.ordinal, at.run
            );
            return Err(Error::corrupt(place(), what));
        }
        let decoded = match layout {
            SEQUENCE => take_sequence(&bytes, entries.into(), used),
            _ => take_table(bytes, entries.into(), used),
        };
        decoded.ok_or_else(damaged)
    }
}

/// The bytes of the entries.
fn body(bytes: &[u8], used: usize) -> Option<ByteReader<'_>> {
    Some(ByteReader::new(bytes.get(HEADER_BYTES..used)?))
}

fn kind(code: KindCode, reader: &mut ByteReader<'_>) -> Option<Kind> {
    Some(match code {
        KindCode::Insert => Kind::Insert,
        KindCode::Delete => Kind::Delete,
        KindCode::Fence => Kind::Fence(reader.varint()?),
    })
}

fn take_sequence(bytes: &[u8], entries: usize, used: usize) -> Option<Block> {
    let mut reader = body(bytes, used)?;
    let mut keys = KeyList::with_capacity(used, entries);
    let mut kinds = Kinds::default();
    for at in 0..entries {
        let code = KindCode::of(reader.u8()?)?;
        let shared = usize::try_from(reader.varint()?).ok()?;
        let is_shared = keys.push(shared, reader.bytes()?);
        if !is_shared {
            return None;
        }
        kinds.push(at, kind(code, &mut reader)?);
    }
    let block = Block {
        keys: Keys::List(keys.sealed()),
        kinds,
        used_bytes: used,
    };
    (reader.remaining() == 0).then_some(block)
}

fn take_table(bytes: Vec<u8>, entries: usize, used: usize) -> Option<Block> {
    let mut reader = body(&bytes, used)?;
    let keys = KeyTable::take_constant(&mut reader)?;
    let kinds = take_kinds(&mut reader, entries)?;
    let rows = HEADER_BYTES + reader.position()..used;
    let keys = keys.with_rows(entries, bytes, rows)?;
    Some(Block {
        keys: Keys::Table(keys),
        kinds,
        used_bytes: used,
    })
}

fn put_kinds(kinds: &Kinds, out: &mut Vec<u8>) {
    match kinds.of_all() {
        Some(code) => out.put_u8(code as u8),
        None => {
            out.put_u8(MIXED_KINDS);
            let packed = |kinds: &[KindCode]| {
                let codes = kinds.iter().rev();
                codes.fold(0, |byte, code| byte << KIND_BITS | *code as u8)
            };
            out.extend(kinds.each().chunks(KINDS_A_BYTE).map(packed));
        }
    }
    for to in kinds.ordinals() {
        out.put_varint(to);
    }
}

fn take_kinds(reader: &mut ByteReader<'_>, entries: usize) -> Option<Kinds> {
    let of_all = reader.u8()?;
    if of_all != MIXED_KINDS {
        let code = KindCode::of(of_all)?;
        let mut kinds = Kinds::all_of(code);
        if code == KindCode::Fence {
            for at in 0..entries {
                kinds.push(at, kind(code, reader)?);
            }
        }
        return Some(kinds);
    }
    let packed = reader.take(entries.div_ceil(KINDS_A_BYTE))?;
    let mut kinds = Kinds::default();
    for at in 0..entries {
        let byte = packed.get(at / KINDS_A_BYTE)?;
        let code = byte >> (at % KINDS_A_BYTE * KIND_BITS) & MIXED_KINDS;
        kinds.push(at, kind(KindCode::of(code)?, reader)?);
    }
    Some(kinds)
}
