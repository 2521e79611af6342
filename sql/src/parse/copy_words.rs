//! Two places of COPY where the parser accepts other words than PostgreSQL.
//!
//! * `(FREEZE ON, HEADER OFF)`: PostgreSQL accepts any spelling of a boolean, the parser only TRUE
//!   and FALSE.
//! * `TO STDOUTT`: the parser accepts a word for the name of a file, so that a wrong spelling would
//!   write one.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use strandline_base::{Error, Result, SqlState};

/// Respells the booleans in the options of each COPY for the parser.
pub(super) fn spell_booleans(tokens: &mut [TokenWithSpan]) {
    let statements = tokens.split_mut(|t| t.token == Token::SemiColon);
    statements.filter(|own| is_copy(own)).for_each(spell);
}

fn spell(tokens: &mut [TokenWithSpan]) {
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

/// Refuses a COPY whose file's name is not in quotes.
///
/// # Errors
/// 42601.
pub(super) fn check_file(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut statements = tokens.split(|t| t.token == Token::SemiColon);
    statements.try_for_each(|own| match is_copy(own) {
        true => check(own),
        false => Ok(()),
    })
}

fn check(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut depth = 0;
    let mut words = tokens.iter().filter(is_word);
    let ends_relation = |token: &TokenWithSpan| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && matches!(keyword(token), Some(Keyword::TO | Keyword::FROM))
    };
    if !words.by_ref().any(ends_relation) {
        return Ok(());
    }
    match words.next() {
        Some(TokenWithSpan {
            token: Token::Word(word),
            ..
        }) if word.quote_style.is_some()
            || !matches!(
                word.keyword,
                Keyword::STDIN | Keyword::STDOUT | Keyword::PROGRAM
            ) =>
        {
            let message = format!("syntax error at or near \"{}\"", word.value);
            let hint = "COPY takes 'a file' in single quotes, or STDIN and STDOUT.";
            Err(Error::invalid(SqlState::SYNTAX_ERROR, message).with_hint(hint))
        }
        _ => Ok(()),
    }
}

fn is_copy(tokens: &[TokenWithSpan]) -> bool {
    let first = tokens.iter().find(is_word);
    first.is_some_and(|token| keyword(token) == Some(Keyword::COPY))
}

fn is_word(token: &&TokenWithSpan) -> bool {
    !matches!(token.token, Token::Whitespace(_))
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}
