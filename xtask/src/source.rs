//! A source file for the rules: code and comments are separated, test code is marked.

mod lexer;

use lexer::{Class, classify};
use std::ops::Range;

/// One Rust source file.
pub struct SourceFile {
    /// Path from the workspace root, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The text with every byte of a comment or literal replaced by a blank. Line breaks are kept,
    /// so that offsets and line numbers equal those of `text`.
    pub code: String,
    /// The text with everything but comments replaced by blanks.
    pub comments: String,
    /// Whether all of the file is test code.
    pub is_test: bool,
    classes: Vec<Class>,
    test_regions: Vec<Range<usize>>,
    line_starts: Vec<usize>,
}

impl SourceFile {
    /// Reads `text`. Files named `tests.rs` and files below a folder `tests` inside a crate are
    /// test code.
    pub fn new(path: &str, text: &str) -> Self {
        let classes = classify(text);
        let code = keep(text, &classes, Class::Code);
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(i, _)| i + 1))
            .collect();
        Self {
            path: path.to_string(),
            text: text.to_string(),
            comments: keep(text, &classes, Class::Comment),
            is_test: path.ends_with("/tests.rs") || path.split('/').skip(1).any(|p| p == "tests"),
            test_regions: test_regions(&code),
            code,
            classes,
            line_starts,
        }
    }

    /// The top-level folder the file is in (`bench/rivals` counts as its own).
    pub fn folder(&self) -> &str {
        folder_of(&self.path)
    }

    /// The line (from 1) that byte `offset` is on.
    pub fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Whether byte `offset` is test code.
    pub fn in_test(&self, offset: usize) -> bool {
        self.is_test || self.test_regions.iter().any(|r| r.contains(&offset))
    }

    /// Whether byte `offset` belongs to a string or character literal.
    pub fn is_literal(&self, offset: usize) -> bool {
        self.classes.get(offset) == Some(&Class::Literal)
    }

    /// Lines that are not test code, blank lines and comments included.
    pub fn non_test_lines(&self) -> usize {
        let mut starts = self.line_starts.as_slice();
        if self.text.ends_with('\n') {
            starts = &starts[..starts.len() - 1];
        }
        starts.iter().filter(|&&start| !self.in_test(start)).count()
    }

    /// Names of modules declared as `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> Vec<String> {
        let declaration = |region: &Range<usize>| {
            let text = self.code[region.clone()].trim_end().strip_suffix(';')?;
            let (before, name) = text.rsplit_once(char::is_whitespace)?;
            before.trim_end().ends_with("mod").then(|| name.to_string())
        };
        self.test_regions.iter().filter_map(declaration).collect()
    }
}

/// The folder of the crate that the file at `path` belongs to.
pub fn folder_of(path: &str) -> &str {
    if path.starts_with("bench/rivals/") {
        return "bench/rivals";
    }
    path.split('/').next().unwrap_or(path)
}

fn keep(text: &str, classes: &[Class], class: Class) -> String {
    let mut kept = String::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        if c == '\n' || classes[i] == class {
            kept.push(c);
        } else {
            kept.extend(std::iter::repeat_n(' ', c.len_utf8()));
        }
    }
    kept
}

/// The end of the group whose opening bracket is at `open` in `code` (one past the closing one).
pub fn group_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (i, b) in code.bytes().enumerate().skip(open) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The end of the item that starts at `from`: its `;`, or the end of its body.
pub fn item_end(code: &str, from: usize) -> usize {
    match body_start(code, from) {
        Some(open) => group_end(code, open),
        None => code[from..].find(';').map_or(code.len(), |i| from + i + 1),
    }
}

/// The offset of the body's `{` of the item that starts at `from`; None if `;` comes first.
pub fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut i = from;
    while i < code.len() {
        match code.as_bytes()[i] {
            b'{' => return Some(i),
            b';' => return None,
            b'(' | b'[' => i = group_end(code, i),
            _ => i += 1,
        }
    }
    None
}

/// Items under `#[cfg(test)]`, `#[cfg(shuttle)]` or a `#[test]` attribute, attributes included.
fn test_regions(code: &str) -> Vec<Range<usize>> {
    let mut regions: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[") {
        if regions.last().is_some_and(|r| r.contains(&start)) {
            continue;
        }
        let end = group_end(code, start + 1);
        if is_test_attribute(&code[start + 2..end - 1]) {
            regions.push(start..item_end(code, skip_attributes(code, end)));
        }
    }
    regions
}

fn skip_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        at = group_end(code, at + 1);
    }
}

fn is_test_attribute(attribute: &str) -> bool {
    let attribute = attribute.trim();
    if let Some(condition) = attribute.strip_prefix("cfg(") {
        let names = |word| words(condition).any(|(_, w)| w == word);
        return (names("test") || names("shuttle")) && !condition.contains("not(");
    }
    attribute == "test" || attribute.ends_with("::test")
}

/// Identifiers and keywords of `code` with their offsets.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        at += code[at..].find(is_word)?;
        let length = code[at..].find(|c| !is_word(c)).unwrap_or(code.len() - at);
        let word = (at, &code[at..at + length]);
        at += length;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
//! Header.
fn a() {} // x

#[cfg(test)]
#[expect(x)]
mod tests {
    fn b() { \"}\"; }
}
fn c() {}
";

    #[test]
    fn test_modules_are_marked_and_not_counted() {
        let file = SourceFile::new("a/src/b.rs", MIXED);
        assert!(!file.in_test(MIXED.find("fn a").unwrap()));
        assert!(file.in_test(MIXED.find("fn b").unwrap()));
        assert!(!file.in_test(MIXED.find("fn c").unwrap()));
        assert_eq!(file.non_test_lines(), 4);
        assert_eq!(file.line(MIXED.find("fn c").unwrap()), 9);
    }

    #[test]
    fn conditions_that_mean_test_code() {
        for attribute in [
            "cfg(test)",
            "cfg(all(test, unix))",
            "cfg(shuttle)",
            "tokio::test",
        ] {
            assert!(is_test_attribute(attribute), "{attribute}");
        }
        for attribute in [
            "cfg(not(shuttle))",
            "cfg(unix)",
            "cfg(feature)",
            "derive(Test)",
        ] {
            assert!(!is_test_attribute(attribute), "{attribute}");
        }
    }

    #[test]
    fn test_files_by_name_place_and_declaration() {
        assert!(SourceFile::new("a/src/b/tests.rs", "").is_test);
        assert!(SourceFile::new("tests/tests/slt.rs", "").is_test);
        assert!(!SourceFile::new("tests/src/lib.rs", "").is_test);
        let parent = SourceFile::new("a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod other;\n");
        assert_eq!(parent.test_modules(), ["model"]);
    }

    #[test]
    fn comments_and_code_are_kept_apart() {
        let file = SourceFile::new("a/src/b.rs", "f(\"é\") // b\n");
        assert_eq!(file.code, "f(    )     \n");
        assert_eq!(file.comments, "        // b\n");
    }

    #[test]
    fn empty_file() {
        let file = SourceFile::new("a/src/b.rs", "");
        assert_eq!((file.non_test_lines(), file.line(0)), (1, 1));
    }
}
