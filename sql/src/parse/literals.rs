//! Literals that PostgreSQL 15 refuses, or means otherwise than the tokenizer: `0xFF` would be an
//! empty name after a number there and a string of bytes here, `123abc` a number with an alias;
//! `X'1F'` and `B'101'` are bit strings, which do not exist here.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use strandline_base::{Error, Result, SqlState};

/// 42601 for a number that letters follow at once, 0A000 for bit strings.
pub(super) fn check(tokens: &[TokenWithSpan], sql: &str) -> Result<()> {
    for (i, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::HexStringLiteral(digits) if is_number(token, sql) => {
                return Err(junk(&format!("0x{digits}")));
            }
            Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::DoubleQuotedByteStringLiteral(_) => {
                return Err(Error::unsupported("bit string literals are not supported")
                    .with_hint("Bytes are written '\\x1f'::bytea."));
            }
            Token::Number(digits, true) => return Err(junk(&format!("{digits}L"))),
            Token::Number(digits, false) => match tokens.get(i + 1).map(|t| &t.token) {
                Some(Token::Word(word)) if word.quote_style.is_none() => {
                    return Err(junk(&format!("{digits}{}", word.value)));
                }
                Some(Token::Number(more, _)) => return Err(junk(&format!("{digits}{more}"))),
                _ => {}
            },
            _ => {}
        }
    }
    Ok(())
}

/// Whether a string of hexadecimal digits was written as a number, `0x…`.
fn is_number(token: &TokenWithSpan, sql: &str) -> bool {
    let start = token.span.start;
    let line = sql.lines().nth(start.line.saturating_sub(1) as usize);
    let first = line.and_then(|line| line.chars().nth(start.column.saturating_sub(1) as usize));
    first == Some('0')
}

fn junk(text: &str) -> Error {
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!("trailing junk after numeric literal at or near \"{text}\""),
    )
}
