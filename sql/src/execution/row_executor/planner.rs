//! The context that a statement's expressions are planned in.

use crate::planning::context::StatementContext;
use std::cell::OnceCell;
use std::sync::Arc;
use strandline_engine::catalog::Catalog;

/// Begins the context with the first expression; most statements have none to plan.
pub(crate) struct Planner<'a> {
    begin: &'a dyn Fn() -> Option<StatementContext>,
    begun: OnceCell<Option<StatementContext>>,
}

impl<'a> Planner<'a> {
    /// `begin`: a context whose parameters stay open, if there can be one.
    pub fn new(begin: &'a dyn Fn() -> Option<StatementContext>) -> Self {
        Self {
            begin,
            begun: OnceCell::new(),
        }
    }

    /// The context; None: its names are not those of `catalog`.
    pub(super) fn context(&self, catalog: &Arc<Catalog>) -> Option<&StatementContext> {
        let begun = self.begun.get_or_init(self.begin);
        begun.as_ref().filter(|c| Arc::ptr_eq(&c.catalog, catalog))
    }
}
