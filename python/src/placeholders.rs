//! Parameters in statement texts: `?` and `:name` become the engine's `$1`, `$2`, ….
//!
//! A text is rewritten once per connection and remembered. For the last few texts the Python
//! objects are remembered too, so that a program that runs a constant text again costs a comparison
//! of pointers.
//!
//! Quoted strings and names, dollar-quoted strings and comments are left alone. `:name` is a
//! parameter only if the values come in a mapping; `::` is a cast.

use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock};
use strandline::{Connection, Prepared};

/// The number of texts that a connection remembers.
const TEXTS: usize = 512;
/// Longer texts are not remembered: they are bulk INSERTs, which rarely come again.
const LONGEST: usize = 64 << 10;
/// The number of Python objects that are remembered.
const OBJECTS: usize = 16;

/// A statement's text with the engine's parameters.
pub struct Text {
    /// with `$1`, `$2`, … for parameters
    pub sql: String,
    /// the names of the parameters in order, if it has names
    pub names: Vec<String>,
    /// whether the statement begins or ends a transaction, or changes no data
    pub is_control: bool,
    prepared: OnceLock<Option<Prepared>>,
}

impl Text {
    /// The statement, parsed once; None if it cannot be prepared or has an error.
    pub fn prepared(&self, connection: &mut Connection) -> Option<&Prepared> {
        self.prepared
            .get_or_init(|| connection.prepare(&self.sql).ok())
            .as_ref()
    }
}

/// The texts that a connection has run.
#[derive(Default)]
pub struct Texts {
    positional: HashMap<Box<str>, Arc<Text>, BuildHasherDefault<FxHasher>>,
    named: HashMap<Box<str>, Arc<Text>, BuildHasherDefault<FxHasher>>,
    /// by address; an object in this table stays alive, so that no other object has its address
    objects: [Option<Known>; OBJECTS],
}

/// A text as a Python object.
struct Known {
    object: Py<PyString>,
    named: bool,
    text: Arc<Text>,
}

impl Texts {
    /// Like [`Texts::get`], for a Python object.
    pub fn get_object(&mut self, sql: &Bound<'_, PyString>, named: bool) -> PyResult<Arc<Text>> {
        // Objects are aligned to 16 bytes.
        let place = (sql.as_ptr() as usize >> 4) % OBJECTS;
        if let Some(known) = &self.objects[place]
            && known.object.is(sql)
            && known.named == named
        {
            return Ok(known.text.clone());
        }
        let text = self.get(sql.to_str()?, named);
        if text.sql.len() <= LONGEST {
            self.objects[place] = Some(Known {
                object: sql.clone().unbind(),
                named,
                text: text.clone(),
            });
        }
        Ok(text)
    }

    /// `sql` rewritten; `named` says whether its parameters have names.
    pub fn get(&mut self, sql: &str, named: bool) -> Arc<Text> {
        let known = match named {
            true => &mut self.named,
            false => &mut self.positional,
        };
        if let Some(text) = known.get(sql) {
            return text.clone();
        }
        if known.len() >= TEXTS {
            known.clear();
        }
        let text = Arc::new(rewritten(sql, named));
        if sql.len() <= LONGEST {
            known.insert(sql.into(), text.clone());
        }
        text
    }
}

/// A fast hash; it need not resist attacks, since the program itself wrote the texts.
#[derive(Default)]
pub struct FxHasher(u64);

impl std::hash::Hasher for FxHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        let mut word = [0; 8];
        let rest = chunks.remainder();
        word[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(word) ^ ((rest.len() as u64) << 56));
    }
    fn write_u8(&mut self, _: u8) {}
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}

impl FxHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

fn rewritten(sql: &str, named: bool) -> Text {
    let mut scanner = Scanner {
        rest: sql,
        out: String::with_capacity(sql.len() + 8),
        names: Vec::new(),
        questions: 0,
    };
    while scanner.step(named) {}
    Text {
        is_control: is_control(sql),
        sql: scanner.out,
        names: scanner.names,
        prepared: OnceLock::new(),
    }
}

/// Whether a statement begins no transaction when none is open.
fn is_control(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    while let Some(comment) = comment_length(rest) {
        rest = rest[comment..].trim_start();
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic());
    let word = &rest[..end.unwrap_or(rest.len())];
    const CONTROL: &[&str] = &[
        "BEGIN",
        "START",
        "COMMIT",
        "END",
        "ROLLBACK",
        "ABORT",
        "SET",
        "RESET",
        "SHOW",
        "DISCARD",
        "PREPARE",
        "DEALLOCATE",
        "CHECKPOINT",
    ];
    CONTROL
        .iter()
        .any(|control| control.eq_ignore_ascii_case(word))
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    names: Vec<String>,
    questions: usize,
}

impl Scanner<'_> {
    /// Translates one token to the output; false at the end.
    fn step(&mut self, named: bool) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        match first {
            '\'' | '"' => self.copy(quoted_length(self.rest, first, self.escapes())),
            '$' => self.copy(dollar_quoted_length(self.rest).unwrap_or(1)),
            '-' | '/' => self.copy(comment_length(self.rest).unwrap_or(1)),
            '?' if !named => {
                self.questions += 1;
                self.rest = &self.rest[1..];
                self.out.push_str(&format!("${}", self.questions));
            }
            ':' if self.rest.starts_with("::") => self.copy(2),
            ':' if named => self.parameter(),
            c if c.is_alphanumeric() || c == '_' => self.copy(word_length(self.rest)),
            c => self.copy(c.len_utf8()),
        }
        true
    }

    fn copy(&mut self, bytes: usize) {
        self.out.push_str(&self.rest[..bytes]);
        self.rest = &self.rest[bytes..];
    }

    /// Whether the quote at this position opens a string with backslash escapes: `E'…'`.
    fn escapes(&self) -> bool {
        let mut before = self.out.chars().rev();
        let prefix = before.next().is_some_and(|c| matches!(c, 'e' | 'E'));
        prefix
            && !before
                .next()
                .is_some_and(|c| c.is_alphanumeric() || c == '_')
    }

    fn parameter(&mut self) {
        let length = word_length(&self.rest[1..]);
        let name = &self.rest[1..=length];
        if length == 0 || name.starts_with(|c: char| c.is_ascii_digit()) {
            return self.copy(1);
        }
        let known = self.names.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        });
        self.rest = &self.rest[1 + length..];
        self.out.push_str(&format!("${}", number + 1));
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

/// The number of bytes up to and including the closing quote, or of the whole text if there is
/// none.
fn quoted_length(text: &str, quote: char, escapes: bool) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if escapes => is_escaped = true,
            // A doubled quote is treated as the end of one string and the begin of the next.
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of `$tag$…$tag$` at the start of `text`.
fn dollar_quoted_length(text: &str) -> Option<usize> {
    let tag = 1 + word_length(&text[1..]);
    if !text[tag..].starts_with('$') || text[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let delimiter = &text[..=tag];
    let body = &text[delimiter.len()..];
    let end = body.find(delimiter).map(|at| at + 2 * delimiter.len());
    Some(end.unwrap_or(text.len()))
}

/// Bytes of the comment at the start of `text`.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("--") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (1, 2);
    while depth > 0 && at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    Some(at)
}
