//! Spellings around foreign keys that the parser does not accept, as tokens that it does:
//!
//! | written | parsed as |
//! |---|---|
//! | `REFERENCES s.p … ON DELETE SET NULL (a)` | `REFERENCES "delete sets a".s.p … SET NULL` |
//! | `ALTER CONSTRAINT c …` | `ADD FOREIGN KEY "alter constraint" (c) REFERENCES c …` |
//! | `SET CONSTRAINTS a, s.b DEFERRED` | `CALL set_constraints('deferred', 'a, s.b')` |
//!
//! The name after FOREIGN KEY is another system's index name, and refused in all other statements.

use super::names;
use super::tokens::is;
use datafusion::sql::sqlparser::ast::{ForeignKeyConstraint, Ident, ObjectName};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use strandline_base::{Error, Result, SqlState};

/// The procedure whose call SET CONSTRAINTS becomes.
pub(crate) const SET_CONSTRAINTS: &str = "set_constraints";

const DELETE_SETS: &str = "delete sets ";
const ALTER_CONSTRAINT: &str = "alter constraint";

/// Rewrites the tokens of one or more statements.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let relevant = |t: &TokenWithSpan| {
        ["REFERENCES", "CONSTRAINT", "CONSTRAINTS"]
            .iter()
            .any(|word| is(t, word))
    };
    if !tokens.iter().any(relevant) {
        return;
    }
    let mut out = Vec::with_capacity(tokens.len());
    for statement in tokens.split_inclusive(|t| t.token == Token::SemiColon) {
        let is_solid = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
        let solid: Vec<&TokenWithSpan> = statement.iter().filter(is_solid).collect();
        let starts = |words: &[&str]| {
            let mut pairs = words.iter().enumerate();
            pairs.all(|(at, word)| solid.get(at).is_some_and(|t| is(t, word)))
        };
        if starts(&["SET", "CONSTRAINTS"]) {
            set_constraints(&solid, &mut out);
        } else if starts(&["ALTER", "TABLE"]) || starts(&["CREATE"]) {
            let start = out.len();
            out.extend(solid.into_iter().cloned());
            delete_lists(&mut out, start);
            alter_constraints(&mut out, start);
        } else {
            out.extend_from_slice(statement);
        }
    }
    *tokens = out;
}

/// Moves the lists after ON DELETE SET NULL and SET DEFAULT to their REFERENCES.
fn delete_lists(tokens: &mut Vec<TokenWithSpan>, start: usize) {
    let mut at = start;
    while at + 4 < tokens.len() {
        let is_at = |offset: usize, word: &str| is(&tokens[at + offset], word);
        let is_list = is_at(0, "ON")
            && is_at(1, "DELETE")
            && is_at(2, "SET")
            && (is_at(3, "NULL") || is_at(3, "DEFAULT"))
            && tokens[at + 4].token == Token::LParen;
        let close = tokens[at..].iter().position(|t| t.token == Token::RParen);
        let mut before = tokens[start..at].iter();
        let key = before.rposition(|token| is(token, "REFERENCES"));
        if let (true, Some(length), Some(key)) = (is_list, close, key) {
            let list: Vec<String> = tokens[at + 5..at + length]
                .iter()
                .map(|t| t.token.to_string())
                .collect();
            let span = tokens[at].span;
            tokens.drain(at + 4..=at + length);
            let name = format!("{DELETE_SETS}{}", list.join(" "));
            let period = TokenWithSpan {
                token: Token::Period,
                span,
            };
            let behind = start + key + 1;
            tokens.splice(behind..behind, [quoted(&name, span), period]);
            at += 2;
        }
        at += 1;
    }
}

fn alter_constraints(tokens: &mut Vec<TokenWithSpan>, start: usize) {
    let mut at = start + 2;
    while at + 2 < tokens.len() {
        if is(&tokens[at], "ALTER") && is(&tokens[at + 1], "CONSTRAINT") {
            let (span, name) = (tokens[at].span, tokens[at + 2].clone());
            let word = |text: &str| TokenWithSpan {
                token: Token::make_keyword(text),
                span,
            };
            let mark = |token| TokenWithSpan { token, span };
            let made = [
                word("ADD"),
                word("FOREIGN"),
                word("KEY"),
                quoted(ALTER_CONSTRAINT, span),
                mark(Token::LParen),
                name.clone(),
                mark(Token::RParen),
                word("REFERENCES"),
                name,
            ];
            tokens.splice(at..at + 3, made);
            at += 9;
        }
        at += 1;
    }
}

fn set_constraints(solid: &[&TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let span = solid[0].span;
    let ends = |t: &&&TokenWithSpan| matches!(t.token, Token::SemiColon | Token::EOF);
    let end = solid.len() - solid.iter().rev().take_while(ends).count();
    let words: Vec<String> = solid[2..end].iter().map(|t| t.token.to_string()).collect();
    let (mode, names) = match words.split_last() {
        Some((mode, names)) => (mode.to_lowercase(), names.join("")),
        None => (String::new(), String::new()),
    };
    let tokens = [
        Token::make_keyword("CALL"),
        Token::make_word(SET_CONSTRAINTS, None),
        Token::LParen,
        Token::SingleQuotedString(mode),
        Token::Comma,
        Token::SingleQuotedString(names),
        Token::RParen,
    ];
    out.extend(tokens.map(|token| TokenWithSpan { token, span }));
    out.extend(solid[end..].iter().map(|t| (*t).clone()));
}

/// The referenced table, and the columns of ON DELETE SET NULL or SET DEFAULT.
pub fn referenced(written: &ForeignKeyConstraint) -> Result<(ObjectName, Vec<String>)> {
    if let Some(name) = &written.index_name {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("syntax error at or near \"{}\"", name.value),
        ));
    }
    let table = &written.foreign_table;
    let Some((first, rest)) = table.0.split_first() else {
        return Err(Error::internal("a name without parts"));
    };
    let list = first
        .as_ident()
        .and_then(|i| i.value.strip_prefix(DELETE_SETS));
    let Some(list) = list else {
        return Ok((table.clone(), Vec::new()));
    };
    let mut columns = Vec::new();
    for part in list.split(',') {
        columns.push(names::single(&super::object_name(part.trim())?)?);
    }
    Ok((ObjectName(rest.to_vec()), columns))
}

/// The constraint's name if this is an ALTER CONSTRAINT.
pub fn altered(written: &ForeignKeyConstraint) -> Option<&Ident> {
    let mark = written.index_name.as_ref()?;
    (mark.value == ALTER_CONSTRAINT)
        .then(|| written.columns.first())
        .flatten()
}

fn quoted(name: &str, span: datafusion::sql::sqlparser::tokenizer::Span) -> TokenWithSpan {
    let token = Token::Word(Word {
        value: name.to_string(),
        quote_style: Some('"'),
        keyword: datafusion::sql::sqlparser::keywords::Keyword::NoKeyword,
    });
    TokenWithSpan { token, span }
}

#[cfg(test)]
mod tests {
    use crate::parse::statement;

    #[test]
    fn become_what_the_parser_knows() {
        let cases = [
            (
                "create table c (a int, b int, foreign key (a, b) references p on delete set null \
                 (b), check (a > 0))",
                "CREATE TABLE c (a INT, b INT, FOREIGN KEY (a, b) REFERENCES \"delete sets b\".p \
                 ON DELETE SET NULL, CHECK (a > 0))",
            ),
            (
                "create table c (a int references s.p (x) on delete set default (a) not null, b int \
                 references q on delete set null)",
                "CREATE TABLE c (a INT REFERENCES \"delete sets a\".s.p (x) ON DELETE SET DEFAULT \
                 NOT NULL, b INT REFERENCES q ON DELETE SET NULL)",
            ),
            (
                "alter table t alter constraint x deferrable",
                "ALTER TABLE t ADD FOREIGN KEY \"alter constraint\" (x) REFERENCES x DEFERRABLE",
            ),
            (
                "set constraints a, s.\"B\" deferred",
                "CALL set_constraints('deferred', 'a,s.\"B\"')",
            ),
            (
                "SET CONSTRAINTS ALL IMMEDIATE",
                "CALL set_constraints('immediate', 'ALL')",
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(statement(sql).expect(sql).to_string(), expected, "{sql}");
        }
    }
}
