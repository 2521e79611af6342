//! The direction of imports between the modules of a crate.
//!
//! A crate declares it in the header of its `lib.rs`, with a line that begins `Rooms, lowest first`
//! and a table below it whose first column names modules. A module imports only modules of rows
//! above its own row. Modules of one row do not see each other. `lib.rs` itself is above all of
//! them.
//!
//! In no crate do modules side by side import each other in a circle, at any depth.

use super::Violation;
use crate::modules::Modules;
use crate::source::SourceFile;

const TITLE: &str = "Rooms, lowest first";

/// Checks that no modules of the crate in `folder` import each other in a circle.
pub fn check_cycles(folder: &str, files: &[SourceFile]) -> Vec<Violation> {
    let mut parents = vec![Vec::new()];
    parents.extend(Modules::parents(folder, files));
    let mut violations = Vec::new();
    for parent in &parents {
        let path = [&["src".to_string()], parent.as_slice()].concat().join("/");
        for cycle in Modules::below(folder, parent, files).cycles() {
            let message = format!(
                "the modules {} import each other: move what two of them need into one below, or \
                 pass it as a value",
                cycle.join(", ")
            );
            violations.push(Violation::new(
                &format!("{folder}/{path}"),
                1,
                "rooms",
                message,
            ));
        }
    }
    violations
}

/// Checks the crate in `folder`, if it declares its rooms.
pub fn check(folder: &str, files: &[SourceFile]) -> Vec<Violation> {
    let root = format!("{folder}/src/lib.rs");
    let Some(rows) = files
        .iter()
        .find(|file| file.path == root)
        .and_then(|file| declared(&file.text))
    else {
        return Vec::new();
    };
    let modules = Modules::of(folder, files);
    let rank = |name: &str| {
        let of_row = |row: &Vec<String>| row.iter().any(|room| room == name);
        rows.iter().position(of_row)
    };
    let violation = |path: &str, line, message| Violation::new(path, line, "rooms", message);
    let mut violations = Vec::new();
    for name in rows.iter().flatten() {
        if !modules.lines.contains_key(name) {
            let message = format!("the room `{name}` is no module: take it out of the table");
            violations.push(violation(&root, 1, message));
        }
    }
    for name in modules.lines.keys() {
        if rank(name).is_none() {
            let message = format!("`{name}` has no place in the table of rooms: give it one");
            violations.push(violation(&root, 1, message));
        }
    }
    for ((from, to), (path, line)) in &modules.imports {
        if let (Some(above), Some(below)) = (rank(from), rank(to))
            && below >= above
        {
            let message = format!(
                "`{from}` imports `{to}`, which is not below it: move what both need into a room \
                 below, or pass it as a value ({root}, Rooms)"
            );
            violations.push(violation(path, *line, message));
        }
    }
    violations
}

/// The rows of the table in a header, lowest first.
fn declared(text: &str) -> Option<Vec<Vec<String>>> {
    let mut lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.find(|line| line.trim_start().starts_with(TITLE))?;
    let rows = lines
        .map(str::trim)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let names = |row: &str| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        let names = cell.split('`').skip(1).step_by(2).map(str::to_string);
        names.collect::<Vec<_>>()
    };
    Some(rows.map(names).filter(|row| !row.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! A crate.\n//!\n//! Rooms, lowest first; more:\n//!\n//! | room | of |\n\
                        //! |---|---|\n//! | `a`, `b` | `x` |\n//! | `c` | y |\nmod a;\n";

    fn check_files(root: &str, modules: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![SourceFile::new("x/src/lib.rs", root)];
        let modules = modules
            .iter()
            .map(|(name, text)| SourceFile::new(&format!("x/src/{name}.rs"), text));
        files.extend(modules);
        check("x", &files)
            .iter()
            .map(|v| format!("{}:{} {}", v.path, v.line, v.message))
            .collect()
    }

    #[test]
    fn imports_go_down_only() {
        let good = [("a", ""), ("b", ""), ("c", "use crate::{a, b};")];
        assert!(check_files(ROOT, &good).is_empty());
        let up = [("a", "\nuse crate::c;"), ("b", ""), ("c", "")];
        let found = check_files(ROOT, &up);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("x/src/a.rs:2 `a` imports `c`"));
        let aside = [("a", "use crate::b;"), ("b", ""), ("c", "")];
        assert_eq!(check_files(ROOT, &aside).len(), 1, "of one row");
    }

    #[test]
    fn modules_do_not_import_in_a_circle() {
        let files = [
            SourceFile::new("x/src/r/a.rs", "use super::b;"),
            SourceFile::new("x/src/r/b.rs", "use crate::r::a::A;"),
        ];
        let found = check_cycles("x", &files);
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .to_string()
                .starts_with("x/src/r:1: [rooms] the modules a, b import")
        );
        let one_way = [
            SourceFile::new("x/src/r/a.rs", "use super::b;"),
            SourceFile::new("x/src/r/b.rs", "use crate::s;"),
        ];
        assert!(check_cycles("x", &one_way).is_empty());
    }

    #[test]
    fn the_table_names_the_modules() {
        let found = check_files(ROOT, &[("a", ""), ("b", ""), ("d", "")]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("`c` is no module"));
        assert!(found[1].contains("`d` has no place"));
        assert!(check_files("//! No table.\n", &[("a", "use crate::a;")]).is_empty());
    }
}
