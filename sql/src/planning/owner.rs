//! The statement for which a part of a plan reads or writes. A plan that is kept between executions
//! has none, because it would hold the statement's snapshot.

use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::Statement;

/// The statement of a plan's part; see the module's header.
#[derive(Clone)]
pub(crate) struct Owner(Option<Arc<Statement>>);

impl Owner {
    /// No statement.
    pub const NONE: Self = Self(None);

    /// The statement, if there is one.
    pub fn known(&self) -> Option<&Arc<Statement>> {
        self.0.as_ref()
    }

    /// The statement; an error for a kept plan that is not bound to a statement.
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
