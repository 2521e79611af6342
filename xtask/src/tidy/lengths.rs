//! Lengths of files and functions, and the ratchet of functions that are still too long.

use super::{Report, Violation};
use crate::source::{SourceFile, body_start, group_end, words};
use std::collections::BTreeMap;

const FILE_NOTE: usize = 500;
const FILE_LIMIT: usize = 800;
const FUNCTION_LIMIT: usize = 70;
const RATCHET: &str = "xtask/ratchet.txt";

/// A function outside test code.
#[derive(Debug, PartialEq, Eq)]
struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// Notes or reports a file that is too long.
pub fn check_file(file: &SourceFile, report: &mut Report) {
    let lines = file.non_test_lines();
    if lines > FILE_LIMIT {
        let message = format!(
            "{lines} lines outside tests, the limit is {FILE_LIMIT}: split it by responsibility"
        );
        report
            .violations
            .push(Violation::new(&file.path, 1, "file-length", message));
    } else if lines > FILE_NOTE {
        report.notes.push(format!(
            "{}: {lines} lines outside tests, worth a look",
            file.path
        ));
    }
}

/// Violations of the function limit, unless `ratchet` lists the function with its exact length.
pub fn check_functions(files: &[SourceFile], ratchet: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut listed = read_ratchet(ratchet, &mut violations);
    for file in files {
        for function in functions(file).iter().filter(|f| f.lines > FUNCTION_LIMIT) {
            let key = format!("{}::{}", file.path, function.name);
            let entry = listed.remove(&key).map(|(_, lines)| lines);
            if let Some(problem) = problem(function, entry) {
                let line = function.line;
                violations.push(Violation::new(&file.path, line, "function-length", problem));
            }
        }
    }
    for (key, (line, _)) in listed {
        let message = format!("`{key}` is short enough or gone: remove this line");
        violations.push(Violation::new(RATCHET, line, "function-length", message));
    }
    violations
}

fn problem(function: &Function<'_>, listed: Option<usize>) -> Option<String> {
    let Function { name, lines, .. } = function;
    match listed {
        None => Some(format!(
            "`{name}` has {lines} lines, the limit is {FUNCTION_LIMIT}: name its steps as functions"
        )),
        Some(listed) if *lines > listed => Some(format!(
            "`{name}` grew from {listed} to {lines} lines: functions in {RATCHET} only shrink"
        )),
        Some(listed) if *lines < listed => Some(format!(
            "`{name}` shrank to {lines} lines: write that into {RATCHET}"
        )),
        Some(_) => None,
    }
}

/// Lines `path::function lines` by path and function, with their line number.
fn read_ratchet(text: &str, violations: &mut Vec<Violation>) -> BTreeMap<String, (usize, usize)> {
    let mut listed = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line
            .rsplit_once(' ')
            .and_then(|(key, n)| Some((key, n.parse().ok()?)));
        match entry {
            Some((key, lines)) => {
                listed.insert(key.trim().to_string(), (i + 1, lines));
            }
            None => {
                let message = "expected `path::function lines`";
                violations.push(Violation::new(RATCHET, i + 1, "function-length", message));
            }
        }
    }
    listed
}

fn functions(file: &SourceFile) -> Vec<Function<'_>> {
    let code = file.code.as_str();
    let mut found = Vec::new();
    let mut all = words(code).peekable();
    while let Some((at, word)) = all.next() {
        let Some(&(name_at, name)) = all.peek() else {
            break;
        };
        // `fn(u8)` is a type and `fn $name` a macro's pattern.
        let is_definition = word == "fn" && code[at + 2..name_at].trim().is_empty();
        if !is_definition || file.in_test(at) {
            continue;
        }
        if let Some(open) = body_start(code, name_at) {
            let line = file.line(at);
            let lines = file.line(group_end(code, open) - 1) - line + 1;
            found.push(Function { name, line, lines });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!(
            "fn {name}(a: [u8; 2]) -> u8 {{\n{}}}\n",
            "    f();\n".repeat(lines - 2)
        )
    }

    fn check(text: &str, ratchet: &str) -> Vec<String> {
        let files = [SourceFile::new("a/src/b.rs", text)];
        check_functions(&files, ratchet)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_limit_is_seventy() {
        assert!(check(&function("f", 70), "").is_empty());
        let found = check(&format!("\n{}", function("f", 71)), "");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a/src/b.rs:2: [function-length] `f` has 71 lines"));
    }

    #[test]
    fn tests_and_declarations_do_not_count() {
        let test = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("f", 90));
        assert!(check(&test, "").is_empty());
        assert!(check("trait T { fn f(&self); }\nstruct S(fn(u8) -> u8);\n", "").is_empty());
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        let text = function("f", 80);
        assert!(check(&text, "# why\na/src/b.rs::f 80\n").is_empty());
        assert!(check(&text, "a/src/b.rs::f 79")[0].contains("grew from 79 to 80"));
        assert!(check(&text, "a/src/b.rs::f 81")[0].contains("shrank to 80"));
        assert!(check("", "a/src/b.rs::f 80")[0].contains("xtask/ratchet.txt:1:"));
        assert!(check("", "nonsense")[0].contains("expected"));
    }

    #[test]
    fn file_length_note_and_limit() {
        let mut report = Report::default();
        check_file(
            &SourceFile::new("a/src/b.rs", &"\n".repeat(500)),
            &mut report,
        );
        assert!(report.notes.is_empty());
        check_file(
            &SourceFile::new("a/src/b.rs", &"\n".repeat(800)),
            &mut report,
        );
        assert_eq!((report.notes.len(), report.violations.len()), (1, 0));
        check_file(
            &SourceFile::new("a/src/b.rs", &"\n".repeat(801)),
            &mut report,
        );
        assert_eq!((report.notes.len(), report.violations.len()), (1, 1));
    }
}
