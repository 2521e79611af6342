//! A statement's parameters and result columns: the types of its parameters and the columns of its
//! result.

use crate::planning::template::Template;
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::catalog::Catalog;

/// What a prepared statement takes and gives.
#[derive(Clone, Debug)]
pub struct Description {
    /// the types of `$1`, `$2`, …; of varchar, char and numeric without length, precision and
    /// scale (those of a numeric mean nothing)
    pub parameters: Vec<SqlType>,
    /// per parameter that is an array the type of its items
    pub items: Vec<Option<SqlType>>,
    /// the columns of the rows it gives; None: it gives none
    pub result: Option<SchemaRef>,
}

/// A description and what it holds for.
#[derive(Debug)]
pub(crate) struct Described {
    pub(super) catalog: Arc<Catalog>,
    pub(super) template: Arc<Template>,
    /// per parameter its type, where it is known
    pub types: Vec<Option<SqlType>>,
    pub description: Arc<Description>,
}

impl Described {
    /// The same with the parameters' types that `before` had, which the client goes by.
    pub(super) fn with_types_of(&self, before: &Self) -> Self {
        Self {
            catalog: self.catalog.clone(),
            template: self.template.clone(),
            types: before.types.clone(),
            description: before.description.clone(),
        }
    }
}

/// A numeric whose precision and scale mean nothing.
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
