//! The statement for which a part of a plan reads or writes. A plan that is kept from one
//! execution to the next has none: it would keep the statement's snapshot.

use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::Statement;

/// See the module's header.
#[derive(Clone)]
pub(crate) struct Owner(Option<Arc<Statement>>);

impl Owner {
    /// No statement.
    pub const NONE: Self = Self(None);

    /// The statement, if there is one.
    pub fn known(&self) -> Option<&Arc<Statement>> {
        self.0.as_ref()
    }

    /// The statement; only a kept plan that nobody has bound has none.
    pub fn statement(&self) -> Result<&Arc<Statement>> {
        let none = || Error::internal("a plan of no statement was run");
        self.0.as_ref().ok_or_else(none)
    }
}

impl From<Arc<Statement>> for Owner {
    fn from(statement: Arc<Statement>) -> Self {
        Self(Some(statement))
    }
}
