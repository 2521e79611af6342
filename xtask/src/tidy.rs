//! The house rules, checked over the text of the workspace.
//!
//! | rule | limit |
//! |---|---|
//! | `layers` | a crate depends only on crates before it in ARCHITECTURE.md's order |
//! | `rooms` | imports follow the crate's table of rooms, and modules never form a circle |
//! | `file-length` | 500 non-test lines: a note; 800: a violation |
//! | `function-length` | 70 lines outside tests, or the exact length in `xtask/ratchet.txt` |
//! | `banned` | no raw clocks, threads, randomness or files outside the places that own them |
//! | `unsafe` | in `device/src/queue/uring.rs` and `allocator` only |
//! | `panics` | no `unwrap` outside tests, no index in code that decodes bytes from outside |
//! | `unfinished` | no `todo!`, no to-do comment without an issue number |
//! | `glossary` | the names that GLOSSARY.md gives exist |
//! | `header` | every file opens with a `//!` comment |
//! | `ascii` | code is ASCII; strings and comments are free |
//! | `width` | 100 columns |
//!
//! Exceptions live in tables with a reason each (`banned.rs`, `ratchet.txt`); one that is no
//! longer needed is a violation itself, so the tables only shrink.

mod banned;
mod glossary;
mod layers;
mod lengths;
mod manifest;
mod panics;
mod rooms;
mod text;

use crate::source::SourceFile;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the workspace root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// The fault and its remedy.
    pub message: String,
}

impl Violation {
    fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_string(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

/// The findings of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Source files read.
    pub files: usize,
    /// Broken rules, by path and line.
    pub violations: Vec<Violation>,
    /// Findings that deserve a look but break no rule.
    pub notes: Vec<String>,
}

/// Checks the workspace at `root`. Errors are files that cannot be read.
pub fn check_workspace(root: &Path) -> io::Result<Report> {
    check_with(root, banned::EXCEPTIONS)
}

fn check_with(root: &Path, exceptions: &[banned::Exception]) -> io::Result<Report> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name))
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    };
    let order = layers::Order::parse(&read("ARCHITECTURE.md")?).map_err(io::Error::other)?;
    let mut violations = Vec::new();
    let mut files = Vec::new();
    let folders = manifest::members(&read("Cargo.toml")?);
    for folder in &folders {
        let path = format!("{folder}/Cargo.toml");
        violations.extend(order.check(folder, &path, &read(&path)?));
        for path in rust_files(root, folder)? {
            files.push(SourceFile::new(&path, &read(&path)?));
        }
    }
    mark_declared_test_modules(&mut files);
    for folder in &folders {
        violations.extend(rooms::check(folder, &files));
        violations.extend(rooms::check_cycles(folder, &files));
    }
    violations.extend(glossary::check(&read("GLOSSARY.md")?, &files));
    let mut report = check_sources(files, exceptions, &read("xtask/ratchet.txt")?);
    report.violations.append(&mut violations);
    report.violations.sort();
    Ok(report)
}

/// The crates of the workspace at `root` by the layers of ARCHITECTURE.md, lowest first, with the
/// crates that see all others at the end; and their sources, with test code marked.
pub fn sources(root: &Path) -> io::Result<(Vec<Vec<String>>, Vec<SourceFile>)> {
    let read = |name: &str| std::fs::read_to_string(root.join(name));
    let order = layers::Order::parse(&read("ARCHITECTURE.md")?).map_err(io::Error::other)?;
    let layers = order.all();
    let mut files = Vec::new();
    for folder in layers.iter().flatten() {
        for path in rust_files(root, folder)? {
            files.push(SourceFile::new(&path, &read(&path)?));
        }
    }
    mark_declared_test_modules(&mut files);
    Ok((layers, files))
}

/// Checks `files` against every rule about source text.
fn check_sources(
    files: Vec<SourceFile>,
    exceptions: &[banned::Exception],
    ratchet: &str,
) -> Report {
    let mut report = Report {
        files: files.len(),
        ..Report::default()
    };
    for file in &files {
        report.violations.extend(text::check(file));
        report.violations.extend(panics::check(file));
        lengths::check_file(file, &mut report);
    }
    report.violations.extend(banned::check(&files, exceptions));
    report
        .violations
        .extend(lengths::check_functions(&files, ratchet));
    report.violations.sort();
    report
}

/// `#[cfg(test)] mod model;` in `a/src/lib.rs` makes `a/src/model.rs` test code.
fn mark_declared_test_modules(files: &mut [SourceFile]) {
    let mut declared = HashSet::new();
    for file in files.iter() {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let parent = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            name => format!("{folder}/{}", name.trim_end_matches(".rs")),
        };
        for module in file.test_modules() {
            declared.insert(format!("{parent}/{module}.rs"));
            declared.insert(format!("{parent}/{module}/mod.rs"));
        }
    }
    for file in files.iter_mut() {
        file.is_test |= declared.contains(&file.path);
    }
}

/// Rust files below `root/folder`, sorted, without build output and nested workspace members.
fn rust_files(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_string()];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if entry.file_type()?.is_dir() {
                let nested_crate = root.join(&path).join("Cargo.toml").exists();
                if name != "target" && !name.starts_with('.') && !nested_crate {
                    pending.push(path);
                }
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
