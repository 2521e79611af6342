//! Statements that read or write data or definitions, classified by their effects.

use crate::execution::dml;
use crate::planning::query_facts::QueryFacts;
use crate::statements::data_statement::DataStatement;
use crate::statements::ddl;
use crate::statements::explain_options::analyzes;
use crate::statements::plan_cache;
use crate::statements::roles;
use datafusion::sql::sqlparser::ast::{CopySource, DescribeAlias, Query, Statement as Parsed};
use strandline_base::{Error, Result};

/// One statement as work to run in a transaction.
pub enum Work<'a> {
    /// SELECT, VALUES, TABLE, WITH
    Query(&'a Query),
    /// a prepared read-only query, or prepared DML
    Prepared(plan_cache::Execution<'a>),
    /// INSERT, UPDATE, DELETE, MERGE
    Dml(&'a Parsed),
    /// COPY
    Copy(&'a Parsed),
    /// CREATE, ALTER, DROP, COMMENT, TRUNCATE, GRANT, REVOKE
    Ddl(&'a Parsed),
    /// EXPLAIN of another statement
    Explain(&'a Parsed),
}

impl<'a> Work<'a> {
    /// The work of `statement`; 0A000 for unsupported statements.
    pub fn of(statement: &'a Parsed) -> Result<Self> {
        match DataStatement::of(statement) {
            Some(DataStatement::Query(query)) => return Ok(Self::Query(query)),
            Some(DataStatement::Dml(statement)) => return Ok(Self::Dml(statement)),
            None => {}
        }
        match statement {
            Parsed::Copy { .. } => Ok(Self::Copy(statement)),
            Parsed::Explain {
                describe_alias: DescribeAlias::Explain,
                ..
            } => Ok(Self::Explain(statement)),
            other if ddl::handles(other) || roles::handles(other) => Ok(Self::Ddl(other)),
            other => Err(unsupported(other)),
        }
    }

    /// The statement's name, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Query(query) => {
                let facts = QueryFacts::of(query);
                match (facts.locking_clause, facts.used.writer()) {
                    (Some(clause), _) => format!("SELECT {clause}"),
                    (None, Some(function)) => format!("{function}()"),
                    (None, None) => "SELECT".to_string(),
                }
            }
            Self::Prepared(execution) => match Self::of(execution.statement) {
                Ok(work) => work.name(),
                Err(_) => first_words(execution.statement),
            },
            Self::Dml(s) => first_words(dml::parts(s).map_or(s, |(change, _)| change)),
            Self::Copy(s) | Self::Ddl(s) | Self::Explain(s) => first_words(s),
        }
    }

    /// The query that an EXPLAIN ANALYZE runs.
    pub fn analyzed_query(&self) -> Result<Option<&'a Query>> {
        match self {
            Self::Explain(explain @ Parsed::Explain { statement, .. }) if analyzes(explain) => {
                match Self::of(statement)? {
                    Self::Query(query) => Ok(Some(query)),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// Whether it only reads.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Query(query) => QueryFacts::of(query).only_reads(),
            Self::Prepared(execution) => !execution.changes_rows(),
            Self::Copy(Parsed::Copy { to, source, .. }) => match source {
                CopySource::Query(query) => QueryFacts::of(query).only_reads(),
                CopySource::Table { .. } => *to,
            },
            Self::Explain(explain @ Parsed::Explain { statement, .. }) => {
                !analyzes(explain)
                    || match Self::of(statement) {
                        Ok(query @ Self::Query(_)) => query.is_read_only(),
                        _ => false,
                    }
            }
            _ => false,
        }
    }
}

/// The leading keywords of a statement: `CREATE TABLE`, `DELETE`, ….
pub fn first_words(statement: &Parsed) -> String {
    let text = statement.to_string();
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or("statement").to_ascii_uppercase();
    match (first.as_str(), words.next()) {
        ("OPTIMIZE", _) => "REINDEX".to_string(),
        ("CREATE" | "ALTER" | "DROP" | "COMMENT", Some(second)) => {
            format!("{first} {}", second.to_ascii_uppercase())
        }
        _ => first,
    }
}

fn unsupported(statement: &Parsed) -> Error {
    Error::unsupported(format!("{} is not supported", first_words(statement)))
}
