//! What a long text needs while it is parsed and planned, estimated before it is parsed. A syntax
//! tree is up to several hundred times as long as its text, but for a text that is one long
//! literal: so the tokens count, not the bytes.
//!
//! `x IN (1,1,…)` with a million items took 1.6 GB for 2 million tokens, from parser to result. The
//! rows of an INSERT are read without a plan: they take their syntax tree.
//!
//! Counting reads each byte once, about a thousandth of the time of parsing it. Texts below
//! [`COUNTED_BYTES`] pay one comparison of their length.

use super::long_values;

/// Bytes from which a text is counted.
pub const COUNTED_BYTES: usize = 16 << 10;
/// Bytes per token.
const TOKEN_BYTES: usize = 800;
/// Bytes of the syntax tree of an INSERT's rows per byte of text.
const TREE_BYTES: usize = 70;

/// The bytes that the text needs; 0 for a short text. A long INSERT needs those of one piece
/// ([`long_values`]).
pub fn estimate(sql: &str) -> usize {
    if sql.len() < COUNTED_BYTES {
        return 0;
    }
    if long_values::sole(sql).is_some() {
        let parsed = match sql.len() < long_values::LONG_BYTES {
            true => sql.len(),
            false => long_values::PIECE_BYTES,
        };
        return parsed * TREE_BYTES + sql.len();
    }
    let tokens = tokens(sql.as_bytes());
    tokens.saturating_mul(TOKEN_BYTES).saturating_add(sql.len())
}

/// About the number of tokens: a word, a literal, a comment and each other character count one.
fn tokens(sql: &[u8]) -> usize {
    let (mut count, mut rest) = (0, sql);
    while let [first, after @ ..] = rest {
        count += 1;
        rest = match first {
            b'\'' => behind_quote(after, b'\'', false),
            b'"' => behind_quote(after, b'"', false),
            b'-' if after.first() == Some(&b'-') => behind(after, b"\n"),
            b'/' if after.first() == Some(&b'*') => behind(after, b"*/"),
            b'$' => behind_dollars(after),
            b'e' | b'E' if after.first() == Some(&b'\'') => {
                behind_quote(after.get(1..).unwrap_or_default(), b'\'', true)
            }
            byte if is_of_word(*byte) => {
                let end = after.iter().position(|byte| !is_of_word(*byte));
                after.get(end.unwrap_or(after.len())..).unwrap_or_default()
            }
            _ => after,
        };
    }
    count
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | 0x80..)
}

/// The text behind the closing quote; `escapes`: a backslash hides the next character.
fn behind_quote(text: &[u8], quote: u8, escapes: bool) -> &[u8] {
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'\\' if escapes => rest = after.get(1..).unwrap_or_default(),
            byte if *byte == quote => break,
            _ => {}
        }
    }
    rest
}

/// The text behind the first `end`.
fn behind<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let place = text.windows(end.len()).position(|window| window == end);
    let end = place.map_or(text.len(), |place| place + end.len());
    text.get(end..).unwrap_or_default()
}

/// The text behind a dollar quote whose first dollar is read; behind the dollar if it is none.
fn behind_dollars(text: &[u8]) -> &[u8] {
    let tag = text.iter().position(|byte| !is_of_word(*byte));
    let tag = tag.filter(|end| text.get(*end) == Some(&b'$') && !starts_with_digit(text));
    match tag.and_then(|end| text.split_at_checked(end + 1)) {
        Some((tag, inside)) => behind(inside, &[b"$", tag].concat()),
        None => text,
    }
}

fn starts_with_digit(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_outside_of_literals() {
        for (sql, expected) in [
            ("", 0),
            ("SELECT 1", 3),
            ("a,b , 1.5", 7),
            ("'a, b' \"c, d\"", 3),
            ("'it''s'", 2),
            (r"E'it\'s, x', 1", 4),
            ("-- a, b\n1", 2),
            ("/* a, b */1", 2),
            ("$$a, b$$,$t$ $$ , $t$,$1", 6),
            ("'open, x", 1),
        ] {
            assert_eq!(tokens(sql.as_bytes()), expected, "{sql}");
        }
    }

    #[test]
    fn only_long_texts_of_many_tokens_need_much() {
        assert_eq!(estimate("SELECT 1"), 0);
        let short = |bytes: usize| format!("SELECT {}1", "1+".repeat((bytes - 8) / 2));
        assert_eq!(estimate(&short(COUNTED_BYTES - 2)), 0);
        assert!(estimate(&short(COUNTED_BYTES + 2)) > COUNTED_BYTES * TOKEN_BYTES);
        let literal = format!("SELECT '{}'", "x, ".repeat(1 << 20));
        assert!(estimate(&literal) < 2 * literal.len());
        let list = format!("SELECT 1 IN ({}1)", "1,".repeat(1 << 20));
        assert!(estimate(&list) > 1 << 30);
        let insert = format!("INSERT INTO t VALUES (1){}", ", (1)".repeat(1 << 20));
        let needed = estimate(&insert) - insert.len();
        assert!((1 << 20..16 << 20).contains(&needed), "{needed}");
        let short = format!("INSERT INTO t VALUES (1){}", ", (1)".repeat(20_000));
        assert!(estimate(&short) > 50 * short.len());
    }
}
