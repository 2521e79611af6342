//! `Database::check`, `inspect`, files on disk, closing.

use super::{rows, run};
use strandline::{Database, SqlState};

#[test]
fn a_database_on_disk_opens_checks_and_closes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    {
        let database = Database::open(&path).expect("creates");
        let mut c = database.connect();
        run(
            &mut c,
            &[
                "CREATE TABLE t (a int CHECK (a > 0))",
                "INSERT INTO t SELECT g FROM generate_series(1, 10000) s(g)",
            ],
        );
        let second = Database::open(&path).err().expect("locked");
        assert!(
            second.to_string().contains(&std::process::id().to_string()),
            "{second}"
        );
        database.checkpoint().expect("checkpoints");
        assert!(!database.inspect().expect("inspects").sections.is_empty());
        assert_eq!(database.check().expect("checks"), Vec::<String>::new());
        drop(c);
        database.close().expect("closes");
        assert!(
            database
                .connect()
                .execute("INSERT INTO t VALUES (1)", ())
                .is_err()
        );
    }
    let database = Database::builder(&path)
        .must_exist()
        .build()
        .expect("reopens");
    assert_eq!(
        rows(&mut database.connect(), "SELECT sum(a) FROM t"),
        ["50005000"]
    );
}

#[test]
fn a_directory_without_a_database_is_refused_where_one_must_exist() {
    let directory = tempfile::tempdir().expect("a directory");
    for (at, files) in [&[][..], &["lock"], &["letter.txt"], &["letter.txt", "lock"]]
        .into_iter()
        .enumerate()
    {
        let path = directory.path().join(format!("directory {at}"));
        std::fs::create_dir(&path).expect("created");
        for file in files {
            std::fs::write(path.join(file), "something").expect("written");
        }
        let error = Database::builder(&path)
            .must_exist()
            .build()
            .err()
            .expect("refused");
        let expected = match files.contains(&"letter.txt") {
            true => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            false => SqlState::UNDEFINED_FILE,
        };
        assert_eq!(error.sqlstate(), expected, "{error}");
        assert!(
            error.message().contains(&*path.to_string_lossy()),
            "{error}"
        );
        let mut left: Vec<String> = std::fs::read_dir(&path)
            .expect("readable")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        left.sort();
        assert_eq!(left, files, "nothing is created");
    }
    let nowhere = directory.path().join("nowhere");
    let refused = Database::builder(&nowhere).must_exist().build();
    let error = refused.err().expect("refused");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE, "{error}");
    assert!(!nowhere.exists());
}

#[test]
fn a_device_without_a_database_is_refused_where_one_must_exist() {
    let device = std::sync::Arc::new(strandline_device::MemoryDevice::new());
    let refused = Database::on_device(device.clone()).must_exist().build();
    let error = refused.err().expect("refused");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE, "{error}");
    drop(
        Database::on_device(device.clone())
            .build()
            .expect("creates"),
    );
    Database::on_device(device)
        .must_exist()
        .build()
        .expect("opens");
}
