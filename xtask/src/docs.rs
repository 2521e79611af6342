//! `cargo xtask docs` checks that every relative link of the documentation leads to a file and, if
//! it has a fragment, to that heading. Every page of the book must be in its table of contents.
//!
//! A test of the shell (cli/tests/cli/docs.rs) runs the examples, since it has the binary. mdBook
//! turns `docs/` into HTML and is needed for nothing else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The book's pages and its table of contents.
const BOOK: &str = "docs";
const CONTENTS: &str = "SUMMARY.md";

/// The faults of the documentation under `root`, one line each, and the number of pages.
pub fn check(root: &Path) -> io::Result<(usize, Vec<String>)> {
    let mut pages = markdown_in(root, false)?;
    let book = markdown_in(&root.join(BOOK), true)?;
    pages.extend(book.iter().cloned());
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for page in &pages {
        let text = fs::read_to_string(page)?;
        let is_contents = page.ends_with(CONTENTS);
        for link in links(&text) {
            let problem = follow(page, &link.target)?;
            if is_contents {
                listed.extend(path_of(page, &link.target));
            }
            if let Some(problem) = problem {
                let place = page.strip_prefix(root).unwrap_or(page).display();
                problems.push(format!("{place}:{}: {problem}", link.line));
            }
        }
    }
    for page in book.iter().filter(|page| !page.ends_with(CONTENTS)) {
        if !listed.contains(page) {
            let place = page.strip_prefix(root).unwrap_or(page).display();
            problems.push(format!("{place}: is not in {BOOK}/{CONTENTS}"));
        }
    }
    Ok((pages.len(), problems))
}

fn markdown_in(directory: &Path, deep: bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            found.extend(markdown_in(&path, deep)?);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A link in a page.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

/// The links of a page, except links inside code.
fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].to_string();
            links.push(Link {
                line: number,
                target,
            });
            rest = &rest[end..];
        }
    }
    links
}

/// The lines outside code blocks with their line numbers; code within a line is blanked.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let parts = line.split('`').step_by(2);
            lines.push((at + 1, parts.collect::<Vec<_>>().join("code")));
        }
    }
    lines
}

/// The file that `target` in `page` refers to; None for addresses.
fn path_of(page: &Path, target: &str) -> Option<PathBuf> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, _) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() {
        return Some(page.to_path_buf());
    }
    let mut found = page.parent()?.to_path_buf();
    for part in Path::new(path).components() {
        match part {
            std::path::Component::ParentDir => {
                found.pop();
            }
            part => found.push(part),
        }
    }
    Some(found)
}

/// The reason why a link leads nowhere; None if it leads somewhere.
fn follow(page: &Path, target: &str) -> io::Result<Option<String>> {
    let Some(path) = path_of(page, target) else {
        return Ok(None);
    };
    if !path.exists() {
        return Ok(Some(format!("link to \"{target}\", which is not there")));
    }
    let heading = target.split_once('#').map(|(_, heading)| heading);
    let Some(heading) = heading.filter(|_| path.extension().is_some_and(|e| e == "md")) else {
        return Ok(None);
    };
    let headings = headings(&fs::read_to_string(&path)?);
    Ok((!headings.contains(heading))
        .then(|| format!("link to \"{target}\", but there is no such heading")))
}

/// The headings of a page, in the form that links use.
fn headings(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code || !line.starts_with('#') {
            continue;
        }
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        found.insert(kept.collect::<String>().replace(' ', "-"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_none() {
        let text = "[a](b.md) and `[c](d)` and [e](f#g)\n```\n[h](i)\n```\n[j](k)\n";
        let found: Vec<_> = links(text)
            .into_iter()
            .map(|l| (l.line, l.target))
            .collect();
        let expected = [(1, "b.md"), (1, "f#g"), (5, "k")];
        assert_eq!(
            found,
            expected.map(|(line, target)| (line, target.to_string()))
        );
    }

    #[test]
    fn headings_are_named_as_links_name_them() {
        let found = headings("# A `b`, c\n```\n# no\n```\n## D-e F\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a-b-c", "d-e-f"]);
    }

    #[test]
    fn dead_links_and_forgotten_pages_are_found() {
        let root = std::env::temp_dir().join(format!("xtask-docs-{}", std::process::id()));
        let book = root.join(BOOK);
        fs::create_dir_all(&book).unwrap();
        fs::write(
            root.join("README.md"),
            "[b](docs/a.md#title) [x](https://x)",
        )
        .unwrap();
        fs::write(book.join(CONTENTS), "[a](a.md)").unwrap();
        fs::write(book.join("a.md"), "# Title\n[up](../README.md)").unwrap();
        assert_eq!(check(&root).unwrap(), (3, Vec::new()));
        fs::write(book.join("b.md"), "[no](nothing.md) [h](a.md#none)").unwrap();
        let (_, problems) = check(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
