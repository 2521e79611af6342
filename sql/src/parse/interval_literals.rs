//! `INTERVAL(3) '1.5 seconds'`: the parser would leave the precision out. The literal becomes a
//! cast.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// An interval whose type has a precision; `None` for every other expression.
///
/// # Errors
/// 42601 for fields before the text, as in `INTERVAL DAY '1'`.
pub(super) fn parse(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    if !parser.peek_keyword(Keyword::INTERVAL) || is_string(&parser.peek_nth_token_ref(1).token) {
        return None;
    }
    let typed = parser.maybe_parse(|parser| {
        let data_type = parser.parse_data_type()?;
        match is_string(&parser.peek_token_ref().token) {
            true => Ok((data_type, parser.parse_value()?)),
            false => parser.expected_ref("a string", parser.peek_token_ref()),
        }
    });
    match typed {
        Err(error) => Some(Err(error)),
        Ok(None) => None,
        Ok(Some((data_type @ DataType::Interval { fields: None, .. }, text))) => {
            Some(Ok(Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(Expr::Value(text)),
                data_type,
                array: false,
                format: None,
            }))
        }
        Ok(Some((data_type, text))) => Some(Err(ParserError::ParserError(format!(
            "the fields of {data_type} stand behind the text {text}"
        )))),
    }
}

fn is_string(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::DollarQuotedString(_)
    )
}
