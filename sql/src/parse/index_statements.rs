//! Statements about indexes that the parser does not accept, at least in part:
//!
//! | written | parsed as |
//! |---|---|
//! | `CREATE INDEX ON ONLY t (a)` | without ONLY |
//! | `CREATE INDEX … TABLESPACE s` | a parameter `tablespace` of WITH |
//! | `ALTER INDEX …` | `ALTER TABLE …`, which takes an index's name as PostgreSQL's does |
//! | `ALTER INDEX i RESET (a)` | `ALTER TABLE i SET (a)` |
//! | `DROP INDEX CONCURRENTLY i` | `DROP INDEX i PURGE` |
//! | `VACUUM INDEX i` | `VACUUM REINDEX i` |
//! | `REINDEX kind CONCURRENTLY n` | `OPTIMIZE TABLE n ON CLUSTER kind FINAL` |

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, BinaryOperator, CreateIndex, Expr, Ident, ObjectType,
    RenameTableNameKind, SqlOption, Statement, VacuumStatement,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// The parameter that stands for TABLESPACE.
pub(crate) const TABLESPACE: &str = "tablespace";

/// Parses the statement if it is about indexes.
pub(super) fn parse(parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
    let word = |parser: &Parser<'_>, n: usize| match &parser.peek_nth_token_ref(n).token {
        Token::Word(word) => Some(word.keyword),
        _ => None,
    };
    let first = word(parser, 0)?;
    match (first, word(parser, 1)) {
        (Keyword::CREATE, Some(Keyword::INDEX)) => Some(create(parser, false)),
        (Keyword::CREATE, Some(Keyword::UNIQUE)) if word(parser, 2) == Some(Keyword::INDEX) => {
            Some(create(parser, true))
        }
        (Keyword::ALTER, Some(Keyword::INDEX)) => Some(alter(parser)),
        (Keyword::DROP, Some(Keyword::INDEX)) => Some(drop(parser)),
        (Keyword::REINDEX, _) => Some(reindex(parser)),
        // VACUUM of a table called "index" ends with its name.
        (Keyword::VACUUM, Some(Keyword::INDEX)) => word(parser, 2).map(|_| vacuum(parser)),
        _ => None,
    }
}

fn vacuum(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keywords(&[Keyword::VACUUM, Keyword::INDEX])?;
    Ok(Statement::Vacuum(VacuumStatement {
        full: false,
        sort_only: false,
        delete_only: false,
        reindex: true,
        recluster: false,
        table_name: Some(parser.parse_object_name(false)?),
        threshold: None,
        boost: false,
    }))
}

fn create(parser: &mut Parser<'_>, unique: bool) -> Result<Statement, ParserError> {
    parser.expect_keyword(Keyword::CREATE)?;
    let _ = unique && parser.parse_keyword(Keyword::UNIQUE);
    parser.expect_keyword(Keyword::INDEX)?;
    let concurrently = parser.parse_keyword(Keyword::CONCURRENTLY);
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = match !if_not_exists && parser.peek_keyword(Keyword::ON) {
        true => None,
        false => Some(parser.parse_object_name(false)?),
    };
    parser.expect_keyword(Keyword::ON)?;
    let _ = parser.parse_keyword(Keyword::ONLY);
    let table_name = parser.parse_object_name(false)?;
    let using = parser.parse_optional_using_then_index_type()?;
    parser.expect_token(&Token::LParen)?;
    let columns = parser.parse_comma_separated(Parser::parse_create_index_expr)?;
    parser.expect_token(&Token::RParen)?;
    let include = match parser.parse_keyword(Keyword::INCLUDE) {
        true => identifiers(parser)?,
        false => Vec::new(),
    };
    let nulls_distinct = match parser.parse_keyword(Keyword::NULLS) {
        true => {
            let not = parser.parse_keyword(Keyword::NOT);
            parser.expect_keyword(Keyword::DISTINCT)?;
            Some(!not)
        }
        false => None,
    };
    let with = parameters(parser)?;
    let predicate = match parser.parse_keyword(Keyword::WHERE) {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    Ok(Statement::CreateIndex(CreateIndex {
        name,
        table_name,
        using,
        columns,
        unique,
        concurrently,
        if_not_exists,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options: Vec::new(),
        alter_options: Vec::new(),
    }))
}

/// WITH (…) and TABLESPACE.
fn parameters(parser: &mut Parser<'_>) -> Result<Vec<Expr>, ParserError> {
    let mut with = Vec::new();
    if parser.parse_keyword(Keyword::WITH) {
        parser.expect_token(&Token::LParen)?;
        with = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
    }
    if parser.parse_keyword(Keyword::TABLESPACE) {
        let space = Expr::Identifier(parser.parse_identifier()?);
        with.push(Expr::BinaryOp {
            left: Box::new(Expr::Identifier(Ident::new(TABLESPACE))),
            op: BinaryOperator::Eq,
            right: Box::new(space),
        });
    }
    Ok(with)
}

fn identifiers(parser: &mut Parser<'_>) -> Result<Vec<Ident>, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let names = parser.parse_comma_separated(Parser::parse_identifier)?;
    parser.expect_token(&Token::RParen)?;
    Ok(names)
}

fn alter(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keywords(&[Keyword::ALTER, Keyword::INDEX])?;
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let operation = if parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        let new = parser.parse_object_name(false)?;
        AlterTableOperation::RenameTable {
            table_name: RenameTableNameKind::To(new),
        }
    } else if parser.parse_keyword(Keyword::SET) {
        parser.expect_token(&Token::LParen)?;
        let options = parser.parse_comma_separated(Parser::parse_sql_option)?;
        parser.expect_token(&Token::RParen)?;
        AlterTableOperation::SetOptionsParens { options }
    } else if parser.parse_keyword(Keyword::RESET) {
        let options = identifiers(parser)?.into_iter().map(SqlOption::Ident);
        AlterTableOperation::SetOptionsParens {
            options: options.collect(),
        }
    } else {
        return parser.expected_ref("RENAME TO, SET or RESET", parser.peek_token_ref());
    };
    Ok(Statement::AlterTable(AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![operation],
        location: None,
        on_cluster: None,
        table_type: None,
        end_token: AttachedToken::empty(),
    }))
}

fn drop(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keywords(&[Keyword::DROP, Keyword::INDEX])?;
    let concurrently = parser.parse_keyword(Keyword::CONCURRENTLY);
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let names = parser.parse_comma_separated(|p| p.parse_object_name(false))?;
    let behaviour = parser.parse_one_of_keywords(&[Keyword::CASCADE, Keyword::RESTRICT]);
    Ok(Statement::Drop {
        object_type: ObjectType::Index,
        if_exists,
        names,
        cascade: behaviour == Some(Keyword::CASCADE),
        restrict: behaviour == Some(Keyword::RESTRICT),
        purge: concurrently,
        temporary: false,
        table: None,
    })
}

fn reindex(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    parser.expect_keyword(Keyword::REINDEX)?;
    if parser.consume_token(&Token::LParen) {
        // Options of the work: VERBOSE, CONCURRENTLY.
        parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
    }
    let kinds = [
        Keyword::INDEX,
        Keyword::TABLE,
        Keyword::SCHEMA,
        Keyword::DATABASE,
        Keyword::SYSTEM,
    ];
    let kind = match parser.parse_one_of_keywords(&kinds) {
        Some(Keyword::INDEX) => "index",
        Some(Keyword::TABLE) => "table",
        Some(Keyword::SCHEMA) => "schema",
        Some(_) => "database",
        None => {
            return parser
                .expected_ref("INDEX, TABLE, SCHEMA or DATABASE", parser.peek_token_ref());
        }
    };
    let concurrently = parser.parse_keyword(Keyword::CONCURRENTLY);
    let name = parser.parse_object_name(false)?;
    Ok(Statement::OptimizeTable {
        name,
        has_table_keyword: true,
        on_cluster: Some(Ident::new(kind)),
        partition: None,
        include_final: concurrently,
        deduplicate: None,
        predicate: None,
        zorder: None,
    })
}

#[cfg(test)]
mod tests {
    use crate::parse::statement;

    #[test]
    fn statements_about_indexes() {
        let cases = [
            (
                "create unique index concurrently i on only s.t using btree (a desc nulls last, \
                 lower(b) text_ops) include (c) nulls not distinct with (fillfactor = 70) \
                 where a > 0",
                "CREATE UNIQUE INDEX CONCURRENTLY i ON s.t USING BTREE (a DESC NULLS LAST, \
                 lower(b) text_ops) INCLUDE (c) NULLS NOT DISTINCT WITH (fillfactor = 70) \
                 WHERE a > 0",
            ),
            (
                "CREATE INDEX ON t ((a + b)) TABLESPACE x",
                "CREATE INDEX ON t((a + b)) WITH (tablespace = x)",
            ),
            (
                "ALTER INDEX IF EXISTS s.i RENAME TO j",
                "ALTER TABLE IF EXISTS s.i RENAME TO j",
            ),
            (
                "ALTER INDEX i RESET (fillfactor)",
                "ALTER TABLE i SET (fillfactor)",
            ),
            (
                "DROP INDEX CONCURRENTLY IF EXISTS i RESTRICT",
                "DROP INDEX IF EXISTS i RESTRICT PURGE",
            ),
            (
                "REINDEX (VERBOSE) TABLE CONCURRENTLY t",
                "OPTIMIZE TABLE t ON CLUSTER table FINAL",
            ),
        ];
        for (sql, expected) in cases {
            let parsed = statement(sql).expect(sql).to_string();
            assert_eq!(
                parsed.replace("t (", "t("),
                expected.replace("t (", "t("),
                "{sql}"
            );
        }
        for sql in [
            "ALTER INDEX i ADD COLUMN a int",
            "REINDEX i",
            "CREATE INDEX i t (a)",
        ] {
            assert!(statement(sql).is_err(), "{sql}");
        }
    }
}
