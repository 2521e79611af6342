//! Whether a qualifier matches an item of its FROM, by the tokens of the statement.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The keywords that begin a clause.
const CLAUSES: [Keyword; 12] = [
    Keyword::SELECT,
    Keyword::FROM,
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::UNION,
    Keyword::EXCEPT,
    Keyword::INTERSECT,
    Keyword::SET,
];

/// Whether the statement has no table `qualifier`, or only further right in the FROM around its use
/// at `at`. False if that is uncertain.
pub(super) fn is_missing(tokens: &[&TokenWithSpan], qualifier: &str, at: usize) -> bool {
    let names = |&i: &usize| {
        let next = tokens.get(i + 1).map(|next| &next.token);
        is_word(tokens[i], qualifier) && next != Some(&Token::Period)
    };
    match (0..tokens.len()).find(names) {
        // `excluded` is the proposed row of ON CONFLICT.
        None => qualifier != "excluded",
        Some(first) if first < at => false,
        Some(first) => is_in_from(tokens, at, first),
    }
}

/// Whether `at` is within an item of a FROM that has another item at `other`, further right.
fn is_in_from(tokens: &[&TokenWithSpan], at: usize, other: usize) -> bool {
    let mut clauses = vec![None];
    for token in &tokens[..at] {
        step(&mut clauses, token);
    }
    let Some(depth) = clauses.iter().rposition(Option::is_some) else {
        return false;
    };
    if clauses[depth] != Some(Keyword::FROM) {
        return false;
    }
    for token in &tokens[at..other] {
        step(&mut clauses, token);
        if clauses.get(depth).copied().flatten() != Some(Keyword::FROM) {
            return false;
        }
    }
    clauses.len() == depth + 1
}

/// Tracks the clause of each open parenthesis.
fn step(clauses: &mut Vec<Option<Keyword>>, token: &TokenWithSpan) {
    match &token.token {
        Token::LParen => clauses.push(None),
        Token::RParen => {
            clauses.pop();
        }
        _ => {
            let keyword = word(token).filter(|word| word.quote_style.is_none());
            let keyword = keyword.map(|word| word.keyword);
            if let (Some(keyword), Some(clause)) = (keyword, clauses.last_mut())
                && CLAUSES.contains(&keyword)
            {
                *clause = Some(keyword);
            }
        }
    }
}

pub(super) fn word(token: &TokenWithSpan) -> Option<&Word> {
    match &token.token {
        Token::Word(word) => Some(word),
        _ => None,
    }
}

pub(super) fn is_word(token: &TokenWithSpan, name: &str) -> bool {
    word(token).is_some_and(|word| match word.quote_style {
        None => word.value.to_ascii_lowercase() == name,
        Some(_) => word.value == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tokens_of;

    /// Whether the entry of the first qualifier `t` is missing.
    fn misses(sql: &str) -> bool {
        let tokens = tokens_of(sql).expect("tokens");
        let blank = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
        let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(blank).collect();
        let is_use =
            |pair: &[&TokenWithSpan]| is_word(pair[0], "t") && pair[1].token == Token::Period;
        let at = tokens.windows(2).position(is_use).expect("a use");
        is_missing(&tokens, "t", at)
    }

    #[test]
    fn entries_further_right_and_nowhere_are_missing() {
        for sql in [
            "SELECT t.a",
            "SELECT t.a FROM u",
            "SELECT * FROM f(t.a) p, t",
            "SELECT * FROM f(g(t.a)) p JOIN public.t ON true",
            "SELECT * FROM u, (SELECT 1 FROM f(t.a) p, x t) s",
        ] {
            assert!(misses(sql), "{sql}");
        }
    }

    #[test]
    fn entries_in_sight_are_not_missing() {
        for sql in [
            "SELECT t.a FROM t",
            "SELECT * FROM t, f(t.a) p",
            "SELECT * FROM u t, f(t.a) p, t",
            "SELECT (SELECT 1 FROM f(t.a) p) FROM t",
            "SELECT (SELECT 1 FROM f(t.a) p WHERE true) FROM t",
            "SELECT extract(year FROM t.a) FROM t",
            "SELECT (SELECT t.a) FROM t",
            "UPDATE t SET b = t.a",
        ] {
            assert!(!misses(sql), "{sql}");
        }
    }
}
