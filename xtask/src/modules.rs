//! The modules at the top of a crate and what they import of each other, read from its sources.
//!
//! An import is a path: `crate::a::…`, `super::…` where it reaches the crate's root, or a name that
//! `lib.rs` re-exports from a module. Test code counts for nothing.

use crate::source::{SourceFile, group_end, words};
use std::collections::{BTreeMap, BTreeSet};

/// A crate's modules.
#[derive(Debug, Default)]
pub struct Modules {
    /// Lines outside tests, by module; those of `lib.rs` count for none.
    pub lines: BTreeMap<String, usize>,
    /// The first place of each import: (importing module, imported module) → (path, line).
    pub imports: BTreeMap<(String, String), (String, usize)>,
}

impl Modules {
    /// Reads the crate in `folder` out of the workspace's `files`.
    pub fn of(folder: &str, files: &[SourceFile]) -> Self {
        let prefix = format!("{folder}/src/");
        let of_crate = || {
            let inside = files.iter().filter(|file| !file.is_test);
            inside.filter_map(|file| Some((file, module_path(file.path.strip_prefix(&prefix)?))))
        };
        let mut modules = Self::default();
        for (file, path) in of_crate() {
            if let Some(name) = path.first() {
                *modules.lines.entry(name.clone()).or_default() += file.non_test_lines();
            }
        }
        let mut exports = BTreeMap::new();
        for (file, path) in of_crate() {
            if path.is_empty() {
                exports.extend(modules.exports(file));
            }
        }
        for (file, path) in of_crate() {
            if let Some(name) = path.first() {
                for (at, target) in root_paths(file, path.len()) {
                    let target = exports.get(&target).unwrap_or(&target);
                    modules.add(name, target, file, at);
                }
            }
        }
        modules
    }

    fn add(&mut self, from: &str, to: &str, file: &SourceFile, at: usize) {
        if from != to && self.lines.contains_key(to) {
            let place = (file.path.clone(), file.line(at));
            let import = (from.to_string(), to.to_string());
            self.imports.entry(import).or_insert(place);
        }
    }

    /// The names that `lib.rs` gives out, with the modules they are from.
    fn exports(&self, root: &SourceFile) -> BTreeMap<String, String> {
        let mut exports = BTreeMap::new();
        for (at, word) in words(&root.code) {
            if word != "use" || root.in_test(at) {
                continue;
            }
            let item = root.code[at + word.len()..].split(';').next();
            let mut names = words(item.unwrap_or_default()).map(|(_, name)| name);
            let Some(module) = names.find(|name| !matches!(*name, "crate" | "self")) else {
                continue;
            };
            if self.lines.contains_key(module) {
                let names = names.filter(|name| !self.lines.contains_key(*name));
                exports.extend(names.map(|name| (name.to_string(), module.to_string())));
            }
        }
        exports
    }

    /// The groups of modules that import each other, directly or through others.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> = self
            .lines
            .keys()
            .map(|module| (module.as_str(), self.reached_from(module)))
            .collect();
        let mut cycles: Vec<Vec<String>> = Vec::new();
        for (module, reached) in &reach {
            let is_known = cycles.iter().flatten().any(|known| known == module);
            if is_known || !reached.contains(module) {
                continue;
            }
            let back = reached
                .iter()
                .filter(|other| reach[**other].contains(module));
            cycles.push(back.map(ToString::to_string).collect());
        }
        cycles
    }

    fn reached_from(&self, module: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut pending = self.imported_by(module);
        while let Some(next) = pending.pop() {
            if reached.insert(next) {
                pending.extend(self.imported_by(next));
            }
        }
        reached
    }

    /// What a module imports.
    pub fn imported_by(&self, module: &str) -> Vec<&str> {
        let imports = self.imports.keys();
        imports
            .filter_map(|(from, to)| (from == module).then_some(to.as_str()))
            .collect()
    }
}

/// The path of the module that the file at `path` below `src` is: `a/b.rs` and `a/b/mod.rs` are
/// a, b; `lib.rs` is the empty path.
fn module_path(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_string)
        .collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

/// The first names of the paths in a file that begin at the crate's root, with their places. The
/// file's module is `depth` levels below the root.
fn root_paths(file: &SourceFile, depth: usize) -> Vec<(usize, String)> {
    let code = &file.code;
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for (at, word) in words(code) {
        if file.in_test(at) || code[..at].ends_with("::") {
            continue;
        }
        let rest = match word {
            "crate" if code[at..].starts_with("crate::") => at + "crate::".len(),
            "super" if code[at..].starts_with(&to_root) => at + to_root.len(),
            _ => continue,
        };
        found.extend(first_names(code, rest));
    }
    found
}

/// The first names of the path, or of the paths in braces, at `at`.
fn first_names(code: &str, at: usize) -> Vec<(usize, String)> {
    if !code[at..].starts_with('{') {
        let first = words(&code[at..]).next();
        return first
            .filter(|(offset, _)| *offset == 0)
            .map(|(_, name)| (at, name.to_string()))
            .into_iter()
            .collect();
    }
    let end = group_end(code, at) - 1;
    let mut names = Vec::new();
    let mut next = at + 1;
    while next < end {
        next += code[next..end].len() - code[next..end].trim_start().len();
        names.extend(words(&code[next..end]).next().map(|(offset, name)| {
            let place = next + offset;
            (place, name.to_string())
        }));
        next = after_comma(code, next, end);
    }
    names
}

/// The place behind the next comma at this level of braces, or `end`.
fn after_comma(code: &str, mut at: usize, end: usize) -> usize {
    while at < end {
        match code.as_bytes()[at] {
            b'{' => at = group_end(code, at),
            b',' => return at + 1,
            _ => at += 1,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile::new(path, text))
            .collect();
        Modules::of("x", &files).imports.into_keys().collect()
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_string(), to.to_string())
    }

    #[test]
    fn every_form_of_import() {
        let files = [
            (
                "x/src/lib.rs",
                "mod a; mod b; mod c; mod d; mod e;\npub use e::Named;\n",
            ),
            (
                "x/src/a.rs",
                "use crate::{b::{self, crate_of}, c};\nfn f() -> crate::Named {}\n",
            ),
            ("x/src/b/mod.rs", "use super::c::C;\nmod inner;\n"),
            ("x/src/b/inner.rs", "use super::C;\nuse super::super::d;\n"),
            (
                "x/src/c.rs",
                "// crate::a\nconst S: &str = \"crate::a\";\npub(crate) fn f() {}\n",
            ),
            ("x/src/d.rs", "#[cfg(test)]\nmod tests { use crate::a; }\n"),
            ("x/src/e.rs", "use other::crate_::a; use crate::e::F;\n"),
            ("y/src/a.rs", "use crate::b;\n"),
        ];
        let expected = [
            pair("a", "b"),
            pair("a", "c"),
            pair("a", "e"),
            pair("b", "c"),
            pair("b", "d"),
        ];
        assert_eq!(imports(&files), expected);
    }

    #[test]
    fn cycles_are_groups() {
        let files = [
            ("x/src/a.rs", "use crate::b;"),
            ("x/src/b.rs", "use crate::c;"),
            ("x/src/c.rs", "use crate::a; use crate::d;"),
            ("x/src/d.rs", ""),
        ];
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(path, text)| SourceFile::new(path, text))
            .collect();
        assert_eq!(Modules::of("x", &files).cycles(), [["a", "b", "c"]]);
    }
}
