//! What the catalog of a statement knows of a relation before a query names it.

use super::StatementCatalog;
use crate::planning::provider::registered::RegisteredTables;
use datafusion::catalog::TableProvider;
use std::sync::Arc;

impl StatementCatalog {
    /// Whether a user has made a relation `schema.name`.
    pub(super) fn is_relation(&self, schema: &str, name: &str) -> bool {
        let catalog = &self.scope.catalog;
        catalog.table(schema, name).is_some()
            || catalog.view(schema, name).is_some()
            || self.registered(schema, name).is_some()
    }

    /// Whether the relation may have a column of a user's choice called so.
    pub(super) fn may_have_column(&self, (schema, name): (&str, &str), column: &str) -> bool {
        if let Some(registered) = self.registered(schema, name) {
            return registered.schema().column_with_name(column).is_some();
        }
        match self.scope.catalog.table(schema, name) {
            Some(table) => table.columns.iter().any(|known| known.name == column),
            None => self.scope.catalog.view(schema, name).is_some(),
        }
    }

    /// The session's registered table `schema.name`; none for views and for moments of the past.
    pub(super) fn registered(&self, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
        let default_schema = &self.scope.template.config_options().catalog.default_schema;
        if self.scope.as_of.is_some()
            || !self.scope.expanding.is_empty()
            || schema != default_schema
        {
            return None;
        }
        RegisteredTables::of(&self.scope.template).get(name)
    }
}
