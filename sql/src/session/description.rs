//! The description of a statement: the types of its parameters and the columns of its result.

use crate::planning::template::Template;
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::Catalog;

/// The parameters and the result of a prepared statement.
#[derive(Clone, Debug)]
pub struct Description {
    /// the types of `$1`, `$2`, …, without length, precision and scale (a numeric has the
    /// precision 38 and scale 16 as placeholders)
    pub parameters: Vec<SqlType>,
    /// the item type of each array parameter
    pub items: Vec<Option<SqlType>>,
    /// the columns of the result's rows; None: it has no rows
    pub result: Option<SchemaRef>,
}

/// A description, and the catalog and the settings that it is valid for.
#[derive(Debug)]
pub(crate) struct Described {
    pub(super) catalog: Arc<Catalog>,
    pub(super) template: Arc<Template>,
    /// the type of each parameter, where it is known
    pub types: Vec<Option<SqlType>>,
    pub description: Arc<Description>,
}

impl Described {
    /// This description with the parameter types of `before`, which the client relies on.
    pub(super) fn with_types_of(&self, before: &Self) -> Self {
        Self {
            catalog: self.catalog.clone(),
            template: self.template.clone(),
            types: before.types.clone(),
            description: before.description.clone(),
        }
    }
}

/// A numeric whose precision and scale are placeholders.
pub(crate) const NUMERIC: SqlType = SqlType::Numeric {
    precision: 38,
    scale: 16,
};

/// `t` without length, precision and scale.
pub(crate) fn of_parameter(t: SqlType) -> SqlType {
    match t {
        SqlType::Varchar(_) | SqlType::Char(_) => SqlType::Text,
        SqlType::Numeric { .. } => NUMERIC,
        other => other,
    }
}
