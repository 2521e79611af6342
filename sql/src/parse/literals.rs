//! Literals that PostgreSQL 15 refuses but the tokenizer accepts. `0xFF` is junk after a number
//! there and a byte string here; `123abc` is junk there and a number with an alias here. `X'1F'`
//! and `B'101'` are bit strings, which do not exist here.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};
use strandline_base::{Error, Result, SqlState};

/// 42601 for a number directly followed by letters, 0A000 for bit strings.
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

/// Joins string literals that are separated only by a line end: `'a'` above `'b'`.
///
/// # Errors
/// 42601 for two literals in one line.
pub(super) fn join_lines(tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let is_text = |t: &TokenWithSpan| matches!(t.token, Token::SingleQuotedString(_));
    let mut place = 0;
    while place < tokens.len() {
        let next =
            (place + 1..tokens.len()).find(|i| !matches!(tokens[*i].token, Token::Whitespace(_)));
        let Some(next) = next.filter(|next| is_text(&tokens[place]) && is_text(&tokens[*next]))
        else {
            place += 1;
            continue;
        };
        let line_ends = tokens[place + 1..next].iter().any(|t| {
            matches!(
                t.token,
                Token::Whitespace(Whitespace::Newline | Whitespace::SingleLineComment { .. })
            )
        });
        let removed: Vec<TokenWithSpan> = tokens.drain(place + 1..=next).collect();
        let more = removed.into_iter().next_back().map(|t| t.token);
        let (Token::SingleQuotedString(text), Some(Token::SingleQuotedString(more))) =
            (&mut tokens[place].token, more)
        else {
            continue;
        };
        if !line_ends {
            let message = format!("syntax error at or near \"'{more}'\"");
            return Err(Error::invalid(SqlState::SYNTAX_ERROR, message));
        }
        text.push_str(&more);
    }
    Ok(())
}

/// Whether a string of hexadecimal digits was written as the number `0x…`.
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
