//! `GENERATED … AS IDENTITY (START WITH 10 INCREMENT BY 5)`: PostgreSQL accepts the options in any
//! order, the parser only in its own. Their tokens are reordered before the parser sees them.
//!
//! pg_dump also writes `SEQUENCE NAME public.t_id_seq`. It is left out if it is the name that the
//! sequence has anyway; for another name the parser says that it knows no such option.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace};

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
            leave_out_name(tokens, open, close);
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

/// Takes `SEQUENCE NAME` out of the options between two places if it names the sequence of the
/// column that the statement alters.
fn leave_out_name(tokens: &mut [TokenWithSpan], open: usize, close: usize) {
    let is_word = |i: usize, keyword: Keyword| match &tokens[i].token {
        Token::Word(word) => word.keyword == keyword,
        _ => false,
    };
    let next =
        |from: usize| (from..close).find(|i| !matches!(tokens[*i].token, Token::Whitespace(_)));
    let name_from = |from: usize| {
        let mut at = next(from)?;
        let mut name = word_at(tokens, at)?;
        // A name behind its schema.
        while let Some(dot) = next(at + 1).filter(|i| tokens[*i].token == Token::Period) {
            at = next(dot + 1)?;
            name = word_at(tokens, at)?;
        }
        Some((name, at))
    };
    let find = |keyword, from: usize, to: usize| (from..to).find(|i| is_word(*i, keyword));
    let found = || {
        let first = find(Keyword::SEQUENCE, open, close)?;
        let second = next(first + 1).filter(|i| is_word(*i, Keyword::NAME))?;
        let (sequence, last) = name_from(second + 1)?;
        let mut table = find(Keyword::TABLE, 0, open)? + 1;
        while let Some(at) = next(table).filter(|i| {
            is_word(*i, Keyword::ONLY) || is_word(*i, Keyword::IF) || is_word(*i, Keyword::EXISTS)
        }) {
            table = at + 1;
        }
        let (table, _) = name_from(table)?;
        let alter = (0..open).rev().find(|i| is_word(*i, Keyword::ALTER))?;
        let column = next(alter + 1)?;
        let column = column + usize::from(is_word(column, Keyword::COLUMN));
        let (column, _) = name_from(column)?;
        (sequence == format!("{table}_{column}_seq")).then_some((first, last))
    };
    if let Some((first, last)) = found() {
        for token in &mut tokens[first..=last] {
            token.token = Token::Whitespace(Whitespace::Space);
        }
    }
}

/// The identifier that a token is.
fn word_at(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    match &tokens.get(at)?.token {
        Token::Word(word) => Some(match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        }),
        _ => None,
    }
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
