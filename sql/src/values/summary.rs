//! The summary of a finished statement: command tag, affected rows, result rows.

use super::result::QueryResult;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use std::borrow::Cow;
use std::sync::Arc;
use strandline_base::Error;

/// The result of a finished statement.
#[derive(Clone, Debug)]
pub struct Summary {
    tag: Cow<'static, str>,
    rows_affected: u64,
    result: Option<QueryResult>,
    notices: Vec<Error>,
}

impl Summary {
    /// The summary of a command that a server has run itself.
    pub fn of_command(tag: &'static str) -> Self {
        Self::tag(tag)
    }
    pub(crate) fn tag(tag: impl Into<Cow<'static, str>>) -> Self {
        Self {
            tag: tag.into(),
            rows_affected: 0,
            result: None,
            notices: Vec::new(),
        }
    }
    pub(crate) fn rows(tag: impl Into<Cow<'static, str>>, rows_affected: u64) -> Self {
        Self {
            tag: tag.into(),
            rows_affected,
            result: None,
            notices: Vec::new(),
        }
    }
    pub(crate) fn with_result(mut self, result: Option<QueryResult>) -> Self {
        self.result = result;
        self
    }
    /// Adds messages for the client: state 01… is a warning, every other a notice.
    pub(crate) fn with_notices(mut self, notices: Vec<Error>) -> Self {
        self.notices.extend(notices);
        self
    }
    /// Takes the messages for the client.
    pub(crate) fn take_notices(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.notices)
    }
    /// PostgreSQL's command tag, such as `INSERT 0 3`, `SELECT 5` or `CREATE TABLE`.
    pub fn command_tag(&self) -> &str {
        &self.tag
    }
    /// Rows inserted, updated, deleted, copied or selected.
    pub fn rows_affected(&self) -> u64 {
        self.rows_affected
    }
    /// The rows of a query, of RETURNING, SHOW or EXPLAIN.
    pub fn result(&self) -> Option<&QueryResult> {
        self.result.as_ref()
    }
    /// Takes the rows.
    pub fn into_result(self) -> Option<QueryResult> {
        self.result
    }
}

/// A result of text columns.
pub(crate) fn text_result(tag: &'static str, columns: &[&str], rows: Vec<Vec<String>>) -> Summary {
    let fields: Vec<Field> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, false))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays: Vec<ArrayRef> = (0..columns.len())
        .map(|i| Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r[i]))) as ArrayRef)
        .collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).expect("columns of equal length");
    Summary::rows(tag, rows.len() as u64).with_result(Some(QueryResult::new(schema, vec![batch])))
}
