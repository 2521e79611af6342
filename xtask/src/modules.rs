//! The modules of a crate, or of one of its modules, and their imports of each other, read from the
//! sources.
//!
//! An import is a path that begins with `crate::`, `self::` or `super::`, or one that uses a name
//! re-exported by the parent module. Test code does not count.

use crate::source::{SourceFile, group_end, words};
use std::collections::{BTreeMap, BTreeSet};

/// The modules side by side in one parent: a crate or a module.
#[derive(Debug, Default)]
pub struct Modules {
    /// Lines outside tests, by module; the lines of `lib.rs` are left out.
    pub lines: BTreeMap<String, usize>,
    /// The first place of each import: (importing module, imported module) → (path, line).
    pub imports: BTreeMap<(String, String), (String, usize)>,
}

impl Modules {
    /// Reads the modules at the top of the crate in `folder` out of the workspace's `files`.
    pub fn of(folder: &str, files: &[SourceFile]) -> Self {
        Self::below(folder, &[], files)
    }

    /// Reads the modules directly below the module `parent` of the crate in `folder`.
    pub fn below(folder: &str, parent: &[String], files: &[SourceFile]) -> Self {
        let of_parent = || {
            let all = sources(folder, files);
            all.filter_map(|(file, path)| Some((file, path.strip_prefix(parent)?.to_vec(), path)))
        };
        let mut modules = Self::default();
        for (file, inner, _) in of_parent() {
            if let Some(name) = inner.first() {
                *modules.lines.entry(name.clone()).or_default() += file.non_test_lines();
            }
        }
        let mut exports = BTreeMap::new();
        for (file, inner, _) in of_parent() {
            if inner.is_empty() {
                exports.extend(modules.exports(file));
            }
        }
        for (file, inner, path) in of_parent() {
            let Some(name) = inner.first() else { continue };
            for (at, target) in paths(file, &path) {
                let Some(target) = target.strip_prefix(parent).and_then(<[_]>::first) else {
                    continue;
                };
                let target = exports.get(target).unwrap_or(target);
                modules.add(name, target, file, at);
            }
        }
        modules
    }

    /// The modules of the crate in `folder` that have modules of their own, by path.
    pub fn parents(folder: &str, files: &[SourceFile]) -> BTreeSet<Vec<String>> {
        let all = sources(folder, files).filter(|(_, path)| path.len() > 1);
        all.flat_map(|(_, path)| (1..path.len()).map(move |depth| path[..depth].to_vec()))
            .collect()
    }

    fn add(&mut self, from: &str, to: &str, file: &SourceFile, at: usize) {
        if from != to && self.lines.contains_key(to) {
            let place = (file.path.clone(), file.line(at));
            let import = (from.to_string(), to.to_string());
            self.imports.entry(import).or_insert(place);
        }
    }

    /// The names that the parent re-exports, with the modules that they come from.
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

    /// The modules that `module` imports.
    pub fn imported_by(&self, module: &str) -> Vec<&str> {
        let imports = self.imports.keys();
        imports
            .filter_map(|(from, to)| (from == module).then_some(to.as_str()))
            .collect()
    }
}

/// The path of the module in the file at `path` below `src`: `a/b.rs` and `a/b/mod.rs` are a, b;
/// `lib.rs` is the empty path.
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

/// The source files of the crate in `folder` outside tests, with their modules' paths.
fn sources<'a>(
    folder: &str,
    files: &'a [SourceFile],
) -> impl Iterator<Item = (&'a SourceFile, Vec<String>)> {
    let prefix = format!("{folder}/src/");
    files
        .iter()
        .filter(|file| !file.is_test)
        .filter_map(move |file| Some((file, module_path(file.path.strip_prefix(&prefix)?))))
}

/// The paths in a file of `module` that begin with `crate`, `self` or `super`, relative to the
/// crate's root, with their offsets.
fn paths(file: &SourceFile, module: &[String]) -> Vec<(usize, Vec<String>)> {
    let code = &file.code;
    let mut found = Vec::new();
    for (at, word) in words(code) {
        if file.in_test(at) || code[..at].ends_with("::") {
            continue;
        }
        let mut base = match word {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            _ => continue,
        };
        let mut rest = at + word.len();
        while code[rest..].starts_with("::super") {
            base.pop();
            rest += "::super".len();
        }
        if code[rest..].starts_with("::") {
            branches(code, rest + "::".len(), &base, &mut found);
        }
    }
    found
}

/// Adds the path at `at`, or the paths in braces, to `found`; all begin with `base`.
fn branches(code: &str, at: usize, base: &[String], found: &mut Vec<(usize, Vec<String>)>) {
    if !code[at..].starts_with('{') {
        let first = words(&code[at..]).next();
        let Some((0, name)) = first else { return };
        let base = [base, &[name.to_string()]].concat();
        let rest = at + name.len();
        match code[rest..].starts_with("::") {
            true if !code[rest + 2..].starts_with(['*', '<']) => {
                branches(code, rest + 2, &base, found);
            }
            _ => found.push((at, base)),
        }
        return;
    }
    let end = group_end(code, at) - 1;
    let mut next = at + 1;
    while next < end {
        next += code[next..end].len() - code[next..end].trim_start().len();
        if next < end {
            branches(code, next, base, found);
        }
        next = after_comma(code, next, end);
    }
}

/// The offset behind the next comma at this level of braces, or `end`.
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

    #[test]
    fn modules_of_a_module() {
        let files = [
            (
                "x/src/r/mod.rs",
                "mod a; mod b; mod c;\npub use c::Named;\n",
            ),
            (
                "x/src/r/a.rs",
                "use super::{b::{self, B}, Named};\nuse crate::r;\n",
            ),
            ("x/src/r/b.rs", "fn f() { super::c::f() }\n"),
            (
                "x/src/r/c/mod.rs",
                "use self::d::D;\nuse super::super::o;\n",
            ),
            ("x/src/r/c/d.rs", "use crate::{o, r::a};\n"),
            ("x/src/o.rs", "use crate::r::a;\n"),
        ];
        let files = files.map(|(path, text)| SourceFile::new(path, text));
        let parents: Vec<_> = Modules::parents("x", &files).into_iter().collect();
        assert_eq!(parents, [vec!["r"], vec!["r", "c"]]);
        let modules = Modules::below("x", &["r".to_string()], &files);
        let imports: Vec<_> = modules.imports.keys().cloned().collect();
        let expected = [
            pair("a", "b"),
            pair("a", "c"),
            pair("b", "c"),
            pair("c", "a"),
        ];
        assert_eq!(imports, expected);
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
