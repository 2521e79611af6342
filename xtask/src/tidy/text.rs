//! Rules about single lines and the head of a file.

use super::Violation;
use crate::source::{SourceFile, words};

const WIDTH: usize = 100;

/// The modules with unsafe code: an option of the allocator, and memory that the kernel reads and
/// writes while requests run.
const UNSAFE_MODULES: [&str; 2] = ["allocator/src/lib.rs", "device/src/queue/uring.rs"];

/// Checks header, width, ASCII, `unsafe` and unfinished work.
pub fn check(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |line, rule, message: &str| {
        violations.push(Violation::new(&file.path, line, rule, message));
    };
    // `foo/tests.rs` is the test module of `foo.rs`, moved to its own file.
    let has_header = file.text.trim_start().starts_with("//!");
    if !has_header && !file.path.ends_with("/tests.rs") {
        report(
            1,
            "header",
            "open the file with a `//!` comment: purpose, invariants, lock order",
        );
    }
    let mut start = 0;
    for (i, line) in file.text.split('\n').enumerate() {
        let columns = line.chars().count();
        if columns > WIDTH && !line.contains("://") && !is_statement_of_test(file, start, line) {
            let message = format!("{columns} columns, the limit is {WIDTH}");
            report(i + 1, "width", &message);
        }
        start += line.len() + 1;
    }
    for (i, line) in file.code.lines().enumerate() {
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            report(i + 1, "ascii", &format!("`{c}` in code: write it in ASCII"));
        }
    }
    for (at, word) in words(&file.code) {
        match word {
            "unsafe" if !UNSAFE_MODULES.contains(&file.path.as_str()) => report(
                file.line(at),
                "unsafe",
                "no unsafe code: use a library or a copy",
            ),
            "todo" | "unimplemented" if file.code[at + word.len()..].starts_with('!') => {
                let message = format!("`{word}!` panics at run time: finish it or return an error");
                report(file.line(at), "unfinished", &message);
            }
            _ => {}
        }
    }
    for (at, word) in words(&file.comments) {
        let is_marker = matches!(word, "TODO" | "FIXME" | "XXX" | "HACK");
        if is_marker && !names_issue(&file.comments[at + word.len()..]) {
            let message = format!("`{word}` without an issue: write `TODO(#12)` or do it now");
            report(file.line(at), "unfinished", &message);
        }
    }
    violations
}

/// Whether a string begins before the limit and runs past it in test code: SQL is easier to read
/// in one piece.
fn is_statement_of_test(file: &SourceFile, start: usize, line: &str) -> bool {
    let limit = line
        .char_indices()
        .nth(WIDTH)
        .map_or(line.len(), |(i, _)| i);
    file.in_test(start) && file.is_literal(start + limit - 1)
}

fn names_issue(after: &str) -> bool {
    after
        .strip_prefix("(#")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> Vec<String> {
        check(&SourceFile::new("a/src/b.rs", text))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn header() {
        assert!(check_text("//! Purpose.\n").is_empty());
        assert_eq!(check_text("// Purpose.\n").len(), 1);
        assert_eq!(check_text("").len(), 1);
        assert!(check(&SourceFile::new("a/src/b/tests.rs", "use super::*;\n")).is_empty());
    }

    #[test]
    fn width_counts_characters_and_spares_addresses() {
        let line = |n: usize| format!("//! {}\n", "\u{e9}".repeat(n - 4));
        assert!(check_text(&line(100)).is_empty());
        assert!(check_text(&line(101))[0].starts_with("a/src/b.rs:1: [width] 101 columns"));
        assert!(check_text(&format!("//! https://{}\n", "x".repeat(100))).is_empty());
        let statement = format!("f(\"{}\");\n", "x".repeat(100));
        assert_eq!(check_text(&format!("//! A.\n{statement}")).len(), 1);
        let test = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{statement}}}\n");
        assert!(check_text(&test).is_empty());
    }

    #[test]
    fn non_ascii_is_for_strings_and_comments() {
        assert!(check_text("//! \u{2190}\nconst A: &str = \"\u{2190}\"; // \u{2190}\n").is_empty());
        let found = check_text("//! A.\nlet \u{3b1} = 1;\n");
        assert!(found[0].starts_with("a/src/b.rs:2: [ascii]"));
    }

    #[test]
    fn unfinished_work_needs_an_issue() {
        assert!(check_text("//! A.\n// TODO(#7): later\nlet todo = 1;\n").is_empty());
        assert!(check_text("//! A.\nlet a = \"TODO\";\n").is_empty());
        assert_eq!(check_text("//! A.\n// TODO: later\n").len(), 1);
        assert_eq!(check_text("//! A.\n// FIXME(me)\n").len(), 1);
        assert_eq!(check_text("//! A.\nfn f() { todo!() }\n").len(), 1);
        assert_eq!(check_text("//! A.\nfn f() { unimplemented!() }\n").len(), 1);
    }

    #[test]
    fn no_unsafe_code() {
        assert!(check_text("//! unsafe\n#![deny(unsafe_code)]\n").is_empty());
        let code = "//! A.\nunsafe { f() }\n";
        assert_eq!(check_text(code).len(), 1);
        let are_known = UNSAFE_MODULES.map(|path| check(&SourceFile::new(path, code)).is_empty());
        assert_eq!(are_known, [true; 2]);
    }
}
