//! Every file below `slt/` against a new database in memory, a new one on disk, and one in memory
//! whose statements all run without the row executor.
//!
//! `SLT=types/casts cargo test -p strandline-tests --test slt` runs the files whose path contains
//! the text; `SLT_COMPLETE=1` writes what the database answers into them, to be reviewed.

use sqllogictest::strict_column_validator;
use sqllogictest::{Runner, default_column_validator, default_normalizer, default_validator};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::Database;
use strandline_device::MemoryDevice;
use strandline_tests::slt::{Open, Session};

/// The files to run, sorted.
fn files() -> Vec<PathBuf> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(directory).expect("the directory of the files exists");
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "slt") {
                found.push(path);
            }
        }
    }
    let wanted = std::env::var("SLT").unwrap_or_default();
    let mut found = Vec::new();
    walk(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("slt"),
        &mut found,
    );
    found.retain(|path| path.to_string_lossy().contains(&wanted));
    found.sort();
    found
}

fn in_memory() -> Open {
    let device = Arc::new(MemoryDevice::new());
    Box::new(move |clock| Database::on_device(device.clone()).clock(clock).build())
}

fn on_disk(directory: &Path) -> Open {
    let path = directory.to_path_buf();
    Box::new(move |clock| Database::builder(&path).clock(clock).build())
}

/// Runs one file; its failure as text.
fn run(file: &Path, open: Open, row_executor: bool) -> Result<(), String> {
    let session = Session::new(open, row_executor).map_err(|e| e.to_string())?;
    let mut runner = Runner::new(|| async { Ok(Session::connect(&session)) });
    runner.with_column_validator(strict_column_validator);
    runner.set_var(
        "FILES".into(),
        data_directory().to_string_lossy().into_owned(),
    );
    if std::env::var_os("SLT_COMPLETE").is_some() {
        let update = runner.update_test_file(
            file,
            " ",
            default_validator,
            default_normalizer,
            default_column_validator,
        );
        return futures::executor::block_on(update).map_err(|e| e.to_string());
    }
    runner
        .run_file(file)
        .map_err(|e| e.display(false).to_string())
}

/// Files that COPY and file scans read.
fn data_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("slt/data")
}

fn run_all(row_executor: bool, mut open: impl FnMut(&Path) -> Open) {
    let files = files();
    assert!(!files.is_empty(), "no file matches");
    let failures: Vec<String> = files
        .iter()
        .filter_map(|file| {
            run(file, open(file), row_executor)
                .err()
                .map(|e| format!("{}\n{e}", file.display()))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} files failed\n\n{}",
        failures.len(),
        files.len(),
        failures.join("\n\n")
    );
}

#[test]
fn files_in_memory() {
    run_all(true, |_| in_memory());
}

#[test]
fn files_without_the_row_executor() {
    run_all(false, |_| in_memory());
}

#[test]
fn files_on_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut number = 0;
    run_all(true, |_| {
        number += 1;
        on_disk(&directory.path().join(number.to_string()))
    });
}
