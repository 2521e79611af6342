//! Files as tables.

use super::{database, error, fails, rows};
use strandline::SqlState;

#[test]
fn files_are_queried_by_their_path() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("a.csv"), "id,name\n1,one\n2,\n").expect("writes");
    std::fs::write(path("b.jsonl"), "{\"x\": 1}\n{\"x\": 2, \"y\": \"z\"}\n").expect("writes");
    std::fs::write(path("empty.csv"), "").expect("writes");
    std::fs::write(path("bad.parquet"), "not parquet at all").expect("writes");
    let database = database();
    let mut c = database.connect();
    let csv = path("a.csv");
    assert_eq!(
        rows(&mut c, &format!("SELECT id, name FROM '{csv}' ORDER BY id")),
        ["1|one", "2|NULL"]
    );
    assert_eq!(
        rows(
            &mut c,
            &format!("SELECT a.id + 1 FROM '{csv}' WHERE name = 'one'")
        ),
        ["2"]
    );
    assert_eq!(
        rows(
            &mut c,
            &format!("SELECT f.y FROM '{}' f ORDER BY f.x", path("b.jsonl"))
        ),
        ["NULL", "z"]
    );
    let missing = error(&mut c, &format!("SELECT * FROM '{}'", path("nope.parquet")));
    assert_eq!(missing.sqlstate(), SqlState::UNDEFINED_FILE);
    assert!(missing.message().contains("nope.parquet"), "{missing}");
    fails(
        &mut c,
        "SELECT * FROM 'data.xlsx'",
        SqlState::UNDEFINED_TABLE,
    );
    for damaged in ["bad.parquet", "empty.csv"] {
        let failed = error(&mut c, &format!("SELECT * FROM '{}'", path(damaged)));
        assert!(failed.message().contains(damaged), "{failed:?}");
    }
}
