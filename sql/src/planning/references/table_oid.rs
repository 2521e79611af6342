//! The hidden column `tableoid`, the oid of a row's table. A table whose `tableoid` is named
//! becomes a subquery with this column, so that it is NULL where an outer join has no row of the
//! table. Wildcards leave it out. The subquery shows `_rowid` too if that is asked from the table.
//!
//! Differences from PostgreSQL: views have it too; a table whose alias has column names does not.

use super::hidden::{self, Columns, Qualifiers};
use crate::parse;
use crate::parse::names::{ROW_ID, TABLE_OID, fold};
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectNamePart, Query, SetExpr, TableAlias, TableFactor,
};
use strandline_base::Result;

/// Adds `tableoid` to the tables of `query` from which it is named. Runs before the query is
/// normalized.
pub fn expand(query: &mut Query) -> Result<()> {
    let row_ids = hidden::mentions(query, ROW_ID);
    hidden::show(query, TABLE_OID, |factor| expand_table(factor, &row_ids))
}

/// Gives a table its hidden columns; none if its alias has column names. `row_ids`: the qualifiers
/// of `_rowid`.
fn expand_table(factor: &mut TableFactor, row_ids: &Qualifiers) -> Result<Columns> {
    let TableFactor::Table { name, alias, .. } = factor else {
        return Ok(&[]);
    };
    let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
        return Ok(&[]);
    };
    if alias
        .as_ref()
        .is_some_and(|alias| !alias.columns.is_empty())
    {
        return Ok(&[]);
    }
    let called = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: last.clone(),
        columns: Vec::new(),
        at: None,
    });
    let literal = name.to_string().replace('\'', "''");
    let mut items = format!("*, '{literal}'::regclass::oid AS {TABLE_OID}");
    let mut shown: Columns = &[TABLE_OID];
    if hidden::asks(row_ids, &fold(&called.name)) {
        // No other table of the query has this alias: `_rowid` is asked from this one alone.
        let inner = Ident::with_quote('"', "table of tableoid");
        items.push_str(&format!(", {inner}.{ROW_ID} AS {ROW_ID}"));
        *alias = Some(TableAlias {
            name: inner,
            ..called.clone()
        });
        shown = &[TABLE_OID, ROW_ID];
    }
    let mut subquery = parse::query(&format!("SELECT {items} FROM t"))?;
    if let SetExpr::Select(select) = &mut *subquery.body
        && let [from] = select.from.as_mut_slice()
    {
        std::mem::swap(&mut from.relation, factor);
    }
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(subquery),
        alias: Some(called),
        sample: None,
    };
    Ok(shown)
}
