//! `strandline serve`: what it says about users when it starts.

use crate::support::STRANDLINE;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a server prints up to its address; it is killed then.
fn started(path: &Path, arguments: &[&str]) -> String {
    let mut child = Command::new(STRANDLINE)
        .arg("serve")
        .arg(path)
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut said = String::new();
    for line in lines {
        let line = line.expect("reads");
        said.push_str(&line);
        said.push('\n');
        if line.starts_with("listening on") {
            child.kill().expect("is killed");
        }
    }
    child.wait().expect("ends");
    said
}

#[test]
fn a_superuser_is_created_once_and_the_second_time_it_is_told() {
    let directory = TempDir::new().expect("a folder");
    let path = directory.path().join("db");
    let file = directory.path().join("password");
    std::fs::write(&file, "secret\n").expect("writes");
    let file = file.to_str().expect("text");
    let named = |name| {
        started(
            &path,
            &["--superuser", name, "--superuser-password-file", file],
        )
    };
    assert!(started(&path, &[]).contains("There is no user"));
    let first = named("root");
    assert!(!first.contains("superuser"), "{first}");
    let second = named("root");
    assert!(
        second.contains("--superuser root changes nothing: superuser \"root\" is there"),
        "{second}"
    );
    let other = named("admin");
    assert!(
        other.contains("--superuser admin changes nothing: superuser \"root\" is there"),
        "{other}"
    );
}

/// A program that had the database to itself may have made users and no superuser among them.
#[test]
fn a_superuser_can_be_added_beside_other_users() {
    let directory = TempDir::new().expect("a folder");
    let path = directory.path().join("db");
    let file = directory.path().join("password");
    std::fs::write(&file, "secret").expect("writes");
    let file = file.to_str().expect("text");
    let shell = |sql: &str| {
        let ran = Command::new(STRANDLINE)
            .arg(&path)
            .args(["-c", sql])
            .output();
        let ran = ran.expect("runs");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).expect("text")
    };
    shell("CREATE USER app PASSWORD 'x'");
    let said = started(&path, &[]);
    assert!(said.contains("No superuser can log in"), "{said}");
    let taken = started(
        &path,
        &["--superuser", "app", "--superuser-password-file", file],
    );
    assert!(
        taken.contains("role \"app\" exists and is no superuser"),
        "{taken}"
    );
    let said = started(
        &path,
        &["--superuser", "root", "--superuser-password-file", file],
    );
    assert!(!said.contains("superuser"), "{said}");
    let superusers = "SELECT rolname FROM pg_roles WHERE rolsuper AND rolcanlogin";
    assert!(shell(superusers).contains("root"));
}
