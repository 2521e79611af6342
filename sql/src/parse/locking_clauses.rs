//! Locking clauses of SELECT that the parser does not accept, as clauses that it does. The parser
//! has two strengths and takes one name after OF.
//!
//! | written | parsed as |
//! |---|---|
//! | `FOR NO KEY UPDATE` | `FOR UPDATE OF "NO KEY UPDATE"` |
//! | `FOR SHARE OF a, b` | `FOR SHARE OF "SHARE".a.b` |
//!
//! No user can write the first part of the name.

use super::tokens::is;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{LockClause, LockType, ObjectNamePart};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The control character that no user can write.
const MARK: char = '\u{1}';

/// The strength of a locking clause, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// FOR UPDATE
    Update,
    /// FOR NO KEY UPDATE
    NoKeyUpdate,
    /// FOR SHARE
    Share,
    /// FOR KEY SHARE
    KeyShare,
}

impl Strength {
    const ALL: [(Self, &'static [&'static str]); 4] = [
        (Self::Update, &["UPDATE"]),
        (Self::NoKeyUpdate, &["NO", "KEY", "UPDATE"]),
        (Self::Share, &["SHARE"]),
        (Self::KeyShare, &["KEY", "SHARE"]),
    ];

    /// `FOR UPDATE`, ….
    pub fn clause(self) -> &'static str {
        match self {
            Self::Update => "FOR UPDATE",
            Self::NoKeyUpdate => "FOR NO KEY UPDATE",
            Self::Share => "FOR SHARE",
            Self::KeyShare => "FOR KEY SHARE",
        }
    }
}

/// Whether the names after OF are qualified; the rewriting leaves such names unchanged.
pub fn is_qualified(clause: &LockClause) -> bool {
    let first = clause.of.as_ref().and_then(|of| of.0.first());
    first.is_some_and(|part| match part {
        ObjectNamePart::Identifier(ident) => !ident.value.starts_with(MARK),
        ObjectNamePart::Function(_) => true,
    })
}

/// The strength of a parsed clause and the names after OF.
pub fn read(clause: &LockClause) -> (Strength, Vec<String>) {
    let plain = match clause.lock_type {
        LockType::Update => Strength::Update,
        LockType::Share => Strength::Share,
    };
    let Some(of) = &clause.of else {
        return (plain, Vec::new());
    };
    let mut strength = plain;
    let mut tables = Vec::new();
    for part in &of.0 {
        let ObjectNamePart::Identifier(ident) = part else {
            continue;
        };
        match ident.value.strip_prefix(MARK) {
            Some(words) => {
                let known = Strength::ALL.iter().find(|(_, w)| w.join(" ") == words);
                strength = known.map_or(plain, |(strength, _)| *strength);
            }
            None => tables.push(names::fold(ident)),
        }
    }
    (strength, tables)
}

/// Rewrites the tokens of one or more statements.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.iter().any(|t| is(t, "UPDATE") || is(t, "SHARE")) {
        return;
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    // Per open parenthesis whether FOR is an argument's name in it.
    let mut open = Vec::new();
    while at < tokens.len() {
        let token = &tokens[at];
        match token.token {
            Token::LParen => {
                let word = out.iter().rev().find(|t| !is_blank(t));
                open.push(word.is_some_and(|w| is(w, "SUBSTRING") || is(w, "OVERLAY")));
            }
            Token::RParen => {
                open.pop();
            }
            _ => {}
        }
        out.push(token.clone());
        at += 1;
        if !is(token, "FOR") || open.last() == Some(&true) {
            continue;
        }
        let found = Strength::ALL
            .iter()
            .find_map(|(_, words)| Some((words, after(tokens, at, words)?)));
        let Some((words, end)) = found else { continue };
        let of = after(tokens, end, &["OF"]);
        let Some((names, end)) = of.map_or(Some((Vec::new(), end)), |at| names_at(tokens, at))
        else {
            continue;
        };
        at = end;
        let span = token.span;
        let mut push = |token| out.push(TokenWithSpan { token, span });
        push(Token::make_keyword(
            words.last().copied().unwrap_or_default(),
        ));
        push(Token::make_keyword("OF"));
        let mark = format!("{MARK}{}", words.join(" "));
        push(Token::make_word(&mark, Some('"')));
        for name in names {
            push(Token::Period);
            push(name);
        }
    }
    *tokens = out;
}

/// The names at `at`, separated by commas, and the index after them; None for other tokens or
/// qualified names.
fn names_at(tokens: &[TokenWithSpan], mut at: usize) -> Option<(Vec<Token>, usize)> {
    let solid = |mut at: usize| {
        while tokens.get(at).is_some_and(is_blank) {
            at += 1;
        }
        at
    };
    let mut names = Vec::new();
    loop {
        let name = &tokens.get(solid(at))?.token;
        let Token::Word(_) = name else { return None };
        names.push(name.clone());
        at = solid(at) + 1;
        match tokens.get(solid(at)).map(|next| &next.token) {
            Some(Token::Comma) => at = solid(at) + 1,
            Some(Token::Period) => return None,
            _ => return Some((names, at)),
        }
    }
}

/// The index after `words`, if they are at `at` with only blanks before and between them.
fn after(tokens: &[TokenWithSpan], mut at: usize, words: &[&str]) -> Option<usize> {
    for word in words {
        while tokens.get(at).is_some_and(is_blank) {
            at += 1;
        }
        tokens.get(at).filter(|token| is(token, word))?;
        at += 1;
    }
    Some(at)
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_read_back() {
        let read_all = |sql: &str| -> Vec<(Strength, Vec<String>)> {
            let query = crate::parse::query(sql).expect(sql);
            query.locks.iter().map(read).collect()
        };
        let of = |names: &[&str]| names.iter().map(|n| (*n).to_string()).collect::<Vec<_>>();
        for (clause, strength) in [
            ("FOR UPDATE", Strength::Update),
            ("for no key update", Strength::NoKeyUpdate),
            ("FOR SHARE", Strength::Share),
            ("FOR KEY SHARE", Strength::KeyShare),
        ] {
            let sql = format!("SELECT * FROM a, b ORDER BY 1 LIMIT 3 {clause}");
            assert_eq!(read_all(&sql), [(strength, vec![])], "{sql}");
            let sql = format!("{sql} OF b , \"A\" SKIP LOCKED FOR SHARE OF c NOWAIT");
            let both = [(strength, of(&["b", "A"])), (Strength::Share, of(&["c"]))];
            assert_eq!(read_all(&sql), both, "{sql}");
        }
        let named = "SELECT substring(a from 1 for share), overlay(a placing b from 1 for update)";
        assert!(read_all(&format!("{named} FROM t")).is_empty());
        let qualified = crate::parse::query("SELECT * FROM a FOR UPDATE OF s.a").expect("parses");
        assert!(is_qualified(&qualified.locks[0]));
        assert!(crate::parse::query("SELECT * FROM a, b FOR UPDATE OF b, s.a").is_err());
        assert!(crate::parse::query("SELECT * FROM a FOR KEY UPDATE").is_err());
    }
}
