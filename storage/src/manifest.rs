//! The manifest: the files of the database, as one snapshot and the edits since. Each edit is
//! atomic, and durable when [`Manifest::append`] returns. The engine defines the content.
//!
//! # Files
//! `superblock` names the generation in force; `manifest-<generation>` holds a header and framed
//! records (see `frame`): the snapshot first, then edits. [`Manifest::compact`] writes the next
//! generation completely, makes it and its name durable, and only then switches the superblock.
//!
//! # Invariants
//! 1. Each record is durable before the next is written. So an intact record after a damaged one
//!    proves damage, and a damaged last edit was never acknowledged and is cut.
//! 2. The superblock never names a manifest whose snapshot is not durable.
//! 3. The space of a record is allocated before it is written, so a full disk refuses an edit
//!    without a trace. After any other failed write, or a failed sync, the state of the record is
//!    unknown: every later call fails with the same `Closed` error.
//! 4. When `compact` or `open` has returned, both superblock slots name the same generation. A
//!    damaged slot is tolerated and can never restore an older state.
//! 5. After the last edit there is a *mark*, an empty frame that proves that the edit is durable;
//!    the next edit overwrites it. Without it, damage to the last edit would look like a torn write
//!    and silently restore the state before. The mark is written after the edit's sync and not
//!    synced itself: a crash may lose it, and with it only this proof.
//! 6. `open` rewrites data that may not be durable before it syncs: the last edit without a mark,
//!    and the superblock slot written last. After a failed sync lost bytes stay readable, and a
//!    later sync succeeds without writing them.
//!
//! # Creation
//! Generation 0 in the superblock marks a directory in creation. The switch to generation 1 creates
//! the database; files of an earlier attempt are removed before. `create` returns, and `open`
//! allows use of the database, only when no slot has generation 0.

mod superblock;

use std::ops::RangeInclusive;
use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind, Result, SqlState, checksum};
use strandline_device::{CONFIGURATION_FILE, Device, File, is_own_file};

use crate::frame::{FRAME_HEADER_BYTES, PAYLOAD_BYTES_MAX, StreamId, frame_bytes, put_frame};
use crate::stream::{Extent, Stream};
use crate::version::refuse_unknown;
use superblock::{Content, OtherSlot, SUPERBLOCK_FILE, Slot, Torn};

/// The version of the superblock and manifest format, and of the directory as a whole.
/// Version 2: catalogs are differences, the time map, storages that are behind.
pub const MANIFEST_FORMAT_VERSION: u32 = 2;
/// The supported versions.
const KNOWN: RangeInclusive<u32> = 2..=MANIFEST_FORMAT_VERSION;

const MAGIC: &[u8; 8] = b"STRDMAN1";
const NAME_PREFIX: &str = "manifest-";
/// Bytes of the header's block; records start after it.
const HEADER_BYTES: u64 = 64;
/// Bytes of the header's fields, checksum included.
const HEADER_USED_BYTES: usize = 40;
/// A manifest file grows in multiples of this.
const GROWTH_BYTES: u64 = 64 << 10;
/// Bytes of an empty frame.
const MARK_BYTES: u64 = FRAME_HEADER_BYTES as u64;
/// Bytes by which edits may exceed the snapshot before compaction is worthwhile.
const EDIT_BYTES_BEFORE_COMPACTION: u64 = 64 << 10;

/// The name prefixes of a database's files.
const FILE_PREFIXES: [&str; 5] = [NAME_PREFIX, "wal-", "chunks-", "run-", "kept-"];

/// The database's root: a sequence of opaque edits (encoded by the engine), each atomic and durable
/// when `append` returns. Compaction replaces them by a snapshot.
#[derive(Debug)]
pub struct Manifest {
    device: Arc<dyn Device>,
    superblock: Arc<dyn File>,
    database_id: u128,
    state: Mutex<OpenManifest>,
    /// damage that opening has repaired
    mended: Vec<String>,
}

#[derive(Debug)]
struct OpenManifest {
    file: Arc<dyn File>,
    generation: u64,
    /// Where the snapshot ends and the edits begin.
    edits_start: u64,
    /// Where the next edit goes.
    end: u64,
    /// The file's length: allocated space.
    allocated: u64,
    failure: Option<Error>,
}

impl Manifest {
    /// Whether the device holds a database (of any version, or a damaged one). False if it is empty
    /// or holds an unfinished creation.
    ///
    /// # Errors
    /// 55000 for a directory with other files; XX001 for database files without a superblock.
    pub fn exists(device: &dyn Device) -> Result<bool> {
        let names = device.list()?;
        let others = || names.iter().filter(|name| !is_beside(name));
        let ours = |name: &&String| is_database_file(name);
        if !names.iter().any(|name| name == SUPERBLOCK_FILE) {
            if let Some(file) = others().find(ours) {
                return Err(Error::corrupt(
                    format!("\"{}\"", device.location()),
                    format!("the superblock is missing, but database file \"{file}\" is there"),
                )
                .with_hint("Restore the file \"superblock\", or the directory from a backup."));
            }
            return match others().next() {
                Some(file) => Err(foreign_error(device, file)),
                None => Ok(false),
            };
        }
        let content = match superblock::read(&*device.open(SUPERBLOCK_FILE)?) {
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(true),
            other => other?,
        };
        match content {
            Content::Valid { slot, .. } => Ok(slot.generation > 0),
            Content::Unfinished => Ok(others().next().is_some()),
            Content::Damaged => Ok(true),
            Content::Foreign if others().any(|name| is_database_file(name)) => Ok(true),
            Content::Foreign => Err(foreign_error(device, SUPERBLOCK_FILE)),
        }
    }

    /// Whether the device has a superblock, in whatever state.
    pub fn has_superblock(device: &dyn Device) -> Result<bool> {
        Ok(device.list()?.iter().any(|name| name == SUPERBLOCK_FILE))
    }

    /// The id of the database on the device; None if there is no intact superblock.
    ///
    /// # Errors
    /// 0A000 if the format is newer; those of the device.
    pub fn identity(device: &dyn Device) -> Result<Option<u128>> {
        Ok(Self::slot(device)?.map(|slot| slot.database_id))
    }

    /// The slot in force; None if there is no intact superblock.
    fn slot(device: &dyn Device) -> Result<Option<Slot>> {
        if !Self::has_superblock(device)? {
            return Ok(None);
        }
        match superblock::read(&*device.open(SUPERBLOCK_FILE)?)? {
            Content::Valid { slot, .. } => Ok(Some(slot)),
            _ => Ok(None),
        }
    }

    /// Creates a database. Marks the directory as in creation, removes the files of an earlier
    /// attempt, runs `create_log` (which creates all other parts of an empty database), writes
    /// generation 1 with `snapshot` as its first record and puts it in force.
    ///
    /// The caller has found [`Manifest::exists`] to be false. `database_id` is random.
    pub fn create<L>(
        device: Arc<dyn Device>,
        database_id: u128,
        snapshot: &[u8],
        create_log: impl FnOnce() -> Result<L>,
    ) -> Result<(Self, L)> {
        Self::remove_unfinished(&*device)?;
        let superblock = superblock::create(&*device, database_id)?;
        let log = create_log()?;
        let state = write_generation(&*device, database_id, 1, snapshot)?;
        let slot = Slot {
            generation: 1,
            database_id,
        };
        superblock::switch(&*superblock, slot)?;
        superblock::complete(&*superblock, slot)?;
        let state = Mutex::new(state);
        Ok((
            Self {
                device,
                superblock,
                database_id,
                state,
                mended: Vec::new(),
            },
            log,
        ))
    }

    /// Removes the files of an unfinished creation. The superblock is last, so that the directory
    /// is marked as in creation as long as other files exist.
    pub fn remove_unfinished(device: &dyn Device) -> Result<()> {
        let names = device.list()?;
        for name in names.iter().filter(|name| is_database_file(name)) {
            device.remove(name)?;
        }
        device.sync_directory()?;
        if names.iter().any(|name| name == SUPERBLOCK_FILE) {
            device.remove(SUPERBLOCK_FILE)?;
        }
        Ok(())
    }

    /// The files of the database on `device`, the superblock last. A copy in this order becomes a
    /// database only when it is complete.
    pub fn files_superblock_last(device: &dyn Device) -> Result<Vec<String>> {
        let mut names = device.list()?;
        names.retain(|name| is_database_file(name));
        names.push(SUPERBLOCK_FILE.to_owned());
        Ok(names)
    }

    /// Opens and returns the snapshot followed by all whole edits.
    ///
    /// # Errors
    /// 0A000 with both versions if the format is newer; XX001 with file and offset for damage.
    pub fn open(device: Arc<dyn Device>) -> Result<(Self, Vec<Vec<u8>>)> {
        let superblock = device.open(SUPERBLOCK_FILE)?;
        let Content::Valid { slot, other } = superblock::read(&*superblock)? else {
            return Err(Error::corrupt(
                format!(
                    "\"{}\": \"{SUPERBLOCK_FILE}\" at offset 0",
                    device.location()
                ),
                "both slots are damaged",
            ));
        };
        let Slot {
            generation,
            database_id,
        } = slot;
        let names = device.list()?;
        let name = manifest_name(generation);
        if !names.contains(&name) {
            return Err(Error::corrupt(
                format!("\"{}\"", device.location()),
                format!("the superblock names \"{name}\", which is missing"),
            ));
        }
        let file = device.open(&name)?;
        let (state, records) = read_generation(file, database_id, generation)?;
        let damaged = damaged_slot(&*device, slot, &other, &names, records.len());
        let mended = damaged.into_iter().collect();
        if other != OtherSlot::Same {
            superblock::switch(&*superblock, slot)?;
        }
        // Also if the slot has the content already (invariant 6); the other slot was durable
        // before.
        superblock::complete(&*superblock, slot)?;
        // Only now: until then these files show that a crash has torn a slot.
        for left in names
            .iter()
            .filter(|n| n.starts_with(NAME_PREFIX) && **n != name)
        {
            device.remove(left)?;
        }
        let state = Mutex::new(state);
        Ok((
            Self {
                device,
                superblock,
                database_id,
                state,
                mended,
            },
            records,
        ))
    }

    /// The records in force of the database on `device`, whose name for messages is the second
    /// part. Only reads; None if there is no database, or a damaged superblock.
    ///
    /// # Errors
    /// Those of [`Manifest::open`].
    pub fn read(device: &dyn Device) -> Result<Option<(Vec<Vec<u8>>, String)>> {
        let Some(slot) = Self::slot(device)?.filter(|slot| slot.generation > 0) else {
            return Ok(None);
        };
        let name = manifest_name(slot.generation);
        let place = format!("\"{}\": {name}", device.location());
        let scanned = scan_generation(device.open(&name)?, slot.database_id, slot.generation)?;
        Ok(Some((scanned.records, place)))
    }

    /// Replaces the records on `copy`, a copy of the files of the database on `source` that has no
    /// superblock yet, by `snapshot`.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn replace_in_copy(source: &dyn Device, copy: &dyn Device, snapshot: &[u8]) -> Result<()> {
        let slot = Self::slot(source)?;
        let slot = slot.ok_or_else(|| Error::internal("a copy of no database"))?;
        write_generation(copy, slot.database_id, slot.generation, snapshot).map(drop)
    }

    /// The random id that all files of one database carry.
    pub fn database_id(&self) -> u128 {
        self.database_id
    }

    /// Damage that opening has repaired from redundant data, one line each.
    pub fn mended(&self) -> &[String] {
        &self.mended
    }

    /// Appends one edit, which must not be empty; durable on return.
    ///
    /// # Errors
    /// 53100 if there is no space (nothing was changed). After a failed write or sync all later
    /// calls fail with the same `Closed` error. It is then unknown whether the next open finds the
    /// edit, so no file that it names may be removed.
    pub fn append(&self, edit: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        state.check_usable()?;
        check_size(edit)?;
        if edit.is_empty() {
            return Err(Error::internal(
                "an empty manifest edit would look like a mark",
            ));
        }
        let end = state.end + frame_bytes(edit.len());
        if end + MARK_BYTES > state.allocated {
            let wanted = (end + MARK_BYTES).next_multiple_of(GROWTH_BYTES);
            state.file.set_len(wanted)?;
            state.allocated = wanted;
        }
        let stream = self.stream(state.generation);
        let mut frame = Vec::with_capacity((end - state.end) as usize);
        put_frame(&mut frame, stream, state.end, state.end, edit);
        let outcome = state
            .file
            .write_all_at(&frame, state.end)
            .and_then(|()| state.file.sync())
            .and_then(|()| put_mark(&*state.file, stream, end));
        if let Err(cause) = outcome {
            return Err(state.fail(&cause));
        }
        state.end = end;
        Ok(())
    }

    /// Whether the edits since the snapshot take so much space that [`Manifest::compact`] is
    /// worthwhile.
    pub fn should_compact(&self) -> bool {
        let state = self.state.lock();
        let edit_bytes = state.end - state.edits_start;
        edit_bytes > EDIT_BYTES_BEFORE_COMPACTION + (state.edits_start - HEADER_BYTES)
    }

    /// Starts the next generation with `snapshot` and switches the superblock to it atomically.
    ///
    /// # Errors
    /// Before the switch: the cause, and the manifest is unchanged. At the switch: all later calls
    /// fail with the same `Closed` error.
    pub fn compact(&self, snapshot: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        state.check_usable()?;
        let generation = state.generation + 1;
        let next = write_generation(&*self.device, self.database_id, generation, snapshot)?;
        let slot = Slot {
            generation,
            database_id: self.database_id,
        };
        if let Err(cause) = superblock::switch(&*self.superblock, slot) {
            return Err(state.fail(&cause));
        }
        let old = manifest_name(state.generation);
        *state = next;
        // Invariant 4: before both slots name it no later edit may be acknowledged.
        if let Err(cause) = superblock::complete(&*self.superblock, slot) {
            return Err(state.fail(&cause));
        }
        // If this fails the next open removes the file.
        let _ = self.device.remove(&old);
        Ok(())
    }

    /// The sticky error after a failed write or sync.
    pub fn check_usable(&self) -> Result<()> {
        self.state.lock().check_usable()
    }

    /// Name and length in bytes of the manifest file in force, for inspection.
    pub fn file(&self) -> (String, u64) {
        let state = self.state.lock();
        (manifest_name(state.generation), state.allocated)
    }

    fn stream(&self, generation: u64) -> StreamId {
        StreamId {
            database_id: self.database_id,
            number: generation,
        }
    }
}

impl OpenManifest {
    fn check_usable(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, cause: &Error) -> Error {
        let error = Error::new(
            ErrorKind::Closed,
            SqlState::IO_ERROR,
            format!("the database refuses writes since its manifest could not be stored: {cause}"),
        )
        .with_hint("Check the device, then close and reopen the database.");
        self.failure = Some(error.clone());
        error
    }
}

/// Whether a file name belongs to a database, except the superblock.
fn is_database_file(name: &str) -> bool {
    FILE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn foreign_error(device: &dyn Device, file: &str) -> Error {
    Error::invalid(
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!(
            "\"{}\" is not a Strandline database: it holds other files (\"{file}\")",
            device.location()
        ),
    )
    .with_hint("Give the directory of a database, an empty directory, or a new one.")
}

fn check_size(payload: &[u8]) -> Result<()> {
    if payload.len() <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a manifest record of {} bytes",
        payload.len()
    )))
}

fn manifest_name(generation: u64) -> String {
    format!("{NAME_PREFIX}{generation:016x}")
}

fn encode_header(database_id: u128, generation: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES as usize);
    out.extend_from_slice(MAGIC);
    out.put_u32(MANIFEST_FORMAT_VERSION);
    out.put_u128(database_id);
    out.put_u64(generation);
    let sum = checksum(&[], &out);
    out.put_u32(sum);
    debug_assert_eq!(out.len(), HEADER_USED_BYTES);
    out.resize(HEADER_BYTES as usize, 0);
    out
}

/// Proves that everything before `end` is durable (invariant 5).
fn put_mark(file: &dyn File, stream: StreamId, end: u64) -> Result<()> {
    let mut frame = Vec::with_capacity(MARK_BYTES as usize);
    put_frame(&mut frame, stream, end, end, &[]);
    file.write_all_at(&frame, end)
}

/// The report about the superblock slot that is not in force, if no crash explains its state.
/// `records` is the number of the manifest's records.
fn damaged_slot(
    device: &dyn Device,
    slot: Slot,
    other: &OtherSlot,
    names: &[String],
    records: usize,
) -> Option<String> {
    let OtherSlot::Broken(index, bytes) = other else {
        return None;
    };
    let is_there = |generation| names.contains(&manifest_name(generation));
    let is_first = slot.generation == 1;
    let torn = Torn {
        // Edits are made only after the completion.
        completing: records == 1 && (is_first || is_there(slot.generation.saturating_sub(1))),
        switching: is_there(slot.generation + 1),
    };
    (!torn.explains(slot, *index, bytes)).then(|| {
        format!(
            "\"{}\": \"{SUPERBLOCK_FILE}\": slot {index} was damaged; it has been restored from \
             the other one",
            device.location()
        )
    })
}

/// Writes manifest file `generation` with its snapshot; file and name are durable on return. After
/// an error the file is removed.
fn write_generation(
    device: &dyn Device,
    database_id: u128,
    generation: u64,
    snapshot: &[u8],
) -> Result<OpenManifest> {
    check_size(snapshot)?;
    let name = manifest_name(generation);
    if device.list()?.contains(&name) {
        device.remove(&name)?;
    }
    let file = device.create(&name)?;
    let end = HEADER_BYTES + frame_bytes(snapshot.len());
    let allocated = end.next_multiple_of(GROWTH_BYTES);
    let mut bytes = encode_header(database_id, generation);
    let stream = StreamId {
        database_id,
        number: generation,
    };
    put_frame(&mut bytes, stream, HEADER_BYTES, HEADER_BYTES, snapshot);
    let written = (|| {
        file.set_len(allocated)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()?;
        device.sync_directory()
    })();
    if let Err(e) = written {
        // Frees the space; the superblock does not name this file.
        let _ = device.remove(&name);
        return Err(e);
    }
    Ok(OpenManifest {
        file,
        generation,
        edits_start: end,
        end,
        allocated,
        failure: None,
    })
}

/// The records of a manifest file, and where they are.
struct Scanned {
    stream: Stream,
    records: Vec<Vec<u8>>,
    allocated: u64,
    /// where the last record begins
    last: u64,
    end: u64,
    edits_start: u64,
    is_marked: bool,
}

/// Reads a manifest file; changes nothing.
fn scan_generation(file: Arc<dyn File>, database_id: u128, generation: u64) -> Result<Scanned> {
    let allocated = file.len()?;
    check_header(&*file, allocated, database_id, generation)?;
    let extent = Extent {
        file,
        file_offset: HEADER_BYTES,
        start: HEADER_BYTES,
        bytes: allocated - HEADER_BYTES,
    };
    let id = StreamId {
        database_id,
        number: generation,
    };
    let mut stream = Stream::new(id, vec![extent]);
    let mut records = Vec::new();
    let (mut end, mut edits_start) = (HEADER_BYTES, HEADER_BYTES);
    let mut last = HEADER_BYTES;
    let mut is_marked = false;
    while let Some(frame) = stream.read(end)? {
        is_marked = frame.payload.is_empty() && !records.is_empty();
        if is_marked {
            break;
        }
        (last, end) = (end, frame.end);
        if records.is_empty() {
            edits_start = end;
        }
        records.push(frame.payload.to_vec());
    }
    let strays = stream.find_frames(end)?.strays;
    stream.refuse_damage(end, &strays)?;
    if records.is_empty() {
        return Err(Error::corrupt(
            stream.place(end),
            "the snapshot record is damaged",
        ));
    }
    Ok(Scanned {
        stream,
        records,
        allocated,
        last,
        end,
        edits_start,
        is_marked,
    })
}

/// Reads a manifest file that edits will be appended to, and makes its last edit durable.
fn read_generation(
    file: Arc<dyn File>,
    database_id: u128,
    generation: u64,
) -> Result<(OpenManifest, Vec<Vec<u8>>)> {
    let mut scanned = scan_generation(file.clone(), database_id, generation)?;
    let (end, allocated) = (scanned.end, scanned.allocated);
    let is_unmarked_edit = !scanned.is_marked && end > scanned.edits_start;
    if is_unmarked_edit {
        // It may be readable without being durable, after a failed sync (invariant 6).
        scanned.stream.rewrite(scanned.last, end)?;
    }
    file.sync()?;
    if is_unmarked_edit && end + MARK_BYTES <= allocated {
        let id = StreamId {
            database_id,
            number: generation,
        };
        put_mark(&*file, id, end)?;
    }
    Ok((
        OpenManifest {
            file,
            generation,
            edits_start: scanned.edits_start,
            end,
            allocated,
            failure: None,
        },
        scanned.records,
    ))
}

fn check_header(file: &dyn File, len: u64, database_id: u128, generation: u64) -> Result<()> {
    let place = || format!("\"{}\" at offset 0", file.name());
    if len <= HEADER_BYTES {
        return Err(Error::corrupt(
            place(),
            format!("the file was cut to {len} bytes"),
        ));
    }
    let mut bytes = vec![0; HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    if bytes == encode_header(database_id, generation) {
        return Ok(());
    }
    bytes.truncate(HEADER_USED_BYTES);
    let (body, sum) = bytes.split_at(HEADER_USED_BYTES - 4);
    if let Some(fields) = body.strip_prefix(MAGIC)
        && sum == checksum(&[], body).to_le_bytes()
    {
        let version = ByteReader::new(fields).u32();
        refuse_unknown(file.name(), version.expect("a fixed length"), KNOWN)?;
    }
    Err(Error::corrupt(
        place(),
        "the header is damaged or belongs to another database",
    ))
}

/// Files that say nothing about whether a directory holds a database.
fn is_beside(name: &str) -> bool {
    [SUPERBLOCK_FILE, CONFIGURATION_FILE].contains(&name) || is_own_file(name)
}

#[cfg(test)]
mod tests;
