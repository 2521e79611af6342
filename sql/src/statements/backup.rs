//! A backup by path. The target directory appears complete and checked, or not at all.

use std::path::Path;
use strandline_base::Result;
use strandline_engine::{BackupReport, CopyObserver, Db};

/// Writes a backup of `db` into the directory `target`, which must not exist, outside its own
/// directories.
pub(crate) fn backup(db: &Db, target: &Path, observer: CopyObserver<'_>) -> Result<BackupReport> {
    let staged = db.begin_copy(target)?;
    let report = db.backup(&staged.device(), observer)?;
    staged.publish()?;
    Ok(report)
}
