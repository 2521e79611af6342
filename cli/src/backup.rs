//! `strandline backup PATH DEST` and `strandline restore BACKUP PATH`.

use crate::args::{CapacityArgs, DatabaseArgs};
use crate::interrupt;
use crate::progress::bytes_bar;
use crate::session::{Error, Result, SqlState, open_existing};
use indicatif::{HumanBytes, ProgressBar};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::{CopyProgress, RestoreOptions};
use strandline_base::utc::format_utc;

/// Writes a backup of a database into the new directory `target`.
pub fn backup(database: &DatabaseArgs, target: &Path) -> Result<()> {
    let database = open_existing(database).map_err(|error| explain_lock(error, target))?;
    let (bar, stop) = (bytes_bar("backup"), interrupt::stop_flag());
    let report = database.backup(target, &|progress| advance(&bar, stop, progress))?;
    bar.finish_and_clear();
    println!(
        "{}: {} files, {} as of {}",
        target.display(),
        report.files,
        HumanBytes(report.bytes),
        format_utc(report.as_of.0)
    );
    Ok(())
}

/// Makes a database at `path` from the backup `source`, with a capacity tier and as of an earlier
/// moment if these are given.
pub fn restore(
    source: &Path,
    path: &Path,
    capacity: &CapacityArgs,
    as_of: Option<&str>,
) -> Result<()> {
    let (bar, stop) = (bytes_bar("restore"), interrupt::stop_flag());
    let observer = |progress| advance(&bar, stop, progress);
    let options = RestoreOptions {
        capacity_dir: capacity.capacity_dir.as_deref(),
        capacity_url: capacity.capacity_url.as_deref(),
        as_of,
    };
    let report = strandline::restore(source, path, options, &observer)?;
    bar.finish_and_clear();
    println!(
        "{}: {} restored and checked",
        path.display(),
        HumanBytes(report.bytes)
    );
    if let Some(rewound) = report.rewound {
        println!(
            "went back: {} tables, {} rows",
            rewound.tables, rewound.rows
        );
    }
    Ok(())
}

/// Shows the progress. Returns false after Ctrl-C, so that the engine removes the partial copy.
fn advance(bar: &ProgressBar, stop: &AtomicBool, progress: CopyProgress) -> bool {
    bar.set_length(progress.total_bytes);
    bar.set_position(progress.bytes);
    !stop.load(Ordering::Relaxed)
}

/// Adds a hint to the error for a directory that another process has locked: that process can write
/// the backup itself.
fn explain_lock(error: Error, target: &Path) -> Error {
    if error.sqlstate() != SqlState::OBJECT_IN_USE {
        return error;
    }
    let target = std::path::absolute(target).unwrap_or_else(|_| target.to_path_buf());
    let text = target.display().to_string().replace('\'', "''");
    error.with_hint(format!(
        "If that is a server, it writes the backup itself: connect to it (psql, say) and run \
         CALL strandline_backup('{text}');"
    ))
}
