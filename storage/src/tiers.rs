//! The two directories of a tiered database belong together: each carries a *role file* with the
//! database's id, the directory's role, and the id of the pair. Objects in a store count as a
//! directory here.
//!
//! A restored copy has the database id of its original, so the database id alone does not tell
//! copies apart. The pair id is drawn when a capacity tier is attached and differs between copies.
//! Directories that were copied file by file have the pair id of their originals, too. They are
//! told by the number of the directory, which each role file records (`copies`): a copy is refused
//! until the caller names a capacity directory that is a copy as well. Both then get a new pair id.
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
//! 4. The fast tier's new file is durable under [`ROLE_FILE_STAGED`] before the capacity tier's is
//!    replaced. So after a crash between the two, in the middle of a change of the pair id, the
//!    staged file is the one that matches the capacity tier's, and is in force.
//!
//! The manifest records the pair, too ([`PairRecord`]): a database whose role file is lost is not
//! taken for one of one directory. With the capacity tier of that pair the file is written anew.
//!
//! Which copy of a directory may change the objects of a store says [`owner`].
//!
//! The byte layout is in docs/format.md, section "Two directories".

mod copies;
pub mod owner;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, ErrorKind, Result, SqlState, checksum};
use strandline_device::{
    CapacityChoice, Device, File, ROLE_FILE, ROLE_FILE_STAGED, TAKEOVER_FILE, Tier, TieredDevice,
    is_own_file,
};

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
    /// the number of the directory; 0 if it is not known, or is of no use: beside an object store
    directory: u64,
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
        head.put_u64(self.directory);
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
            let path_bytes = r.u32()? as usize;
            let directory = r.u64()?;
            let capacity_path = String::from_utf8(path.to_vec()).ok()?;
            (path_bytes == path.len()).then_some(Self {
                tier,
                database_id,
                pair_id,
                directory,
                capacity_path,
            })
        };
        role().ok_or_else(|| damaged("malformed"))
    }

    /// The role file in the directory of `device`, which is one directory; None without one.
    fn read(device: &dyn Device) -> Result<Option<Self>> {
        Self::read_from(device, ROLE_FILE)
    }

    /// The content of file `name`; None without it.
    fn read_from(device: &dyn Device, name: &str) -> Result<Option<Self>> {
        if !holds(device, name)? {
            return Ok(None);
        }
        let file = device.open(name)?;
        let len = file.len()?.min(PATH_BYTES_MAX);
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let place = format!("\"{}\": \"{name}\"", device.location());
        Self::decode(&bytes, &place).map(Some)
    }

    /// Writes the role file of the directory of `device`; durable on return.
    fn write(&self, device: &dyn Device) -> Result<()> {
        if !device.is_written_once(self.tier) {
            self.stage(device)?;
            return publish(device);
        }
        // The file of an attachment that a crash has interrupted.
        if holds(device, ROLE_FILE)? {
            device.remove(ROLE_FILE)?;
        }
        self.fill(&*device.create(ROLE_FILE)?)?;
        device.sync_directory()
    }

    /// Writes the file under [`ROLE_FILE_STAGED`]; durable with its name on return.
    fn stage(&self, device: &dyn Device) -> Result<()> {
        if holds(device, ROLE_FILE_STAGED)? {
            device.remove(ROLE_FILE_STAGED)?;
        }
        self.fill(&*device.create(ROLE_FILE_STAGED)?)?;
        device.sync_directory()
    }

    fn fill(&self, file: &dyn File) -> Result<()> {
        file.write_all_at(&self.encode(), 0)?;
        file.sync()
    }

    fn ids(&self) -> (u128, u128) {
        (self.database_id, self.pair_id)
    }

    fn record(&self) -> PairRecord {
        PairRecord {
            pair_id: self.pair_id,
            directory: self.directory,
        }
    }

    fn named_ids(&self) -> String {
        named_ids(self.database_id, Some(self.pair_id))
    }
}

/// What the manifest of a database says of its pair of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairRecord {
    /// the pair's id
    pub pair_id: u128,
    /// the number of the database's directory; 0 if it is not known
    pub directory: u64,
}

impl PairRecord {
    /// The role file of the database's directory, whose path is not recorded.
    fn role(self, database_id: u128) -> Role {
        Role {
            tier: Tier::Fast,
            database_id,
            pair_id: self.pair_id,
            directory: self.directory,
            capacity_path: String::new(),
        }
    }
}

/// Reads the manifest's record of the pair in a database's own directory; None without a database
/// or a record.
pub type ReadRecord<'a> = &'a dyn Fn(&dyn Device) -> Result<Option<PairRecord>>;

/// Puts the staged role file in force; durable on return.
fn publish(device: &dyn Device) -> Result<()> {
    device.rename(ROLE_FILE_STAGED, ROLE_FILE)?;
    device.sync_directory()
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

/// Refuses directories that are not all of one database's. Only reads. `recorded` is asked if a
/// database that is opened with a capacity tier has no role file; [`check_record`] is for those
/// opened without one.
///
/// # Errors
/// 55000, naming the directory, if the capacity tier is missing, empty, foreign, exchanged with the
/// fast tier, or a copy of a directory with page files in an object store; XX001 for a damaged role
/// file.
pub fn check(device: &dyn Device, recorded: ReadRecord<'_>) -> Result<()> {
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
    if fast_role.is_none() && tiers.capacity_choice() == CapacityChoice::NamedOnce {
        return Err(is_not_recorded(fast));
    }
    let fast_role = match (fast_role, Manifest::identity(fast)?) {
        // It is lost, or there has never been one.
        (None, Some(id)) => recorded(fast)?.map(|record| record.role(id)),
        (found, _) => found,
    };
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
            let fast_role = in_force(fast, fast_role, &role)?;
            (fast_role.ids() == role.ids())
                .then_some(())
                .ok_or_else(|| {
                    foreign(fast, capacity).with_detail(format!(
                        "The {} has {}; the directory has {}.",
                        words(capacity).tier,
                        role.named_ids(),
                        fast_role.named_ids()
                    ))
                })?;
            check_written_once(capacity)?;
            check_copied(tiers, &fast_role, &role)
        }
    }
}

/// The fast tier's role: `found`, or the staged one, if a crash has come between the writes of a
/// pair's two files (invariant 4).
fn in_force(fast: &dyn Device, found: Role, capacity_role: &Role) -> Result<Role> {
    if found.ids() == capacity_role.ids() || found.database_id != capacity_role.database_id {
        return Ok(found);
    }
    let staged = match Role::read_from(fast, ROLE_FILE_STAGED) {
        // Torn: a crash has come before the capacity tier's file was touched.
        Err(error) if error.kind() == ErrorKind::Corrupt => None,
        staged => staged?,
    };
    let is_next = |staged: &Role| staged.tier == Tier::Fast && staged.ids() == capacity_role.ids();
    Ok(staged.filter(is_next).unwrap_or(found))
}

/// Refuses a copy of a database's directory, unless the caller names a capacity directory that is
/// not its original's, or the operator has the copy take the original's place.
fn check_copied(tiers: &TieredDevice, fast_role: &Role, capacity_role: &Role) -> Result<()> {
    let fast = &**tiers.device_of(Tier::Fast);
    let capacity = &**tiers.device_of(Tier::Capacity);
    if !copies::is_copy(fast_role.directory, fast) || copies::takes_over(fast)? {
        return Ok(());
    }
    let is_named = tiers.capacity_choice() != CapacityChoice::Recorded;
    // That of the original is at its place.
    let is_originals =
        capacity_role.directory != 0 && !copies::is_copy(capacity_role.directory, capacity);
    if is_named && !is_originals {
        return Ok(());
    }
    let (fast, capacity) = (fast.location(), capacity.location());
    let message = format!(
        "\"{fast}\" is a copy of a database's directory, and capacity directory \"{capacity}\" \
         may be the original's"
    );
    let hint = format!(
        "Set capacity_dir to the copy's own capacity directory, a copy of \"{capacity}\", once: \
         the two become a pair of their own. If the original is gone or was moved here, create the \
         empty file \"{TAKEOVER_FILE}\" in \"{fast}\": its next opening goes on with \
         \"{capacity}\", and the original is refused from then on."
    );
    let detail = format!(
        "File \"{ROLE_FILE}\" was written in the directory with inode {}; {}.",
        fast_role.directory,
        fast_role.named_ids()
    );
    Err(refused(message, &hint).with_detail(detail))
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

/// Refuses a database whose role file is lost: `record` is what its manifest says, and `device` is
/// one directory. Only reads.
///
/// # Errors
/// 55000.
pub fn check_record(device: &dyn Device, record: Option<PairRecord>) -> Result<()> {
    if record.is_none() || device.tiers().is_some() {
        return Ok(());
    }
    let directory = device.location();
    let message = format!(
        "the database in \"{directory}\" has a second directory, but the file \
         \"{directory}/{ROLE_FILE}\", which names it, is missing"
    );
    Err(refused(
        message,
        "Set capacity_dir or capacity_url to the database's capacity tier: if it is the right one, \
         the file is written anew. Or put the file back, or restore a backup.",
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

/// The error for a database without a role file, whose capacity tier is not to be recorded.
fn is_not_recorded(fast: &dyn Device) -> Error {
    refused(
        format!(
            "the database in \"{}\" has no second directory on record (file \"{ROLE_FILE}\")",
            fast.location()
        ),
        "This command gives a database no second directory. Leave the directory out, or open the \
         database with it first.",
    )
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

/// Attaches the capacity tier to the database `database_id`, and records where the two directories
/// are, unless the caller has named the capacity tier for once. `device` is locked and has passed
/// [`check`]. `record` is what the manifest says of the pair. `pair_id` is random, for a new pair;
/// returns the record of the pair. Nothing happens if the device is one directory.
///
/// # Errors
/// Those of the device.
pub fn attach(
    device: &dyn Device,
    database_id: u128,
    pair_id: u128,
    record: Option<PairRecord>,
) -> Result<Option<PairRecord>> {
    let Some(tiers) = device.tiers() else {
        return Ok(None);
    };
    let fast = &**tiers.device_of(Tier::Fast);
    let capacity = &**tiers.device_of(Tier::Capacity);
    let capacity_found = Role::read(capacity)?;
    let mut found = Role::read(fast)?;
    if tiers.capacity_choice() == CapacityChoice::NamedOnce {
        let known = settled(fast, found, capacity_found.as_ref())?;
        return Ok(known.as_ref().map(Role::record));
    }
    let settled = settled(fast, found.clone(), capacity_found.as_ref())?;
    if settled != found {
        publish(fast)?;
        found = settled;
    }
    remove_staged(&[fast, capacity])?;
    let has_objects = capacity.is_written_once(Tier::Capacity);
    let known = found.clone().or_else(|| Some(record?.role(database_id)));
    let keeps_pair = |role: &Role| {
        let is_renewed = copies::is_copy(role.directory, fast) || copies::takes_over(fast)?;
        Ok::<_, Error>(has_objects || !is_renewed)
    };
    let pair_id = match &known {
        Some(role) if keeps_pair(role)? => role.pair_id,
        _ => pair_id,
    };
    // A device that cannot tell the number now leaves what is known.
    let number = |device: &dyn Device, known: &Option<Role>| match copies::number_of(device) {
        _ if has_objects => 0,
        0 => known.as_ref().map_or(0, |role| role.directory),
        number => number,
    };
    let role = |tier, directory, path: &str| Role {
        tier,
        database_id,
        pair_id,
        directory,
        capacity_path: path.to_owned(),
    };
    let wanted = role(Tier::Fast, number(fast, &known), tiers.capacity_path());
    let capacity_wanted = role(Tier::Capacity, number(capacity, &capacity_found), "");
    // An attachment that a crash has interrupted begins anew.
    let is_capacity_old = known.is_none() || capacity_found.as_ref() != Some(&capacity_wanted);
    if is_capacity_old || found.as_ref() != Some(&wanted) {
        wanted.stage(fast)?;
        if is_capacity_old {
            capacity_wanted.write(capacity)?;
        }
        publish(fast)?;
    }
    if !has_objects {
        copies::end_takeover(fast)?;
    }
    Ok(Some(wanted.record()))
}

/// The role in force in the directory of `fast`, which has found `found`.
fn settled(
    fast: &dyn Device,
    found: Option<Role>,
    capacity_role: Option<&Role>,
) -> Result<Option<Role>> {
    match (found, capacity_role) {
        (Some(found), Some(role)) => in_force(fast, found, role).map(Some),
        (found, _) => Ok(found),
    }
}

/// Removes what is left of role files that were not put in force.
fn remove_staged(directories: &[&dyn Device]) -> Result<()> {
    for directory in directories {
        if holds(*directory, ROLE_FILE_STAGED)? {
            directory.remove(ROLE_FILE_STAGED)?;
        }
    }
    Ok(())
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
