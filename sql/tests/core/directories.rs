//! Databases in two directories: how they are opened, found again, refused and restored.

use super::{rows, run};
use std::path::{Path, PathBuf};
use strandline::{Database, DatabaseBuilder, Error, Origin, RestoreOptions, SqlState};

/// A directory with the paths of a database and its capacity directory.
pub(super) struct Home {
    home: tempfile::TempDir,
}

impl Home {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        Self { home }
    }
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
    /// A database of 5,000 rows in `name` and `name`-capacity.
    pub(super) fn create(&self, name: &str) -> (PathBuf, PathBuf) {
        let (path, capacity) = (self.at(name), self.at(&format!("{name}-capacity")));
        let database = builder(&path, &capacity).build().expect("created");
        let mut c = database.connect();
        run(
            &mut c,
            &[
                "CREATE TABLE t (a int PRIMARY KEY)",
                "INSERT INTO t SELECT g FROM generate_series(1, 5000) g",
                "VACUUM FULL",
            ],
        );
        drop(c);
        database.close().expect("closed");
        (path, capacity)
    }
}

fn builder(path: &Path, capacity: &Path) -> DatabaseBuilder {
    Database::builder(path).capacity_dir(capacity)
}

fn with_dir(capacity: &Path) -> RestoreOptions<'_> {
    RestoreOptions {
        capacity_dir: Some(capacity),
        ..RestoreOptions::default()
    }
}

pub(super) fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

pub(super) fn holds(path: &Path, kind: &str) -> bool {
    names(path).iter().any(|name| name.starts_with(kind))
}

pub(super) fn sum(database: &Database) -> String {
    rows(&mut database.connect(), "SELECT sum(a) FROM t").join("")
}

pub(super) const SUM: &str = "12502500";

#[track_caller]
pub(super) fn refused(builder: DatabaseBuilder, state: SqlState, message: &str) -> Error {
    let error = builder.build().err().expect(message);
    assert_eq!(error.sqlstate(), state, "{error}");
    assert!(error.message().contains(message), "{error}");
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn the_capacity_directory_is_named_once_and_shown() {
    let home = Home::new();
    let (path, capacity) = home.create("db");
    assert!(holds(&capacity, "chunks-") && !holds(&path, "chunks-"));
    assert!(holds(&path, "wal-") && !holds(&capacity, "wal-"));
    let database = Database::open(&path).expect("opens");
    assert_eq!(sum(&database), SUM);
    let mut c = database.connect();
    let shown = rows(&mut c, "SHOW capacity_dir");
    assert_eq!(
        shown,
        [capacity.canonicalize().unwrap().display().to_string()]
    );
    let error = c
        .execute("SET capacity_dir = '/elsewhere'", ())
        .expect_err("fixed");
    assert_eq!(error.sqlstate(), SqlState("55P02"));
    assert!(database.check().expect("check").is_empty());
    drop((c, database));
    // The directory moves: it is named again, once.
    let moved = home.at("moved");
    std::fs::rename(&capacity, &moved).expect("moved");
    let error = refused(
        Database::builder(&path),
        SqlState::UNDEFINED_FILE,
        "does not exist",
    );
    assert!(error.message().contains("db-capacity"), "{error}");
    assert!(!capacity.exists(), "nothing is created in its place");
    assert_eq!(sum(&builder(&path, &moved).build().expect("opens")), SUM);
    assert_eq!(sum(&Database::open(&path).expect("opens")), SUM);
}

#[test]
fn directories_that_do_not_belong_together_are_refused_and_left_alone() {
    let home = Home::new();
    let (path, capacity) = home.create("db");
    let (other, other_capacity) = home.create("other");
    let photos = home.at("photos");
    std::fs::create_dir(&photos).expect("created");
    std::fs::write(photos.join("holiday.jpg"), "sun").expect("written");
    let (empty, new) = (home.at("empty"), home.at("new"));
    std::fs::create_dir(&empty).expect("created");
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    let wrong = [
        (&path, &other_capacity, "belongs to another database"),
        (&other, &capacity, "belongs to another database"),
        (&capacity, &path, "is the capacity directory"),
        (&path, &other, "holds a database itself"),
        (&path, &photos, "holds other files (\"holiday.jpg\")"),
        (&new, &photos, "holds other files (\"holiday.jpg\")"),
        (&new, &capacity, "belongs to another database"),
        (&path, &empty, "is empty"),
    ];
    for (path, capacity, message) in wrong {
        let before = (names(path), names(capacity));
        refused(builder(path, capacity), state, message);
        assert_eq!((names(path), names(capacity)), before, "{message}");
    }
    refused(
        Database::builder(&capacity),
        state,
        "is the capacity directory",
    );
    let overlapping = SqlState::INVALID_PARAMETER_VALUE;
    for inner in [path.clone(), path.join("inside"), home.at("x/../db/chunks")] {
        refused(builder(&path, &inner), overlapping, "overlap");
        refused(builder(&inner, &path), overlapping, "overlap");
    }
    assert!(!path.join("inside").exists());
    let device = std::sync::Arc::new(strandline_device::MemoryDevice::new());
    let in_memory = Database::on_device(device).capacity_dir(&empty);
    refused(in_memory, overlapping, "needs a database in a directory");
    let nowhere = home.at("nowhere");
    let must_exist = builder(&nowhere, &new).must_exist().build();
    assert!(must_exist.is_err() && !nowhere.exists());
    assert_eq!(sum(&Database::open(&path).expect("opens")), SUM);
}

/// Copies the files of a directory to `to`, as `cp -a` does.
fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("created");
    for (name, bytes) in contents(from) {
        std::fs::write(to.join(name), bytes).expect("copied");
    }
}

fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let file = path.join(&name);
        let bytes = file.is_file().then(|| std::fs::read(file).expect("read"))?;
        Some((name, bytes))
    };
    names(path).into_iter().filter_map(read).collect()
}

#[test]
fn a_copied_database_needs_its_own_capacity_directory() {
    let home = Home::new();
    let (path, capacity) = home.create("db");
    let (copy, own) = (home.at("copy"), home.at("copy-capacity"));
    copy_directory(&path, &copy);
    copy_directory(&capacity, &own);
    let before = [&path, &capacity, &copy, &own].map(|path| contents(path));
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    for builder in [
        Database::builder(&copy),
        builder(&copy, &capacity),
        builder(&copy, &capacity).must_exist().capacity_for_once(),
    ] {
        let error = refused(builder, state, "is a copy of a database's directory");
        for named in [&copy, &capacity] {
            assert!(
                error.message().contains(&named.display().to_string()),
                "{error}"
            );
        }
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("capacity_dir"))
        );
    }
    let restored = home.at("restored");
    let error = strandline::restore(&copy, &restored, RestoreOptions::default(), &|_| true);
    assert_eq!(error.expect_err("a copy").sqlstate(), state);
    let after = [&path, &capacity, &copy, &own].map(|path| contents(path));
    assert_eq!(before, after, "nothing is written");
    // For once, as `check` does it, and then for good.
    let once = builder(&copy, &own).must_exist().capacity_for_once();
    assert_eq!(sum(&once.build().expect("opens")), SUM);
    refused(Database::builder(&copy), state, "is a copy");
    let insert = |path: &Path, statement: &str| {
        let database = Database::open(path).expect("opens");
        run(&mut database.connect(), &[statement, "VACUUM FULL"]);
        database.close().expect("closed");
    };
    assert_eq!(sum(&builder(&copy, &own).build().expect("opens")), SUM);
    insert(&copy, "UPDATE t SET a = -a");
    insert(&path, "DELETE FROM t WHERE a > 1");
    assert_eq!(
        sum(&Database::open(&copy).expect("opens")),
        format!("-{SUM}")
    );
    assert_eq!(sum(&Database::open(&path).expect("opens")), "1");
    for (path, capacity) in [(&copy, &capacity), (&path, &own)] {
        refused(
            builder(path, capacity),
            state,
            "belongs to another database",
        );
    }
    // Renaming is no copy.
    let renamed = home.at("renamed");
    std::fs::rename(&path, &renamed).expect("moved");
    assert_eq!(sum(&Database::open(&renamed).expect("opens")), "1");
}

#[test]
fn a_backup_is_restored_into_two_directories() {
    let home = Home::new();
    let (path, _) = home.create("db");
    let copy = home.at("copy");
    let database = Database::open(&path).expect("opens");
    database.backup(&copy, &|_| true).expect("backup");
    database.close().expect("closed");
    assert!(holds(&copy, "chunks-") && !holds(&copy, "tier"));
    // From a backup, and from a closed database of two directories.
    for (source, name) in [(&copy, "one"), (&path, "two")] {
        let (target, capacity) = (home.at(name), home.at(&format!("{name}-capacity")));
        strandline::restore(source, &target, with_dir(&capacity), &|_| true).expect("restore");
        assert!(holds(&capacity, "chunks-") && !holds(&target, "chunks-"));
        let restored = Database::open(&target).expect("its own capacity directory is recorded");
        assert_eq!(sum(&restored), SUM);
        assert!(restored.check().expect("check").is_empty());
        let again = home.at("again");
        let exists = strandline::restore(source, &again, with_dir(&capacity), &|_| true);
        let error = exists.expect_err("nothing is overwritten");
        assert_eq!(error.sqlstate(), SqlState::DUPLICATE_FILE);
        assert!(!again.exists() && !home.at("again.tmp").exists());
    }
    let overlap = strandline::restore(&copy, copy.join("x"), with_dir(&copy), &|_| true);
    assert_eq!(
        overlap.expect_err("overlap").sqlstate(),
        SqlState::INVALID_PARAMETER_VALUE
    );
    // The copies' capacity directories are not each other's.
    refused(
        builder(&home.at("one"), &home.at("two-capacity")),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "belongs to another database",
    );
    let single = home.at("single");
    strandline::restore(&path, &single, RestoreOptions::default(), &|_| true).expect("restore");
    assert!(holds(&single, "chunks-") && !holds(&single, "tier"));
    assert_eq!(sum(&Database::open(&single).expect("opens")), SUM);
}

#[test]
fn damage_is_named_with_the_directory_of_its_file() {
    let home = Home::new();
    let (path, capacity) = home.create("db");
    for name in names(&capacity) {
        if name.starts_with("chunks-") {
            let file = capacity.join(name);
            let mut bytes = std::fs::read(&file).expect("read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&file, bytes).expect("written");
        }
    }
    let found = match Database::open(&path) {
        Ok(database) => database.check().expect("check").join("\n"),
        Err(error) => error.to_string(),
    };
    assert!(found.contains("db-capacity/chunks-"), "{found}");
}

#[test]
fn the_block_cache_is_set_shown_and_counted() {
    let home = Home::new();
    let (path, _) = home.create("db");
    let with = |path: &Path, bytes: &str| {
        let builder = Database::builder(path);
        let builder = builder.parameter("block_cache_bytes", bytes, Origin::Program);
        builder.expect("a number of bytes")
    };
    let database = with(&path, "16MiB").build().expect("opens");
    let mut c = database.connect();
    assert!(holds(&path, "block-cache"));
    assert_eq!(rows(&mut c, "SELECT a FROM t WHERE a = 4711"), ["4711"]);
    let names = rows(&mut c, "SELECT name FROM strandline_tiers()");
    assert_eq!(names, ["fast", "capacity", "block_cache"]);
    drop((c, database));
    drop(Database::open(&path).expect("opens"));
    assert!(!holds(&path, "block-cache"), "removed");
    let single = with(&home.at("single"), "16MiB");
    refused(
        single,
        SqlState::INVALID_PARAMETER_VALUE,
        "block_cache_bytes",
    );
    let tiny = with(&path, "10kB");
    refused(tiny, SqlState::INVALID_PARAMETER_VALUE, "block_cache_bytes");
}

fn with_cache(builder: DatabaseBuilder, bytes: &str) -> DatabaseBuilder {
    let builder = builder.parameter("ssd_cache_bytes", bytes, Origin::Program);
    builder.expect("a number of bytes")
}

#[test]
fn the_ssd_cache_is_set_shown_and_counted() {
    let home = Home::new();
    let (path, _) = home.create("db");
    let database = with_cache(Database::builder(&path), "1MiB").build();
    let database = database.expect("opens");
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE INDEX t_a ON t (a) WITH (storage = 'pages')",
            "CHECKPOINT",
        ],
    );
    assert!(holds(&path, "ssd-cache") && !holds(&path, "pages-"));
    assert_eq!(rows(&mut c, "SHOW ssd_cache_mode"), ["pc"]);
    let names = rows(&mut c, "SELECT name FROM strandline_tiers()");
    assert_eq!(names, ["fast", "capacity", "ssd_cache"]);
    let of_cache = "SELECT count(*) FROM strandline_tiers() WHERE mode = 'pc' AND bytes_max > 1000000 \
                    AND fresh_bytes > 0 AND admissions > 0 AND damaged = 0";
    assert_eq!(rows(&mut c, of_cache), ["1"]);
    drop((c, database));
    let without = Database::open(&path).expect("opens");
    assert!(!holds(&path, "ssd-cache"), "emptied and removed");
    let mut c = without.connect();
    let names = rows(&mut c, "SELECT name FROM strandline_tiers()");
    assert_eq!(names, ["fast", "capacity"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t WHERE a = 4711"), ["4711"]);
    drop((c, without));
    let single = with_cache(Database::builder(home.at("single")), "1MiB");
    refused(single, SqlState::INVALID_PARAMETER_VALUE, "ssd_cache_bytes");
    let tiny = with_cache(Database::builder(&path), "10kB");
    refused(tiny, SqlState::INVALID_PARAMETER_VALUE, "ssd_cache_bytes");
    let unknown = Database::builder(&path).parameter("ssd_cache_mode", "fast", Origin::Program);
    let error = unknown.err().expect("no such mode");
    assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
}

/// The error of `sql`.
fn error_of(c: &mut strandline::Connection, sql: &str) -> Error {
    c.execute(sql, ()).map(drop).expect_err(sql)
}

#[test]
fn the_caches_are_resized_while_the_database_is_open() {
    let home = Home::new();
    let (path, _) = home.create("db");
    let builder = with_cache(Database::builder(&path), "1MiB");
    let builder = builder.parameter("block_cache_bytes", "16MiB", Origin::Program);
    let database = builder.expect("a number").build().expect("opens");
    let (mut c, mut other) = (database.connect(), database.connect());
    run(
        &mut c,
        &[
            "CREATE INDEX t_a ON t (a) WITH (storage = 'pages')",
            "CHECKPOINT",
        ],
    );
    run(
        &mut c,
        &[
            "CALL strandline_set('ssd_cache_bytes', '4MiB')",
            "CALL strandline_set('SSD_Cache_Admission', 'all')",
            "CALL strandline_set('block_cache_bytes', '32MiB')",
            "CALL strandline_set('block_cache_admission', 'second_read')",
        ],
    );
    for (name, value) in [
        ("ssd_cache_bytes", "4194304"),
        ("ssd_cache_admission", "all"),
        ("block_cache_bytes", "33554432"),
        ("block_cache_admission", "second_read"),
    ] {
        for c in [&mut c, &mut other] {
            assert_eq!(rows(c, &format!("SHOW {name}")), [value]);
            let current = format!("SELECT current_setting('{name}')");
            assert_eq!(rows(c, &current), [value]);
            let setting = format!("SELECT setting FROM pg_settings WHERE name = '{name}'");
            assert_eq!(rows(c, &setting), [value]);
        }
    }
    let large = "SELECT name FROM strandline_tiers() WHERE bytes_max > 4000000 AND writes >= 0 \
                 AND written_bytes >= 0";
    assert_eq!(rows(&mut other, large), ["ssd_cache", "block_cache"]);
    run(
        &mut c,
        &[
            "CALL strandline_set('ssd_cache_bytes', '0')",
            "CALL strandline_set('block_cache_bytes', '0')",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT a FROM t WHERE a = 4711"), ["4711"]);
    drop((c, other, database));
    // What was changed does not outlive the database.
    let database = with_cache(Database::builder(&path), "1MiB")
        .build()
        .expect("opens");
    let mut c = database.connect();
    assert_eq!(rows(&mut c, "SHOW ssd_cache_bytes"), ["1048576"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t WHERE a = 4711"), ["4711"]);
}

#[test]
fn changes_of_the_caches_that_cannot_be_are_refused() {
    let home = Home::new();
    let (path, _) = home.create("db");
    let database = with_cache(Database::builder(&path), "1MiB")
        .build()
        .expect("opens");
    let mut c = database.connect();
    for (sql, state) in [
        ("CALL strandline_set('ssd_cache_bytes', '10kB')", "22023"),
        (
            "CALL strandline_set('ssd_cache_bytes', '100000GiB')",
            "22023",
        ),
        ("CALL strandline_set('ssd_cache_bytes', 'much')", "22023"),
        (
            "CALL strandline_set('ssd_cache_admission', 'some')",
            "22023",
        ),
        ("CALL strandline_set('block_cache_bytes', '16MiB')", "55000"),
        ("CALL strandline_set('memory_bytes', '1GiB')", "55P02"),
        ("CALL strandline_set('work_mem', '1GiB')", "55P02"),
        ("CALL strandline_set('server_version', '1')", "55P02"),
        ("CALL strandline_set('no_such', '1')", "42704"),
        ("CALL strandline_set('ssd_cache_bytes')", "42883"),
        ("SET ssd_cache_bytes = '2MiB'", "55P02"),
        ("RESET ssd_cache_bytes", "55P02"),
    ] {
        let error = error_of(&mut c, sql);
        assert_eq!(error.sqlstate(), SqlState(state), "{sql}: {error}");
        let is_told = error.hint().is_some() || error.message().contains("cannot be changed");
        assert!(is_told, "{sql}: {error}");
    }
    let hint = error_of(&mut c, "SET ssd_cache_bytes = '2MiB'");
    assert!(
        hint.hint()
            .is_some_and(|hint| hint.contains("CALL strandline_set"))
    );
    run(&mut c, &["BEGIN"]);
    let inside = error_of(&mut c, "CALL strandline_set('ssd_cache_bytes', '2MiB')");
    assert_eq!(inside.sqlstate(), SqlState("25001"), "{inside}");
    run(
        &mut c,
        &[
            "ROLLBACK",
            "RESET ALL",
            "CREATE ROLE plain",
            "SET ROLE plain",
        ],
    );
    let denied = error_of(&mut c, "CALL strandline_set('ssd_cache_bytes', '2MiB')");
    assert_eq!(denied.sqlstate(), SqlState("42501"), "{denied}");
    run(&mut c, &["SET ROLE NONE"]);
    assert_eq!(rows(&mut c, "SHOW ssd_cache_bytes"), ["1048576"]);
}
