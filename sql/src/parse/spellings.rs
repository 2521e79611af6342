//! Spellings of PostgreSQL that the parser does not accept, as tokens of spellings that it does:
//!
//! | written | parsed as |
//! |---|---|
//! | `ABORT` | `ROLLBACK` |
//! | `TABLE t` as a query | `SELECT * FROM t` |
//! | `CREATE TABLE t AS query WITH DATA` | without the last two words |
//! | `CREATE TABLE t AS query WITH NO DATA` | `CREATE TABLE t AS (query) LIMIT 0` |
//! | `x ISNULL`, `x NOTNULL` | `x IS NULL`, `x IS NOT NULL` |
//! | `MERGE … THEN INSERT DEFAULT VALUES` | `THEN INSERT VALUES (DEFAULT)` |

use super::tokens::is;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Rewrites the tokens of one or more statements.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let known = |t: &TokenWithSpan| {
        ["ABORT", "TABLE", "DATA", "DEFAULT", "ISNULL", "NOTNULL"]
            .iter()
            .any(|w| is(t, w))
    };
    if !tokens.iter().any(known) {
        return;
    }
    let mut out = Vec::with_capacity(tokens.len());
    let statements = tokens.split_inclusive(|t| t.token == Token::SemiColon);
    for statement in statements {
        one(statement, &mut out);
    }
    *tokens = out;
}

fn one(statement: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let is_solid = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let first = statement.iter().find(is_solid);
    if first.is_some_and(|t| is(t, "REINDEX")) {
        // `REINDEX (VERBOSE) TABLE t` has no query after the parenthesis.
        return out.extend_from_slice(statement);
    }
    let statement = without_with_data(statement);
    let solid: Vec<usize> = (0..statement.len())
        .filter(|i| !matches!(statement[*i].token, Token::Whitespace(_)))
        .collect();
    // Whether the solid token at `place` is `word`.
    let is_at = |place: Option<usize>, word: &str| {
        place
            .and_then(|p| solid.get(p))
            .is_some_and(|i| is(&statement[*i], word))
    };
    let mut place = 0;
    for (i, token) in statement.iter().enumerate() {
        if solid.get(place) != Some(&i) {
            out.push(token.clone());
            continue;
        }
        let before = place.checked_sub(1);
        let replaced: &[&str] = if is(token, "ABORT") && before.is_none() {
            &["ROLLBACK"]
        } else if is(token, "TABLE")
            && begins_query(before.map(|p| &statement[solid[p]]))
            && names_table(solid.get(place + 1).map(|i| &statement[*i]))
        {
            &["SELECT", "*", "FROM"]
        } else if is(token, "DEFAULT")
            && is_at(before, "INSERT")
            && is_at(place.checked_sub(2), "THEN")
            && is_at(Some(place + 1), "VALUES")
        {
            &["VALUES"]
        } else if is(token, "ISNULL") && ends_operand(before.map(|p| &statement[solid[p]])) {
            &["IS", "NULL"]
        } else if is(token, "NOTNULL") && ends_operand(before.map(|p| &statement[solid[p]])) {
            &["IS", "NOT", "NULL"]
        } else if is(token, "VALUES")
            && is_at(before, "DEFAULT")
            && is_at(place.checked_sub(3), "THEN")
        {
            &["(", "DEFAULT", ")"]
        } else {
            &[]
        };
        if replaced.is_empty() {
            out.push(token.clone());
        }
        out.extend(replaced.iter().map(|word| made(word, token)));
        place += 1;
    }
}

/// Whether a token may end the operand of `ISNULL`.
fn ends_operand(before: Option<&TokenWithSpan>) -> bool {
    match before.map(|t| &t.token) {
        Some(Token::Word(word)) => {
            let no_operand = [
                "AS", "SELECT", "BY", "ON", "TABLE", "COLUMN", "FROM", "INTO", "UPDATE",
            ];
            word.quote_style.is_some()
                || !no_operand
                    .iter()
                    .any(|w| word.value.eq_ignore_ascii_case(w))
        }
        Some(Token::Number(..) | Token::SingleQuotedString(_) | Token::Placeholder(_)) => true,
        Some(Token::RParen | Token::RBracket) => true,
        _ => false,
    }
}

/// Whether TABLE after the token `before` is a query and not the kind of an object.
fn begins_query(before: Option<&TokenWithSpan>) -> bool {
    match before {
        None => true,
        Some(t) if matches!(t.token, Token::LParen | Token::RParen) => true,
        Some(t) => [
            "AS",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "ALL",
            "DISTINCT",
            "EXPLAIN",
            "ANALYZE",
        ]
        .iter()
        .any(|word| is(t, word)),
    }
}

/// Whether the token `after` TABLE is a table's name; `SELECT a AS table FROM …` is not such a
/// query.
fn names_table(after: Option<&TokenWithSpan>) -> bool {
    after.is_some_and(|t| matches!(t.token, Token::Word(_)) && !is(t, "FROM"))
}

/// CREATE TABLE … AS … without its final WITH [NO] DATA.
fn without_with_data(statement: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut solid = (0..statement.len())
        .rev()
        .filter(|i| !matches!(statement[*i].token, Token::Whitespace(_)))
        .skip_while(|i| matches!(statement[*i].token, Token::SemiColon | Token::EOF));
    let unchanged = || statement.to_vec();
    let Some(data) = solid.next().filter(|i| is(&statement[*i], "DATA")) else {
        return unchanged();
    };
    let Some(mut with) = solid.next() else {
        return unchanged();
    };
    let empty = is(&statement[with], "NO");
    if empty {
        with = solid.next().unwrap_or(with);
    }
    let query = query_of_create(statement);
    let (true, Some(query)) = (is(&statement[with], "WITH"), query.filter(|q| *q < with)) else {
        return unchanged();
    };
    let mut out = statement[..query].to_vec();
    let made_all = |words: &[&str]| words.iter().map(|w| made(w, &statement[with])).collect();
    let (open, close): (Vec<_>, Vec<_>) = match empty {
        true => (made_all(&["("]), made_all(&[")", "LIMIT", "0"])),
        false => (Vec::new(), Vec::new()),
    };
    out.extend(open);
    out.extend_from_slice(&statement[query..with]);
    out.extend(close);
    out.extend_from_slice(&statement[data + 1..]);
    out
}

/// The start of the query of CREATE TABLE … AS: after the first AS outside parentheses.
fn query_of_create(statement: &[TokenWithSpan]) -> Option<usize> {
    let first = statement
        .iter()
        .find(|t| !matches!(t.token, Token::Whitespace(_)))?;
    if !is(first, "CREATE") {
        return None;
    }
    let mut depth = 0usize;
    for (i, token) in statement.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && is(token, "AS") => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// A token of the text `word` at the position of `like`.
fn made(word: &str, like: &TokenWithSpan) -> TokenWithSpan {
    let token = match word {
        "*" => Token::Mul,
        "(" => Token::LParen,
        ")" => Token::RParen,
        "0" => Token::Number("0".to_string(), false),
        keyword => Token::make_keyword(keyword),
    };
    TokenWithSpan {
        token,
        span: like.span,
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::statement;

    #[test]
    fn become_what_the_parser_knows() {
        let cases = [
            ("abort", "ROLLBACK"),
            ("ABORT WORK", "ROLLBACK"),
            ("TABLE s.t", "SELECT * FROM s.t"),
            ("TABLE t ORDER BY a", "SELECT * FROM t ORDER BY a"),
            (
                "TABLE t UNION ALL TABLE u",
                "SELECT * FROM t UNION ALL SELECT * FROM u",
            ),
            (
                "CREATE TABLE a AS SELECT 1 WITH DATA",
                "CREATE TABLE a AS SELECT 1",
            ),
            (
                "create table a as with x as (select 1) table x with no data;",
                "CREATE TABLE a AS (WITH x AS (SELECT 1) SELECT * FROM x) LIMIT 0",
            ),
            (
                "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
                "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (DEFAULT)",
            ),
            ("SELECT 1 AS abort", "SELECT 1 AS abort"),
            ("SELECT data FROM t", "SELECT data FROM t"),
            ("TRUNCATE TABLE t", "TRUNCATE TABLE t"),
            (
                "INSERT INTO t DEFAULT VALUES",
                "INSERT INTO t DEFAULT VALUES",
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(statement(sql).expect(sql).to_string(), expected, "{sql}");
        }
    }
}
