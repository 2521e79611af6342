//! The target of ON CONFLICT. The parser accepts only column names in it:
//!
//! | written | parsed as |
//! |---|---|
//! | `ON CONFLICT (lower(a)) WHERE c` | `ON CONFLICT ("conflict target (lower(a)) WHERE c")` |

use super::tokens::is;
use super::{byte_offset, line_starts, with_parser};
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, Expr, Ident, OnInsert, Statement, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::fmt;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};
use strandline_semantics::sql::walk::walk_mut;

const MARK: &str = "conflict target ";

/// The target from which ON CONFLICT infers its unique index.
#[derive(Debug)]
pub(crate) struct InferenceTarget {
    /// columns and expressions, in their written order
    pub parts: Vec<Expr>,
    /// the predicate of a partial index
    pub predicate: Option<Expr>,
}

/// Rewrites the tokens of one or more statements; `sql` is their text.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>, sql: &str) {
    if !tokens.iter().any(|t| is(t, "CONFLICT")) {
        return;
    }
    let lines = line_starts(sql);
    let mut from = 0;
    while let Some(target) = next_target(tokens, from) {
        from = target.open + 1;
        if target.is_plain {
            continue;
        }
        let (Some(first), Some(last)) = (tokens.get(target.open), tokens.get(target.end - 1))
        else {
            return;
        };
        let start = byte_offset(sql, &lines, first.span.start);
        let end = byte_offset(sql, &lines, last.span.end);
        let span = first.span;
        let made = [
            Token::LParen,
            Token::make_word(&format!("{MARK}{}", &sql[start..end]), Some('"')),
            Token::RParen,
        ];
        let made = made.map(|token| TokenWithSpan { token, span });
        tokens.splice(target.open..target.end, made);
    }
}

/// The tokens of a target.
struct TargetTokens {
    /// the opening parenthesis
    open: usize,
    /// the position after its last token that is not blank
    end: usize,
    /// whether it is a list of names
    is_plain: bool,
}

/// The first target at or behind `from`.
fn next_target(tokens: &[TokenWithSpan], from: usize) -> Option<TargetTokens> {
    let solid: Vec<usize> = (from..tokens.len())
        .filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_)))
        .collect();
    let begins = solid.windows(3).position(|w| {
        is(&tokens[w[0]], "ON")
            && is(&tokens[w[1]], "CONFLICT")
            && tokens[w[2]].token == Token::LParen
    })?;
    let target = &solid[begins + 2..];
    let mut depth = 0usize;
    let (mut is_plain, mut behind_word) = (true, false);
    let mut end = None;
    for at in target {
        let token = &tokens[*at];
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            Token::Word(_) if depth == 0 && is(token, "DO") => {
                return Some(TargetTokens {
                    open: target[0],
                    end: end?,
                    is_plain,
                });
            }
            Token::Word(_) => is_plain &= !behind_word,
            Token::Comma => {}
            Token::SemiColon | Token::EOF => return None,
            _ => is_plain = false,
        }
        let is_name = end.is_none() || depth > 0 || token.token == Token::RParen;
        is_plain &= is_name && depth <= 1;
        behind_word = matches!(token.token, Token::Word(_));
        end = Some(at + 1);
    }
    None
}

/// Decodes the columns of a target in the syntax tree.
pub(crate) fn read(columns: &[Ident]) -> Result<InferenceTarget> {
    if let [only] = columns
        && let Some(text) = only.value.strip_prefix(MARK)
    {
        return with_parser(text, |parser| {
            parser.expect_token(&Token::LParen)?;
            let parts = parser.parse_comma_separated(Parser::parse_create_index_expr)?;
            parser.expect_token(&Token::RParen)?;
            let predicate = match parser.parse_keyword(Keyword::WHERE) {
                true => Some(parser.parse_expr()?),
                false => None,
            };
            parser.expect_token(&Token::EOF)?;
            Ok(InferenceTarget {
                parts: parts.into_iter().map(|part| part.column.expr).collect(),
                predicate,
            })
        })
        .map_err(Error::without_position);
    }
    Ok(InferenceTarget {
        parts: columns.iter().cloned().map(Expr::Identifier).collect(),
        predicate: None,
    })
}

/// Has `visitor` visit the expressions of the target of `statement`, if it is one that the syntax
/// tree holds as text.
pub(crate) fn visit<V: VisitorMut<Break = Error>>(
    statement: &mut Statement,
    visitor: &mut V,
) -> ControlFlow<Error> {
    let Statement::Insert(insert) = statement else {
        return ControlFlow::Continue(());
    };
    let Some(OnInsert::OnConflict(conflict)) = &mut insert.on else {
        return ControlFlow::Continue(());
    };
    let Some(ConflictTarget::Columns(columns)) = &mut conflict.conflict_target else {
        return ControlFlow::Continue(());
    };
    let [only] = columns.as_mut_slice() else {
        return ControlFlow::Continue(());
    };
    if !only.value.starts_with(MARK) {
        return ControlFlow::Continue(());
    }
    let mut target = match read(std::slice::from_ref(only)) {
        Ok(target) => target,
        Err(error) => return ControlFlow::Break(error),
    };
    let before = target.to_string();
    for expr in target.parts.iter_mut().chain(&mut target.predicate) {
        walk_mut(expr, visitor)?;
    }
    let after = target.to_string();
    if after != before {
        only.value = format!("{MARK}{after}");
    }
    ControlFlow::Continue(())
}

impl fmt::Display for InferenceTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(Expr::to_string).collect();
        write!(f, "({})", parts.join(", "))?;
        match &self.predicate {
            Some(predicate) => write!(f, " WHERE {predicate}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InferenceTarget, read};
    use crate::parse::statement;
    use datafusion::sql::sqlparser::ast::{ConflictTarget, OnInsert, Statement};

    fn target(sql: &str) -> InferenceTarget {
        let Ok(Statement::Insert(insert)) = statement(sql) else {
            panic!("{sql}")
        };
        match insert.on {
            Some(OnInsert::OnConflict(conflict)) => match conflict.conflict_target {
                Some(ConflictTarget::Columns(columns)) => read(&columns).expect(sql),
                other => panic!("{sql}: {other:?}"),
            },
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn of_columns_expressions_and_a_predicate() {
        let cases = [
            ("(a, \"B\") DO NOTHING", "a, \"B\"", None),
            (
                "(a) WHERE b > 1 AND c = 'it''s' DO NOTHING",
                "a",
                Some("b > 1 AND c = 'it''s'"),
            ),
            (
                "( lower(a), b ) DO UPDATE SET b = 1 WHERE t.a > 'x'",
                "lower(a), b",
                None,
            ),
            ("((a || b)) where (c) do nothing", "(a || b)", Some("(c)")),
            (
                "(a COLLATE \"C\" text_ops) DO NOTHING",
                "a COLLATE \"C\"",
                None,
            ),
        ];
        for (written, parts, predicate) in cases {
            let sql = format!("INSERT INTO t VALUES (1) ON CONFLICT {written}");
            let found = target(&sql);
            let shown: Vec<String> = found.parts.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(", "), parts, "{sql}");
            assert_eq!(
                found.predicate.map(|p| p.to_string()).as_deref(),
                predicate,
                "{sql}"
            );
        }
    }
}
