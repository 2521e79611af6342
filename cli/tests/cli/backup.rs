//! `backup` and `restore`, with a database that another process has open, and their errors.

use crate::support::{Scratch, run};

fn make(scratch: &Scratch) -> String {
    let path = scratch.text("shop");
    let sql = "CREATE TABLE t (a int PRIMARY KEY, b text);
        INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) g;";
    run([&path, "-q", "-c", sql]).ok();
    path
}

fn count(path: &str) -> String {
    let sql = "SELECT count(*), min(b) FROM t";
    run([path, "--format", "csv", "--no-header", "-c", sql]).ok()
}

#[test]
fn a_backup_is_restored_as_it_was() {
    let scratch = Scratch::new();
    let (path, copy, again) = (make(&scratch), scratch.text("copy"), scratch.text("again"));
    let said = run(["backup", &path, &copy]).ok();
    assert!(
        said.contains("copy: ") && said.contains(" as of 20"),
        "{said}"
    );
    run([&path, "-q", "-c", "DELETE FROM t WHERE a > 10"]).ok();
    let said = run(["restore", &copy, &again]).ok();
    assert!(said.contains("restored and checked"), "{said}");
    assert_eq!(count(&again), "5000,row 1\n");
    assert!(run(["check", &again]).ok().contains("no damage"));
    // A backup is a database, and the original has gone on.
    assert_eq!(count(&copy), "5000,row 1\n");
    assert_eq!(count(&path), "10,row 1\n");
}

#[test]
fn a_backup_is_restored_as_of_an_earlier_moment() {
    let scratch = Scratch::new();
    let (path, copy, then) = (make(&scratch), scratch.text("copy"), scratch.text("then"));
    let moment = run([
        &path,
        "--format",
        "csv",
        "--no-header",
        "-c",
        "SELECT now()",
    ])
    .ok();
    run([
        &path,
        "-q",
        "-c",
        "DELETE FROM t; DROP TABLE t; CREATE TABLE u (x int)",
    ])
    .ok();
    run(["backup", &path, &copy]).ok();
    let said = run(["restore", &copy, &then, "--as-of", moment.trim()]).ok();
    assert!(said.contains("went back: 1 tables, 5000 rows"), "{said}");
    assert_eq!(count(&then), "5000,row 1\n");
    run([&then, "-c", "SELECT * FROM u"]).fails(1);
    let late = scratch.text("late");
    let err = run(["restore", &copy, &late, "--as-of", "2199-01-01"]).fails(1);
    assert!(err.contains("is later than the last moment"), "{err}");
    let err = run(["restore", &copy, &late, "--as-of", "yesterday-ish"]).fails(1);
    assert!(err.contains("invalid input syntax"), "{err}");
    assert!(!scratch.path("late").exists() && !scratch.path("late.tmp").exists());
}

#[test]
fn a_database_in_two_directories() {
    let scratch = Scratch::new();
    let (path, capacity) = (scratch.text("shop"), scratch.text("big"));
    let sql = "CREATE TABLE t (a int PRIMARY KEY, b text);
        INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) g; VACUUM FULL";
    run([&path, "--capacity-dir", &capacity, "-q", "-c", sql]).ok();
    assert_eq!(count(&path), "5000,row 1\n");
    let said = run(["inspect", &path]).ok();
    assert!(said.contains("capacity directory"), "{said}");
    assert!(run(["check", &path]).ok().contains("no damage"));
    let err = run(["check", &capacity]).fails(3);
    assert!(err.contains("is the capacity directory"), "{err}");
    let (copy, again) = (scratch.text("copy"), scratch.text("again"));
    run(["backup", &path, &copy]).ok();
    assert!(run(["check", &copy]).ok().contains("no damage"));
    let other = scratch.text("big again");
    run(["restore", &copy, &again, "--capacity-dir", &other]).ok();
    assert_eq!(count(&again), "5000,row 1\n");
    std::fs::rename(scratch.path("big"), scratch.path("bigger")).expect("moved");
    let err = run(["check", &path]).fails(3);
    assert!(
        err.contains("does not exist") && err.contains("capacity_dir"),
        "{err}"
    );
    let err = run(["check", &path, "--capacity-dir", &other]).fails(3);
    assert!(err.contains("belongs to another database"), "{err}");
    let moved = scratch.text("bigger");
    for command in ["check", "inspect"] {
        let said = run([command, &path, "--capacity-dir", &moved]).ok();
        assert!(!said.contains("DAMAGE"), "{said}");
        let err = run(["check", &path]).fails(3);
        assert!(err.contains("does not exist"), "nothing is recorded: {err}");
    }
    run([&path, "--capacity-dir", &moved, "-q", "-c", "SELECT 1"]).ok();
    assert_eq!(count(&path), "5000,row 1\n");
    let third = scratch.text("third");
    let err = run(["check", &copy, "--capacity-dir", &third]).fails(3);
    assert!(err.contains("does not exist"), "{err}");
    std::fs::create_dir(&third).expect("created");
    let err = run(["check", &copy, "--capacity-dir", &third]).fails(3);
    assert!(err.contains("no second directory on record"), "{err}");
    run(["--capacity-dir", &moved, "-c", "SELECT 1"]).fails(2);
}

#[test]
fn a_database_with_a_capacity_url() {
    let scratch = Scratch::new();
    let path = scratch.text("shop");
    let url = |name: &str| format!("file://{}", scratch.text(name));
    let sql = "CREATE TABLE t (a int PRIMARY KEY, b text);
        INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) g; VACUUM FULL";
    run([&path, "--capacity-url", &url("big"), "-q", "-c", sql]).ok();
    assert_eq!(count(&path), "5000,row 1\n");
    let said = run(["inspect", &path]).ok();
    assert!(said.contains("capacity directory"), "{said}");
    let (copy, again) = (scratch.text("copy"), scratch.text("again"));
    run(["backup", &path, &copy, "--capacity-url", &url("big")]).ok();
    run(["restore", &copy, &again, "--capacity-url", &url("other")]).ok();
    assert_eq!(count(&again), "5000,row 1\n");
    std::fs::rename(scratch.path("big"), scratch.path("bigger")).expect("moved");
    run(["check", &path]).fails(3);
    let said = run(["check", &path, "--capacity-url", &url("bigger")]).ok();
    assert!(said.contains("no damage"), "{said}");
    run(["check", &path]).fails(3);
    // Objects in memory end with the process.
    let (memory, gone) = (scratch.text("memory"), "memory://cli/db");
    run([&memory, "--capacity-url", gone, "-q", "-c", sql]).ok();
    let err = run(["check", &memory]).fails(3);
    assert!(
        err.contains("object store \"memory://cli/db\" is empty"),
        "{err}"
    );
    assert!(
        err.contains("HINT:") && err.contains("capacity_url"),
        "{err}"
    );
    let err = run(["check", &path, "--capacity-url", &url("other")]).fails(3);
    assert!(err.contains("belongs to another database"), "{err}");
    let err = run(["check", &path, "--capacity-url", "gs://bucket"]).fails(3);
    assert!(err.contains("the scheme \"gs\" is unknown"), "{err}");
    run([&path, "--capacity-dir", "x", "--capacity-url", gone]).fails(2);
    run(["--capacity-url", gone, "-c", "SELECT 1"]).fails(2);
}

#[test]
fn nothing_is_overwritten_and_nothing_half_is_left() {
    let scratch = Scratch::new();
    let path = make(&scratch);
    std::fs::create_dir(scratch.path("there")).expect("created");
    let err = run(["backup", &path, &scratch.text("there")]).fails(1);
    assert!(err.contains("exists already"), "{err}");
    let err = run(["restore", &path, &scratch.text("there")]).fails(1);
    assert!(err.contains("exists already"), "{err}");
    run(["backup", &scratch.text("nothing"), &scratch.text("copy")]).fails(3);
    run(["restore", &scratch.text("nothing"), &scratch.text("copy")]).fails(3);
    assert!(!scratch.path("copy").exists() && !scratch.path("nothing").exists());
}

#[test]
fn a_damaged_file_is_named_and_the_backup_refused() {
    let scratch = Scratch::new();
    let path = make(&scratch);
    let load = "CREATE TABLE u AS SELECT g FROM generate_series(1, 5000) g";
    run([&path, "-q", "-c", load]).ok();
    let names = std::fs::read_dir(&path).expect("readable");
    let names = names.map(|entry| entry.expect("entry").file_name());
    let mut names = names.filter_map(|name| name.into_string().ok());
    let name = names
        .find(|n| n.starts_with("chunks-"))
        .expect("a chunk file");
    let file = scratch.path("shop").join(&name);
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).expect("write");
    let err = run(["backup", &path, &scratch.text("copy")]).fails(1);
    assert!(err.contains(&name) && err.contains("refused"), "{err}");
    assert!(!scratch.path("copy").exists() && !scratch.path("copy.tmp").exists());
}

#[test]
fn a_database_in_use_says_how_it_is_backed_up() {
    let scratch = Scratch::new();
    let path = make(&scratch);
    let database = strandline::Database::open(&path).expect("opens");
    let err = run(["backup", &path, &scratch.text("copy")]).fails(3);
    assert!(err.contains("in use by process"), "{err}");
    assert!(err.contains("CALL strandline_backup('"), "{err}");
    let call = format!("CALL strandline_backup('{}')", scratch.text("copy"));
    let mut connection = database.connect();
    let report = connection.query(&call, ()).expect("backup");
    assert_eq!(report.row_count(), 1);
    assert_eq!(count(&scratch.text("copy")), "5000,row 1\n");
    connection.execute("BEGIN", ()).expect("begin");
    let inside = connection.execute(&call, ()).expect_err("not in a block");
    assert_eq!(
        inside.sqlstate(),
        strandline::SqlState::ACTIVE_SQL_TRANSACTION
    );
}
