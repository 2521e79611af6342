//! The hidden column `_rowid`: marks the tables whose `_rowid` a query names.
//!
//! The mark is in the factor's list of partitions, which PostgreSQL's grammar does not have. It is
//! removed when the reference is replaced.

use super::hidden;
use crate::parse::names::ROW_ID;
use datafusion::sql::sqlparser::ast::{Ident, Query, TableFactor};
use strandline_base::Result;

/// The mark of a table whose `_rowid` is named.
pub const MARK: &str = "\u{1}rowid";

/// Marks the tables of `query` whose `_rowid` is named.
pub fn mark(query: &mut Query) -> Result<()> {
    hidden::show(query, ROW_ID, |factor| {
        if let TableFactor::Table { partitions, .. } = factor {
            partitions.push(Ident::new(MARK));
        }
        Ok(&[ROW_ID])
    })
}
