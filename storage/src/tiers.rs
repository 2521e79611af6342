//! The two directories of a tiered database belong together: each carries a *role file* with the
//! database's id, the directory's role, and the id of the pair. Objects in a store count as a
//! directory here.
//!
//! A restored copy has the database id of its original, so the database id alone does not tell
//! copies apart. The pair id is drawn when a capacity tier is attached and differs between copies.
//!
//! Invariants:
//! 1. [`check`] only reads. It refuses directories that do not belong together before the database
//!    writes anything, a lock file included.
//! 2. [`attach`] makes the capacity tier's role file durable before the fast tier's. So a database
//!    with a role file has a capacity tier with one. A crash between the two leaves a capacity tier
//!    with a role file and nothing else, which the next opening attaches under a new pair id.
//! 3. A crash never tears a role file: it is written under [`ROLE_FILE_STAGED`] and renamed. Where
//!    files come into being as a whole ([`Device::is_written_once`]) it is created under its own
//!    name, so of two databases that attach one place at the same time the second is refused.
//!
//! Which copy of a directory may change the objects of a store says [`owner`].
//!
//! The byte layout is in docs/format.md, section "Two directories".

pub mod owner;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result, SqlState, checksum};
use strandline_device::{Device, ROLE_FILE, ROLE_FILE_STAGED, Tier, is_own_file};

use crate::manifest::Manifest;
use crate::pages::page_file_id;
use crate::ssd_cache::MARKER_FILE;
use crate::version::refuse_unknown;

const MAGIC: &[u8; 8] = b"STRDTIER";
const VERSION: u32 = 1;
/// Bytes before the recorded path.
const HEADER_BYTES: usize = 64;
/// The place of the checksum, the header's last field.
const CHECKSUM_AT: usize = HEADER_BYTES - 4;
/// No file system has longer paths.
const PATH_BYTES_MAX: u64 = 64 << 10;

/// The content of a role file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Role {
    tier: Tier,
    database_id: u128,
    pair_id: u128,
    /// path of the capacity tier; empty in its own file
    capacity_path: String,
}

impl Role {
    fn encode(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_BYTES + self.capacity_path.len());
        head.extend_from_slice(MAGIC);
        head.put_u32(VERSION);
        head.put_u32(match self.tier {
            Tier::Fast => 1,
            Tier::Capacity => 2,
        });
        head.put_u128(self.database_id);
        head.put_u128(self.pair_id);
        head.put_u32(self.capacity_path.len() as u32);
        head.resize(CHECKSUM_AT, 0);
        let path = self.capacity_path.as_bytes();
        let sum = checksum(&[], &[&head, path].concat());
        head.put_u32(sum);
        head.extend_from_slice(path);
        head
    }

    /// Decodes a file's content; `place` is its name for messages.
    fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        let damaged = |what: &str| Error::corrupt(place, what).with_hint(HINT_DAMAGED);
        let split = bytes.split_at_checked(HEADER_BYTES);
        let (header, path) = split.ok_or_else(|| damaged("the role file is too short"))?;
        let fields = header.strip_prefix(MAGIC);
        let fields = fields.ok_or_else(|| damaged("not a role file (bad magic)"))?;
        let (checked, expected) = header.split_at(CHECKSUM_AT);
        let expected = ByteReader::new(expected).u32().unwrap_or_default();
        let got = checksum(&[], &[checked, path].concat());
        if expected != got {
            let error = Error::checksum_mismatch(place, expected, got);
            return Err(error.with_hint(HINT_DAMAGED));
        }
        let mut r = ByteReader::new(fields);
        let version = r.u32().unwrap_or_default();
        refuse_unknown(ROLE_FILE, version, VERSION..=VERSION)?;
        let mut role = || {
            let tier = match r.u32()? {
                1 => Tier::Fast,
                2 => Tier::Capacity,
                _ => return None,
            };
            let (database_id, pair_id) = (r.u128()?, r.u128()?);
            let capacity_path = String::from_utf8(path.to_vec()).ok()?;
            (r.u32()? as usize == path.len()).then_some(Self {
                tier,
                database_id,
                pair_id,
                capacity_path,
            })
        };
        role().ok_or_else(|| damaged("malformed"))
    }

    /// The role file in the directory of `device`, which is one directory; None without one.
    fn read(device: &dyn Device) -> Result<Option<Self>> {
        if !holds(device, ROLE_FILE)? {
            return Ok(None);
        }
        let file = device.open(ROLE_FILE)?;
        let len = file.len()?.min(PATH_BYTES_MAX);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let place = format!("\"{}\": \"{ROLE_FILE}\"", device.location());
        Self::decode(&bytes, &place).map(Some)
    }

    /// Writes the role file of the directory of `device`; durable on return.
    fn write(&self, device: &dyn Device) -> Result<()> {
        let is_staged = !device.is_written_once(self.tier);
        let name = match is_staged {
            true => ROLE_FILE_STAGED,
            false => {
                // The file of an attachment that a crash has interrupted.
                if holds(device, ROLE_FILE)? {
                    device.remove(ROLE_FILE)?;
                }
                ROLE_FILE
            }
        };
        let file = device.create(name)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        if is_staged {
            device.rename(ROLE_FILE_STAGED, ROLE_FILE)?;
        }
        device.sync_directory()
    }
}

const HINT_DAMAGED: &str = "Restore the role file or the whole database from a backup.";

fn holds(device: &dyn Device, file: &str) -> Result<bool> {
    Ok(device.list()?.iter().any(|name| name == file))
}

/// The first file of a directory that is no part of taking it into use.
fn first_file(device: &dyn Device) -> Result<Option<String>> {
    let mut names = device.list()?.into_iter();
    Ok(names.find(|name| !is_own_file(name)))
}

fn refused(message: String, hint: &str) -> Error {
    Error::invalid(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(hint)
}

/// How messages speak of a capacity tier.
struct Words {
    /// what it is
    tier: &'static str,
    /// what is in it
    files: &'static str,
    /// what to do about one that holds a database
    hint_database: &'static str,
    /// what to do about one that is not empty
    hint_occupied: &'static str,
    /// what to do about one that is not the database's
    hint_missing: &'static str,
    /// what to do about another database's
    hint_foreign: &'static str,
}

const DIRECTORY: Words = Words {
    tier: "capacity directory",
    files: "files",
    hint_database: "The two directories may have been exchanged. A capacity directory is a \
                    directory of its own, empty at first.",
    hint_occupied: "Give an empty directory, or a new one.",
    hint_missing: "Mount the device of the capacity directory, or set capacity_dir to where it is \
                   now.",
    hint_foreign: "Set capacity_dir to the directory that belongs to this database. A copy of a \
                   database has a capacity directory of its own.",
};

const OBJECTS: Words = Words {
    tier: "object store",
    files: "objects",
    hint_database: "Set capacity_url to a prefix of its own, without objects at first.",
    hint_occupied: "Set capacity_url to a prefix without objects.",
    hint_missing: "Set capacity_url to where the database's objects are, or put them back. \
                   Without them restore a backup.",
    hint_foreign: "Set capacity_url to the objects that belong to this database. A copy of a \
                   database has objects of its own.",
};

/// The words for the capacity tier on `device`.
fn words(device: &dyn Device) -> &'static Words {
    match device.is_written_once(Tier::Capacity) {
        true => &OBJECTS,
        false => &DIRECTORY,
    }
}

/// Refuses directories that are not all of one database's. Only reads.
///
/// # Errors
/// 55000, naming the directory, if the capacity tier is missing, empty, foreign, exchanged with the
/// fast tier, or a copy of a directory with page files in an object store; XX001 for a damaged role
/// file.
pub fn check(device: &dyn Device) -> Result<()> {
    let Some(tiers) = device.tiers() else {
        return check_alone(device);
    };
    let fast = &**tiers.device_of(Tier::Fast);
    let capacity = &**tiers.device_of(Tier::Capacity);
    let (fast_role, capacity_role) = (Role::read(fast)?, Role::read(capacity)?);
    if let Some(role) = &fast_role {
        if role.tier == Tier::Capacity {
            return Err(is_capacity_tier(fast));
        }
        check_identity(role, fast)?;
    }
    let is_fast = |role: &Role| role.tier == Tier::Fast;
    if capacity_role.as_ref().is_some_and(is_fast) || Manifest::has_superblock(capacity)? {
        let words = words(capacity);
        let (tier, place) = (words.tier, capacity.location());
        let message = format!("{tier} \"{place}\" holds a database itself");
        return Err(refused(message, words.hint_database));
    }
    match (fast_role, capacity_role) {
        (None, capacity_role) => check_unattached(fast, capacity, capacity_role),
        (Some(_), None) => Err(not_capacity_tier(fast, capacity)?),
        (Some(fast_role), Some(role)) => {
            let is_pair =
                (role.database_id, role.pair_id) == (fast_role.database_id, fast_role.pair_id);
            let ids = |role: &Role| named_ids(role.database_id, Some(role.pair_id));
            is_pair.then_some(()).ok_or_else(|| {
                foreign(fast, capacity).with_detail(format!(
                    "The {} has {}; the directory has {}.",
                    words(capacity).tier,
                    ids(&role),
                    ids(&fast_role)
                ))
            })?;
            check_written_once(capacity)
        }
    }
}

/// Refuses an object store with files that are overwritten: somebody has copied a capacity
/// directory there.
fn check_written_once(capacity: &dyn Device) -> Result<()> {
    if !capacity.is_written_once(Tier::Capacity) {
        return Ok(());
    }
    let mut names = capacity.list()?.into_iter();
    let Some(name) = names.find(|name| page_file_id(name).is_some() || name == MARKER_FILE) else {
        return Ok(());
    };
    Err(refused(
        format!(
            "object store \"{}\" has a file that would have to be overwritten (\"{name}\")",
            capacity.location()
        ),
        "A capacity directory moves to an object store by a backup, which is restored there.",
    ))
}

/// Checks a directory that is opened by itself.
fn check_alone(device: &dyn Device) -> Result<()> {
    let Some(role) = Role::read(device)? else {
        return Ok(());
    };
    if role.tier == Tier::Capacity {
        return Err(is_capacity_tier(device));
    }
    Err(refused(
        format!(
            "the database in \"{}\" has a second directory, which is missing here",
            device.location()
        ),
        &format!(
            "Set capacity_dir or capacity_url to its capacity tier; it was last at \"{}\".",
            role.capacity_path
        ),
    ))
}

/// Checks directories that are about to become a pair.
fn check_unattached(
    fast: &dyn Device,
    capacity: &dyn Device,
    capacity_role: Option<Role>,
) -> Result<()> {
    let found = first_file(capacity)?;
    match (capacity_role, found) {
        (None, None) => Ok(()),
        // A crash has interrupted `attach`.
        (Some(role), None) if Some(role.database_id) == Manifest::identity(fast)? => Ok(()),
        (Some(role), _) => {
            let theirs = named_ids(role.database_id, Some(role.pair_id));
            let own = Manifest::identity(fast)?;
            let ours = own.map_or_else(|| "no database".to_owned(), |id| named_ids(id, None));
            let tier = words(capacity).tier;
            let detail = format!("The {tier} has {theirs}; the directory has {ours}.");
            Err(foreign(fast, capacity).with_detail(detail))
        }
        (None, Some(file)) => {
            let Words { tier, files, .. } = words(capacity);
            let place = capacity.location();
            let message = format!("{tier} \"{place}\" holds other {files} (\"{file}\")");
            Err(refused(message, words(capacity).hint_occupied))
        }
    }
}

fn check_identity(role: &Role, fast: &dyn Device) -> Result<()> {
    match Manifest::identity(fast)? {
        Some(id) if id != role.database_id => Err(refused(
            format!(
                "\"{}\": file \"{ROLE_FILE}\" belongs to another database",
                fast.location()
            ),
            "Put the file back that belongs to the superblock beside it, or restore a backup.",
        )),
        _ => Ok(()),
    }
}

fn is_capacity_tier(device: &dyn Device) -> Error {
    refused(
        format!(
            "\"{}\" is the capacity directory of a database",
            device.location()
        ),
        "Open the database's own directory, the one with the superblock, and give this one as \
         capacity_dir.",
    )
}

/// The error for a capacity directory without a role file beside a database that has one.
fn not_capacity_tier(fast: &dyn Device, capacity: &dyn Device) -> Result<Error> {
    let words = words(capacity);
    let found = match first_file(capacity)? {
        Some(file) => format!("holds other {} (\"{file}\")", words.files),
        None => "is empty".to_owned(),
    };
    Ok(refused(
        format!(
            "{} \"{}\" {found}, but the database in \"{}\" has chunk files",
            words.tier,
            capacity.location(),
            fast.location()
        ),
        words.hint_missing,
    ))
}

/// The ids of a database and of a pair, for messages.
fn named_ids(database_id: u128, pair_id: Option<u128>) -> String {
    let pair = pair_id.map_or_else(|| "none".to_owned(), |id| format!("{id:032x}"));
    format!("database id {database_id:032x}, pair id {pair}")
}

fn foreign(fast: &dyn Device, capacity: &dyn Device) -> Error {
    let words = words(capacity);
    refused(
        format!(
            "{} \"{}\" belongs to another database than \"{}\"",
            words.tier,
            capacity.location(),
            fast.location()
        ),
        words.hint_foreign,
    )
}

/// Attaches the capacity tier to the database `database_id`, and records where it is. `device` is
/// locked and has passed [`check`]. `pair_id` is random; returns that of the pair. Nothing happens
/// if the device is one directory.
///
/// # Errors
/// Those of the device.
pub fn attach(device: &dyn Device, database_id: u128, pair_id: u128) -> Result<Option<u128>> {
    let Some(tiers) = device.tiers() else {
        return Ok(None);
    };
    let fast = &**tiers.device_of(Tier::Fast);
    let capacity = &**tiers.device_of(Tier::Capacity);
    for directory in [fast, capacity] {
        if holds(directory, ROLE_FILE_STAGED)? {
            directory.remove(ROLE_FILE_STAGED)?;
        }
    }
    let fast_role = Role::read(fast)?;
    let pair_id = fast_role.as_ref().map_or(pair_id, |role| role.pair_id);
    let role = |tier, path: &str| Role {
        tier,
        database_id,
        pair_id,
        capacity_path: path.to_owned(),
    };
    if fast_role.is_none() {
        role(Tier::Capacity, "").write(capacity)?;
    }
    let wanted = role(Tier::Fast, tiers.capacity_path());
    if fast_role.as_ref() != Some(&wanted) {
        wanted.write(fast)?;
    }
    Ok(Some(pair_id))
}

/// The path of the capacity tier that the database on `device` has recorded; None if it has one
/// directory. `device` is its own directory.
///
/// # Errors
/// XX001 for a damaged role file, those of the device.
pub fn recorded_capacity_path(device: &dyn Device) -> Result<Option<String>> {
    let role = Role::read(device)?.filter(|role| role.tier == Tier::Fast);
    Ok(role.map(|role| role.capacity_path))
}

#[cfg(test)]
mod tests;
