//! `x IN ((SELECT …), 5)`: the parser would read a query behind `IN (`, and then refuse the comma.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// `[NOT] IN (…)` whose list begins with a parenthesis, behind its operand `left`. None: the parser
/// reads what follows.
///
/// # Errors
/// 42601 for a list that cannot be parsed.
pub(super) fn parse(parser: &mut Parser, left: &Expr) -> Option<Result<Expr, ParserError>> {
    let negated = parser.peek_keyword(Keyword::NOT);
    let list = usize::from(negated) + 1;
    let keyword = &parser.peek_nth_token_ref(list - 1).token;
    let is_in = matches!(keyword, Token::Word(word) if word.keyword == Keyword::IN);
    let opens = |at| parser.peek_nth_token_ref(at).token == Token::LParen;
    if !is_in || !opens(list) || !opens(list + 1) || is_query(parser, list + 1) {
        return None;
    }
    (0..=list).for_each(|_| parser.advance_token());
    let list = parser.parse_comma_separated(Parser::parse_expr);
    let list = list.and_then(|list| parser.expect_token(&Token::RParen).map(|_| list));
    Some(list.map(|list| Expr::InList {
        expr: Box::new(left.clone()),
        list,
        negated,
    }))
}

/// Whether the parenthesis `ahead` tokens from here, and what follows it, can be a query: nothing
/// follows it, or a clause of a query. It looks at each token once.
fn is_query(parser: &mut Parser, ahead: usize) -> bool {
    let mut is_query = false;
    // The attempt fails, which takes the parser back to where it was.
    let _ = parser.maybe_parse(|parser| -> Result<(), ParserError> {
        (0..ahead).for_each(|_| parser.advance_token());
        let mut depth = 0usize;
        loop {
            parser.advance_token();
            match parser.get_current_token().token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::EOF => break,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        is_query = match &parser.peek_token_ref().token {
            Token::RParen => true,
            Token::Word(word) => continues_query(word.keyword),
            _ => false,
        };
        Err(ParserError::ParserError(String::new()))
    });
    is_query
}

fn continues_query(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
            | Keyword::FOR
    )
}
