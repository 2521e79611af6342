//! `FOR SYSTEM_TIME FROM a TO b` and `FOR SYSTEM_TIME BETWEEN a AND b`. The parser does not accept
//! them, so they become an `AS OF` with a BETWEEN over a name that no user can write:
//!
//! | written | parsed as |
//! |---|---|
//! | `FOR SYSTEM_TIME FROM a TO b` | `FOR SYSTEM_TIME AS OF "from" BETWEEN a AND b` |
//! | `FOR SYSTEM_TIME BETWEEN a AND b` | `FOR SYSTEM_TIME AS OF "between" BETWEEN a AND b` |

use super::tokens::is;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Query, TableFactor, TableVersion, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;
use strandline_semantics::sql::walk::walk_mut;

/// No user can write the control character.
const FROM: &str = "\u{1}from";
const BETWEEN: &str = "\u{1}between";

/// An interval of system time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemTimeInterval {
    /// its start
    pub low: Expr,
    /// its end
    pub high: Expr,
    /// whether the end is included (BETWEEN) or not (FROM … TO)
    pub is_closed: bool,
}

impl SystemTimeInterval {
    /// The interval of `version`, if it is one.
    pub fn of(version: &TableVersion) -> Option<Self> {
        let TableVersion::ForSystemTimeAsOf(Expr::Between {
            expr,
            negated: false,
            low,
            high,
        }) = version
        else {
            return None;
        };
        let Expr::Identifier(Ident { value, .. }) = expr.as_ref() else {
            return None;
        };
        let is_closed = match value.as_str() {
            BETWEEN => true,
            FROM => false,
            _ => return None,
        };
        Some(Self {
            low: low.as_ref().clone(),
            high: high.as_ref().clone(),
            is_closed,
        })
    }

    fn written(&self) -> String {
        let (low, high) = (&self.low, &self.high);
        match self.is_closed {
            true => format!("FOR SYSTEM_TIME BETWEEN {low} AND {high}"),
            false => format!("FOR SYSTEM_TIME FROM {low} TO {high}"),
        }
    }
}

/// Changes `query` so that its text parses to the same query. The changed query cannot be planned.
pub fn as_written(query: &mut Query) {
    let _ = walk_mut(query, &mut AsWritten);
}

struct AsWritten;

impl VisitorMut for AsWritten {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, version, .. } = factor else {
            return ControlFlow::Continue(());
        };
        if let (Some(time), Some(ObjectNamePart::Identifier(last))) =
            (version.take(), name.0.last_mut())
        {
            let interval = SystemTimeInterval::of(&time);
            let time = interval.map_or_else(|| time.to_string(), |interval| interval.written());
            // A word without quotes is printed unchanged. The parser prints the alias before the
            // time, where it does not accept it.
            *last = Ident::new(format!("{last} {time}"));
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites the tokens of one or more statements.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let solid: Vec<usize> = (0..tokens.len())
        .filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_)))
        .collect();
    let mut marks: Vec<(usize, &str)> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    for (place, &i) in solid.iter().enumerate() {
        let before = |n: usize, word: &str| {
            let at = place.checked_sub(n).map(|p| &tokens[solid[p]]);
            at.is_some_and(|token| is(token, word))
        };
        if !before(1, "SYSTEM_TIME") || !before(2, "FOR") {
            continue;
        }
        if is(&tokens[i], "BETWEEN") {
            marks.push((i, BETWEEN));
        } else if is(&tokens[i], "FROM")
            && let Some(to) = end_of_beginning(tokens, &solid[place + 1..])
        {
            marks.push((i, FROM));
            ends.push(to);
        }
    }
    for to in ends {
        tokens[to].token = Token::make_keyword("AND");
    }
    for (at, mark) in marks.into_iter().rev() {
        let span = tokens[at].span;
        let made = [
            Token::make_keyword("AS"),
            Token::make_keyword("OF"),
            Token::make_word(mark, Some('"')),
            Token::make_keyword("BETWEEN"),
        ];
        let made = made.map(|token| TokenWithSpan { token, span });
        tokens.splice(at..=at, made);
    }
}

/// The TO after the expression at the start of `rest`.
fn end_of_beginning(tokens: &[TokenWithSpan], rest: &[usize]) -> Option<usize> {
    let mut depth = 0usize;
    for (place, &i) in rest.iter().enumerate() {
        match &tokens[i].token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            Token::SemiColon | Token::EOF => return None,
            _ if depth == 0 && is(&tokens[i], "TO") && !is_unit(tokens, rest.get(place + 1)) => {
                return Some(i);
            }
            _ => {}
        }
    }
    None
}

/// Whether the token is a unit after TO, as in the interval `'1-2' YEAR TO MONTH`.
fn is_unit(tokens: &[TokenWithSpan], at: Option<&usize>) -> bool {
    let units = ["MONTH", "DAY", "HOUR", "MINUTE", "SECOND"];
    at.is_some_and(|i| units.iter().any(|unit| is(&tokens[*i], unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(sql: &str) -> String {
        let mut query = crate::parse::query(sql).expect(sql);
        as_written(&mut query);
        query.to_string()
    }

    #[test]
    fn intervals_are_shown_as_they_were_written() {
        for sql in [
            "SELECT * FROM t FOR SYSTEM_TIME FROM 'a' TO 'b' AS x WHERE x.a BETWEEN 1 AND 2",
            "SELECT * FROM t FOR SYSTEM_TIME BETWEEN now() - INTERVAL '1' DAY AND now() JOIN u \
             ON true",
            "SELECT * FROM a FOR SYSTEM_TIME FROM CAST('x' AS TIMESTAMP) TO $1, b FOR SYSTEM_TIME \
             BETWEEN 'a' AND 'b'",
            "SELECT * FROM t FOR SYSTEM_TIME FROM now() - INTERVAL '1-2' YEAR TO MONTH TO now()",
            "SELECT * FROM s.\"T\" FOR SYSTEM_TIME AS OF now() AS x, t FOR SYSTEM_TIME AS OF now()",
        ] {
            assert_eq!(written(sql), sql);
        }
        for sql in [
            "SELECT * FROM t FOR SYSTEM_TIME FROM 'a'",
            "SELECT * FROM t FOR SYSTEM_TIME BETWEEN 'a'",
            "SELECT * FROM t FOR SYSTEM_TIME FROM (SELECT 1) x",
        ] {
            assert!(crate::parse::query(sql).is_err(), "{sql}");
        }
    }
}
