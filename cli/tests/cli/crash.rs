//! Killed processes and second openers.

use crate::support::{STRANDLINE, Scratch, run};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running script that is fed statement by statement.
struct Running {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(database: &str) -> Self {
        let mut command = Command::new(STRANDLINE);
        command.arg(database).env("STRANDLINE_HISTORY", "");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Self {
            child,
            stdin,
            stdout,
        }
    }

    /// Runs a statement and waits for its command tag.
    fn run(&mut self, sql: &str, tag: &str) {
        writeln!(self.stdin, "{sql};").expect("it still reads");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it still writes");
        assert_eq!(line, format!("{tag}\n"));
    }

    fn kill(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("it is gone");
    }
}

#[test]
fn a_killed_process_keeps_what_it_committed_and_nothing_else() {
    let scratch = Scratch::new();
    let database = scratch.text("db");
    let mut running = Running::start(&database);
    running.run("CREATE TABLE t (a integer PRIMARY KEY)", "CREATE TABLE");
    for a in 0..20 {
        running.run(&format!("INSERT INTO t VALUES ({a})"), "INSERT 0 1");
    }
    running.run("UPDATE t SET a = a + 100 WHERE a >= 10", "UPDATE 10");
    running.run("BEGIN", "BEGIN");
    running.run("DELETE FROM t", "DELETE 20");
    running.kill();
    let sql = "SELECT count(*) AS n, sum(a) AS total FROM t";
    let text = run([&database, "--format", "csv", "-c", sql]).ok();
    assert_eq!(text, "n,total\n20,1190\n");
    assert!(run(["check", &database]).ok().contains("no damage found"));
}

#[test]
fn a_second_opener_is_told_who_has_it() {
    let scratch = Scratch::new();
    let database = scratch.text("db");
    let mut running = Running::start(&database);
    running.run("CREATE TABLE t (a integer)", "CREATE TABLE");
    let pid = running.child.id().to_string();
    for arguments in [
        vec![&*database, "-c", "SELECT 1"],
        vec!["check", &*database],
    ] {
        let err = run(&arguments).fails(3);
        assert!(err.contains(&pid), "{err} does not name {pid}");
    }
    running.kill();
    run([&database, "-c", "SELECT * FROM t"]).ok();
}
