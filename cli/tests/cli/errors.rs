//! Errors and exit codes.

use crate::support::{Scratch, run, run_with_input};

#[test]
fn a_script_stops_at_its_first_error() {
    let scratch = Scratch::new();
    let file = scratch.write(
        "bad.sql",
        "SELECT 1 AS before;\n\nSELECT *\nFROM nowhere;\nSELECT 2;",
    );
    let ran = run(["--format", "csv", "-f", &file]);
    assert_eq!(ran.out, "before\n1\n");
    let err = ran.fails(1);
    assert!(err.starts_with(&format!("{file}:3: ERROR:  ")), "{err}");
    assert!(err.contains("nowhere"), "{err}");
}

#[test]
fn keep_going_runs_the_rest_and_still_fails() {
    let script = "SELECT nonsense;\nSELECT 1 AS after;\n";
    let ran = run_with_input(["--format", "csv", "--keep-going"], script);
    assert_eq!(ran.out, "after\n1\n");
    assert!(ran.fails(1).starts_with("<stdin>:1: ERROR:  "));
    let ran = run([
        "--keep-going",
        "--format",
        "csv",
        "-c",
        "SELECT nonsense",
        "-c",
        "SELECT 1 AS x",
    ]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), "x\n1\n"));
}

#[test]
fn malformed_sql() {
    for sql in [
        "SELEC 1",
        "SELECT FROM WHERE",
        "SELECT 'open",
        "SELECT (1",
        "CREATE TABLE t (",
    ] {
        let err = run(["-c", sql]).fails(1);
        assert!(
            err.starts_with("ERROR:  ") && !err.contains("panicked"),
            "{sql}: {err}"
        );
    }
}

#[test]
fn constraint_violations_name_the_constraint() {
    let sql = "CREATE TABLE t (a integer PRIMARY KEY); INSERT INTO t VALUES (7); \
               INSERT INTO t VALUES (7)";
    let err = run(["-q", "-c", sql]).fails(1);
    assert!(
        err.contains("ERROR:  duplicate key value violates unique constraint \"t_pkey\""),
        "{err}"
    );
    assert!(err.contains("(a)=(7)"), "{err}");
}

#[test]
fn usage_errors() {
    for arguments in [
        vec!["--no-such-option"],
        vec!["--format", "xml"],
        vec!["--memory", "much"],
        vec!["inspect"],
        vec!["check"],
        vec!["demo", "--sf", "0"],
        vec!["demo", "--seconds", "0"],
        vec!["db", "inspect", "db"],
    ] {
        let ran = run(&arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(!ran.err.is_empty());
    }
}

#[test]
fn help_documents_the_exit_codes() {
    let help = run(["--help"]).ok();
    for expected in ["Exit codes:", "./inspect", "--keep-going", "demo"] {
        assert!(help.contains(expected), "{expected} is missing in {help}");
    }
    assert!(run(["--version"]).ok().starts_with("strandline "));
}

#[test]
fn a_missing_file_is_not_an_sql_error() {
    let scratch = Scratch::new();
    let err = run(["-f", &scratch.text("missing.sql")]).fails(3);
    assert!(err.contains("missing.sql"), "{err}");
    let directory = scratch.text("directory");
    std::fs::create_dir(&directory).expect("created");
    run(["-f", &directory]).fails(3);
}

#[test]
fn a_script_that_is_no_text() {
    let ran = run_with_input(["-q"], b"SELECT 1;\nSELECT '\xff';\n");
    assert!(ran.fails(3).contains("standard input"));
}

#[test]
fn a_directory_that_is_no_database() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("photos")).expect("created");
    scratch.write("photos/cat.jpg", "meow");
    let err = run([&scratch.text("photos"), "-c", "SELECT 1"]).fails(3);
    assert!(err.contains("photos"), "{err}");
    let content = std::fs::read_to_string(scratch.path("photos/cat.jpg")).expect("still there");
    assert_eq!(content, "meow");
    assert_eq!(
        std::fs::read_dir(scratch.path("photos"))
            .expect("readable")
            .count(),
        1
    );
}

#[test]
fn a_file_that_is_no_database() {
    let scratch = Scratch::new();
    let file = scratch.write("notes.txt", "hello");
    let err = run([file.as_str(), "-c", "SELECT 1"]).fails(3);
    assert!(err.contains("notes.txt"), "{err}");
}

#[test]
fn a_read_only_directory() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let directory = scratch.path("sealed");
    std::fs::create_dir(&directory).expect("created");
    let seal = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&directory, permissions).expect("changed");
    };
    seal(0o555);
    // Root may write everywhere, and then there is nothing to test.
    if std::fs::write(directory.join("probe"), "").is_ok() {
        return;
    }
    let err = run([
        directory.join("db").to_str().expect("UTF-8"),
        "-c",
        "SELECT 1",
    ])
    .fails(3);
    seal(0o755);
    assert!(err.contains("sealed"), "{err}");
}

#[test]
fn a_reader_that_goes_away_ends_the_script_quietly() {
    use crate::support::STRANDLINE;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let sql = "SELECT value FROM generate_series(1, 1000000) AS s (value)";
    let mut command = Command::new(STRANDLINE);
    command
        .args(["--format", "csv", "-c", sql])
        .stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("a pipe"))
        .read_line(&mut first)
        .expect("readable");
    let output = child.wait_with_output().expect("ends");
    assert_eq!(first, "value\n");
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
