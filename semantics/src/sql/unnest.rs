//! `unnest` in FROM where DataFusion's own does not do: with arguments that depend on tables to its
//! left, with several, and WITH ORDINALITY. It becomes a subquery:
//!
//! ```text
//! unnest(a, b) AS u (x, y)
//! (SELECT unnest(c0), unnest(c1) FROM (SELECT a AS c0, b AS c1) AS arrays) AS u (x, y)
//!
//! t, unnest(t.a, t.b) WITH ORDINALITY AS u (x, y, i)
//! t, LATERAL (SELECT unnest(t.a), unnest(t.b), unnest(range(1, greatest(…) + 1))) AS u (x, y, i)
//! ```
//!
//! DataFusion takes two unnests of the same name for one, and names leave casts out:
//! `unnest('{1}'::int[])` and `unnest('{1}'::text[])` would be the same column. The names of the
//! inner subquery tell them apart. LATERAL has none: it reads no subquery.

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
    if !*with_ordinality && !lateral && array_exprs.len() < 2 {
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

/// The alias with a name for every column. The names are PostgreSQL's, except that several columns
/// without a name are `unnest`, `unnest_2` and so on: the columns of a subquery have different
/// names.
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
            true if at == 0 => Ident::new("unnest"),
            true => Ident::new(format!("unnest_{}", at + 1)),
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
        .try_with_sql("(SELECT 1 FROM (SELECT 1) AS arrays)")
        .ok()?;
    let mut made = parser.parse_table_factor().ok()?;
    if let TableFactor::Derived {
        lateral: is_lateral,
        alias: its_alias,
        ..
    } = &mut made
    {
        *is_lateral = lateral;
        *its_alias = Some(alias);
    }
    let select = select_of(&mut made)?;
    let name = |at: usize| Ident::new(format!("c{at}"));
    let arrays = if lateral {
        select.from.clear();
        arrays
    } else {
        let names = (0..arrays.len()).map(|at| Expr::Identifier(name(at)));
        let names = names.collect();
        let inner = select_of(&mut select.from.first_mut()?.relation)?;
        inner.projection = columns(arrays, name);
        names
    };
    let unnested = arrays.into_iter().map(|array| call("unnest", vec![array]));
    select.projection = columns(unnested, name);
    Some(made)
}

/// The SELECT of a subquery.
fn select_of(factor: &mut TableFactor) -> Option<&mut Select> {
    match factor {
        TableFactor::Derived { subquery, .. } => match subquery.body.as_mut() {
            SetExpr::Select(select) => Some(select),
            _ => None,
        },
        _ => None,
    }
}

/// The expressions under these names.
fn columns(
    expressions: impl IntoIterator<Item = Expr>,
    name: impl Fn(usize) -> Ident,
) -> Vec<SelectItem> {
    let expressions = expressions.into_iter().enumerate();
    let columns = expressions.map(|(at, expr)| SelectItem::ExprWithAlias {
        expr,
        alias: name(at),
    });
    columns.collect()
}
