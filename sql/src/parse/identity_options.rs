//! `GENERATED … AS IDENTITY (START WITH 10 INCREMENT BY 5)`: PostgreSQL accepts the options in any
//! order, the parser only in its own. Their tokens are reordered before the parser sees them.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The first words of the options, in the parser's order.
const ORDER: &[Keyword] = &[
    Keyword::INCREMENT,
    Keyword::MINVALUE,
    Keyword::MAXVALUE,
    Keyword::START,
    Keyword::CACHE,
    Keyword::CYCLE,
];

/// Reorders the options of every `IDENTITY (…)`.
pub(super) fn put_in_order(tokens: &mut [TokenWithSpan]) {
    let mut at = 0;
    while let Some(open) = next_list(tokens, at) {
        let Some(length) = tokens[open..].iter().position(|t| t.token == Token::RParen) else {
            return;
        };
        let close = open + length;
        let list = &mut tokens[open + 1..close];
        // With commas it is a call of a function with that name.
        if !list.iter().any(|t| t.token == Token::Comma) {
            reorder(list);
        }
        at = close;
    }
}

/// The parenthesis that opens the next list of options from `from` on.
fn next_list(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut after_identity = false;
    for (i, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::LParen if after_identity => return Some(i),
            Token::Word(word) => after_identity = word.keyword == Keyword::IDENTITY,
            _ => after_identity = false,
        }
    }
    None
}

fn reorder(list: &mut [TokenWithSpan]) {
    let mut groups: Vec<(usize, Vec<TokenWithSpan>)> = Vec::new();
    let mut negated = false;
    for token in list.iter() {
        let begins = match &token.token {
            Token::Word(word) => rank(word.keyword),
            _ => None,
        };
        let no = matches!(&token.token, Token::Word(word) if word.keyword == Keyword::NO);
        match groups.last_mut() {
            // NO MINVALUE is one option; the word after NO determines its position.
            Some(group) if negated && begins.is_some() => {
                group.0 = begins.unwrap_or(group.0);
                group.1.push(token.clone());
            }
            Some(group) if begins.is_none() && !no => group.1.push(token.clone()),
            _ => groups.push((begins.unwrap_or(0), vec![token.clone()])),
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            negated = no;
        }
    }
    groups.sort_by_key(|group| group.0);
    let ordered = groups.into_iter().flat_map(|group| group.1);
    for (place, token) in list.iter_mut().zip(ordered) {
        *place = token;
    }
}

/// The rank from 1, so that white space before the first option stays first.
fn rank(keyword: Keyword) -> Option<usize> {
    ORDER
        .iter()
        .position(|k| *k == keyword)
        .map(|place| place + 1)
}
