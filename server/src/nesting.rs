//! How deep the syntax tree of a text can be, guessed before it is parsed.
//!
//! The parser bounds parentheses, but a chain (`a OR b OR c …`, `… UNION …`) is a tree as deep as
//! it is long, and planning walks trees. A chain that is too long for the stack would end the
//! server, so it is refused, as PostgreSQL does (54001).

use strandline::{Error, Result, SqlState};

/// Texts shorter than this cannot be too deep.
const SHORT_BYTES: usize = 6_000;
/// Operators in one expression.
const MOST_OPERATORS: usize = 5_000;
/// UNION, EXCEPT and INTERSECT in one query.
const MOST_SET_OPERATIONS: usize = 500;

/// 54001 if `sql` has an expression or a query with more in a chain than fits the stack.
pub(crate) fn check(sql: &str) -> Result<()> {
    if sql.len() < SHORT_BYTES {
        return Ok(());
    }
    let (mut operators, mut set_operations) = (0, 0);
    let mut text = sql.as_bytes();
    while let Some((&byte, rest)) = text.split_first() {
        text = rest;
        match byte {
            b'\'' | b'"' => {
                // A doubled quote closes and opens again, which comes to the same.
                let end = memchr(byte, rest);
                text = end.map_or(&[][..], |end| &rest[end + 1..]);
            }
            b',' => operators = 0,
            b';' => (operators, set_operations) = (0, 0),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'|' | b'&' | b'=' | b'<' | b'>' | b'^' | b'#' => {
                operators += 1;
            }
            b if b.is_ascii_alphabetic() => {
                let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let length = rest.iter().take_while(|b| is_word(b)).count();
                let word = &sql.as_bytes()[sql.len() - rest.len() - 1..][..length + 1];
                text = &rest[length..];
                let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
                operators += usize::from(is("and") || is("or") || is("not"));
                set_operations += usize::from(is("union") || is("except") || is("intersect"));
            }
            _ => {}
        }
        if operators > MOST_OPERATORS || set_operations > MOST_SET_OPERATIONS {
            return Err(
                Error::invalid(SqlState("54001"), "stack depth limit exceeded")
                    .with_hint("Use IN (…) or a table instead of a long chain of operators."),
            );
        }
    }
    Ok(())
}

fn memchr(wanted: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|b| *b == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_bounded_and_lists_are_not() {
        let many = |text: &str| format!("SELECT 1{}", text.repeat(20_000));
        for chain in [" + 1", " OR a", " UNION SELECT 1", " AND 'x' = 'y'", "- "] {
            assert_eq!(
                check(&many(chain)).unwrap_err().sqlstate().0,
                "54001",
                "{chain}"
            );
        }
        for list in [
            ", 1",
            ", -1",
            ", a + b",
            ", '+++'",
            ", \"a-b\"",
            "; SELECT 1 + 1",
            " x",
        ] {
            check(&many(list)).unwrap();
        }
        check(&format!("SELECT '{}'", "+".repeat(50_000))).unwrap();
    }
}
