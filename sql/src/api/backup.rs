//! Backup and restore by path: directories that come into being at once, complete and checked, or
//! not at all. The engine (`strandline_engine`) defines the contents of a backup.

use crate::api::database::Database;
use crate::statements::backup::backup;
use std::path::Path;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, ErrorKind, ManualClock, Result, SqlState};
use strandline_device::{Device, OsDevice, StagedDirectory};
use strandline_engine::{BackupReport, CopyObserver, RewindReport, Settings};
use strandline_semantics::text::temporal::parse_timestamptz;

/// What a restore did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// bytes of files that were copied
    pub bytes: u64,
    /// what going back to an earlier moment took; None without one
    pub rewound: Option<RewindReport>,
}

impl Database {
    /// Writes a backup into the directory `target`, which must not exist, beside whatever else the
    /// database does: the state of one moment, every checksum verified. `observer` is told how far
    /// it is and may end it.
    ///
    /// A backup is a database: opening it, or a copy made with [`restore`], is all there is to it.
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
    /// 58P02 if `target` exists, XX001 naming the file if stored bytes are damaged, 57014 if
    /// `observer` returned false, those of the file system.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        observer: CopyObserver<'_>,
    ) -> Result<BackupReport> {
        backup(self.engine(), target.as_ref(), observer)
    }
}

/// Makes a database in the directory `target`, which must not exist, of the backup in the directory
/// `source`, which is only read. With `as_of` its present is that moment: a timestamp, within the
/// history that the backup holds. Everything is checked before `target` comes into being.
///
/// # Errors
/// 58P02 if `target` exists, 58P01 if there is no backup, XX001 if it is damaged, 22023 or 72000
/// for a moment that is too late or too old.
pub fn restore(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    as_of: Option<&str>,
    observer: CopyObserver<'_>,
) -> Result<RestoreReport> {
    let moment = as_of.map(moment).transpose()?;
    let source = OsDevice::open_read_only(source)?;
    let _nobody_writes_it = source.lock()?;
    let staged = StagedDirectory::begin(target.as_ref())?;
    let mut report = RestoreReport {
        bytes: strandline_engine::restore(&source, &*staged.device(), observer)?,
        rewound: None,
    };
    report.rewound = open_and_check(staged.device(), moment)?;
    staged.publish()?;
    Ok(report)
}

/// Goes back to `moment` in the database on `device`, and checks all of it.
fn open_and_check(
    device: Arc<dyn Device>,
    moment: Option<CommitTs>,
) -> Result<Option<RewindReport>> {
    // The backup's time stands still, so that no history expires on the way.
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
