//! `UNIQUE NULLS [NOT] DISTINCT` of a column, which the parser accepts only in table constraints.

use datafusion::sql::sqlparser::ast::{
    ColumnOption, KeyOrIndexDisplay, NullsDistinctOption, UniqueConstraint,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// The column option at the parser's position; None: another option.
pub(super) fn parse(parser: &mut Parser) -> Result<Option<ColumnOption>, ParserError> {
    let (unique, nulls, distinct) = (Keyword::UNIQUE, Keyword::NULLS, Keyword::DISTINCT);
    let nulls_distinct = if parser.parse_keywords(&[unique, nulls, Keyword::NOT, distinct]) {
        NullsDistinctOption::NotDistinct
    } else if parser.parse_keywords(&[unique, nulls, distinct]) {
        NullsDistinctOption::Distinct
    } else {
        return Ok(None);
    };
    let constraint = UniqueConstraint {
        name: None,
        index_name: None,
        index_type_display: KeyOrIndexDisplay::None,
        index_type: None,
        columns: Vec::new(),
        index_options: Vec::new(),
        characteristics: parser.parse_constraint_characteristics()?,
        nulls_distinct,
    };
    Ok(Some(constraint.into()))
}
