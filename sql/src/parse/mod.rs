//! SQL text → statements. The dialect is PostgreSQL's plus `FOR SYSTEM_TIME` and `CREATE TABLE …
//! USING`. Table versions are enabled only for a statement with the word SYSTEM_TIME. The parser
//! would otherwise also take `AT`, `BEFORE` and `CHANGES` after a table's name for a version.

mod chains;
pub mod column_names;
pub(crate) mod conflict_targets;
mod copy_words;
pub mod cte_scopes;
pub mod dml_spellings;
pub mod foreign_keys;
mod from_entries;
mod identity_options;
mod in_lists;
pub(crate) mod index_names;
pub(crate) mod index_statements;
mod interval_literals;
pub(crate) mod lifted_literals;
mod literals;
pub mod locking_clauses;
pub(crate) mod long_values;
pub mod maintenance;
pub mod names;
pub mod params;
pub mod place;
pub mod placeholders;
pub mod relations;
mod roles;
mod spellings;
pub mod system_time;
pub mod text_memory;
mod tokens;
mod unique_columns;

use crate::parse::dml_spellings::rewrite_tokens;
use datafusion::sql::sqlparser::ast::{ColumnOption, Expr, ObjectName, Query, Statement};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
pub use roles::redacted;
use std::any::TypeId;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::{from_parser, parser_s_place};

#[cfg(test)]
mod tests;

/// The most levels of nested expressions and queries.
const RECURSION_LIMIT: usize = 100;

/// PostgreSQL's dialect with our additions.
#[derive(Debug)]
struct OurDialect {
    postgres: PostgreSqlDialect,
    versions: bool,
}

macro_rules! delegate {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $( fn $name(&self, $($arg: $ty),*) -> $ret { self.postgres.$name($($arg),*) } )*
    };
}

impl Dialect for OurDialect {
    fn dialect(&self) -> TypeId {
        self.postgres.dialect()
    }
    fn supports_table_versioning(&self) -> bool {
        self.versions
    }
    fn supports_create_table_using(&self) -> bool {
        true
    }
    /// IS [NOT] DISTINCT FROM has the precedence of IS; the parser would read a whole expression
    /// after it. IN has a list that may begin with a subquery.
    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if !parser.peek_keyword(Keyword::IS) {
            return in_lists::parse(parser, left);
        }
        let is_not = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            false
        } else if parser.parse_keywords(&[
            Keyword::IS,
            Keyword::NOT,
            Keyword::DISTINCT,
            Keyword::FROM,
        ]) {
            true
        } else {
            return None;
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is));
        Some(right.map(|right| {
            let operands = (Box::new(left.clone()), Box::new(right));
            match is_not {
                true => Expr::IsNotDistinctFrom(operands.0, operands.1),
                false => Expr::IsDistinctFrom(operands.0, operands.1),
            }
        }))
    }
    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        interval_literals::parse(parser)
    }
    /// ON begins ON CONFLICT behind a query without FROM.
    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        *keyword != Keyword::ON && self.postgres.is_column_alias(keyword, parser)
    }
    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        index_statements::parse(parser)
    }
    fn parse_column_option(
        &self,
        parser: &mut Parser,
    ) -> Result<Option<Result<Option<ColumnOption>, ParserError>>, ParserError> {
        Ok(unique_columns::parse(parser)?.map(|option| Ok(Some(option))))
    }
    delegate! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(kw: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(prec: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_named_fn_args_with_expr_name() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

/// One statement of a script and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementText<'a> {
    /// the statement without its semicolon
    pub sql: &'a str,
    /// byte offset of `sql` in the script
    pub offset: usize,
    /// whether a semicolon ends it
    pub terminated: bool,
}

/// Splits a script at its semicolons, except those in quotes, comments and dollar quotes. Pieces
/// with only white space and comments are left out. An unclosed quote or comment is an error
/// (42601), which a shell takes as "more lines to come".
///
/// ```
/// let pieces = strandline::split_script("SELECT ';'; -- done;\n SELECT 2")?;
/// assert_eq!(pieces[0].sql, "SELECT ';'");
/// assert_eq!((pieces[1].sql, pieces[1].terminated), ("SELECT 2", false));
/// # Ok::<(), strandline::Error>(())
/// ```
pub fn split_script(sql: &str) -> Result<Vec<StatementText<'_>>> {
    if sql.len() >= long_values::LONG_BYTES
        && let Some((place, terminated)) = long_values::sole(sql)
    {
        return Ok(vec![StatementText {
            sql: &sql[place.clone()],
            offset: place.start,
            terminated,
        }]);
    }
    let tokens = tokenize(sql)?;
    let lines = line_starts(sql);
    let mut pieces = Vec::new();
    let mut start: Option<usize> = None;
    let mut end = 0;
    for token in &tokens {
        match token.token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => {
                if let Some(offset) = start.take() {
                    pieces.push(StatementText {
                        sql: &sql[offset..end],
                        offset,
                        terminated: true,
                    });
                }
            }
            _ => {
                start.get_or_insert_with(|| byte_offset(sql, &lines, token.span.start));
                end = byte_offset(sql, &lines, token.span.end);
            }
        }
    }
    if let Some(offset) = start {
        pieces.push(StatementText {
            sql: &sql[offset..end],
            offset,
            terminated: false,
        });
    }
    Ok(pieces)
}

/// Parses exactly one statement (a closing semicolon is allowed).
pub fn statement(sql: &str) -> Result<Statement> {
    let mut statements = statements(sql)?;
    match (statements.pop(), statements.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "the statement is empty",
        )),
        (Some(_), false) => Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            "cannot put several statements into one call",
        )
        .with_hint("Use execute_script for a script.")),
    }
}

/// Parses all statements of `sql`.
pub fn statements(sql: &str) -> Result<Vec<Statement>> {
    let statements = statements_with_places(sql)?.into_iter();
    Ok(statements.map(|(statement, _)| statement).collect())
}

/// Parses all statements of `sql`; each comes with its start position.
pub fn statements_with_places(sql: &str) -> Result<Vec<(Statement, Location)>> {
    if sql.len() >= long_values::LONG_BYTES
        && let Some(statement) = long_values::statement(sql)
    {
        return Ok(vec![(statement, Location { line: 1, column: 1 })]);
    }
    statements_of(sql)
}

fn statements_of(sql: &str) -> Result<Vec<(Statement, Location)>> {
    with_parser(sql, |parser| {
        let mut statements = Vec::new();
        loop {
            while parser.consume_token(&Token::SemiColon) {}
            if parser.peek_token_ref().token == Token::EOF {
                return Ok(statements);
            }
            let begins = parser.peek_token_ref().span.start;
            statements.push((parser.parse_statement()?, begins));
            let next = parser.peek_token_ref();
            if next.token != Token::EOF && next.token != Token::SemiColon {
                return parser.expected_ref("end of statement", next);
            }
        }
    })
}

/// Parses one expression, such as a stored DEFAULT or CHECK.
pub fn expression(sql: &str) -> Result<Expr> {
    with_parser(sql, |parser| {
        let expression = parser.parse_expr()?;
        parser.expect_token(&Token::EOF)?;
        Ok(expression)
    })
    .map_err(Error::without_position)
}

/// Parses one query, such as a view's.
pub fn query(sql: &str) -> Result<Query> {
    with_parser(sql, |parser| {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::EOF)?;
        Ok(*query)
    })
    .map_err(Error::without_position)
}

/// Parses a name, such as `sales."Order"`.
pub fn object_name(text: &str) -> Result<ObjectName> {
    with_parser(text, |parser| {
        let name = parser.parse_object_name(false)?;
        parser.expect_token(&Token::EOF)?;
        Ok(name)
    })
    .map_err(Error::without_position)
}

fn with_parser<T>(
    sql: &str,
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T> {
    let mut tokens = tokenize(sql)?;
    chains::check(&tokens)?;
    literals::check(&tokens, sql)?;
    literals::join_lines(&mut tokens)?;
    spellings::rewrite(&mut tokens);
    roles::rewrite(&mut tokens);
    locking_clauses::rewrite(&mut tokens);
    identity_options::put_in_order(&mut tokens);
    column_names::add_types(&mut tokens);
    copy_words::check_file(&tokens)?;
    copy_words::spell_booleans(&mut tokens);
    maintenance::leave_out_options(&mut tokens);
    foreign_keys::rewrite(&mut tokens);
    conflict_targets::rewrite(&mut tokens, sql);
    let versions = mentions_system_time(&tokens);
    if versions {
        system_time::rewrite(&mut tokens);
    }
    let dialect = OurDialect {
        postgres: PostgreSqlDialect {},
        versions,
    };
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .with_tokens_with_locations(rewrite_tokens(tokens));
    parse(&mut parser).map_err(|error| {
        located(
            &roles::without_secrets(with_place_of_end(error, sql), sql),
            sql,
        )
    })
}

fn located(error: &ParserError, sql: &str) -> Error {
    match parser_s_place(error) {
        Some((line, column)) => {
            let position = position_of(sql, Location { line, column });
            from_parser(error).with_position(position)
        }
        None => from_parser(error),
    }
}

/// A location as a number of characters, from 1.
pub fn position_of(sql: &str, place: Location) -> usize {
    let above = sql
        .split_inclusive('\n')
        .take(place.line.saturating_sub(1) as usize);
    let above: usize = above.map(|line| line.chars().count()).sum();
    above + place.column as usize
}

/// The tokens of a text; None if it cannot be tokenized.
pub fn tokens_of(sql: &str) -> Option<Vec<TokenWithSpan>> {
    tokenize(sql).ok()
}

/// Adds the position to an error at the end of the text, where the parser gives none.
fn with_place_of_end(error: ParserError, sql: &str) -> ParserError {
    match error {
        ParserError::ParserError(text) if text.ends_with("found: EOF") => {
            let line = sql.lines().count().max(1);
            let column = sql.lines().last().map_or(0, |last| last.chars().count()) + 1;
            ParserError::ParserError(format!("{text} at Line: {line}, Column: {column}"))
        }
        other => other,
    }
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    Tokenizer::new(&PostgreSqlDialect {}, sql)
        .tokenize_with_location()
        .map_err(|error| located(&error.into(), sql))
}

fn mentions_system_time(tokens: &[TokenWithSpan]) -> bool {
    tokens
        .iter()
        .any(|t| matches!(&t.token, Token::Word(w) if w.keyword == Keyword::SYSTEM_TIME))
}

fn line_starts(sql: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(sql.match_indices('\n').map(|(at, _)| at + 1))
        .collect()
}

/// The byte offset of a location. Lines and columns count from 1, columns in characters.
fn byte_offset(sql: &str, lines: &[usize], location: Location) -> usize {
    let Some(&line) = lines.get(location.line.saturating_sub(1) as usize) else {
        return sql.len();
    };
    let column = location.column.saturating_sub(1) as usize;
    sql[line..]
        .char_indices()
        .nth(column)
        .map_or(sql.len(), |(at, _)| line + at)
}
