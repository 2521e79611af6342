//! The hidden column `tableoid`, the oid of a row's table. A table whose `tableoid` is named
//! becomes a subquery with this column, so that it is NULL where an outer join has no row of the
//! table. Wildcards leave it out.
//!
//! Differences from PostgreSQL: views have it too; a table whose alias has column names does not.

use super::hidden;
use crate::parse;
use crate::parse::names::TABLE_OID;
use datafusion::sql::sqlparser::ast::{ObjectNamePart, Query, SetExpr, TableAlias, TableFactor};
use strandline_base::Result;

/// Adds `tableoid` to the tables of `query` from which it is named. Runs before the query is
/// normalized.
pub fn expand(query: &mut Query) -> Result<()> {
    hidden::show(query, TABLE_OID, expand_table)
}

/// Returns false if the table's alias has column names.
fn expand_table(factor: &mut TableFactor) -> Result<bool> {
    let TableFactor::Table { name, alias, .. } = factor else {
        return Ok(false);
    };
    let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
        return Ok(false);
    };
    if alias
        .as_ref()
        .is_some_and(|alias| !alias.columns.is_empty())
    {
        return Ok(false);
    }
    let shown = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: last.clone(),
        columns: Vec::new(),
        at: None,
    });
    let literal = name.to_string().replace('\'', "''");
    let sql = format!("SELECT *, '{literal}'::regclass::oid AS {TABLE_OID} FROM t");
    let mut subquery = parse::query(&sql)?;
    if let SetExpr::Select(select) = &mut *subquery.body
        && let [from] = select.from.as_mut_slice()
    {
        std::mem::swap(&mut from.relation, factor);
    }
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(subquery),
        alias: Some(shown),
        sample: None,
    };
    Ok(true)
}
