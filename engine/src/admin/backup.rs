//! Backup: a copy of the database as of one checkpoint, taken while it is in use.
//!
//! A checkpoint puts everything committed so far into files that never change, and the manifest's
//! state names them. A backup therefore does the following:
//! 1. It runs a checkpoint.
//! 2. Under the checkpoint's lock it copies that state and takes a reference to every file in it.
//!    The references keep later checkpoints from removing the files.
//! 3. It copies the files one after the other.
//! 4. It writes a manifest with that state and an empty log.
//!
//! Files of indexes change in place and are not copied: opening the copy builds these indexes.
//!
//! Only another checkpoint waits for a backup, and only during step 2.
//!
//! Invariants:
//! 1. The copy becomes a database only when all of it is durable and every checksum in it has been
//!    verified: [`Manifest::create`] puts it in force as its last step.
//! 2. After step 1 the backup only reads from the source, which keeps no trace of it.
//! 3. The copy has its own identity, so that the logs of the two never mix.
//!
//! Lock order: `checkpoint` → tables (only to look); no lock is held while files are copied.

use crate::catalog::versions::Version;
use crate::db::Db;
use crate::manifest_state::{ManifestState, StorageState, to_json};
use crate::store::{HeldFiles, Shared, damage_of};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strandline_base::unique_id::unique_id;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState, StorageId};
use strandline_device::{Device, StagedDirectory, Tier};
use strandline_storage::file::DataFiles;
use strandline_storage::file::data_file::data_file_id;
use strandline_storage::manifest::Manifest;
use strandline_storage::pool::Pool;
use strandline_storage::run::run_file_id;
use strandline_storage::tiers;
use strandline_storage::wal::{Wal, WalSettings};
use strandline_tail::schema::StorageSchema;
use strandline_txn::TxnManager;

/// Bytes of one read and one write.
const COPY_BYTES: usize = 1 << 20;

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// bytes copied so far
    pub bytes: u64,
    /// bytes to copy in total
    pub total_bytes: u64,
}

/// Receives the progress of a copy; returning false ends the copy with 57014.
pub type CopyObserver<'a> = &'a (dyn Fn(CopyProgress) -> bool + Sync);

/// Contents of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// all commits up to it are in the backup, and no later ones
    pub as_of: CommitTs,
    /// chunk and run files that were copied
    pub files: u64,
    /// their bytes
    pub bytes: u64,
}

/// A checkpoint's state and its files, which stay on the device as long as this value lives.
struct Held {
    state: ManifestState,
    files: HeldFiles,
}

impl Db {
    /// Starts to make the directory `target` for a backup.
    ///
    /// # Errors
    /// 22023 if it would lie in a directory of this database; those of [`StagedDirectory::begin`].
    pub fn begin_copy(&self, target: &Path) -> Result<StagedDirectory> {
        StagedDirectory::begin_copy(&**self.device(), target)
    }

    /// Copies the present state of the database to `target`, an empty device, beside running
    /// transactions. The copy is a database itself; opening it restores it.
    ///
    /// # Errors
    /// 58P02 if `target` is not empty; XX001 with the file if a checksum is wrong; 57014 if
    /// `observer` ends the copy; errors of the devices. `target` is then not a database.
    pub fn backup(
        &self,
        target: &Arc<dyn Device>,
        observer: CopyObserver<'_>,
    ) -> Result<BackupReport> {
        refuse_occupied(&**target)?;
        self.checkpoint(false)?;
        let held = self.hold_files()?;
        let state = ManifestState {
            log_from: 0,
            log_durable: 0,
            index_files: None,
            capacity_tier: None,
            catalogs: without_index_files(&held.state.catalogs),
            ..held.state.clone()
        };
        let id = unique_id();
        let (_, bytes) = Manifest::create(target.clone(), id, &to_json(&state)?, || {
            let names = held.files.names();
            let bytes = copy_files(&*self.device, &**target, &names, observer)?;
            target.sync_directory()?;
            self.verify_copy(&held, target)?;
            // The smallest segment; the first commit after a restore creates an ordinary one.
            let settings = WalSettings {
                segment_bytes: 8 << 10,
            };
            Wal::create(target.clone(), settings, id)?;
            Ok(bytes)
        })?;
        Ok(BackupReport {
            as_of: state.checkpoint_ts,
            files: held.files.len() as u64,
            bytes,
        })
    }

    /// The newest checkpoint's state and its files.
    fn hold_files(&self) -> Result<Held> {
        let state = self.checkpoint.lock();
        if let Some(behind) = state.behind.keys().next() {
            let closed_off = |error: Error| error.context("a backup needs every table");
            self.store(*behind).map_err(closed_off)?;
            return Err(Error::new(
                ErrorKind::Unavailable,
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "a backup needs files with all records, but those of {} cannot be written",
                    self.table_name(*behind)
                ),
            )
            .with_hint("SELECT * FROM strandline_stats() names the table and the cause."));
        }
        let mut files = HeldFiles::default();
        for (id, storage) in &state.storages {
            let listed = storage.ranges.keys();
            self.store(*id)?.hold_files(listed, &mut files)?;
        }
        Ok(Held {
            state: state.clone(),
            files,
        })
    }

    /// Reads every chunk and run of the copy and verifies it.
    fn verify_copy(&self, held: &Held, target: &Arc<dyn Device>) -> Result<()> {
        let shared = Shared {
            files: DataFiles::new(target.clone()),
            pool: Pool::new(0),
            txns: TxnManager::new(self.clock.clone(), held.state.checkpoint_ts),
            page_bytes: Arc::default(),
            next_file: Arc::new(AtomicU64::new(held.state.next_file)),
            consolidation: Arc::default(),
            range_bytes_max: self.shared.range_bytes_max,
            row_bytes_max: self.shared.row_bytes_max,
        };
        for (id, storage) in &held.state.storages {
            let copied = damage_in(*id, storage, &shared)?;
            let Some(found) = copied.first() else {
                continue;
            };
            // Name the file to be repaired: the source's file, if that one is damaged itself.
            let own = Shared {
                files: DataFiles::new(self.device.clone()),
                ..shared.clone()
            };
            let own = damage_in(*id, storage, &own)?;
            return Err(refused(own.first().unwrap_or(found), copied.len()));
        }
        Ok(())
    }
}

/// The versions without the files of indexes, which change while they would be copied: the first
/// opening of the copy builds these indexes from the rows.
fn without_index_files(versions: &[Version]) -> Vec<Version> {
    let each = versions.iter();
    let copy = each.map(|(ts, catalog)| (*ts, catalog.without_index_files()));
    copy.collect()
}

fn refused(damage: &str, places: usize) -> Error {
    let error = Error::new(
        ErrorKind::Corrupt,
        SqlState::DATA_CORRUPTED,
        format!("the backup is refused, since a stored file is damaged: {damage}"),
    );
    error
        .with_detail(format!(
            "{places} places of this table's files are damaged."
        ))
        .with_hint("`strandline check` lists all damage; earlier backups may still be sound.")
}

/// The damage in the files of one storage, one line each.
fn damage_in(id: StorageId, storage: &StorageState, shared: &Shared) -> Result<Vec<String>> {
    let schema = StorageSchema::new(storage.columns.clone());
    let ranges = storage.ranges.iter().map(|(no, entry)| entry.based(*no));
    damage_of(id, schema, ranges, &storage.runs, shared)
}

/// 58P02 unless `target` is empty or has only an unfinished copy.
fn refuse_occupied(target: &dyn Device) -> Result<()> {
    if !Db::exists(target)? {
        return Ok(());
    }
    Err(Error::invalid(
        SqlState::DUPLICATE_FILE,
        format!("there is a database in \"{}\" already", target.location()),
    )
    .with_hint("A backup never overwrites anything: name a new directory."))
}

/// The tier of a copied file on a target with two. A run may hold pending records as well as
/// history; copies of runs go to the capacity tier, which has the room.
fn tier_of_copy(name: &str) -> Tier {
    match data_file_id(name).or_else(|| run_file_id(name)) {
        Some(_) => Tier::Capacity,
        None => Tier::Fast,
    }
}

/// Copies `names` in order and syncs each; returns the bytes. The caller syncs the directory.
pub(crate) fn copy_files(
    source: &dyn Device,
    target: &dyn Device,
    names: &[String],
    observer: CopyObserver<'_>,
) -> Result<u64> {
    let mut progress = CopyProgress::default();
    for name in names {
        progress.total_bytes += source.open(name)?.len()?;
    }
    let mut buffer = vec![0; COPY_BYTES];
    for name in names {
        let from = source.open(name)?;
        let len = from.len()?;
        let to = target.create_on(tier_of_copy(name), name)?;
        // A full disk refuses here, before any byte is written.
        to.set_len(len)?;
        let mut at = 0;
        while at < len {
            let piece = COPY_BYTES.min((len - at) as usize);
            from.read_exact_at(&mut buffer[..piece], at)?;
            to.write_all_at(&buffer[..piece], at)?;
            at += piece as u64;
            progress.bytes += piece as u64;
            if !observer(progress) {
                return Err(cancelled());
            }
        }
        to.sync()?;
    }
    Ok(progress.bytes)
}

fn cancelled() -> Error {
    strandline_txn::query_cancelled()
}

/// Copies the database on `source`, which must not be open, to the empty `target` file by file. The
/// caller opens and checks the copy; see [`crate::Db::rewind`] for an earlier moment.
///
/// # Errors
/// 58P01 if there is no database on `source`; otherwise the errors of [`Db::backup`].
pub fn restore(
    source: &dyn Device,
    target: &dyn Device,
    observer: CopyObserver<'_>,
) -> Result<u64> {
    if !Db::exists(source)? {
        return Err(Error::invalid(
            SqlState::UNDEFINED_FILE,
            format!("there is no backup in \"{}\"", source.location()),
        ));
    }
    refuse_occupied(target)?;
    Manifest::remove_unfinished(target)?;
    // Without an intact superblock the copy cannot be opened anyway.
    if let Some(id) = Manifest::identity(source)? {
        tiers::attach(target, id, unique_id(), None)?;
    }
    let names = Manifest::files_superblock_last(source)?;
    let (superblock, others) = names
        .split_last()
        .ok_or_else(|| Error::internal("a database without files"))?;
    let bytes = copy_files(source, target, others, observer)?;
    if target.tiers().is_none() {
        forget_capacity_tier(source, target)?;
    }
    target.sync_directory()?;
    let last = std::slice::from_ref(superblock);
    let superblock_bytes = copy_files(source, target, last, &|_| true)?;
    target.sync_directory()?;
    Ok(bytes + superblock_bytes)
}

/// All files of the database on `source` are in one directory in `target`, a copy without its
/// superblock: its manifest does not say otherwise.
fn forget_capacity_tier(source: &dyn Device, target: &dyn Device) -> Result<()> {
    let Some((records, place)) = Manifest::read(source)? else {
        return Ok(());
    };
    let state = ManifestState::decode(&records, &place)?;
    if state.capacity_tier.is_none() {
        return Ok(());
    }
    let state = ManifestState {
        capacity_tier: None,
        ..state
    };
    Manifest::replace_in_copy(source, target, &to_json(&state)?)
}
