//! `CREATE TABLE t (a, b) AS …`: the parser requires a type after each column name. If the list has
//! names only and AS follows, each gets the type [`NO_TYPE`], which names no type.

use datafusion::sql::sqlparser::ast::DataType;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The type of a column without one.
const NO_TYPE: &str = "no type";

/// Whether a column of a parsed CREATE TABLE … AS has no type.
pub fn is_untyped(data_type: &DataType) -> bool {
    match data_type {
        DataType::Custom(name, _) => name.to_string() == format!("\"{NO_TYPE}\""),
        _ => false,
    }
}

/// Adds the missing types to the column list of every CREATE TABLE … AS.
pub(super) fn add_types(tokens: &mut Vec<TokenWithSpan>) {
    let mut from = 0;
    while let Some(open) = next_list(tokens, from) {
        from = open + 1;
        for name in bare_names(tokens, open).into_iter().rev() {
            let token = Token::make_word(NO_TYPE, Some('"'));
            let span = tokens[name].span;
            tokens.insert(name + 1, TokenWithSpan { token, span });
        }
    }
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    }
}

/// Positions of the tokens from `from` on that are not blank.
fn solid(tokens: &[TokenWithSpan], from: usize) -> impl Iterator<Item = usize> {
    (from..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_)))
}

/// The parenthesis after the table's name in the next CREATE TABLE from `from` on.
fn next_list(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut in_create = false;
    let mut in_name = false;
    for at in solid(tokens, from) {
        match (&tokens[at].token, keyword(&tokens[at])) {
            (_, Some(Keyword::CREATE)) => (in_create, in_name) = (true, false),
            (_, Some(Keyword::TABLE)) if in_create => in_name = true,
            (Token::LParen, _) if in_name => return Some(at),
            // The query begins after AS.
            (_, Some(Keyword::AS)) => (in_create, in_name) = (false, false),
            // OR REPLACE, TEMPORARY; IF NOT EXISTS, parts of the name.
            (Token::Word(_), _) => {}
            (Token::Period, _) if in_name => {}
            _ => (in_create, in_name) = (false, false),
        }
    }
    None
}

/// The names in the list that opens at `open`, if the list has only names and AS follows.
fn bare_names(tokens: &[TokenWithSpan], open: usize) -> Vec<usize> {
    let mut names = Vec::new();
    let mut places = solid(tokens, open + 1);
    loop {
        let (Some(name), Some(after)) = (places.next(), places.next()) else {
            return Vec::new();
        };
        if !matches!(tokens[name].token, Token::Word(_)) {
            return Vec::new();
        }
        names.push(name);
        match tokens[after].token {
            Token::Comma => {}
            Token::RParen => break,
            _ => return Vec::new(),
        }
    }
    let mut next = places.next();
    if next.is_some_and(|at| keyword(&tokens[at]) == Some(Keyword::WITH)) {
        let _ = places.find(|at| tokens[*at].token == Token::RParen);
        next = places.next();
    }
    if next.is_some_and(|at| keyword(&tokens[at]) == Some(Keyword::AS)) {
        names
    } else {
        Vec::new()
    }
}
