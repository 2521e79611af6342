//! Columns that a table shows only where they are named: who names them, and wildcards without
//! them.

use crate::names::fold;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, ObjectNamePart, Query, SelectItem,
    SelectItemQualifiedWildcardKind, visit_expressions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

/// The qualifiers under which `column` is named in `query`; None is the bare name.
pub fn mentions(query: &Query, column: &str) -> HashSet<Option<String>> {
    let mut found = HashSet::new();
    let _ = visit_expressions(query, |expr| {
        match expr {
            Expr::Identifier(ident) if fold(ident) == column => {
                found.insert(None);
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, last] = parts.as_slice()
                    && fold(last) == column
                {
                    found.insert(Some(fold(table)));
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Keeps `column`, which the tables `marked` show, out of a wildcard.
pub fn hide(item: &mut SelectItem, marked: &HashSet<String>, column: &str) -> Result<()> {
    let options = match item {
        SelectItem::Wildcard(options) if marked.len() == 1 => options,
        SelectItem::Wildcard(_) => {
            return Err(Error::unsupported(format!(
                "SELECT * together with the {column} of several tables is not supported"
            ))
            .with_hint("Name the columns, or write t.* for each table."));
        }
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
            match of.0.last() {
                Some(ObjectNamePart::Identifier(table)) if marked.contains(&fold(table)) => options,
                _ => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    if options.opt_exclude.is_none() && options.opt_except.is_none() {
        let hidden = ObjectName::from(vec![Ident::new(column)]);
        options.opt_exclude = Some(ExcludeSelectItem::Single(hidden));
    }
    Ok(())
}
