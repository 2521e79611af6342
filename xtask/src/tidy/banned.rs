//! Paths that only named files and folders may use, each with its replacement.
//!
//! The engine must run under a simulated device, clock and schedule, so it uses none of these paths
//! directly. Satellites (`cli`, `sim`, `tests`, `bench`, `xtask`) and test code are free, except
//! where a rule says otherwise.

use super::Violation;
use crate::source::SourceFile;

/// A path that is banned.
struct Ban {
    /// Matched in code at the start of an identifier.
    path: &'static str,
    /// The folders to which the ban applies.
    folders: &'static [&'static str],
    /// Whether the ban applies to test code too.
    in_tests: bool,
    replacement: &'static str,
}

/// The folders whose behaviour a simulation must be able to repeat.
const ENGINE: &[&str] = &[
    "base",
    "device",
    "object",
    "column",
    "storage",
    "txn",
    "index",
    "tail",
    "table",
    "engine",
    "semantics",
    "sql",
];
const ENGINE_WITHOUT_DEVICE: &[&str] = &[
    "base",
    "object",
    "column",
    "storage",
    "txn",
    "index",
    "tail",
    "table",
    "engine",
    "semantics",
    "sql",
];
const ALL: &[&str] = &[
    "base",
    "device",
    "object",
    "column",
    "storage",
    "txn",
    "index",
    "tail",
    "table",
    "engine",
    "semantics",
    "sql",
    "server",
    "python",
    "cli",
    "sim",
    "tests",
    "bench",
    "bench/rivals",
    "xtask",
];

const fn ban(
    path: &'static str,
    folders: &'static [&'static str],
    in_tests: bool,
    replacement: &'static str,
) -> Ban {
    Ban {
        path,
        folders,
        in_tests,
        replacement,
    }
}

/// Crates that `make models` runs under its scheduler.
const MODELLED: &[&str] = &[
    "device", "storage", "txn", "index", "tail", "table", "engine",
];
/// Crates that read blocks but never open the files of blocks.
const ABOVE_STORAGE: &[&str] = &["txn", "index", "tail", "table", "engine", "sql"];
const DATA_FILES: &str = "go through `strandline_storage::file`";
const FILES: &str = "go through the injected `Device`";
const RANDOM: &str = "take a seeded `strandline_base::rng::Rng`";
const KIND_OF_TABLE: &str = "use `TableStore` or the methods of `Store` and `StoredRange`";
const THREADS: &str =
    "let the owner of threads run it, or add the place to EXCEPTIONS with a reason";

const BANS: &[Ban] = &[
    ban("SystemTime::now", ALL, true, "take the injected `Clock`"),
    ban("Utc::now", ALL, true, "take the injected `Clock`"),
    ban("Local::now", ALL, true, "take the injected `Clock`"),
    ban("Instant::now", ENGINE, true, "take the injected `Clock`"),
    ban("thread::spawn", ENGINE, false, THREADS),
    ban("thread::Builder", ENGINE, false, THREADS),
    ban("thread::scope", ENGINE, false, THREADS),
    ban("tokio::spawn", ENGINE, false, THREADS),
    ban("spawn_blocking", ENGINE, false, THREADS),
    ban(
        "thread::sleep",
        ENGINE,
        true,
        "wait on a condition variable or a channel",
    ),
    // This also finds `use std::{fs, …}`, through the calls of `fs::read(…)`.
    ban("fs::", ENGINE_WITHOUT_DEVICE, false, FILES),
    ban("use std::fs", ENGINE_WITHOUT_DEVICE, false, FILES),
    ban("rustix", ENGINE_WITHOUT_DEVICE, false, FILES),
    ban(
        "strandline_device",
        &["txn", "index", "tail", "table"],
        false,
        DATA_FILES,
    ),
    ban("device().open", ABOVE_STORAGE, false, DATA_FILES),
    ban("device().create", ABOVE_STORAGE, false, DATA_FILES),
    ban("device().create_on", ABOVE_STORAGE, false, DATA_FILES),
    ban("device.open", ABOVE_STORAGE, false, DATA_FILES),
    ban("device.create", ABOVE_STORAGE, false, DATA_FILES),
    ban("strandline_table", &["engine"], false, KIND_OF_TABLE),
    ban("lineage()", &["engine"], false, KIND_OF_TABLE),
    ban("rand::", ENGINE, true, RANDOM),
    ban("fastrand::", ENGINE, true, RANDOM),
    ban("getrandom", ENGINE, true, RANDOM),
    ban(
        "parking_lot",
        MODELLED,
        false,
        "take the locks of `strandline_base::sync`, which the models can schedule",
    ),
    ban("RandomState::new", ENGINE, true, RANDOM),
];

/// A file or folder that may use a banned path.
pub struct Exception {
    path: &'static str,
    /// The file, or a folder of files if it ends with a slash.
    place: &'static str,
    reason: &'static str,
}

/// The exceptions, with their reasons.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        path: "strandline_table",
        place: "engine/src/store/",
        reason: "the room that knows the kind of table",
    },
    Exception {
        path: "strandline_table",
        place: "engine/src/maintenance/checkpoint/lineage/",
        reason: "merges and runs are what a lineage table consists of",
    },
    Exception {
        path: "lineage()",
        place: "engine/src/maintenance/checkpoint/lineage/",
        reason: "merges and runs are what a lineage table consists of",
    },
    Exception {
        path: "SystemTime::now",
        place: "base/src/clock.rs",
        reason: "the one implementation of `Clock` that reads the operating system's",
    },
    Exception {
        path: "Instant::now",
        place: "base/src/clock.rs",
        reason: "the one implementation of `Clock` that reads the operating system's",
    },
    Exception {
        path: "Instant::now",
        place: "object/src/requests.rs",
        reason: "tokio's clock of timeouts, which the runtime that is given can pause",
    },
    Exception {
        path: "RandomState::new",
        place: "base/src/unique_id.rs",
        reason: "ids of databases and copies, which differ between processes",
    },
    Exception {
        path: "thread::Builder",
        place: "object/src/executor.rs",
        reason: "the thread of a device's requests, joined when it is dropped",
    },
    Exception {
        path: "device().open",
        place: "engine/src/scan/statistics.rs",
        reason: "the sizes of all files, log and manifest included",
    },
    Exception {
        path: "device().open",
        place: "engine/src/admin/inspect.rs",
        reason: "the sizes of all files, log and manifest included",
    },
    Exception {
        path: "device().create_on",
        place: "engine/src/maintenance/reserve.rs",
        reason: "the reserve on the disk is space, not data",
    },
    Exception {
        path: "device().open",
        place: "engine/src/maintenance/reserve.rs",
        reason: "the reserve on the disk is space, not data",
    },
    Exception {
        path: "strandline_device",
        place: "index/examples/read_ahead.rs",
        reason: "compares the requests of a real device with the pages that come from it",
    },
    Exception {
        path: "strandline_device",
        place: "index/examples/fd_load.rs",
        reason: "measures loads with the syncs of a real device",
    },
    Exception {
        path: "strandline_device",
        place: "index/examples/r_tree.rs",
        reason: "counts pages that come from a device in memory",
    },
    Exception {
        path: "device.open",
        place: "index/examples/read_ahead.rs",
        reason: "compares the requests of a real device with the pages that come from it",
    },
    Exception {
        path: "thread::Builder",
        place: "device/src/queue/thread.rs",
        reason: "a thread per request in service, joined when the queue is dropped",
    },
    Exception {
        path: "thread::Builder",
        place: "engine/src/maintenance/mod.rs",
        reason: "the background threads of a database",
    },
    Exception {
        path: "thread::Builder",
        place: "engine/src/statement/bulk/worker.rs",
        reason: "encoders of one load, joined before it ends",
    },
    Exception {
        path: "thread::scope",
        place: "engine/src/statement/bulk/entries.rs",
        reason: "indexes that one loaded range enters, joined in place",
    },
    Exception {
        path: "thread::scope",
        place: "engine/src/maintenance/checkpoint/lineage/merge.rs",
        reason: "ranges that one checkpoint prepares, joined in place",
    },
    Exception {
        path: "thread::scope",
        place: "engine/src/store/index_build.rs",
        reason: "ranges of one index build, joined in place",
    },
    Exception {
        path: "thread::scope",
        place: "engine/src/recovery/parallel.rs",
        reason: "parts of one recovery, joined in place",
    },
    Exception {
        path: "spawn_blocking",
        place: "sql/src/planning/provider/scan/reader.rs",
        reason: "units that wait for the device leave the query threads free",
    },
    Exception {
        path: "fs::",
        place: "sql/src/api/database.rs",
        reason: "the directory queries spill to is DataFusion's, not the database's",
    },
    Exception {
        path: "fs::",
        place: "sql/src/planning/provider/files.rs",
        reason: "the user's own Parquet, CSV and JSON files",
    },
    Exception {
        path: "fs::",
        place: "sql/src/statements/copy/",
        reason: "the user's own files, read and written by COPY",
    },
    Exception {
        path: "use std::fs",
        place: "sql/src/statements/copy/",
        reason: "the user's own files, read and written by COPY",
    },
    Exception {
        path: "spawn_blocking",
        place: "sql/src/session/call.rs",
        reason: "a backup copies files for minutes and leaves the query threads free",
    },
    Exception {
        path: "spawn_blocking",
        place: "sql/src/statements/copy/source.rs",
        reason: "reading and decoding files leaves the query threads free",
    },
];

/// Uses of banned paths without an exception, and exceptions that are no longer needed.
pub fn check(files: &[SourceFile], exceptions: &[Exception]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for file in files {
        for ban in BANS
            .iter()
            .filter(|ban| ban.folders.contains(&file.folder()))
        {
            for at in occurrences(file, ban) {
                let exception = exceptions
                    .iter()
                    .position(|e| e.covers(ban.path, &file.path));
                if let Some(i) = exception {
                    used[i] = true;
                    continue;
                }
                let message = format!("`{}` is banned here: {}", ban.path, ban.replacement);
                violations.push(Violation::new(&file.path, file.line(at), "banned", message));
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        let Exception {
            path,
            place,
            reason,
        } = exception;
        let message = format!("nothing in {place} uses `{path}` ({reason}): remove the entry");
        violations.push(Violation::new(
            "xtask/src/tidy/banned.rs",
            1,
            "banned",
            message,
        ));
    }
    violations
}

impl Exception {
    fn covers(&self, path: &str, file: &str) -> bool {
        let inside = self.place.ends_with('/') && file.starts_with(self.place);
        self.path == path && (inside || self.place == file)
    }
}

fn occurrences<'a>(file: &'a SourceFile, ban: &'a Ban) -> impl Iterator<Item = usize> + 'a {
    file.code
        .match_indices(ban.path)
        .map(|(at, _)| at)
        .filter(|&at| {
            let is_word = |c: char| c == '_' || c.is_alphanumeric();
            let starts = !file.code[..at].ends_with(is_word);
            let ends =
                ban.path.ends_with(':') || !file.code[at + ban.path.len()..].starts_with(is_word);
            starts && ends && (ban.in_tests || !file.in_test(at))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        let files = [SourceFile::new(path, text)];
        check(&files, &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clocks_are_injected() {
        let found = check_text("txn/src/a.rs", "\nlet t = std::time::SystemTime::now();");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("txn/src/a.rs:2: [banned] `SystemTime::now`"));
        assert_eq!(check_text("txn/src/a.rs", "Instant::now()").len(), 1);
        assert_eq!(
            check_text("txn/src/tests.rs", "Instant::now()").len(),
            1,
            "tests too"
        );
        assert!(check_text("bench/src/a.rs", "Instant::now()").is_empty());
        assert!(
            check_text(
                "txn/src/a.rs",
                "// Instant::now()\nlet a = \"Instant::now\";"
            )
            .is_empty()
        );
    }

    #[test]
    fn files_belong_to_the_device_and_tests_are_free() {
        assert_eq!(check_text("table/src/a.rs", "use std::fs;").len(), 1);
        assert_eq!(check_text("table/src/a.rs", "use std::fs::File;").len(), 2);
        assert_eq!(
            check_text("table/src/a.rs", "use std::{fs, io}; fs::read(p)").len(),
            1
        );
        assert_eq!(check_text("table/src/a.rs", "std::fs::read(p)").len(), 1);
        assert!(check_text("device/src/a.rs", "std::fs::read(p)").is_empty());
        assert!(check_text("table/src/tests.rs", "std::fs::read(p)").is_empty());
        assert!(check_text("table/src/a.rs", "offs::read(p); my_std::fsx()").is_empty());
    }

    #[test]
    fn threads_and_randomness() {
        assert_eq!(
            check_text("engine/src/a.rs", "std::thread::spawn(f)").len(),
            1
        );
        assert!(check_text("engine/src/a/tests.rs", "std::thread::spawn(f)").is_empty());
        assert_eq!(
            check_text("engine/src/a/tests.rs", "thread::sleep(d)").len(),
            1
        );
        assert_eq!(check_text("sql/src/a.rs", "rand::random()").len(), 1);
        assert!(check_text("sql/src/a.rs", "operand::f()").is_empty());
    }

    #[test]
    fn exceptions_cover_their_place_only_and_must_be_needed() {
        let exceptions = [Exception {
            path: "thread::spawn",
            place: "engine/src/m/",
            reason: "maintenance",
        }];
        let user = SourceFile::new("engine/src/m/a.rs", "thread::spawn(f)");
        let other = SourceFile::new("engine/src/n.rs", "thread::spawn(f)");
        assert!(check(&[user], &exceptions).is_empty());
        let found = check(&[other], &exceptions);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].message.contains("remove the entry"));
    }
}
