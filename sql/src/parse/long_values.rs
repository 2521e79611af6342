//! Long `INSERT … VALUES` texts, a piece of their rows at a time: the tokens of a text take some 70
//! times its bytes, those of a piece are gone when the next one is parsed.
//!
//! Only lists of plain literals are cut: where a row ends can then be told without a tokenizer. All
//! else, and whatever a piece's parser refuses, goes the ordinary way, which words the error.

use super::{statements_of, with_parser};
use datafusion::sql::sqlparser::ast::{Expr, Parens, Query, SetExpr, Statement};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Token;
use std::ops::Range;

/// Shorter texts are parsed as a whole.
pub(super) const LONG_BYTES: usize = 1 << 20;
/// Bytes of the rows of a piece, beside its last row.
const PIECE_BYTES: usize = 128 << 10;

type Row = Parens<Vec<Expr>>;

/// The statement that `sql` is if it is one INSERT of plain literals.
pub(super) fn statement(sql: &str) -> Option<Statement> {
    let mut rows = Rows::after_values(sql)?;
    let head = &sql[..rows.at];
    let first = rows.next_row()?;
    let mut all: Vec<Row> = Vec::new();
    while rows.has_more {
        let piece = parsed(&sql[rows.next_piece()?])?;
        if all.is_empty() {
            // About as many rows as there will be, so that the list need not grow in steps.
            let pieces = (sql.len() - head.len()) / PIECE_BYTES + 1;
            all.reserve_exact(pieces * (piece.len() + 1));
        }
        all.extend(piece);
    }
    // What follows the rows, such as RETURNING, belongs to the statement.
    let (first, tail) = (&sql[first], &sql[rows.at..]);
    let mut found = statements_of(&format!("{head} {first} {tail}")).ok()?;
    let (mut statement, _) = found.pop().filter(|_| found.is_empty())?;
    let rows = rows_of(&mut statement)?;
    all.insert(0, rows.pop()?);
    *rows = all;
    Some(statement)
}

/// The rows of an INSERT.
fn rows_of(statement: &mut Statement) -> Option<&mut Vec<Row>> {
    let Statement::Insert(insert) = statement else {
        return None;
    };
    values_of(insert.source.as_mut()?)
}

fn values_of(query: &mut Query) -> Option<&mut Vec<Row>> {
    match query.body.as_mut() {
        SetExpr::Values(values) => Some(&mut values.rows),
        _ => None,
    }
}

/// The rows of a piece.
fn parsed(piece: &str) -> Option<Vec<Row>> {
    let parse = |parser: &mut super::Parser<'_>| -> Result<Box<Query>, ParserError> {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::EOF)?;
        Ok(query)
    };
    let mut query = with_parser(&format!("VALUES {piece}"), parse).ok()?;
    let mut rows = std::mem::take(values_of(&mut query)?);
    for row in &mut rows {
        // In memory of its own: an allocator keeps a large block that is only partly given back.
        let cells = std::mem::take(&mut row.content);
        row.content = Vec::with_capacity(cells.len());
        row.content.extend(cells);
    }
    Some(rows)
}

/// Where the rows of a text are.
struct Rows<'a> {
    text: &'a [u8],
    /// behind what has been looked at
    at: usize,
    /// a comma followed the last row
    has_more: bool,
}

impl<'a> Rows<'a> {
    /// Stands behind the word VALUES of an INSERT.
    fn after_values(sql: &'a str) -> Option<Self> {
        let mut rows = Self {
            text: sql.as_bytes(),
            at: 0,
            has_more: true,
        };
        rows.skip_blanks();
        if !rows.word().eq_ignore_ascii_case(b"insert") {
            return None;
        }
        let mut depth = 0_usize;
        loop {
            match *rows.text.get(rows.at)? {
                b'(' => depth += 1,
                b')' => depth = depth.checked_sub(1)?,
                b'"' => rows.skip_quoted(b'"')?,
                byte if is_of_word(byte) => {
                    let word = rows.word();
                    if depth == 0 && word.eq_ignore_ascii_case(b"values") {
                        return Some(rows);
                    }
                    if word.eq_ignore_ascii_case(b"select") {
                        return None;
                    }
                    continue;
                }
                b'.' | b',' => {}
                byte if byte.is_ascii_whitespace() => {}
                _ => return None,
            }
            rows.at += 1;
        }
    }

    /// The next rows, of [`PIECE_BYTES`] together, with the commas between them.
    fn next_piece(&mut self) -> Option<Range<usize>> {
        let first = self.next_row()?;
        let mut end = first.end;
        while self.has_more && end - first.start < PIECE_BYTES {
            end = self.next_row()?.end;
        }
        Some(first.start..end)
    }

    /// The next row with its parentheses; goes behind the comma that follows it.
    fn next_row(&mut self) -> Option<Range<usize>> {
        self.skip_blanks();
        let start = self.at;
        if self.text.get(self.at) != Some(&b'(') {
            return None;
        }
        loop {
            self.at += 1;
            match *self.text.get(self.at)? {
                b')' => break,
                // A letter before the quote gives what is in it another meaning.
                b'\'' if is_of_word(self.text[self.at - 1]) => return None,
                b'\'' => self.skip_quoted(b'\'')?,
                b'-' if self.text.get(self.at + 1) == Some(&b'-') => return None,
                b',' | b'.' | b'+' | b'-' => {}
                byte if is_of_word(byte) || byte.is_ascii_whitespace() => {}
                _ => return None,
            }
        }
        self.at += 1;
        let end = self.at;
        self.skip_blanks();
        self.has_more = self.text.get(self.at) == Some(&b',');
        self.at += usize::from(self.has_more);
        Some(start..end)
    }

    fn skip_blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// From a quote to the one that ends it; two in a row do not.
    fn skip_quoted(&mut self, quote: u8) -> Option<()> {
        loop {
            self.at += 1;
            if *self.text.get(self.at)? == quote {
                if self.text.get(self.at + 1) != Some(&quote) {
                    return Some(());
                }
                self.at += 1;
            }
        }
    }

    /// The word that begins here; goes behind it.
    fn word(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| !is_of_word(*byte));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        word
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'&' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of rows that is cut several times.
    fn list(row: impl Fn(usize) -> String) -> String {
        let rows: Vec<String> = (0..).map(row).take(PIECE_BYTES / 8).collect();
        rows.join(" ,\n ")
    }

    #[test]
    fn pieces_are_what_the_whole_is() {
        let row = |n: usize| match n % 4 {
            0 => format!("({n}, 'it''s; ) ( -- /* \" {n}', -1.5e+3)"),
            1 => format!("( {n} ,NULL, DEFAULT)"),
            2 => format!("({n}, 'ä\\', true)"),
            _ => format!("({n}, DATE '2020-01-01', .5)"),
        };
        let rows = list(row);
        for (head, tail) in [
            ("INSERT INTO t VALUES", ""),
            (
                "insert into s.\"values (\" (a, \"b\"\"c\", d) values\n",
                " ; ",
            ),
            (
                "INSERT INTO t AS u (a, b, c) VALUES",
                " ON CONFLICT (a) DO NOTHING RETURNING *",
            ),
            ("INSERT INTO t OVERRIDING SYSTEM VALUE VALUES", ""),
        ] {
            let sql = format!("{head} {rows}{tail}");
            let whole = &super::super::statements_of(&sql).expect("parses")[0].0;
            let mut pieces = statement(&sql).expect("is cut");
            assert!(pieces.to_string() == whole.to_string(), "{head} … {tail}");
            let rows = rows_of(&mut pieces).expect("rows");
            let room = |row: &Row| row.content.capacity() - row.content.len();
            assert_eq!(rows[1..].iter().map(room).sum::<usize>(), 0, "not cut");
        }
    }

    #[test]
    fn what_is_no_list_of_literals_is_left_alone() {
        let rows = list(|n| format!("({n}, 'x')"));
        for sql in [
            format!("INSERT INTO t VALUES {rows}; SELECT 1"),
            format!("INSERT INTO t VALUES {rows}, (1 + (2), 'x')"),
            format!("INSERT INTO t VALUES {rows}, ($1, 'x')"),
            format!("INSERT INTO t VALUES {rows}, (1, E'\\'')"),
            format!("INSERT INTO t VALUES {rows}, (1, 'x' -- y\n)"),
            format!("INSERT INTO t VALUES {rows},"),
            format!("INSERT INTO t VALUES {rows}, (1, 'x"),
            format!("INSERT INTO t VALUES {rows}, (1, +)"),
            format!("INSERT INTO t SELECT * FROM (VALUES {rows})"),
            format!("INSERT INTO t (SELECT 1) UNION VALUES {rows}"),
            format!("/* x */ INSERT INTO t VALUES {rows}"),
            format!("VALUES {rows}"),
            "INSERT INTO t DEFAULT VALUES".to_string(),
            "INSERT".to_string(),
            String::new(),
        ] {
            assert!(statement(&sql).is_none(), "{:.60} … {}", sql, sql.len());
        }
    }
}
