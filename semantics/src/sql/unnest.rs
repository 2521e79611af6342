//! `unnest` in FROM in forms that DataFusion does not support: with arguments that depend on tables
//! on its left, and with WITH ORDINALITY. It becomes a subquery:
//!
//! ```text
//! t, unnest(t.a, t.b) WITH ORDINALITY AS u (x, y, i)
//! t, LATERAL (SELECT unnest(t.a), unnest(t.b), unnest(range(1, greatest(…) + 1))) AS u (x, y, i)
//! ```

use super::calls::call;
use super::numbers;
use super::series::is_constant;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef,
    TableFactor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Rewrites the items of FROM.
pub(super) fn expand(select: &mut Select) {
    for (at, item) in select.from.iter_mut().enumerate() {
        factor(&mut item.relation, at == 0);
        for join in &mut item.joins {
            factor(&mut join.relation, false);
        }
    }
}

/// `is_first`: no item is on its left.
fn factor(factor: &mut TableFactor, is_first: bool) {
    let TableFactor::UNNEST {
        alias,
        array_exprs,
        with_offset: false,
        with_ordinality,
        ..
    } = factor
    else {
        return;
    };
    let lateral = !is_first && !is_constant(array_exprs);
    if !*with_ordinality && !lateral {
        return;
    }
    let alias = named(alias.take(), array_exprs.len(), *with_ordinality);
    let arrays = std::mem::take(array_exprs);
    let ordinality = with_ordinality.then(|| ordinality(&arrays));
    let columns = arrays.into_iter().chain(ordinality);
    if let Some(subquery) = subquery(columns.collect(), alias, lateral) {
        *factor = subquery;
    }
}

/// The alias with a name for every column, as in PostgreSQL.
fn named(alias: Option<TableAlias>, arrays: usize, with_ordinality: bool) -> TableAlias {
    let is_named = alias.is_some();
    let mut alias = alias.unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new("unnest"),
        columns: Vec::new(),
        at: None,
    });
    for at in alias.columns.len()..arrays + usize::from(with_ordinality) {
        let name = match at < arrays {
            false => Ident::new("ordinality"),
            true if is_named && arrays == 1 => alias.name.clone(),
            true => Ident::new("unnest"),
        };
        alias.columns.push(TableAliasColumnDef {
            name,
            data_type: None,
        });
    }
    alias
}

/// The array of the row numbers, as long as the longest array.
fn ordinality(arrays: &[Expr]) -> Expr {
    let lengths = arrays.iter().map(|a| call("cardinality", vec![a.clone()]));
    let lengths: Vec<Expr> = lengths.collect();
    let longest = match <[Expr; 1]>::try_from(lengths) {
        Ok([one]) => one,
        Err(several) => call("greatest", several),
    };
    let behind = Expr::BinaryOp {
        left: Box::new(longest),
        op: BinaryOperator::Plus,
        right: Box::new(numbers::plain("1")),
    };
    call("range", vec![numbers::plain("1"), behind])
}

/// `(SELECT unnest(array), …) AS alias`
fn subquery(arrays: Vec<Expr>, alias: TableAlias, lateral: bool) -> Option<TableFactor> {
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .try_with_sql("(SELECT 1)")
        .ok()?;
    let mut made = parser.parse_table_factor().ok()?;
    if let TableFactor::Derived {
        lateral: is_lateral,
        subquery,
        alias: its_alias,
        ..
    } = &mut made
        && let SetExpr::Select(select) = subquery.body.as_mut()
    {
        *is_lateral = lateral;
        *its_alias = Some(alias);
        let columns = arrays
            .into_iter()
            .enumerate()
            .map(|(at, array)| SelectItem::ExprWithAlias {
                expr: call("unnest", vec![array]),
                alias: Ident::new(format!("c{at}")),
            });
        select.projection = columns.collect();
    }
    Some(made)
}
