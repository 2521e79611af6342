//! The interactive shell on a pseudo-terminal. Every step waits for what the shell prints.

use crate::support::{STRANDLINE, Scratch};
use rexpect::session::{PtySession, spawn_command};
use std::process::Command;

const TIMEOUT_MS: u64 = 120_000;
const CTRL_C: char = 'c';
const CTRL_D: char = 'd';

/// A shell in a terminal of 80 columns; its history stays in `scratch`. The line editor repaints
/// prompt and line at every key, so a new prompt is only seen for sure after something that the
/// statement printed.
fn shell(scratch: &Scratch, arguments: &[&str]) -> PtySession {
    let mut command = Command::new(STRANDLINE);
    command.args(arguments);
    command.env("STRANDLINE_HISTORY", scratch.path("history"));
    command.env("TERM", "xterm-256color");
    let mut shell = spawn_command(command, Some(TIMEOUT_MS)).expect("the shell starts");
    expect(&mut shell, "=> ");
    shell
}

#[track_caller]
fn expect(shell: &mut PtySession, text: &str) -> String {
    shell
        .exp_string(text)
        .unwrap_or_else(|error| panic!("{text:?} never came: {error}"))
}

#[track_caller]
fn send(shell: &mut PtySession, line: &str) {
    keys(shell, &format!("{line}\r"));
}

#[track_caller]
fn keys(shell: &mut PtySession, keys: &str) {
    shell
        .send(keys)
        .and_then(|_| shell.flush())
        .expect("the shell reads");
}

#[track_caller]
fn quit(mut shell: PtySession) {
    send(&mut shell, "\\q");
    shell.exp_eof().expect("the shell ends");
}

#[test]
fn statements_may_take_several_lines() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    send(&mut shell, "SELECT 40");
    send(&mut shell, " + 2 AS");
    send(&mut shell, " answer;");
    expect(&mut shell, " answer");
    expect(&mut shell, "     42");
    expect(&mut shell, "(1 row)");
    expect(&mut shell, "memory=> ");
    quit(shell);
}

#[test]
fn the_prompt_shows_the_transaction() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    send(&mut shell, "BEGIN;");
    expect(&mut shell, "=*> ");
    send(&mut shell, "SELECT nonsense;");
    expect(&mut shell, "ERROR:  ");
    expect(&mut shell, "=!> ");
    send(&mut shell, "ROLLBACK;");
    expect(&mut shell, "ROLLBACK");
    expect(&mut shell, "=> ");
    quit(shell);
}

#[test]
fn ctrl_c_cancels_the_query_and_clears_the_line() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    // A join of this size outlives any test.
    let numbers = |name| format!("generate_series(1, 1000000) AS {name} (value)");
    let (a, b) = (numbers("a"), numbers("b"));
    send(
        &mut shell,
        &format!("SELECT count(*) FROM {a}, {b} WHERE a.value + b.value = 3;"),
    );
    // The spinner appears when the query has run for a while.
    expect(&mut shell, "Ctrl-C cancels");
    shell.send_control(CTRL_C).expect("sent");
    expect(
        &mut shell,
        "ERROR:  canceling statement due to user request",
    );
    expect(&mut shell, "=> ");
    keys(&mut shell, "SELECT never");
    expect(&mut shell, "never");
    shell.send_control(CTRL_C).expect("sent");
    expect(&mut shell, "=> ");
    send(&mut shell, "SELECT 6 * 7 AS x;");
    expect(&mut shell, " 42");
    quit(shell);
}

#[test]
fn history_and_data_outlive_the_shell() {
    let scratch = Scratch::new();
    let database = scratch.text("db");
    let mut first = shell(&scratch, &[&database]);
    send(&mut first, "CREATE TABLE kept (a integer);");
    expect(&mut first, "CREATE TABLE");
    expect(&mut first, "db=> ");
    first.send_control(CTRL_D).expect("sent");
    first.exp_eof().expect("the shell ends");
    let history = std::fs::read_to_string(scratch.path("history")).expect("written");
    assert!(history.contains("CREATE TABLE kept"), "{history}");
    let mut second = shell(&scratch, &[&database]);
    send(&mut second, "\\dt");
    expect(&mut second, "kept");
    quit(second);
}

#[test]
fn wide_rows_become_blocks_of_lines() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    let columns: Vec<String> = (0..30)
        .map(|i| format!("repeat('x', 50) AS c{i}"))
        .collect();
    send(&mut shell, &format!("SELECT {};", columns.join(", ")));
    expect(&mut shell, "-[ RECORD 1 ]");
    expect(&mut shell, "c29");
    quit(shell);
}

#[test]
fn an_open_transaction_is_mentioned_at_the_end() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    send(&mut shell, "BEGIN;");
    expect(&mut shell, "=*> ");
    shell.send_control(CTRL_D).expect("sent");
    expect(&mut shell, "the open transaction was rolled back");
    shell.exp_eof().expect("the shell ends");
}

#[test]
fn notices_precede_the_command_tag() {
    let scratch = Scratch::new();
    let mut shell = shell(&scratch, &[]);
    send(&mut shell, "DROP INDEX IF EXISTS missing;");
    expect(
        &mut shell,
        "NOTICE:  index \"missing\" does not exist, skipping",
    );
    expect(&mut shell, "\nDROP INDEX\r");
    quit(shell);
}
