//! The statement's names as DataFusion's catalog list, catalog and schemas.

use super::{REFERENCES, StatementCatalog};
use crate::parse::names;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use std::sync::Arc;
use strandline_semantics::error::raise;

impl CatalogProviderList for StatementCatalog {
    fn register_catalog(
        &self,
        _name: String,
        _catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        None
    }
    fn catalog_names(&self) -> Vec<String> {
        vec![names::DATABASE.to_string()]
    }
    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let this = self.this.upgrade()?;
        (name == names::DATABASE).then_some(this as Arc<dyn CatalogProvider>)
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.scope.catalog.schemas.keys().cloned().collect()
    }
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(SchemaView {
            name: name.to_string(),
            catalog: self.this.upgrade()?,
        }))
    }
}

/// One schema of a [`StatementCatalog`]. It is also made for unknown schemas, so that the error can
/// name the missing schema.
#[derive(Debug)]
struct SchemaView {
    name: String,
    catalog: Arc<StatementCatalog>,
}

#[async_trait]
impl SchemaProvider for SchemaView {
    fn table_names(&self) -> Vec<String> {
        let catalog = &self.catalog.scope.catalog;
        let tables = catalog.tables.values().filter(|t| t.schema == self.name);
        let views = catalog.views.iter().filter(|v| v.schema == self.name);
        tables
            .map(|t| t.name.clone())
            .chain(views.map(|v| v.name.clone()))
            .collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if self.name == REFERENCES {
            let number = name.parse().unwrap_or(usize::MAX);
            return Ok(self.catalog.references.lock().get(number).cloned());
        }
        let found = self.catalog.find(&self.name, name, false).await;
        match found.map_err(raise)? {
            Some(table) => Ok(Some(table)),
            // It may be a table function, which DataFusion looks up afterwards.
            None if self.name == names::PUBLIC => Ok(None),
            None => Err(raise(self.catalog.unknown(&self.name, name))),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        let catalog = &self.catalog.scope.catalog;
        catalog.table(&self.name, name).is_some() || catalog.view(&self.name, name).is_some()
    }
}
