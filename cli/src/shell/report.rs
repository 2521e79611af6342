//! Errors as psql shows them: `ERROR:  …`, the place in the statement, DETAIL and HINT.

use crate::render::{display_width, printable};
use crate::session::Error;
use std::fmt::{self, Write};

/// Columns of the statement's line that are shown around the position of an error.
const EXCERPT: usize = 72;

/// Prints an error to standard error. `prefix` is its source (`file:line: `); `statement` is the
/// text of the statement that failed, if there is one.
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
        let message = printable(self.error.message());
        writeln!(f, "{}ERROR:  {message}", self.prefix)?;
        if let (Some(statement), Some(position)) = (self.statement, self.error.position()) {
            f.write_str(&excerpt(statement, position).unwrap_or_default())?;
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

/// The line `LINE 1: SELEC 1` and a caret under the position.
fn excerpt(statement: &str, position: usize) -> Option<String> {
    let (mut at, mut number) = (position.checked_sub(1)?, 1);
    let mut lines = statement.split_inclusive('\n');
    let mut line = lines.next()?;
    // A position at the end of the text belongs to the last line.
    while at >= line.chars().count()
        && let Some(next) = lines.next()
    {
        at -= line.chars().count();
        (line, number) = (next, number + 1);
    }
    let characters: Vec<char> = line.trim_end_matches(['\r', '\n']).chars().collect();
    if at > characters.len() {
        return None;
    }
    let from = at.saturating_sub(EXCERPT / 2);
    let to = characters.len().min(from + EXCERPT);
    let before: String = characters[from..at].iter().collect();
    let after: String = characters[at..to].iter().collect();
    let head = format!("LINE {number}: {}", if from > 0 { "…" } else { "" });
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

    fn shown(position: usize, statement: &str) -> String {
        let error = Error::invalid(SqlState::SYNTAX_ERROR, "no, found: x");
        let error = error.with_hint("Look.").with_position(position);
        Report {
            error: &error,
            prefix: "f:3: ",
            statement: Some(statement),
        }
        .to_string()
    }

    #[test]
    fn a_caret_points_at_the_place() {
        let text = shown(10, "SELECT\n日 x\n");
        assert_eq!(
            text,
            "f:3: ERROR:  no, found: x\nLINE 2: 日 x\n           ^\nHINT:  Look.\n"
        );
    }

    #[test]
    fn long_lines_are_cut() {
        let statement = format!("{}x{}", "a".repeat(100), "b".repeat(100));
        let text = shown(101, &statement);
        let caret = text.lines().nth(2).expect("a caret").chars().count();
        let shown: Vec<char> = text.lines().nth(1).expect("an excerpt").chars().collect();
        assert_eq!(shown[caret - 1], 'x');
        assert!(shown.len() < 90 && shown.contains(&'…'));
    }

    #[test]
    fn a_place_that_is_not_there_is_not_shown() {
        let end = shown(9, "SELECT 1");
        assert!(
            end.contains("LINE 1: SELECT 1\n                ^\n"),
            "{end}"
        );
        for position in [0, 10, 99] {
            let text = shown(position, "SELECT 1");
            assert!(
                text.starts_with("f:3: ERROR:  ") && !text.contains('^'),
                "{text}"
            );
        }
    }
}
