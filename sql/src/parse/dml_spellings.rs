//! Three spellings of PostgreSQL that the parser does not accept. Their tokens are rewritten before
//! the parser sees them, and read back from the syntax tree:
//!
//! | written | parsed as |
//! |---|---|
//! | `OVERRIDING SYSTEM VALUE` | `[AS t] OUTPUT 1 AS "overriding system"` |
//! | `OVERRIDING USER VALUE` | `OUTPUT 1 AS "overriding user"` |
//! | `WHEN MATCHED … THEN DO NOTHING` | `… THEN UPDATE SET "do nothing" = NULL` |
//! | `WHEN NOT MATCHED … THEN DO NOTHING` | `… THEN INSERT ("do nothing") VALUES (NULL)` |
//!
//! `OUTPUT` is another system's `RETURNING`; every other use of it is an error.

use crate::parse::names;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use strandline_base::{Error, Result, SqlState};

const OVERRIDING_SYSTEM: &str = "overriding system";
const OVERRIDING_USER: &str = "overriding user";
const DO_NOTHING: &str = "do nothing";

/// The OVERRIDING clause of an INSERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overriding {
    /// use the given values even for GENERATED ALWAYS
    System,
    /// ignore the given values and generate new ones
    User,
}

/// Rewrites the tokens of one or more statements.
pub fn rewrite_tokens(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let relevant = |t: &TokenWithSpan| is_word(t, "OVERRIDING") || is_word(t, "NOTHING");
    if !tokens.iter().any(relevant) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 8);
    let mut not_matched = false;
    let mut at = 0;
    while at < tokens.len() {
        if is_word(&tokens[at], "MATCHED") {
            let before = tokens[..at].iter().rev().find(|t| !is_blank(t));
            // NOT MATCHED BY SOURCE has a target row, like MATCHED.
            not_matched = before.is_some_and(|t| is_word(t, "NOT"))
                && words(&tokens, at, &["MATCHED", "BY", "SOURCE"]).is_none();
        }
        let span = tokens[at].span;
        if let Some(end) = words(&tokens, at, &["OVERRIDING", "SYSTEM", "VALUE"]) {
            push_alias(&mut out, span);
            push_output(&mut out, OVERRIDING_SYSTEM, span);
            at = end;
        } else if let Some(end) = words(&tokens, at, &["OVERRIDING", "USER", "VALUE"]) {
            push_alias(&mut out, span);
            push_output(&mut out, OVERRIDING_USER, span);
            at = end;
        } else if let Some(end) = words(&tokens, at, &["THEN", "DO", "NOTHING"]) {
            push_nothing(&mut out, not_matched, span);
            at = end;
        } else {
            out.push(tokens[at].clone());
            at += 1;
        }
    }
    out
}

fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    match &token.token {
        Token::Word(w) => w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word),
        _ => false,
    }
}

/// The index after the words `expected`, if they are at `start` with only blanks between them.
fn words(tokens: &[TokenWithSpan], start: usize, expected: &[&str]) -> Option<usize> {
    let mut at = start;
    for (i, word) in expected.iter().enumerate() {
        while i > 0 && tokens.get(at).is_some_and(is_blank) {
            at += 1;
        }
        if !tokens.get(at).is_some_and(|t| is_word(t, word)) {
            return None;
        }
        at += 1;
    }
    Some(at)
}

fn push(out: &mut Vec<TokenWithSpan>, span: Span, tokens: impl IntoIterator<Item = Token>) {
    out.extend(
        tokens
            .into_iter()
            .map(|token| TokenWithSpan { token, span }),
    );
}

/// Adds a table's own name as its alias if the table has no alias and no column list. The parser
/// would take OUTPUT for the alias.
fn push_alias(out: &mut Vec<TokenWithSpan>, span: Span) {
    let mut before = out.iter().rev().filter(|t| !is_blank(t));
    let (Some(name), Some(previous)) = (before.next(), before.next()) else {
        return;
    };
    let qualified = matches!(previous.token, Token::Period) || is_word(previous, "INTO");
    if qualified && matches!(name.token, Token::Word(_)) {
        let name = name.token.clone();
        push(out, span, [Token::make_keyword("AS"), name]);
    }
}

fn push_output(out: &mut Vec<TokenWithSpan>, marker: &str, span: Span) {
    let one = Token::Number("1".to_string(), false);
    let keyword = Token::make_keyword;
    push(
        out,
        span,
        [
            keyword("OUTPUT"),
            one,
            keyword("AS"),
            Token::make_word(marker, Some('"')),
        ],
    );
}

fn push_nothing(out: &mut Vec<TokenWithSpan>, not_matched: bool, span: Span) {
    let keyword = Token::make_keyword;
    let marker = Token::make_word(DO_NOTHING, Some('"'));
    if not_matched {
        push(
            out,
            span,
            [
                keyword("THEN"),
                keyword("INSERT"),
                Token::LParen,
                marker,
                Token::RParen,
            ],
        );
        push(
            out,
            span,
            [
                keyword("VALUES"),
                Token::LParen,
                keyword("NULL"),
                Token::RParen,
            ],
        );
    } else {
        push(
            out,
            span,
            [keyword("THEN"), keyword("UPDATE"), keyword("SET"), marker],
        );
        push(out, span, [Token::Eq, keyword("NULL")]);
    }
}

/// The OVERRIDING clause of an INSERT.
pub(crate) fn overriding(insert: &ast::Insert) -> Result<Option<Overriding>> {
    let Some(output) = &insert.output else {
        return Ok(None);
    };
    if let ast::OutputClause::Output {
        select_items,
        into_table: None,
        ..
    } = output
        && let [ast::SelectItem::ExprWithAlias { alias, .. }] = select_items.as_slice()
    {
        match alias.value.as_str() {
            OVERRIDING_SYSTEM => return Ok(Some(Overriding::System)),
            OVERRIDING_USER => return Ok(Some(Overriding::User)),
            _ => {}
        }
    }
    Err(no_output())
}

/// The error for OUTPUT, a clause of other systems.
pub(crate) fn no_output() -> Error {
    Error::invalid(SqlState::SYNTAX_ERROR, "syntax error at or near \"OUTPUT\"")
        .with_hint("Write RETURNING at the end of the statement.")
}

/// Whether a MERGE action is DO NOTHING.
pub(crate) fn is_do_nothing(action: &ast::MergeAction) -> bool {
    match action {
        ast::MergeAction::Insert(insert) => match insert.columns.as_slice() {
            [column] => names::parts(column).is_ok_and(|p| p == [DO_NOTHING]),
            _ => false,
        },
        ast::MergeAction::Update(update) => match update.assignments.as_slice() {
            [one] => match &one.target {
                ast::AssignmentTarget::ColumnName(name) => {
                    names::parts(name).is_ok_and(|p| p == [DO_NOTHING])
                }
                ast::AssignmentTarget::Tuple(_) => false,
            },
            _ => false,
        },
        ast::MergeAction::Delete { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    fn parse(sql: &str) -> ast::Statement {
        let dialect = PostgreSqlDialect {};
        let tokens = Tokenizer::new(&dialect, sql)
            .tokenize_with_location()
            .expect(sql);
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(rewrite_tokens(tokens));
        let mut statements = parser.parse_statements().expect(sql);
        assert_eq!(statements.len(), 1, "{sql}");
        statements.remove(0)
    }

    fn overriding_of(sql: &str) -> Option<Overriding> {
        match parse(sql) {
            ast::Statement::Insert(insert) => overriding(&insert).expect(sql),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn overriding_is_read_back() {
        let cases = [
            (
                "INSERT INTO t OVERRIDING SYSTEM VALUE VALUES (1)",
                Some(Overriding::System),
            ),
            (
                "insert into t (a, b) overriding user value select 1, 2",
                Some(Overriding::User),
            ),
            (
                "INSERT INTO t AS x (a) OVERRIDING\nSYSTEM /* c */ VALUE VALUES (1)",
                Some(Overriding::System),
            ),
            (
                "INSERT INTO t (a) OVERRIDING SYSTEM VALUE (SELECT 1)",
                Some(Overriding::System),
            ),
            ("INSERT INTO t VALUES ('OVERRIDING SYSTEM VALUE')", None),
            ("INSERT INTO t (\"overriding\") VALUES (1)", None),
        ];
        for (sql, expected) in cases {
            assert_eq!(overriding_of(sql), expected, "{sql}");
        }
        let ast::Statement::Insert(insert) = parse("INSERT INTO t (a) OUTPUT a VALUES (1)") else {
            panic!()
        };
        assert!(overriding(&insert).is_err());
    }

    #[test]
    fn do_nothing_is_read_back() {
        let merge = "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND s.x > 1 THEN DO NOTHING \
                     WHEN NOT MATCHED BY SOURCE THEN DO NOTHING WHEN MATCHED THEN DELETE \
                     WHEN NOT MATCHED AND s.y = 2 THEN do nothing \
                     WHEN NOT MATCHED THEN INSERT VALUES (1)";
        let ast::Statement::Merge(merge) = parse(merge) else {
            panic!()
        };
        let nothing: Vec<bool> = merge
            .clauses
            .iter()
            .map(|c| is_do_nothing(&c.action))
            .collect();
        assert_eq!(nothing, [true, true, false, true, false]);
        // ON CONFLICT … DO NOTHING is not rewritten.
        let ast::Statement::Insert(insert) =
            parse("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING")
        else {
            panic!()
        };
        let Some(ast::OnInsert::OnConflict(conflict)) = insert.on else {
            panic!()
        };
        assert_eq!(conflict.action, ast::OnConflictAction::DoNothing);
    }
}
