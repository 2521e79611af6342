//! Statements about users, rewritten to tokens of statements about roles, which the parser accepts:
//!
//! | written | parsed as |
//! |---|---|
//! | `CREATE USER u …` | `CREATE ROLE u … LOGIN`, unless it has LOGIN or NOLOGIN |
//! | `CREATE GROUP`, `ALTER`/`DROP` `USER`/`GROUP` | the same with `ROLE` |
//! | `ENCRYPTED PASSWORD 'p'` | `PASSWORD 'p'` |
//! | `GRANT g TO u`, `REVOKE g FROM u` | `GRANT ROLE g TO u`, `REVOKE ROLE g FROM u` |
//!
//! The text of such a statement may have a password; [`redacted`] is the text that may be shown.

use super::tokenize;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use std::borrow::Cow;

fn is(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(w)
        if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

fn is_any(token: &TokenWithSpan, words: &[&str]) -> bool {
    words.iter().any(|word| is(token, word))
}

fn word(text: &str, like: &TokenWithSpan) -> TokenWithSpan {
    TokenWithSpan::new(Token::make_keyword(text), like.span)
}

/// Rewrites the tokens of one or more statements.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens
        .iter()
        .any(|t| is_any(t, &["USER", "GROUP", "ENCRYPTED", "GRANT", "REVOKE"]))
    {
        return;
    }
    let mut out = Vec::with_capacity(tokens.len());
    for statement in tokens.split_inclusive(|t| t.token == Token::SemiColon) {
        one(statement, &mut out);
    }
    *tokens = out;
}

fn one(statement: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let mut solid = statement
        .iter()
        .enumerate()
        .filter(|(_, t)| !matches!(t.token, Token::Whitespace(_)));
    let (verb, kind) = (solid.next(), solid.next());
    let (Some((_, verb)), Some((place, kind))) = (verb, kind) else {
        return out.extend_from_slice(statement);
    };
    let says = |words: &[&str]| statement.iter().any(|t| is_any(t, words));
    if is_any(verb, &["GRANT", "REVOKE"]) && !says(&["ON"]) {
        return membership(statement, out);
    }
    let about_roles =
        is_any(verb, &["CREATE", "ALTER", "DROP"]) && is_any(kind, &["USER", "GROUP", "ROLE"]);
    if !about_roles {
        return out.extend_from_slice(statement);
    }
    let may_login = is(verb, "CREATE") && is(kind, "USER") && !says(&["LOGIN", "NOLOGIN"]);
    for (i, token) in statement.iter().enumerate() {
        let ends = matches!(token.token, Token::SemiColon | Token::EOF);
        if ends && may_login {
            out.push(word("LOGIN", token));
        }
        if i == place {
            out.push(word("ROLE", token));
        } else if !is(token, "ENCRYPTED") {
            out.push(token.clone());
        }
    }
    let ended = statement
        .last()
        .is_some_and(|t| matches!(t.token, Token::SemiColon | Token::EOF));
    if may_login && !ended {
        out.push(word("LOGIN", kind));
    }
}

/// Writes a GRANT or REVOKE of groups with ROLE before each group.
fn membership(statement: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let (mut names_a_group, mut before_to) = (false, true);
    for token in statement {
        if names_a_group && !matches!(token.token, Token::Whitespace(_)) {
            out.push(word("ROLE", token));
            names_a_group = false;
        }
        before_to &= !is_any(token, &["TO", "FROM"]);
        let starts = is_any(token, &["GRANT", "REVOKE"]) || token.token == Token::Comma;
        names_a_group = names_a_group || (starts && before_to);
        out.push(token.clone());
    }
}

/// `sql` with stars for passwords. It is borrowed if there is no password.
pub fn redacted(sql: &str) -> Cow<'_, str> {
    let bytes = sql.as_bytes();
    let mentions = memchr::memchr2_iter(b'p', b'P', bytes).any(|at| {
        let word = bytes.get(at..at + 8);
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"password"))
    });
    if !mentions {
        return Cow::Borrowed(sql);
    }
    let Ok(tokens) = tokenize(sql) else {
        // The text ends within a quote, so the extent of the password is unknown.
        return Cow::Borrowed("<unreadable statement about a password>");
    };
    let mut shown = String::new();
    let mut secret = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(space) => {
                shown.push_str(&space.to_string());
                continue;
            }
            Token::Word(Word { value, .. }) => {
                secret = value.eq_ignore_ascii_case("password");
            }
            Token::Eq => {}
            _ if secret && is_text(&token.token) => {
                shown.push_str("'********'");
                secret = false;
                continue;
            }
            _ => secret = false,
        }
        shown.push_str(&token.token.to_string());
    }
    Cow::Owned(shown)
}

/// A parser's error about `sql` without passwords, which its message may quote.
pub(super) fn without_secrets(error: ParserError, sql: &str) -> ParserError {
    match error {
        ParserError::ParserError(text) if matches!(redacted(sql), Cow::Owned(_)) => {
            let place = text.find(" at Line").map_or("", |at| &text[at..]);
            ParserError::ParserError(format!(
                "cannot read this statement about a password{place}"
            ))
        }
        other => other,
    }
}

fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::statement;

    #[test]
    fn users_are_roles_that_may_log_in() {
        let parsed = |sql: &str| statement(sql).expect(sql).to_string();
        assert!(parsed("CREATE USER u PASSWORD 'x'").contains(" LOGIN"));
        assert!(parsed("create user u with nologin;").contains(" NOLOGIN"));
        assert!(!parsed("CREATE ROLE u").contains("LOGIN"));
        assert_eq!(
            parsed("ALTER USER u WITH ENCRYPTED PASSWORD 'x'"),
            "ALTER ROLE u WITH PASSWORD 'x'"
        );
        assert_eq!(
            parsed("DROP USER IF EXISTS a, b"),
            "DROP ROLE IF EXISTS a, b"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        for sql in [
            "ALTER USER u PASSWORD 'secret'",
            "CREATE ROLE u WITH LOGIN ENCRYPTED PASSWORD E'secret' SUPERUSER",
            "create user u password $$secret$$ nologin",
            "ALTER ROLE u PASSWORD 'secret",
        ] {
            let shown = redacted(sql);
            assert!(!shown.contains("secret"), "{shown}");
        }
        assert_eq!(redacted("SELECT 'secret'"), "SELECT 'secret'");
    }
}
