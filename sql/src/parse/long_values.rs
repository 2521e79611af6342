//! Parses long `INSERT … VALUES` texts piece by piece: a syntax tree takes about 70 times the bytes
//! of its text, and each piece's tree is freed before the next piece is parsed.
//!
//! [`statement`] parses a long text with its first row only. The other rows stay text, in pieces.
//! In the tree each piece is a row of a form that no parser makes ([`piece_row`]); [`groups`]
//! parses them as they are read.
//!
//! Only lists of plain literals are cut, because the end of a row is then found without a
//! tokenizer. All other texts are parsed as a whole.

use super::{statements_of, with_parser};
use datafusion::sql::sqlparser::ast::{
    Expr, Parens, Query, SetExpr, Statement, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Span, Token};
use std::borrow::Cow;
use std::ops::Range;
use strandline_base::Result;

/// Bytes from which a text is long.
pub(super) const LONG_BYTES: usize = 256 << 10;
/// The least bytes of the rows of a piece, without its last row.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// The text before the rows of a piece when they are parsed.
const VALUES: &str = "VALUES ";

/// A row of VALUES.
pub(crate) type Row = Parens<Vec<Expr>>;

/// Parses `sql` if it is one INSERT of plain literals.
pub(super) fn statement(sql: &str) -> Option<Statement> {
    let mut rows = Rows::after_values(sql)?;
    let head = &sql[..rows.at];
    let first = rows.next_row()?;
    let mut pieces: Vec<Row> = Vec::new();
    let (mut counted, mut before) = (0, 0);
    while rows.has_more {
        let piece = rows.next_piece()?;
        before += sql[counted..piece.start].chars().count();
        counted = piece.start;
        pieces.push(piece_row(&sql[piece], before));
    }
    // The text after the rows, such as RETURNING, belongs to the statement.
    let (first, tail) = (&sql[first], &sql[rows.at..]);
    let mut found = statements_of(&format!("{head} {first} {tail}")).ok()?;
    let (mut statement, _) = found.pop().filter(|_| found.is_empty())?;
    let Statement::Insert(insert) = &mut statement else {
        return None;
    };
    let query = insert.source.as_deref_mut()?;
    plain_rows(query)?;
    let SetExpr::Values(values) = query.body.as_mut() else {
        return None;
    };
    values.rows.extend(pieces);
    Some(statement)
}

/// The range of the statement in a text that is one INSERT of plain literals, and whether a
/// semicolon ends it. None also if the text after the rows needs a tokenizer.
pub(super) fn sole(sql: &str) -> Option<(Range<usize>, bool)> {
    let mut rows = Rows::after_values(sql)?;
    while rows.has_more {
        rows.next_row()?;
    }
    let rest = sql[rows.at..].trim_end();
    let tail = rest.strip_suffix(';').unwrap_or(rest);
    if tail.contains([';', '\'', '"', '$', '-', '/']) {
        return None;
    }
    let start = sql.len() - sql.trim_start().len();
    let end = rows.at + tail.trim_end().len();
    Some((start..sql[..end].trim_end().len(), tail.len() < rest.len()))
}

/// The rows of a query that is only VALUES; some may be pieces, see [`groups`].
pub(crate) fn plain_rows(query: &Query) -> Option<&[Row]> {
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty();
    match query.body.as_ref() {
        SetExpr::Values(values) if plain && !values.explicit_row => Some(&values.rows),
        _ => None,
    }
}

/// The rows of a list in order, in groups, with the rows of its pieces.
///
/// # Errors
/// 42601 with the position in the text, when the faulty piece is reached.
pub(crate) fn groups(rows: &[Row]) -> impl Iterator<Item = Result<Cow<'_, [Row]>>> {
    let groups = rows.chunk_by(|a, b| piece_of(a).is_none() && piece_of(b).is_none());
    groups.map(|group| match group.first().and_then(piece_of) {
        Some((text, before)) => parsed(text, before).map(Cow::Owned),
        None => Ok(Cow::Borrowed(group)),
    })
}

/// The rows `text` as one row of the tree, with the number of characters before them. PostgreSQL's
/// dialect has no such literals, so the row cannot be confused with another.
fn piece_row(text: &str, before: usize) -> Row {
    let cell = |value| {
        Expr::Value(ValueWithSpan {
            value,
            span: Span::empty(),
        })
    };
    let text = Value::TripleDoubleQuotedRawStringLiteral(text.to_string());
    let before = Value::Number(before.to_string(), false);
    Parens::with_empty_span(vec![cell(text), cell(before)])
}

/// The text and the number of characters of a [`piece_row`].
fn piece_of(row: &Row) -> Option<(&str, usize)> {
    let [Expr::Value(text), Expr::Value(before)] = row.content.as_slice() else {
        return None;
    };
    match (&text.value, &before.value) {
        (Value::TripleDoubleQuotedRawStringLiteral(text), Value::Number(before, _)) => {
            Some((text, before.parse().ok()?))
        }
        _ => None,
    }
}

/// The rows of a piece that has `before` characters before it.
fn parsed(piece: &str, before: usize) -> Result<Vec<Row>> {
    let parse = |parser: &mut super::Parser<'_>| -> Result<Box<Query>, ParserError> {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::EOF)?;
        Ok(query)
    };
    let query = with_parser(&format!("{VALUES}{piece}"), parse);
    let query = query.map_err(|error| match error.position() {
        Some(place) => error.with_position((place + before).saturating_sub(VALUES.len())),
        None => error,
    })?;
    match *query.body {
        SetExpr::Values(values) => Ok(values.rows),
        _ => Ok(Vec::new()),
    }
}

/// A cursor over the rows of a text.
struct Rows<'a> {
    text: &'a [u8],
    /// the position after the scanned text
    at: usize,
    /// whether a comma followed the last row
    has_more: bool,
}

impl<'a> Rows<'a> {
    /// A cursor after the word VALUES of an INSERT.
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

    /// The next rows, about [`PIECE_BYTES`] together, with the commas between them.
    fn next_piece(&mut self) -> Option<Range<usize>> {
        let first = self.next_row()?;
        let mut end = first.end;
        while self.has_more && end - first.start < PIECE_BYTES {
            end = self.next_row()?.end;
        }
        Some(first.start..end)
    }

    /// The next row with its parentheses; moves past the comma after it.
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
                // A letter before the quote changes the string's meaning.
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

    /// Skips from a quote to its closing quote; a doubled quote does not close.
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

    /// The word that begins here; moves past it.
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
            let split = sole(&sql).map(|(statement, ended)| (sql[statement].to_string(), ended));
            let text = sql.trim_end().trim_end_matches(';').trim_end();
            assert_eq!(split, Some((text.to_string(), sql.ends_with("; "))));
            let rows = rows_of(&mut pieces).expect("rows");
            assert!((3..100).contains(&rows.len()), "{} rows", rows.len());
            let groups = groups(rows).collect::<Result<Vec<_>>>().expect("parses");
            *rows = groups.into_iter().flat_map(Cow::into_owned).collect();
            assert!(pieces.to_string() == whole.to_string(), "{head} … {tail}");
        }
    }

    fn rows_of(statement: &mut Statement) -> Option<&mut Vec<Row>> {
        let Statement::Insert(insert) = statement else {
            return None;
        };
        match insert.source.as_mut()?.body.as_mut() {
            SetExpr::Values(values) => Some(&mut values.rows),
            _ => None,
        }
    }

    #[test]
    fn an_error_of_a_piece_has_the_place_and_the_words_of_the_whole() {
        let rows = list(|n| format!("({n}, 'ä')"));
        for wrong in ["(1, +)", "(1 2)", "(,)", "(1, 'x') ", "(select)"] {
            let sql = format!("INSERT INTO t VALUES\n{rows}, {wrong}, (5, 'z')");
            let whole = super::super::statements_of(&sql).err();
            let mut pieces = statement(&sql).expect("is cut");
            let rows = rows_of(&mut pieces).expect("rows");
            let found = groups(rows).find_map(Result::err);
            let told = |error: strandline_base::Error| {
                let words = error.message().to_string();
                // The parser's message has a line and a column besides the position.
                let words = words.split(" at Line").next().map(str::to_string);
                (error.sqlstate(), words, error.position())
            };
            assert_eq!(found.map(told), whole.map(told), "{wrong}");
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
            format!("INSERT INTO t VALUES {rows} ORDER BY 1"),
            format!("INSERT INTO t VALUES {rows} LIMIT 5"),
            format!("INSERT INTO t VALUES {rows} UNION ALL VALUES (1, 'x')"),
            format!("INSERT INTO t SELECT * FROM (VALUES {rows})"),
            format!("INSERT INTO t (SELECT 1) UNION VALUES {rows}"),
            format!("/* x */ INSERT INTO t VALUES {rows}"),
            format!("VALUES {rows}"),
            "INSERT INTO t DEFAULT VALUES".to_string(),
            "INSERT".to_string(),
            String::new(),
        ] {
            assert!(statement(&sql).is_none(), "{:.60} … {}", sql, sql.len());
            if sql.contains("; SELECT") || sql.contains("--") {
                assert_eq!(sole(&sql), None);
            }
        }
    }
}
