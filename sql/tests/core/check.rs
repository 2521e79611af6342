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
    for path in [
        directory.path().to_path_buf(),
        directory.path().join("nowhere"),
    ] {
        let error = Database::builder(&path)
            .must_exist()
            .build()
            .err()
            .expect("refused");
        assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE, "{error}");
    }
}
