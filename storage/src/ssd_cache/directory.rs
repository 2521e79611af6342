//! The persistent directory: which slots hold which blocks, and which of these are fresher than the
//! capacity tier. A header, a snapshot of the entries, then a frame of changes per round
//! ([`crate::frame`]). Layout: docs/format.md, "SSD cache".
//!
//! Invariants:
//! 1. A directory gets its name only after its header and snapshot are durable. So these are whole,
//!    or damaged; only frames of changes may be torn.
//! 2. After a frame is durable an empty frame follows that says so. It is not synced itself. If it
//!    is found, damage of the frame before it is distinguishable from a torn tail.
//! 3. No directory of an earlier process is appended to: an opening starts a new one.
//!
//! Differences from the paper [SSD-DB §2.4.7, §2.5]: the thesis overwrites an entry per slot, and
//! takes a flag in it as atomic. Entries here have several fields that a crash may tear, so that
//! changes are appended in frames. A frame makes all changes of a round appear at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, checksum};
use strandline_device::{Device, File, Tier};

use super::free_slots::Run;
use super::settings::BlockKey;
use super::slots::slots_for;
use crate::frame::{StreamId, put_frame};
use crate::stream::{Extent, Stream};
use crate::version::refuse_unknown;

/// The name of the file.
pub const DIRECTORY_FILE: &str = "ssd-cache-directory";
/// [`DIRECTORY_FILE`] while it is written.
const STAGED: &str = "ssd-cache-directory.tmp";
const MAGIC: &[u8; 8] = b"STRDSSDC";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 64;
/// Changes of one frame.
const FRAME_CHANGES_MAX: usize = 4_096;
/// Bytes of a change.
const CHANGE_BYTES: usize = 32;
/// Bytes by which the file is allocated.
const GROWTH_BYTES: u64 = 64 << 10;

const PUT_CLEAN: u32 = 1;
const PUT_FRESH: u32 = 2;
const TAKE: u32 = 3;

/// An entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// the first slot
    pub slot: u32,
    pub block: BlockKey,
    /// whether the slot may be fresher than the capacity tier
    pub is_fresh: bool,
}

/// A change of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An entry appears; the one of slot `replaces` is removed with it.
    Put(Listed, Option<u32>),
    /// The entry of a slot is removed.
    Take(u32),
}

impl Change {
    fn encode(self, out: &mut Vec<u8>) {
        let (kind, listed, replaces) = match self {
            Self::Put(listed, replaces) if listed.is_fresh => (PUT_FRESH, listed, replaces),
            Self::Put(listed, replaces) => (PUT_CLEAN, listed, replaces),
            Self::Take(slot) => {
                let (file, offset, len) = (0, 0, 0);
                let block = BlockKey { file, offset, len };
                let is_fresh = false;
                (
                    TAKE,
                    Listed {
                        slot,
                        block,
                        is_fresh,
                    },
                    None,
                )
            }
        };
        out.put_u32(kind);
        out.put_u32(listed.slot);
        out.put_u64(listed.block.file);
        out.put_u64(listed.block.offset);
        out.put_u32(listed.block.len);
        // Slot numbers end below 2^32 - 1.
        out.put_u32(replaces.map_or(0, |slot| slot + 1));
    }

    fn decode(r: &mut ByteReader<'_>) -> Option<Self> {
        let (kind, slot) = (r.u32()?, r.u32()?);
        let (file, offset, len) = (r.u64()?, r.u64()?, r.u32()?);
        let replaces = r.u32()?.checked_sub(1);
        let block = BlockKey { file, offset, len };
        let is_fresh = kind == PUT_FRESH;
        let listed = Listed {
            slot,
            block,
            is_fresh,
        };
        match kind {
            PUT_CLEAN | PUT_FRESH => Some(Self::Put(listed, replaces)),
            TAKE => Some(Self::Take(slot)),
            _ => None,
        }
    }
}

/// What a directory's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub identity: u128,
    pub epoch: u64,
    pub slot_bytes: u32,
}

/// A directory as it was found.
#[derive(Debug)]
pub(super) struct Found {
    /// None if the header is damaged
    pub head: Option<Head>,
    /// entries by first slot; those before the damage, if there is damage
    pub entries: BTreeMap<u32, Listed>,
    /// the damage
    pub damage: Option<Error>,
}

/// The directory in force.
#[derive(Debug)]
pub(super) struct Directory {
    head: Head,
    file: Arc<dyn File>,
    /// position of the next frame
    end: u64,
    /// everything before is durable
    durable: u64,
    /// bytes of the file
    allocated: u64,
    /// bytes after which the directory is written anew
    limit: u64,
}

impl Directory {
    /// Writes the directory of a new epoch beside the one in force; durable on return, and in force
    /// once the marker has its epoch. [`Directory::publish`] comes after that.
    pub fn stage(device: &dyn Device, head: Head, entries: &[Listed]) -> Result<Self> {
        if device.list()?.iter().any(|name| name == STAGED) {
            device.remove(STAGED)?;
        }
        let changes: Vec<_> = entries
            .iter()
            .map(|&listed| Change::Put(listed, None))
            .collect();
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let id = stream_id(head);
        put_changes(&mut bytes, id, HEADER_BYTES, &changes);
        let end = bytes.len() as u64;
        bytes.splice(..HEADER_BYTES as usize, encode_header(head, end));
        let file = device.create_on(Tier::Fast, STAGED)?;
        // A quarter of its entries, but many, may change before it is written anew.
        let limit = 4 * end + GROWTH_BYTES;
        let allocated = end + GROWTH_BYTES;
        file.set_len(allocated)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()?;
        device.sync_directory()?;
        Ok(Self {
            head,
            file,
            end,
            durable: end,
            allocated,
            limit,
        })
    }

    /// Gives a staged directory its name; durable on return.
    pub fn publish(device: &dyn Device) -> Result<()> {
        device.rename(STAGED, DIRECTORY_FILE)?;
        device.sync_directory()
    }

    /// Gives the directory of `epoch`, which is in force, its name if a crash came before.
    pub fn finish_publication(device: &dyn Device, epoch: u64) -> Result<()> {
        let epoch_of = |name| -> Result<Option<u64>> {
            let head = read(device, name)?.and_then(|found| found.head);
            Ok(head.map(|head| head.epoch))
        };
        if epoch_of(DIRECTORY_FILE)? != Some(epoch) && epoch_of(STAGED)? == Some(epoch) {
            Self::publish(device)?;
        }
        Ok(())
    }

    /// Whether the directory has grown so much that it should be written anew.
    pub fn is_long(&self) -> bool {
        self.end > self.limit
    }

    /// Appends `changes`; durable on return. After an error the directory must be written anew.
    /// Returns the frames written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn append(&mut self, changes: &[Change]) -> Result<u64> {
        let id = stream_id(self.head);
        let mut bytes = Vec::new();
        let base = self.end;
        let mut frames = 0;
        for changes in changes.chunks(FRAME_CHANGES_MAX) {
            let payload = encode_changes(changes);
            let position = base + bytes.len() as u64;
            put_frame(&mut bytes, id, position, self.durable, &payload);
            frames += 1;
        }
        let end = base + bytes.len() as u64;
        self.allocate(end + GROWTH_BYTES / 2)?;
        self.file.write_all_at(&bytes, base)?;
        self.file.sync()?;
        self.durable = end;
        let mut seal = Vec::new();
        put_frame(&mut seal, id, end, end, &[]);
        self.file.write_all_at(&seal, end)?;
        self.end = end + seal.len() as u64;
        Ok(frames)
    }

    fn allocate(&mut self, end: u64) -> Result<()> {
        if end > self.allocated {
            let allocated = end.next_multiple_of(GROWTH_BYTES);
            self.file.set_len(allocated)?;
            self.allocated = allocated;
        }
        Ok(())
    }

    /// Reads the directory in force, if the marker says `epoch`: the published one, or the staged
    /// one if a crash came before its publication. Without `epoch` the published one. None if there
    /// is none.
    ///
    /// # Errors
    /// 0A000 for another version; those of the device. Damage is part of the result.
    pub fn find(device: &dyn Device, epoch: Option<u64>) -> Result<Option<Found>> {
        let published = read(device, DIRECTORY_FILE)?;
        let is_in_force = |found: &Found| found.head.map(|head| head.epoch) == epoch;
        if published.as_ref().is_some_and(is_in_force) || epoch.is_none() {
            return Ok(published);
        }
        match read(device, STAGED)? {
            Some(staged) if is_in_force(&staged) => Ok(Some(staged)),
            _ => Ok(published),
        }
    }

    /// Removes the directories.
    pub fn remove(device: &dyn Device) -> Result<()> {
        for name in device.list()? {
            if name == DIRECTORY_FILE || name == STAGED {
                device.remove(&name)?;
            }
        }
        Ok(())
    }
}

fn stream_id(head: Head) -> StreamId {
    StreamId {
        database_id: head.identity,
        number: head.epoch,
    }
}

fn encode_changes(changes: &[Change]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(changes.len() * CHANGE_BYTES);
    changes
        .iter()
        .for_each(|change| change.encode(&mut payload));
    payload
}

/// Appends frames of `changes` to `bytes`, whose first byte is at position 0.
fn put_changes(bytes: &mut Vec<u8>, id: StreamId, durable: u64, changes: &[Change]) {
    for changes in changes.chunks(FRAME_CHANGES_MAX) {
        let position = bytes.len() as u64;
        put_frame(bytes, id, position, durable, &encode_changes(changes));
    }
}

fn encode_header(head: Head, snapshot_end: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
    bytes.extend_from_slice(MAGIC);
    bytes.put_u32(VERSION);
    bytes.put_u32(head.slot_bytes);
    bytes.put_u128(head.identity);
    bytes.put_u64(head.epoch);
    bytes.put_u64(snapshot_end);
    bytes.resize(HEADER_BYTES as usize - 4, 0);
    let sum = checksum(&[], &bytes);
    bytes.put_u32(sum);
    bytes
}

/// Head and end of the snapshot.
fn decode_header(bytes: &[u8], name: &str) -> Result<(Head, u64)> {
    let place = format!("\"{name}\"");
    let damaged = |what: &str| Error::corrupt(&place, what);
    let fields = bytes.strip_prefix(MAGIC);
    let mut r = ByteReader::new(fields.ok_or_else(|| damaged("bad magic"))?);
    let (content, sum) = bytes
        .split_at_checked(HEADER_BYTES as usize - 4)
        .ok_or_else(|| damaged("too short"))?;
    let expected = ByteReader::new(sum).u32().unwrap_or_default();
    let got = checksum(&[], content);
    if expected != got {
        return Err(Error::checksum_mismatch(place, expected, got));
    }
    refuse_unknown(name, r.u32().unwrap_or_default(), VERSION..=VERSION)?;
    let mut head = || {
        let slot_bytes = r.u32().filter(|&bytes| bytes > 0)?;
        let (identity, epoch) = (r.u128()?, r.u64()?);
        let head = Head {
            identity,
            epoch,
            slot_bytes,
        };
        Some((head, r.u64()?))
    };
    head().ok_or_else(|| damaged("malformed header"))
}

/// Reads one directory; None if there is none.
fn read(device: &dyn Device, name: &str) -> Result<Option<Found>> {
    if !device.list()?.iter().any(|found| found == name) {
        return Ok(None);
    }
    let mut found = Found {
        head: None,
        entries: BTreeMap::new(),
        damage: None,
    };
    let file = device.open(name)?;
    match replay(&file, name, &mut found) {
        Err(error) if error.kind() == strandline_base::ErrorKind::Corrupt => {
            found.damage = Some(error);
        }
        replayed => replayed?,
    }
    Ok(Some(found))
}

fn replay(file: &Arc<dyn File>, name: &str, found: &mut Found) -> Result<()> {
    let mut header = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut header, 0)?;
    let (head, snapshot_end) = decode_header(&header, name)?;
    found.head = Some(head);
    let len = file.len()?;
    // The file has been allocated as far as this before it was put in force.
    let len_min = snapshot_end.saturating_add(GROWTH_BYTES);
    if len < len_min {
        let what = format!("the file was cut: {len} of at least {len_min} bytes are there");
        return Err(Error::corrupt(format!("\"{name}\""), what));
    }
    let extent = Extent {
        file: file.clone(),
        file_offset: HEADER_BYTES,
        start: HEADER_BYTES,
        bytes: len - HEADER_BYTES,
    };
    let mut stream = Stream::new(stream_id(head), vec![extent]);
    let mut end = HEADER_BYTES;
    while let Some(frame) = stream.read(end)? {
        let at = end;
        end = frame.end;
        apply(frame.payload, head, found)
            .ok_or_else(|| Error::corrupt(stream.place(at), "contradictory changes"))?;
    }
    if end < snapshot_end {
        let what = format!("the directory is damaged: it was whole up to {snapshot_end}");
        return Err(Error::corrupt(stream.place(end), what));
    }
    let behind = stream.find_frames(end)?;
    stream.refuse_damage(end, &behind.strays)
}

/// Applies the changes of one frame; None if they contradict the entries.
fn apply(payload: &[u8], head: Head, found: &mut Found) -> Option<()> {
    let mut r = ByteReader::new(payload);
    let entries = &mut found.entries;
    while r.remaining() > 0 {
        match Change::decode(&mut r)? {
            Change::Take(slot) => {
                entries.remove(&slot);
            }
            Change::Put(listed, replaces) => {
                if let Some(slot) = replaces {
                    entries.remove(&slot);
                }
                let slots = slots_for(listed.block.len, head.slot_bytes);
                let run = Run {
                    start: listed.slot,
                    slots,
                };
                let end = listed.slot.checked_add(slots)?;
                let before = entries.range(..end).next_back();
                let is_free = before.is_none_or(|(&start, before)| {
                    start + slots_for(before.block.len, head.slot_bytes) <= run.start
                });
                if !is_free {
                    return None;
                }
                entries.insert(listed.slot, listed);
            }
        }
    }
    Some(())
}
