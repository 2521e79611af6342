//! SQL support for the line editor: whether an input is complete, name completion, hints from the
//! history, and colours.

use super::keywords::{KEYWORDS, META_COMMANDS, is_keyword};
use crate::session::catalog::Catalog;
use crate::statements::Splitter;
use rustyline::completion::{Completer, FilenameCompleter};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

const KEYWORD: &str = "\x1b[1;34m";
const STRING: &str = "\x1b[32m";
const COMMENT: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The file of the history: `STRANDLINE_HISTORY` (empty: none), else a file in the state directory.
pub fn history_file() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("STRANDLINE_HISTORY") {
        return (!file.is_empty()).then(|| file.into());
    }
    let set = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("strandline/history"))
}

/// The names that can be completed.
#[derive(Default)]
pub struct Names {
    /// Tables and views; qualified unless they are in schema `public`.
    relations: Vec<String>,
    /// Table → its columns.
    columns: Vec<(String, Vec<String>)>,
}

impl Names {
    /// The names in a catalog.
    pub fn from_catalog(catalog: &Catalog) -> Self {
        let mut names = Self::default();
        let qualified = |schema: &str, name: &str| match schema {
            "public" => quoted(name),
            _ => format!("{}.{}", quoted(schema), quoted(name)),
        };
        for table in catalog.tables.values() {
            names.relations.push(qualified(&table.schema, &table.name));
            let columns = table.columns.iter().map(|c| quoted(&c.name)).collect();
            names.columns.push((table.name.clone(), columns));
        }
        for view in &catalog.views {
            names.relations.push(qualified(&view.schema, &view.name));
        }
        names
    }
}

/// An identifier, quoted where SQL requires it.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let simple = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    if simple && !name.is_empty() && !is_keyword(name) {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// The line editor's helper; see the module's header.
#[derive(Default)]
pub struct Assistant {
    pub names: Names,
    files: FilenameCompleter,
    hints: HistoryHinter,
}

impl Helper for Assistant {}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let mut splitter = Splitter::default();
        splitter.push(context.input());
        splitter.push("\n");
        while splitter.next_piece().is_some() {}
        Ok(if splitter.is_pending() {
            ValidationResult::Incomplete
        } else {
            ValidationResult::Valid(None)
        })
    }
}

impl Hinter for Assistant {
    type Hint = String;
    fn hint(&self, line: &str, at: usize, context: &Context<'_>) -> Option<String> {
        // A hint of several lines would move the prompt.
        self.hints
            .hint(line, at, context)
            .filter(|hint| !hint.contains('\n'))
    }
}

impl Completer for Assistant {
    type Candidate = String;
    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..at];
        if before.starts_with("\\i ") || before.starts_with("\\o ") {
            let (start, pairs) = self.files.complete(line, at, context)?;
            return Ok((
                start,
                pairs.into_iter().map(|pair| pair.replacement).collect(),
            ));
        }
        let is_part = |c: char| c.is_alphanumeric() || "_\\?.".contains(c);
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_part(*c))
            .last()
            .map_or(at, |(start, _)| start);
        Ok(self.candidates(line, start, &before[start..]))
    }
}

impl Assistant {
    /// Completions of `word`, which begins at `start` of `line`, and the position that they
    /// replace.
    fn candidates(&self, line: &str, start: usize, word: &str) -> (usize, Vec<String>) {
        if word.starts_with('\\') {
            let matching = META_COMMANDS.iter().filter(|c| c.starts_with(word));
            return (start, matching.map(ToString::to_string).collect());
        }
        if let Some((qualifier, part)) = word.rsplit_once('.') {
            let columns = self.columns_of(&resolve_alias(line, qualifier));
            if !columns.is_empty() {
                let place = start + qualifier.len() + 1;
                let fits = |c: &&String| starts_with_ignoring_case(c, part);
                return (place, columns.iter().filter(fits).cloned().collect());
            }
        }
        let lower = word.to_lowercase();
        let upper = !word.is_empty() && word.chars().all(|c| !c.is_lowercase());
        let mut found = BTreeSet::new();
        let relations = self.names.relations.iter();
        found.extend(
            relations
                .filter(|n| starts_with_ignoring_case(n, word))
                .cloned(),
        );
        if !expects_relation(&line[..start]) {
            let mentioned = words(line);
            for (table, columns) in &self.names.columns {
                if mentioned.iter().any(|w| w == table) {
                    let fits = columns
                        .iter()
                        .filter(|c| starts_with_ignoring_case(c, word));
                    found.extend(fits.cloned());
                }
            }
            if !word.is_empty() {
                let keywords = KEYWORDS.iter().filter(|k| k.starts_with(&lower));
                found.extend(keywords.map(|k| {
                    if upper {
                        k.to_uppercase()
                    } else {
                        k.to_string()
                    }
                }));
            }
        }
        (start, found.into_iter().collect())
    }

    fn columns_of(&self, table: &str) -> &[String] {
        let found = self.names.columns.iter().find(|(name, _)| name == table);
        found.map_or(&[], |(_, columns)| columns)
    }
}

fn starts_with_ignoring_case(name: &str, prefix: &str) -> bool {
    name.to_lowercase().starts_with(&prefix.to_lowercase())
}

fn words(line: &str) -> Vec<String> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Whether the next word is a table's name.
fn expects_relation(before: &str) -> bool {
    let last = words(before).pop().unwrap_or_default();
    before.ends_with(char::is_whitespace)
        && (matches!(
            last.as_str(),
            "from" | "join" | "into" | "update" | "table" | "copy" | "truncate"
        ) || before.trim_end() == "\\d")
}

/// The table that `alias` stands for in `line` (`orders o`, `orders AS o`), or else the alias
/// itself.
fn resolve_alias(line: &str, alias: &str) -> String {
    let words = words(line);
    let alias = alias.to_lowercase();
    for window in words.windows(3) {
        if window[2] == alias && window[1] == "as" && !is_keyword(&window[0]) {
            return window[0].clone();
        }
    }
    for window in words.windows(2) {
        if window[1] == alias && !is_keyword(&window[0]) {
            return window[0].clone();
        }
    }
    alias
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _at: usize) -> Cow<'l, str> {
        if line.starts_with('\\') {
            Cow::Borrowed(line)
        } else {
            Cow::Owned(coloured(line))
        }
    }
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("{COMMENT}{hint}{RESET}"))
    }
    fn highlight_char(&self, _line: &str, _at: usize, kind: CmdKind) -> bool {
        kind != CmdKind::MoveCursor
    }
}

/// `line` with keywords, strings and line comments in colour; the characters stay the same.
fn coloured(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let (length, colour) = if first.is_alphabetic() || first == '_' {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            (length, is_keyword(&rest[..length]).then_some(KEYWORD))
        } else if first == '\'' {
            (
                rest[1..].find('\'').map_or(rest.len(), |at| at + 2),
                Some(STRING),
            )
        } else if first == '"' {
            (rest[1..].find('"').map_or(rest.len(), |at| at + 2), None)
        } else if rest.starts_with("--") {
            (rest.find('\n').unwrap_or(rest.len()), Some(COMMENT))
        } else {
            (first.len_utf8(), None)
        };
        let (token, tail) = rest.split_at(length);
        match colour {
            Some(colour) => out.extend([colour, token, RESET]),
            None => out.push_str(token),
        }
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assistant() -> Assistant {
        let names = Names {
            relations: vec!["customer".into(), "orders".into(), "\"Odd\"".into()],
            columns: vec![
                (
                    "orders".into(),
                    vec!["o_orderkey".into(), "o_custkey".into()],
                ),
                ("customer".into(), vec!["c_custkey".into()]),
            ],
        };
        Assistant {
            names,
            ..Assistant::default()
        }
    }

    fn complete(line: &str) -> (usize, Vec<String>) {
        let history = rustyline::history::FileHistory::new();
        let context = Context::new(&history);
        assistant()
            .complete(line, line.len(), &context)
            .expect("no I/O")
    }

    #[test]
    fn tables_after_from_and_columns_of_mentioned_tables() {
        assert_eq!(complete("select * from o"), (14, vec!["orders".into()]));
        let (_, found) = complete("select * from orders where o_");
        assert_eq!(found, ["o_custkey", "o_orderkey"]);
        let (at, found) = complete("select o.o_c from orders o where o.o_c");
        assert_eq!((at, found), (35, vec!["o_custkey".into()]));
        let (_, found) = complete("select * from customer as x where x.");
        assert_eq!(found, ["c_custkey"]);
    }

    #[test]
    fn keywords_keep_the_case_that_was_typed() {
        assert_eq!(complete("sel").1, ["select"]);
        assert_eq!(complete("SEL").1, ["SELECT"]);
        assert_eq!(complete("\\dt").1, ["\\dt"]);
        assert!(complete("").1.contains(&"orders".to_string()));
    }

    #[test]
    fn colours_change_no_character() {
        for line in [
            "select 'a''b' -- c",
            "sel\"ect\" é 'open",
            "",
            "from\nwhere 1",
        ] {
            let mut plain = coloured(line);
            for code in [KEYWORD, STRING, COMMENT, RESET] {
                plain = plain.replace(code, "");
            }
            assert_eq!(plain, line);
        }
        assert!(coloured("select").starts_with(KEYWORD));
    }

    #[test]
    fn names_are_quoted_when_sql_needs_it() {
        assert_eq!(quoted("orders"), "orders");
        assert_eq!(quoted("Odd"), "\"Odd\"");
        assert_eq!(quoted("select"), "\"select\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted(""), "\"\"");
    }
}
