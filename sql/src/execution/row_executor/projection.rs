//! Select lists and RETURNING: columns of the table, or any expressions over them.

use super::expressions::Slots;
use super::program::Projection;
use super::scope::{Compiler, Scope};
use super::search::place;
use crate::parse::names;
use crate::planning::provider::table_schema::arrow_field;
use crate::values::value_row::ValueColumns;
use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{self, SelectItem};
use std::sync::Arc;

/// The columns that a row has when its projection is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// those that the projection names
    Named,
    /// all of the table, in order
    Whole,
}

impl Projection {
    /// Whether every parameter of its expressions has a value of its type.
    pub fn fit(&self, slots: &Slots<'_>) -> bool {
        let computed = self.computed.as_ref();
        computed.is_none_or(|computed| computed.fit(slots))
    }
}

impl Compiler<'_> {
    /// A RETURNING clause, if there is one; None: it cannot be compiled.
    pub(super) fn returning(
        &self,
        scope: &Scope<'_>,
        items: Option<&[SelectItem]>,
    ) -> Option<Option<Projection>> {
        match items {
            None => Some(None),
            Some(items) => self.projection(scope, items, Reads::Whole).map(Some),
        }
    }

    /// A select list.
    pub(super) fn projection(
        &self,
        scope: &Scope<'_>,
        items: &[SelectItem],
        reads: Reads,
    ) -> Option<Projection> {
        columns(scope, items).or_else(|| self.computed(scope, items, reads))
    }

    fn computed(
        &self,
        scope: &Scope<'_>,
        items: &[SelectItem],
        reads: Reads,
    ) -> Option<Projection> {
        let planned = self.items(scope, items)?;
        let result = ValueColumns {
            types: Vec::new(),
            schema: planned.output.clone(),
        };
        let sources = planned.positions.clone();
        let mut positions: Vec<usize> = match reads {
            Reads::Named => Vec::new(),
            Reads::Whole => (0..scope.table.columns.len()).collect(),
        };
        let mut place = |position| place(&mut positions, position);
        let computed = self.compiled_items(scope, planned, &mut place)?;
        let id = |position: &usize| scope.table.columns[*position].id;
        Some(Projection {
            ids: positions.iter().map(id).collect(),
            positions,
            computed: Some(computed),
            sources,
            result: Arc::new(result),
        })
    }
}

/// A select list of columns only.
fn columns(scope: &Scope<'_>, items: &[SelectItem]) -> Option<Projection> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for item in items {
        match item {
            SelectItem::Wildcard(options)
                if *options == ast::WildcardAdditionalOptions::default() =>
            {
                let columns = scope.table.columns.iter().enumerate();
                found.extend(columns.map(|(i, c)| (i, c.name.clone())));
            }
            SelectItem::UnnamedExpr(expr) => {
                let position = scope.column(expr)?;
                found.push((position, scope.table.columns[position].name.clone()));
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                found.push((scope.column(expr)?, names::fold(alias)));
            }
            _ => return None,
        }
    }
    if found.is_empty() {
        return None;
    }
    let column = |(position, _): &(usize, String)| &scope.table.columns[*position];
    let fields: Vec<_> = found
        .iter()
        .map(|item| arrow_field(&item.1, column(item).sql_type, !column(item).not_null))
        .collect();
    Some(Projection {
        ids: found.iter().map(|item| column(item).id).collect(),
        positions: found.iter().map(|(position, _)| *position).collect(),
        computed: None,
        sources: found.iter().map(|(position, _)| Some(*position)).collect(),
        result: Arc::new(ValueColumns {
            types: found.iter().map(|item| column(item).sql_type).collect(),
            schema: Arc::new(Schema::new(fields)),
        }),
    })
}
