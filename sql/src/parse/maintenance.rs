//! `VACUUM (VERBOSE, ANALYZE) t (a)`, `ANALYZE VERBOSE t`: PostgreSQL's options only affect how the
//! work is done. They are removed before the parser, which has other options. The parser does not
//! know CHECKPOINT either.

use super::tokens::is;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The procedure whose call CHECKPOINT becomes.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Writes the tokens of `CALL checkpoint()`.
fn checkpoint(statement: &[TokenWithSpan], word: &TokenWithSpan, out: &mut Vec<TokenWithSpan>) {
    let at = |token| TokenWithSpan {
        token,
        span: word.span,
    };
    out.push(at(Token::make_keyword("CALL")));
    for token in statement {
        out.push(token.clone());
        if std::ptr::eq(token, word) {
            out.extend([at(Token::LParen), at(Token::RParen)]);
        }
    }
}

/// Removes the options of VACUUM (except FULL) and ANALYZE, and makes CHECKPOINT a call.
pub(super) fn leave_out_options(tokens: &mut Vec<TokenWithSpan>) {
    let starts = |t: &TokenWithSpan| {
        is(t, "vacuum") || is(t, "analyze") || is(t, "analyse") || is(t, CHECKPOINT)
    };
    if !tokens.iter().any(starts) {
        return;
    }
    let mut out = Vec::with_capacity(tokens.len());
    for statement in tokens.split_inclusive(|t| t.token == Token::SemiColon) {
        one(statement, &mut out);
    }
    *tokens = out;
}

fn one(statement: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) {
    let is_solid = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
    let solid: Vec<&TokenWithSpan> = statement.iter().filter(is_solid).collect();
    let command = match solid.first() {
        Some(t) if is(t, "vacuum") => "VACUUM",
        Some(t) if is(t, "analyze") || is(t, "analyse") => "ANALYZE",
        Some(t) if is(t, CHECKPOINT) => return checkpoint(statement, t, out),
        _ => return out.extend_from_slice(statement),
    };
    let mut rest = &solid[1..];
    let mut is_full = false;
    if rest.first().is_some_and(|t| t.token == Token::LParen) {
        let end = rest.iter().position(|t| t.token == Token::RParen);
        let (options, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        is_full = options.iter().any(|t| is(t, "full"));
        rest = after;
    }
    while let Some((first, after)) = rest.split_first()
        && [
            "full",
            "freeze",
            "verbose",
            "analyze",
            "analyse",
            "skip_locked",
        ]
        .iter()
        .any(|w| is(first, w))
    {
        is_full |= is(first, "full");
        rest = after;
    }
    let keyword = |word: &str| TokenWithSpan {
        token: Token::make_keyword(word),
        span: solid[0].span,
    };
    out.push(keyword(command));
    if is_full && command == "VACUUM" {
        out.push(keyword("FULL"));
    }
    let columns = rest.iter().position(|t| t.token == Token::LParen);
    let (table, columns) = rest.split_at(columns.unwrap_or(rest.len()));
    out.extend(table.iter().map(|t| (*t).clone()));
    let after = columns.iter().position(|t| t.token == Token::RParen);
    let after = after.map_or(&columns[columns.len()..], |end| &columns[end + 1..]);
    out.extend(after.iter().map(|t| (*t).clone()));
}
