//! Errors as psql shows them: `ERROR:  …`, the place in the statement, DETAIL and HINT.

use crate::render::{display_width, printable};
use crate::session::Error;
use std::fmt::{self, Write};

/// Columns of the statement's line that are shown around the place of an error.
const EXCERPT: usize = 72;

/// Prints an error to standard error. `prefix` says where it comes from (`file:line: `),
/// `statement` is its text, if it was a statement's.
pub fn report(error: &Error, prefix: &str, statement: Option<&str>) {
    eprint!(
        "{}",
        Report {
            error,
            prefix,
            statement
        }
    );
}

struct Report<'a> {
    error: &'a Error,
    prefix: &'a str,
    statement: Option<&'a str>,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, place) = split_place(self.error.message());
        writeln!(f, "{}ERROR:  {}", self.prefix, printable(message))?;
        if let (Some(statement), Some(place)) = (self.statement, place) {
            f.write_str(&excerpt(statement, place).unwrap_or_default())?;
        }
        if let Some(detail) = self.error.detail() {
            writeln!(f, "DETAIL:  {}", printable(detail))?;
        }
        if let Some(hint) = self.error.hint() {
            writeln!(f, "HINT:  {}", printable(hint))?;
        }
        Ok(())
    }
}

/// A place in a statement, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
}

/// Takes the parser's ` at Line: 1, Column: 8` off a message.
fn split_place(message: &str) -> (&str, Option<Place>) {
    let parse = || {
        let (before, place) = message.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        Some((
            before,
            Place {
                line: line.parse().ok()?,
                column: column.parse().ok()?,
            },
        ))
    };
    match parse() {
        Some((before, place)) => (before, Some(place)),
        None => (message, None),
    }
}

/// `LINE 1: SELEC 1` and a caret under the place.
fn excerpt(statement: &str, place: Place) -> Option<String> {
    let line = statement.lines().nth(place.line.checked_sub(1)?)?;
    let characters: Vec<char> = line.chars().collect();
    let at = place
        .column
        .checked_sub(1)
        .filter(|at| *at <= characters.len())?;
    let from = at.saturating_sub(EXCERPT / 2);
    let to = characters.len().min(from + EXCERPT);
    let before: String = characters[from..at].iter().collect();
    let after: String = characters[at..to].iter().collect();
    let head = format!("LINE {}: {}", place.line, if from > 0 { "…" } else { "" });
    let tail = if to < characters.len() { "…" } else { "" };
    let (before, after) = (printable(&before), printable(&after));
    let blank = display_width(&head) + display_width(&before);
    let mut out = String::new();
    writeln!(out, "{head}{before}{after}{tail}\n{:blank$}^", "").ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SqlState;

    fn shown(message: &str, statement: &str) -> String {
        let error = Error::invalid(SqlState::SYNTAX_ERROR, message).with_hint("Look.");
        Report {
            error: &error,
            prefix: "f:3: ",
            statement: Some(statement),
        }
        .to_string()
    }

    #[test]
    fn a_caret_points_at_the_place() {
        let text = shown("no, found: x at Line: 2, Column: 3", "SELECT\n日 x\n");
        assert_eq!(
            text,
            "f:3: ERROR:  no, found: x\nLINE 2: 日 x\n           ^\nHINT:  Look.\n"
        );
    }

    #[test]
    fn long_lines_are_cut() {
        let statement = format!("{}x{}", "a".repeat(100), "b".repeat(100));
        let text = shown("no at Line: 1, Column: 101", &statement);
        let caret = text.lines().nth(2).expect("a caret").chars().count();
        let shown: Vec<char> = text.lines().nth(1).expect("an excerpt").chars().collect();
        assert_eq!(shown[caret - 1], 'x');
        assert!(shown.len() < 90 && shown.contains(&'…'));
    }

    #[test]
    fn a_message_without_a_place_stays_as_it_is() {
        for message in [
            "plain",
            "odd at Line: x, Column: 2",
            "far at Line: 9, Column: 1",
        ] {
            let text = shown(message, "SELECT 1");
            assert!(
                text.starts_with("f:3: ERROR:  ") && !text.contains('^'),
                "{text}"
            );
        }
    }
}
