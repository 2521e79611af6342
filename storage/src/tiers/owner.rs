//! Which directory owns the objects of a database.
//!
//! An object store has no lock, and a copied directory has the role file of its original. An *owner
//! token* in the store therefore names one *incarnation* of one directory: each opening for writing
//! puts the next token and removes the one before. Tokens are objects `owner-<number>`, created by
//! a conditional put and never changed; the one with the greatest number counts. The file `owner`
//! beside the superblock has the directory's last token and its next one.
//!
//! Invariants:
//! 1. The next token is durable in the file `owner` before it is put. So after a crash between the
//!    two the store has one of the two tokens that the directory knows.
//! 2. A directory that is a copy, or does not know the newest token, is refused before it writes
//!    anything, unless the operator has put the file `takeover.signal` into it. That file is
//!    removed after the put. Opening for reading only asks for no token.
//! 3. An opening changes no other object before it has put its token and removed all older ones. So
//!    as long as a token is in the store no later owner has changed objects, and [`Owner::check`]
//!    needs one request. That request reads the token: after somebody has removed all objects, a
//!    restore to the same place begins with number 1 again, and may reach the same number.
//! 4. An owner that has found its token missing removes no object any more.
//!
//! A copy is told by the number of its directory ([`copies`]). A clone of a whole file system has
//! the numbers of its original; whichever of the two is opened last owns the objects, and the other
//! one finds that out at its next checkpoint or opening.
//!
//! The byte layouts are in docs/format.md, section "Two directories".

use std::sync::Arc;

use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::Mutex;
use strandline_base::{Error, ErrorKind, Result, SqlState, checksum};
use strandline_device::{
    Device, OWNER_FILE, OWNER_FILE_STAGED, OWNER_TOKEN_PREFIX, RemovalGuard, Tier, TieredDevice,
};

use super::{copies, holds};
use crate::manifest::Manifest;
use crate::version::refuse_unknown;

const TOKEN_MAGIC: &[u8; 8] = b"STRDOWNT";
const RECORD_MAGIC: &[u8; 8] = b"STRDOWNR";
const VERSION: u32 = 1;
const TOKEN_BYTES: usize = 64;
const RECORD_BYTES: usize = 96;
/// Bytes of the checksum at the end of both files.
const CHECKSUM_BYTES: usize = 4;

/// One incarnation of a directory, and the number of its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Incarnation {
    /// 0: none
    number: u64,
    /// random
    id: u128,
}

impl Incarnation {
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        let (number, id) = (r.u64()?, r.u128()?);
        Some(Self { number, id })
    }

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.put_u64(self.number);
        bytes.put_u128(self.id);
    }
}

/// The content of an owner token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    database_id: u128,
    incarnation: Incarnation,
}

fn token_name(number: u64) -> String {
    format!("{OWNER_TOKEN_PREFIX}{number:016x}")
}

/// The number in a token's name; None for other names.
fn token_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix(OWNER_TOKEN_PREFIX)?, 16).ok()
}

/// `fields` after magic and version, and the checksum at the end of `len` bytes.
fn sealed(magic: &[u8; 8], len: usize, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(magic);
    bytes.put_u32(VERSION);
    bytes.put_u32(0);
    fields(&mut bytes);
    bytes.resize(len - CHECKSUM_BYTES, 0);
    let sum = checksum(&[], &bytes);
    bytes.put_u32(sum);
    bytes
}

/// The fields of what [`sealed`] has made, read from file `name` of `device`.
fn unsealed<R>(
    device: &dyn Device,
    name: &str,
    (magic, len): (&[u8; 8], usize),
    decode: impl FnOnce(&mut ByteReader<'_>) -> Option<R>,
) -> Result<R> {
    let place = || format!("\"{}\": \"{name}\"", device.location());
    let damaged = |what: &str| Error::corrupt(place(), what).with_hint(HINT_DAMAGED);
    let file = device.open(name)?;
    if file.len()? != len as u64 {
        return Err(damaged("the file has a wrong length"));
    }
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    let (checked, expected) = bytes.split_at(len - CHECKSUM_BYTES);
    let expected = ByteReader::new(expected).u32().unwrap_or_default();
    let got = checksum(&[], checked);
    let fields = checked.strip_prefix(magic);
    let fields = fields.ok_or_else(|| damaged("bad magic"))?;
    if expected != got {
        let error = Error::checksum_mismatch(place(), expected, got);
        return Err(error.with_hint(HINT_DAMAGED));
    }
    let mut r = ByteReader::new(fields);
    let version = r.u32().unwrap_or_default();
    refuse_unknown(name, version, VERSION..=VERSION)?;
    let decoded = r.u32().and_then(|_| decode(&mut r));
    decoded.ok_or_else(|| damaged("malformed"))
}

impl Token {
    fn encode(self) -> Vec<u8> {
        sealed(TOKEN_MAGIC, TOKEN_BYTES, |bytes| {
            bytes.put_u128(self.database_id);
            self.incarnation.put(bytes);
        })
    }

    fn read(objects: &dyn Device, number: u64) -> Result<Self> {
        let layout = (TOKEN_MAGIC, TOKEN_BYTES);
        unsealed(objects, &token_name(number), layout, |r| {
            Some(Self {
                database_id: r.u128()?,
                incarnation: Incarnation::read(r)?,
            })
        })
    }

    /// Creates the object; it is durable on return.
    ///
    /// # Errors
    /// 58P02 if the number is taken.
    fn put(self, objects: &dyn Device) -> Result<()> {
        let file = objects.create(&token_name(self.incarnation.number))?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()
    }
}

/// The content of the file `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    database_id: u128,
    /// of the last opening; none's after a takeover
    last: Incarnation,
    /// of the opening that has begun; its token may not be in the store
    next: Incarnation,
    /// the number of the directory; 0 if the device cannot tell
    directory: u64,
}

impl Record {
    /// The record of the directory `fast`; None without one.
    fn read(fast: &dyn Device) -> Result<Option<Self>> {
        if !holds(fast, OWNER_FILE)? {
            return Ok(None);
        }
        let layout = (RECORD_MAGIC, RECORD_BYTES);
        let record = unsealed(fast, OWNER_FILE, layout, |r| {
            Some(Self {
                database_id: r.u128()?,
                last: Incarnation::read(r)?,
                next: Incarnation::read(r)?,
                directory: r.u64()?,
            })
        });
        record.map(Some)
    }

    /// Replaces the file; durable on return.
    fn write(self, fast: &dyn Device) -> Result<()> {
        if holds(fast, OWNER_FILE_STAGED)? {
            fast.remove(OWNER_FILE_STAGED)?;
        }
        let file = fast.create(OWNER_FILE_STAGED)?;
        let bytes = sealed(RECORD_MAGIC, RECORD_BYTES, |bytes| {
            bytes.put_u128(self.database_id);
            self.last.put(bytes);
            self.next.put(bytes);
            bytes.put_u64(self.directory);
        });
        file.write_all_at(&bytes, 0)?;
        file.sync()?;
        fast.rename(OWNER_FILE_STAGED, OWNER_FILE)?;
        fast.sync_directory()
    }
}

/// What an opening begins with.
struct Standing {
    /// the number of the newest token; 0: there is none
    newest: u64,
    /// its incarnation, which is the directory's. None's in a takeover: until the put the directory
    /// owns nothing, also if the signal is removed
    last: Incarnation,
}

const HINT_DAMAGED: &str = "If no other directory uses the objects, create the empty file \
                            \"takeover.signal\" beside the superblock and open the database again.";

/// The two places of a database whose capacity tier is an object store.
#[derive(Clone, Copy)]
struct Places<'a> {
    fast: &'a dyn Device,
    objects: &'a Arc<dyn Device>,
}

impl<'a> Places<'a> {
    /// None if `tiers` has two directories.
    fn of(tiers: &'a TieredDevice) -> Option<Self> {
        let objects = tiers.device_of(Tier::Capacity);
        objects.is_written_once(Tier::Capacity).then(|| Self {
            fast: &**tiers.device_of(Tier::Fast),
            objects,
        })
    }

    /// The numbers of all tokens.
    fn token_numbers(&self) -> Result<Vec<u64>> {
        let names = self.objects.list()?;
        Ok(names.iter().filter_map(|name| token_number(name)).collect())
    }

    /// Whether the directory owns the objects, or takes them over.
    ///
    /// # Errors
    /// 55000 if neither.
    fn standing(&self) -> Result<Standing> {
        let newest = self.token_numbers()?.into_iter().max().unwrap_or(0);
        if copies::takes_over(self.fast)? {
            let last = Incarnation::default();
            return Ok(Standing { newest, last });
        }
        let record = Record::read(self.fast)?;
        let is_copy = |record: &Record| copies::is_copy(record.directory, self.fast);
        if record.as_ref().is_some_and(is_copy) {
            return Err(self.refused(record, newest, true));
        }
        // Before the first put there is neither a record nor a token.
        let known = record.map_or([Incarnation::default(); 2], |r| [r.last, r.next]);
        let last = match newest {
            0 => Incarnation::default(),
            number => Token::read(&**self.objects, number)?.incarnation,
        };
        match known.contains(&last) {
            true => Ok(Standing { newest, last }),
            false => Err(self.refused(record, newest, false)),
        }
    }

    /// 55000: the directory does not own the objects.
    fn refused(&self, record: Option<Record>, newest: u64, is_copy: bool) -> Error {
        let (store, directory) = (self.objects.location(), self.fast.location());
        let message = match is_copy {
            true => format!(
                "\"{directory}\" is a copy of the directory that owns object store \"{store}\""
            ),
            false => format!(
                "object store \"{store}\" is owned by another copy of the database than \
                 \"{directory}\""
            ),
        };
        let named = |database: u128, incarnation: u128| {
            format!("database id {database:032x}, incarnation {incarnation:032x}")
        };
        let theirs = match (newest, Token::read(&**self.objects, newest)) {
            (0, _) => "The store has no owner token".to_owned(),
            (_, Ok(token)) => {
                let what = named(token.database_id, token.incarnation.id);
                format!("The store's {} has {what}", token_name(newest))
            }
            (_, Err(error)) => format!("The store's owner token cannot be read ({error})"),
        };
        let ours = match (record, Manifest::identity(self.fast)) {
            (Some(record), _) => named(record.database_id, record.next.id),
            (None, Ok(Some(id))) => format!("database id {id:032x}, no incarnation"),
            (None, _) => "no database id".to_owned(),
        };
        super::refused(message, HINT_NOT_OWNER)
            .with_detail(format!("{theirs}; the directory has {ours}."))
    }
}

const HINT_NOT_OWNER: &str = "Open the directory that owns the objects. If that one is gone, or \
                              was moved here, create the empty file \"takeover.signal\" in this \
                              directory: its next opening takes the objects over, and the other \
                              one is refused from then on. A copy for use beside the original is \
                              made by backup and restore.";

/// Refuses a directory that does not own the objects of its capacity tier. Only reads; accepts a
/// database without an object store.
///
/// # Errors
/// 55000, naming both incarnations; XX001 for a damaged token or record; those of the devices.
pub fn check(device: &dyn Device) -> Result<()> {
    match device.tiers().and_then(Places::of) {
        Some(places) => places.standing().map(drop),
        None => Ok(()),
    }
}

/// Makes the directory the owner of the objects for this opening, and asks the owner before each
/// removal of an object. `device` is locked, and its directories are tied together. `random` is the
/// incarnation. None: there is no object store.
///
/// # Errors
/// Those of [`check`].
pub fn take(device: &dyn Device, database_id: u128, random: u128) -> Result<Option<Arc<Owner>>> {
    let Some(tiers) = device.tiers() else {
        return Ok(None);
    };
    let Some(places) = Places::of(tiers) else {
        return Ok(None);
    };
    let Standing { newest, last } = places.standing()?;
    let (number, directory) = (newest + 1, copies::number_of(places.fast));
    let id = random ^ (u128::from(directory) << 64 | u128::from(number));
    let next = Incarnation { number, id };
    let record = Record {
        database_id,
        last,
        next,
        directory,
    };
    record.write(places.fast)?;
    let token = Token {
        database_id,
        incarnation: next,
    };
    token.put(&**places.objects).map_err(|error| {
        // Another directory has put the same number meanwhile.
        let is_taken = error.sqlstate() == SqlState::DUPLICATE_FILE;
        match is_taken {
            true => places.refused(Some(record), number, false),
            false => error,
        }
    })?;
    for older in places.token_numbers()? {
        if older < number {
            places.objects.remove(&token_name(older))?;
        }
    }
    copies::end_takeover(places.fast)?;
    let owner = Arc::new(Owner {
        objects: places.objects.clone(),
        directory: places.fast.location(),
        record,
        state: Mutex::default(),
    });
    tiers.guard_removals(owner.clone());
    Ok(Some(owner))
}

/// The ownership of an open database.
#[derive(Debug)]
pub struct Owner {
    objects: Arc<dyn Device>,
    directory: String,
    record: Record,
    state: Mutex<OwnerState>,
}

#[derive(Debug, Default)]
struct OwnerState {
    /// another directory has taken the objects over
    lost: Option<Error>,
    /// the last check had no answer
    is_unknown: bool,
}

impl Owner {
    /// Asks the store whether this is still the owner.
    ///
    /// # Errors
    /// 55000 if another directory has taken the objects over, now and ever after; those of the
    /// store.
    pub fn check(&self) -> Result<()> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        let stored = self.is_token_stored();
        let mut state = self.state.lock();
        state.is_unknown = stored.is_err();
        if stored? {
            return Ok(());
        }
        drop(state);
        let lost = self.taken_over();
        Err(self.state.lock().lost.insert(lost).clone())
    }

    /// Whether the store has this opening's token.
    fn is_token_stored(&self) -> Result<bool> {
        let own = self.record.next;
        match Token::read(&*self.objects, own.number) {
            Ok(token) => Ok(token.incarnation == own),
            Err(error) => {
                let is_missing = error.kind() == ErrorKind::Corrupt
                    || error.sqlstate() == SqlState::UNDEFINED_FILE;
                // It may as well be damaged.
                match is_missing && !self.objects.is_stored(&token_name(own.number))? {
                    true => Ok(false),
                    false => Err(error),
                }
            }
        }
    }

    /// [`Owner::check`], unless the last check has had no answer: a store that cannot be reached is
    /// waited for once.
    ///
    /// # Errors
    /// Those of [`Owner::check`].
    pub fn check_if_reachable(&self) -> Result<()> {
        let is_unknown = self.state.lock().is_unknown;
        match is_unknown {
            true => self.lost().map_or(Ok(()), Err),
            false => self.check(),
        }
    }

    /// The error of an owner that has lost the objects.
    pub fn lost(&self) -> Option<Error> {
        self.state.lock().lost.clone()
    }

    fn taken_over(&self) -> Error {
        let own = self.record.next;
        let message = format!(
            "object store \"{}\" was taken over from the database in \"{}\", which takes no writes \
             any more",
            self.objects.location(),
            self.directory
        );
        let detail = format!(
            "The owner token of database id {:032x}, incarnation {:032x} is gone from the store.",
            self.record.database_id, own.id
        );
        Error::new(
            ErrorKind::Closed,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            message,
        )
        .with_detail(detail)
        .with_hint(
            "Close this database and use the one that has taken the objects over. Transactions \
             that this one has committed since are in its own directory only.",
        )
    }
}

impl RemovalGuard for Owner {
    fn check_removal(&self) -> Result<()> {
        self.check()
    }
}

#[cfg(test)]
mod tests;
