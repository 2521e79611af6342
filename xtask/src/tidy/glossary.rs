//! The names in GLOSSARY.md must exist: every name in a column `code` occurs in the source.

use super::Violation;
use crate::source::{SourceFile, words};
use std::collections::HashSet;

const PATH: &str = "GLOSSARY.md";

/// Checks the tables of the glossary's `text`.
pub fn check(text: &str, files: &[SourceFile]) -> Vec<Violation> {
    let known: HashSet<&str> = files
        .iter()
        .flat_map(|file| words(&file.code))
        .map(|(_, word)| word)
        .collect();
    let mut violations = Vec::new();
    let mut column = None;
    for (i, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.len() < 3 {
            column = None;
            continue;
        }
        let Some(column) = column else {
            column = cells.iter().position(|&cell| cell == "code");
            continue;
        };
        let names = cells
            .get(column)
            .into_iter()
            .flat_map(|cell| cell.split('`').skip(1).step_by(2));
        for name in names.filter(|name| !known.contains(name)) {
            let message = format!("`{name}` is not in the source: rename or remove the entry");
            violations.push(Violation::new(PATH, i + 1, "glossary", message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_column_code_must_exist() {
        let files = [SourceFile::new(
            "a/src/b.rs",
            "//! Gone.\nstruct RowMap; // Missing\n",
        )];
        let text = "`Gone`\n\n| paper | code | x |\n|---|---|---|\n| a | `RowMap` | `Any` |\n\
                    | b | `RowMap`, `Missing` | c |\n";
        let found = check(text, &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].line, found[0].rule), (6, "glossary"));
        assert!(found[0].message.contains("Missing"));
    }
}
