//! Distinguishes queries and DML by their syntax trees.

use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement as Parsed};

/// A statement that reads or changes rows and has a plan.
pub enum DataStatement<'a> {
    /// SELECT, VALUES, TABLE, WITH
    Query(&'a Query),
    /// INSERT, UPDATE, DELETE, MERGE, also below WITH
    Dml(&'a Parsed),
}

impl<'a> DataStatement<'a> {
    /// `statement` as a query or DML; None: another kind.
    pub fn of(statement: &'a Parsed) -> Option<Self> {
        match statement {
            Parsed::Query(query) => match query.body.as_ref() {
                SetExpr::Insert(_)
                | SetExpr::Update(_)
                | SetExpr::Delete(_)
                | SetExpr::Merge(_) => Some(Self::Dml(statement)),
                _ => Some(Self::Query(query)),
            },
            Parsed::Insert(_) | Parsed::Update(_) | Parsed::Delete(_) | Parsed::Merge(_) => {
                Some(Self::Dml(statement))
            }
            _ => None,
        }
    }
}
