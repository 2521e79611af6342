//! Tests of tokens, for the rewriters that run before the parser.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Whether a token is this keyword: a word without quotes, in any case.
pub(super) fn is(token: &TokenWithSpan, word: &str) -> bool {
    match &token.token {
        Token::Word(w) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word),
        _ => false,
    }
}
