//! Backup and restore by path. A target directory appears complete and checked, or not at all. The
//! engine (`strandline_engine`) defines the contents of a backup.

use crate::api::database::Database;
use crate::api::directories;
use crate::api::staged_tier::StagedTier;
use crate::statements::backup::backup;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, ErrorKind, ManualClock, Result, SqlState};
use strandline_device::{Device, StagedDirectory, TieredDevice};
use strandline_engine::{BackupReport, CopyObserver, RewindReport, Settings};
use strandline_object::Place;
use strandline_semantics::text::temporal::parse_timestamptz;

/// The result of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// bytes of copied files
    pub bytes: u64,
    /// the report of the rewind to an earlier moment; None without a rewind
    pub rewound: Option<RewindReport>,
}

impl Database {
    /// Writes a backup into the directory `target`, which must not exist. Other work continues
    /// meanwhile. The backup is the state of one moment, with every checksum verified. `observer`
    /// receives the progress and may stop the backup.
    ///
    /// A backup is a database: it can be opened directly, or copied with [`restore`].
    ///
    /// ```
    /// # let name = format!("strandline-doc-backup-{}", std::process::id());
    /// # let target = std::env::temp_dir().join(name);
    /// let database = strandline::Database::in_memory()?;
    /// database.connect().execute("CREATE TABLE t (a int)", ())?;
    /// database.backup(&target, &|_| true)?;
    /// # std::fs::remove_dir_all(&target).unwrap();
    /// # Ok::<(), strandline::Error>(())
    /// ```
    ///
    /// # Errors
    /// 22023 if `target` is in a directory of the database, 58P02 if it exists, XX001 with the
    /// file's name if stored bytes are damaged, 57014 if `observer` returned false, and errors of
    /// the file system.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        observer: CopyObserver<'_>,
    ) -> Result<BackupReport> {
        backup(self.engine(), target.as_ref(), observer)
    }
}

/// How a database is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions<'a> {
    /// the database's capacity directory, which must not exist; None: one directory has all files
    pub capacity_dir: Option<&'a Path>,
    /// the URL of its capacity tier, below which nothing may exist; excludes `capacity_dir`
    pub capacity_url: Option<&'a str>,
    /// a timestamp within the backup's history, to which the database is rewound
    pub as_of: Option<&'a str>,
}

/// Makes a database in the directory `target`, which must not exist, from the backup in the
/// directory `source`, which is only read. A capacity directory appears just before `target`, after
/// everything was checked. Objects appear one by one; an error removes them again.
///
/// # Errors
/// 58P02 if `target` or the capacity tier exists, 58P01 if there is no backup, XX001 if it is
/// damaged, 22023 or 72000 for a moment that is too late or too old, 22023 if the directories
/// overlap or for a wrong URL.
pub fn restore(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    options: RestoreOptions<'_>,
    observer: CopyObserver<'_>,
) -> Result<RestoreReport> {
    let moment = options.as_of.map(moment).transpose()?;
    let place = directories::place(options.capacity_dir, options.capacity_url)?;
    let source = directories::open_read_only(source.as_ref())?;
    let _nobody_writes_it = source.lock()?;
    let target = target.as_ref();
    if let Some(Place::Directory(dir)) = &place {
        directories::refuse_overlap(target, dir)?;
    }
    let staged = StagedDirectory::begin(target)?;
    let capacity = place.map(StagedTier::begin).transpose()?;
    let device: Arc<dyn Device> = match &capacity {
        Some(capacity) => Arc::new(TieredDevice::new(
            staged.device(),
            capacity.device(),
            capacity.recorded(),
        )?),
        None => staged.device(),
    };
    let mut report = RestoreReport {
        bytes: strandline_engine::restore(&*source, &*device, observer)?,
        rewound: None,
    };
    report.rewound = open_and_check(device, moment)?;
    // Without the other one neither directory is a database, and `target` is what users look for.
    if let Some(capacity) = capacity {
        capacity.publish()?;
    }
    staged.publish()?;
    Ok(report)
}

/// Rewinds the database on `device` to `moment`, and checks all of it.
fn open_and_check(
    device: Arc<dyn Device>,
    moment: Option<CommitTs>,
) -> Result<Option<RewindReport>> {
    // The clock stands still, so that no history expires during the restore.
    let clock = Arc::new(ManualClock::default());
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::on_device(device)
        .clock(clock.clone())
        .settings(settings)
        .build()?;
    clock.set(database.engine().stable().0);
    let rewound = moment.map(|m| database.engine().rewind(m)).transpose()?;
    if let Some(damage) = database.check()?.first() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            SqlState::DATA_CORRUPTED,
            format!("the restored database is damaged: {damage}"),
        )
        .with_hint("`strandline check` on the backup shows all damage."));
    }
    if rewound.is_some() {
        database.close()?;
    }
    Ok(rewound)
}

fn moment(text: &str) -> Result<CommitTs> {
    let micros = parse_timestamptz(text)?;
    Ok(CommitTs(u64::try_from(micros).unwrap_or(0)))
}
