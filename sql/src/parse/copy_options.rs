//! `COPY … (FREEZE ON, HEADER OFF)`: PostgreSQL accepts any spelling of a boolean, the parser only
//! TRUE and FALSE.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Respells the booleans in the options of a COPY for the parser.
pub(super) fn spell_booleans(tokens: &mut [TokenWithSpan]) {
    let words = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let is_copy = tokens
        .iter()
        .find(words)
        .is_some_and(|t| keyword(t) == Some(Keyword::COPY));
    if !is_copy {
        return;
    }
    let mut after_option = false;
    for token in tokens.iter_mut() {
        if let Token::Whitespace(_) = token.token {
            continue;
        }
        let was = after_option;
        after_option = matches!(keyword(token), Some(Keyword::FREEZE | Keyword::HEADER));
        let spelling = match &token.token {
            Token::Word(word) if was => word.value.to_lowercase(),
            Token::SingleQuotedString(text) if was => text.to_lowercase(),
            Token::Number(digits, _) if was => digits.clone(),
            _ => continue,
        };
        let value = match spelling.as_str() {
            "on" | "yes" | "1" => "TRUE",
            "off" | "no" | "0" => "FALSE",
            _ => continue,
        };
        token.token = Token::make_keyword(value);
    }
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}
