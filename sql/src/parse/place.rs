//! The position of an error in a statement's text: the parser's position, or that of the undefined
//! name.
//!
//! Plans have no positions when a name turns out to be undefined. So the name is searched in the
//! text where its kind of name can be: a relation after FROM, a function before a parenthesis, a
//! column not as an alias. The first of several positions is used.

use crate::parse::from_entries::{self, is_word, word};
use crate::parse::{position_of, tokens_of};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use strandline_base::{Error, SqlState};

/// The kind of an error's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Relation,
    /// a relation's name or alias before a column
    Qualifier,
    Column,
    Function,
    Type,
    Operator,
}

/// A name in an error message.
struct Name<'a> {
    kind: Kind,
    qualifier: Option<&'a str>,
    name: &'a str,
}

/// Adds to the error the position in `sql` of its name. The statement begins at `begins`.
pub fn locate(error: Error, sql: &str, begins: Location) -> Error {
    if error.position().is_some() {
        return error;
    }
    let error = with_missing_entry(error, sql, begins);
    let found = name_in(&error).and_then(|name| find(&name, sql, begins));
    match found {
        Some(place) => error.with_position(position_of(sql, place)),
        None => error,
    }
}

/// The name in an error's message, for errors about an undefined name.
fn name_in(error: &Error) -> Option<Name<'_>> {
    let message = error.message();
    let (kind, named) = match error.sqlstate() {
        SqlState::UNDEFINED_TABLE => match message.strip_prefix("missing FROM-clause entry for ") {
            Some(rest) => (Kind::Qualifier, rest),
            None => (Kind::Relation, message),
        },
        SqlState::UNDEFINED_COLUMN | SqlState::AMBIGUOUS_COLUMN | SqlState("42803") => {
            (Kind::Column, message)
        }
        SqlState::UNDEFINED_FUNCTION => {
            if let Some(types) = message.strip_prefix("operator does not exist: ") {
                return operator_in(types);
            }
            let call = message.strip_prefix("function ")?;
            (Kind::Function, &call[..call.find(['(', ' '])?])
        }
        SqlState::UNDEFINED_OBJECT if message.starts_with("type ") => (Kind::Type, message),
        _ => return None,
    };
    let name = match named.split_once('"') {
        Some((_, rest)) => rest.split_once('"')?.0,
        None if kind == Kind::Function => named,
        None => named.strip_prefix("column ")?.split(' ').next()?,
    };
    Some(match name.rsplit_once('.') {
        Some((qualifier, name)) => Name {
            kind,
            qualifier: Some(qualifier.rsplit('.').next().unwrap_or(qualifier)),
            name,
        },
        None => Name {
            kind,
            qualifier: None,
            name,
        },
    })
}

/// The operator in a message, between names of types.
fn operator_in(types: &str) -> Option<Name<'_>> {
    let is_symbol = |c: char| "+-*/<>=~!@#%^&|".contains(c);
    let mut words = types.split(' ');
    let name = words.find(|word| word.chars().all(is_symbol))?;
    Some(Name {
        kind: Kind::Operator,
        qualifier: None,
        name,
    })
}

/// Changes an undefined column into a missing FROM entry if FROM has its table nowhere, or only
/// further right.
fn with_missing_entry(error: Error, sql: &str, begins: Location) -> Error {
    let missing = || {
        let name = name_in(&error).filter(|name| name.kind == Kind::Column)?;
        let qualifier = name.qualifier?;
        let tokens = tokens_of(sql)?;
        let tokens = statement_at(&tokens, begins);
        let at = (0..tokens.len()).find(|&at| is_named(&tokens, at, &name))?;
        from_entries::is_missing(&tokens, qualifier, first_part(&tokens, at)).then(|| {
            let message = format!("missing FROM-clause entry for table \"{qualifier}\"");
            Error::invalid(SqlState::UNDEFINED_TABLE, message)
        })
    };
    match error.sqlstate() == SqlState::UNDEFINED_COLUMN {
        true => missing().unwrap_or(error),
        false => error,
    }
}

/// The tokens of the statement that begins at `begins`, without blanks.
fn statement_at(tokens: &[TokenWithSpan], begins: Location) -> Vec<&TokenWithSpan> {
    let mut tokens: Vec<&TokenWithSpan> = tokens
        .iter()
        .filter(|t| t.span.start >= begins && !matches!(t.token, Token::Whitespace(_)))
        .collect();
    if let Some(end) = tokens.iter().position(|t| t.token == Token::SemiColon) {
        tokens.truncate(end);
    }
    tokens
}

fn find(name: &Name<'_>, sql: &str, begins: Location) -> Option<Location> {
    let tokens = tokens_of(sql)?;
    let tokens = statement_at(&tokens, begins);
    let places = (0..tokens.len()).filter(|&at| is_named(&tokens, at, name));
    let mut places: Vec<usize> = places.collect();
    if name.kind == Kind::Operator && places.len() > 1 {
        return None; // any of them
    }
    if name.kind == Kind::Relation {
        places.sort_by_key(|&at| !names_a_relation(&tokens, first_part(&tokens, at)));
    }
    let at = *places.first()?;
    Some(tokens[first_part(&tokens, at)].span.start)
}

/// The first token of the dotted name whose last part is at `at`.
fn first_part(tokens: &[&TokenWithSpan], mut at: usize) -> usize {
    while at >= 2 && tokens[at - 1].token == Token::Period && word(tokens[at - 2]).is_some() {
        at -= 2;
    }
    at
}

/// Whether the token at `at` can be the last part of the name.
fn is_named(tokens: &[&TokenWithSpan], at: usize, name: &Name<'_>) -> bool {
    if name.kind == Kind::Operator {
        return word(tokens[at]).is_none() && tokens[at].token.to_string() == name.name;
    }
    if !is_word(tokens[at], name.name) {
        return false;
    }
    let next = tokens.get(at + 1).map(|t| &t.token);
    let first = first_part(tokens, at);
    let is_alias = first > 0
        && word(tokens[first - 1])
            .is_some_and(|w| w.quote_style.is_none() && w.keyword == Keyword::AS);
    let fits = match name.qualifier {
        Some(qualifier) => first < at && is_word(tokens[at - 2], qualifier),
        None => first == at || matches!(name.kind, Kind::Relation | Kind::Function),
    };
    let before_more = next == Some(&Token::Period);
    let before_arguments = next == Some(&Token::LParen);
    match name.kind {
        Kind::Relation => fits && !before_more && !is_alias,
        Kind::Qualifier => before_more && first == at,
        Kind::Column => fits && !before_more && !before_arguments && !is_alias,
        Kind::Function => fits && before_arguments,
        Kind::Type | Kind::Operator => !before_more,
    }
}

/// Whether a relation's name is expected at `at`.
fn names_a_relation(tokens: &[&TokenWithSpan], at: usize) -> bool {
    const BEFORE: &[Keyword] = &[
        Keyword::FROM,
        Keyword::JOIN,
        Keyword::INTO,
        Keyword::UPDATE,
        Keyword::TABLE,
        Keyword::ONLY,
        Keyword::COPY,
        Keyword::EXISTS,
        Keyword::TRUNCATE,
        Keyword::VIEW,
    ];
    at > 0
        && word(tokens[at - 1])
            .is_some_and(|w| w.quote_style.is_none() && BEFORE.contains(&w.keyword))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(state: SqlState, message: &str, sql: &str) -> Option<usize> {
        let begins = Location { line: 1, column: 1 };
        locate(Error::invalid(state, message), sql, begins).position()
    }

    #[test]
    fn names_are_found_where_they_can_be_meant() {
        let column = |message, sql| at(SqlState::UNDEFINED_COLUMN, message, sql);
        let no_b = "column \"b\" does not exist";
        assert_eq!(column(no_b, "SELECT b FROM t"), Some(8));
        assert_eq!(
            column(no_b, "SELECT 'b', a AS b, b(1), x.b FROM t WHERE é = B"),
            Some(48)
        );
        assert_eq!(column(no_b, "SELECT \"B\" -- b\n, \"b\""), Some(19));
        let no_tb = "column t.b does not exist";
        assert_eq!(column(no_tb, "SELECT b, u.b, t.a, t.b FROM t"), Some(21));
        assert_eq!(
            column(
                "column \"b\" of relation \"t\" does not exist",
                "UPDATE t SET b = 1"
            ),
            Some(14)
        );
        let table = |message, sql| at(SqlState::UNDEFINED_TABLE, message, sql);
        let no_t = "relation \"t\" does not exist";
        assert_eq!(table(no_t, "SELECT t.a, t FROM s.t"), Some(20));
        assert_eq!(
            table("relation \"s.t\" does not exist", "TABLE s.t"),
            Some(7)
        );
        assert_eq!(table(no_t, "INSERT INTO t(t) VALUES (1)"), Some(13));
        let missing = "missing FROM-clause entry for table \"q\"";
        assert_eq!(table(missing, "SELECT q, q.a FROM t"), Some(11));
        let function = |sql| {
            let message = "function f(integer, text) does not exist";
            at(SqlState::UNDEFINED_FUNCTION, message, sql)
        };
        assert_eq!(function("SELECT f, f (1, 'x')"), Some(11));
        let plus = |sql| {
            let message = "operator does not exist: double precision + text";
            at(SqlState::UNDEFINED_FUNCTION, message, sql)
        };
        assert_eq!(plus("SELECT a + b"), Some(10));
        assert_eq!(plus("SELECT a + b, 1 + 1"), None);
        let no_type = "type \"nix\" does not exist";
        assert_eq!(
            at(SqlState::UNDEFINED_OBJECT, no_type, "SELECT 1::nix"),
            Some(11)
        );
        assert_eq!(column(no_b, "SELECT 1"), None);
        assert_eq!(
            at(
                SqlState::UNDEFINED_OBJECT,
                "role \"a\" does not exist",
                "DROP ROLE a"
            ),
            None
        );
    }

    #[test]
    fn other_statements_of_the_text_are_passed_over() {
        let error = Error::invalid(SqlState::UNDEFINED_COLUMN, "column \"a\" does not exist");
        let begins = Location { line: 2, column: 1 };
        let sql = "SELECT a FROM t;\nSELECT a FROM u; SELECT b";
        assert_eq!(locate(error, sql, begins).position(), Some(25));
    }
}
