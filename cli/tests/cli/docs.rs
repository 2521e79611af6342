//! The documentation's examples: every block marked `console` is run, and prints what it shows.
//!
//! The blocks of one page run one after the other in one directory. A line that begins with `$ ` is
//! a command, which goes on while a quote is open; the lines after it are what it prints. `…`
//! stands for any text, on a line of its own for any lines.

use crate::support::{STRANDLINE, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of a page and what it is to print.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(root.join("docs")).expect("docs");
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|e| e == "md"));
    pages.sort();
    pages
}

fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut in_console = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            in_console = line == "```console";
            continue;
        }
        if !in_console {
            continue;
        }
        let is_open = |command: &str| command.matches('"').count() % 2 == 1;
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (_, Some(last)) if last.expected.is_empty() && is_open(&last.command) => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (Some(command), _) => examples.push(Example {
                line: at + 1,
                command: command.to_string(),
                expected: Vec::new(),
            }),
            (None, Some(last)) => last.expected.push(line.trim_end().to_string()),
            (None, None) => panic!("line {}: output without a command", at + 1),
        }
    }
    examples
}

/// Whether `line` is `pattern`, `…` standing for anything.
fn line_is_like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('\u{2026}');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn is_like(expected: &[String], printed: &[&str]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "\u{2026}" => {
            (0..=printed.len()).any(|skipped| is_like(rest, &printed[skipped..]))
        }
        (Some((pattern, rest)), Some((line, others))) => {
            line_is_like(pattern, line) && is_like(rest, others)
        }
        _ => false,
    }
}

#[test]
fn examples_print_what_the_pages_show() {
    let directory = Path::new(STRANDLINE).parent().expect("a directory");
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let mut count = 0;
    for page in pages() {
        let scratch = Scratch::new();
        let text = std::fs::read_to_string(&page).expect("readable");
        for example in examples(&text) {
            let output = Command::new("sh")
                .args(["-c", &format!("{{ {}\n}} 2>&1", example.command)])
                .current_dir(scratch.path(""))
                .env("PATH", &path)
                .env("STRANDLINE_HISTORY", "")
                .output()
                .expect("runs");
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
            while lines.last() == Some(&"") {
                lines.pop();
            }
            let mut expected = example.expected;
            while expected.last().is_some_and(String::is_empty) {
                expected.pop();
            }
            assert!(
                is_like(&expected, &lines),
                "{}:{}: {}\nprinted\n{}\ninstead of\n{}",
                page.display(),
                example.line,
                example.command,
                lines.join("\n"),
                expected.join("\n")
            );
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} examples were found");
}
