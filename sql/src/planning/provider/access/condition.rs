//! The conditions of a scan on single columns: conjuncts become sets of values.
//!
//! Conditions come in two forms: DataFusion's logical expressions, while a statement is planned,
//! and physical ones, which the build side of a join gives while the statement runs.

use super::intervals::Intervals;
use super::places::{Place, place_of};
use crate::planning::provider::filter::bounds;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr as PhysicalBinary, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::scalar::ScalarValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType};
use strandline_engine::CompareOp;
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_semantics::functions::as_signed_physical;

/// Conditions that hold together. Rows that fulfil the scan's filters fulfil them; the other way
/// round it need not be so.
#[derive(Clone, Debug, Default)]
pub struct Conjunction {
    /// the values of terms
    pub columns: BTreeMap<ColumnId, Intervals>,
    /// the places of points and boxes
    pub places: Vec<Place>,
    /// ORs, each with its alternatives
    pub any: Vec<Vec<Conjunction>>,
}

impl Conjunction {
    /// Whether nothing is known of any column.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.places.is_empty() && self.any.is_empty()
    }

    /// With what a physical condition says, whose columns go by their names.
    pub fn add_physical(&mut self, filter: &Arc<dyn PhysicalExpr>, def: &TableDef) {
        if let Some(binary) = filter.downcast_ref::<PhysicalBinary>()
            && *binary.op() == Operator::And
        {
            self.add_physical(binary.left(), def);
            self.add_physical(binary.right(), def);
        } else if let Some((column, values)) = physical_values(filter, def) {
            self.restrict(column, &values);
        }
    }

    /// Adds a logical condition over the columns of `def`.
    pub fn add(&mut self, filter: &Expr, def: &TableDef) {
        match filter {
            Expr::Alias(alias) => self.add(&alias.expr, def),
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::And,
                right,
            }) => {
                self.add(left, def);
                self.add(right, def);
            }
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Or, ..
            }) => {
                let mut alternatives = Vec::new();
                collect_alternatives(filter, def, &mut alternatives);
                self.add_any(alternatives);
            }
            _ => {
                self.places.extend(place_of(filter, def));
                for (column, values) in leaf_values(filter, def) {
                    self.restrict(column, &values);
                }
            }
        }
    }

    fn restrict(&mut self, column: ColumnId, values: &Intervals) {
        let known = self.columns.entry(column);
        known
            .and_modify(|known| *known = known.intersected(values))
            .or_insert_with(|| values.clone());
    }

    fn add_any(&mut self, alternatives: Vec<Self>) {
        if alternatives.iter().any(Self::is_empty) {
            return;
        }
        let Some((first, others)) = alternatives.split_first() else {
            return;
        };
        // A column that every alternative restricts.
        for (column, values) in &first.columns {
            let united = others.iter().try_fold(values.clone(), |united, other| {
                Some(united.united(other.columns.get(column)?))
            });
            if let Some(united) = united {
                self.restrict(*column, &united);
            }
        }
        self.any.push(alternatives);
    }
}

fn collect_alternatives(filter: &Expr, def: &TableDef, alternatives: &mut Vec<Conjunction>) {
    match filter {
        Expr::Alias(alias) => collect_alternatives(&alias.expr, def, alternatives),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            collect_alternatives(left, def, alternatives);
            collect_alternatives(right, def, alternatives);
        }
        _ => {
            let mut conjunction = Conjunction::default();
            conjunction.add(filter, def);
            alternatives.push(conjunction);
        }
    }
}

/// What a condition that is neither AND nor OR says, per column.
fn leaf_values(filter: &Expr, def: &TableDef) -> Vec<(ColumnId, Intervals)> {
    let of_column = |expr: &Expr, values: Intervals| {
        let column = bounds::column_of(expr, def);
        column.map(|c| (c.id, values)).into_iter().collect()
    };
    match filter {
        Expr::IsNull(expr) => of_column(expr, Intervals::null()),
        Expr::IsNotNull(expr) => of_column(expr, Intervals::not_null()),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::IsNotDistinctFrom | Operator::NotEq),
            right,
        }) => {
            let (expr, value) = match (left.as_ref(), right.as_ref()) {
                (expr, Expr::Literal(value, _)) | (Expr::Literal(value, _), expr) => (expr, value),
                _ => return Vec::new(),
            };
            let column = bounds::column_of(expr, def);
            let values = column.and_then(|column| match op {
                Operator::NotEq => other_values(column, value),
                _ => member_values(column, value, true),
            });
            column.map(|c| c.id).zip(values).into_iter().collect()
        }
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => {
            let column = bounds::column_of(expr, def);
            let values = column.and_then(|column| {
                let members = list.iter().map(|member| match member {
                    Expr::Literal(value, _) => Some(value),
                    _ => None,
                });
                list_values(column, members, false)
            });
            column.map(|c| c.id).zip(values).into_iter().collect()
        }
        Expr::Not(inner) => match inner.as_ref() {
            Expr::Column(_) => {
                let column = bounds::column_of(inner, def);
                let column = column.filter(|c| c.sql_type == SqlType::Boolean);
                let no = ScalarValue::Boolean(Some(false));
                let values = column.and_then(|column| member_values(column, &no, false));
                column.map(|c| c.id).zip(values).into_iter().collect()
            }
            _ => Vec::new(),
        },
        _ => {
            let mut found = Vec::new();
            bounds::collect(filter, def, &mut found);
            let found = found.iter();
            found
                .map(|bound| (bound.column, Intervals::of_comparison(bound)))
                .collect()
        }
    }
}

/// `column = value`; with NULL, if NULL is equal to NULL. None: the value does not compare as
/// stored.
fn member_values(
    column: &ColumnDef,
    value: &ScalarValue,
    null_is_equal: bool,
) -> Option<Intervals> {
    match (value.is_null(), null_is_equal) {
        (true, true) => Some(Intervals::null()),
        (true, false) => Some(Intervals::of(Vec::new())),
        _ => bounds::bound(column, CompareOp::Eq, value).map(|b| Intervals::of_comparison(&b)),
    }
}

/// `column <> value`.
fn other_values(column: &ColumnDef, value: &ScalarValue) -> Option<Intervals> {
    let equal = member_values(column, value, false)?;
    Some(match equal.values.is_empty() {
        true => equal,
        false => equal.others(),
    })
}

/// `column IN (…)`; None: a member does not compare as stored.
fn list_values<'a>(
    column: &ColumnDef,
    members: impl Iterator<Item = Option<&'a ScalarValue>>,
    null_is_equal: bool,
) -> Option<Intervals> {
    let mut null = false;
    let mut values = Vec::new();
    for member in members {
        let member = member_values(column, member?, null_is_equal)?;
        null |= member.null;
        values.extend(member.values);
    }
    Some(Intervals {
        null,
        ..Intervals::of(values)
    })
}

/// The values of columns for which a physical condition is true, and no others; None if it is not
/// equivalent to such sets.
pub fn exact(
    filter: &Arc<dyn PhysicalExpr>,
    def: &TableDef,
) -> Option<BTreeMap<ColumnId, Intervals>> {
    let boolean = |expr: &Arc<dyn PhysicalExpr>, value: bool| {
        let column = physical_column(expr, def)?;
        let value = ScalarValue::Boolean(Some(value));
        let is_boolean = column.sql_type == SqlType::Boolean;
        let values = is_boolean.then(|| member_values(column, &value, false))??;
        Some((column.id, values))
    };
    if let Some(binary) = filter.downcast_ref::<PhysicalBinary>() {
        let sides = || Some((exact(binary.left(), def)?, exact(binary.right(), def)?));
        match binary.op() {
            Operator::And => {
                let (mut all, more) = sides()?;
                for (column, values) in more {
                    let both = match all.get(&column) {
                        Some(known) => known.common(&values)?,
                        None => values,
                    };
                    all.insert(column, both);
                }
                return Some(all);
            }
            Operator::Or => {
                let (left, right) = sides()?;
                let ((a, left), (b, right)) = (only(left)?, only(right)?);
                return (a == b).then(|| BTreeMap::from([(a, left.united(&right))]));
            }
            _ => {}
        }
    }
    let found = if let Some(given) = filter.downcast_ref::<IsNotNullExpr>() {
        (physical_column(given.arg(), def)?.id, Intervals::not_null())
    } else if let Some(not) = filter.downcast_ref::<NotExpr>() {
        boolean(not.arg(), false)?
    } else if filter.is::<Column>() {
        boolean(filter, true)?
    } else {
        physical_values(filter, def)?
    };
    Some(BTreeMap::from([found]))
}

/// The element of a map with one element.
fn only(map: BTreeMap<ColumnId, Intervals>) -> Option<(ColumnId, Intervals)> {
    let mut entries = map.into_iter();
    entries.next().filter(|_| entries.next().is_none())
}

/// What a physical condition that is not AND says: `column op literal`, a list, `… OR column IS
/// NULL`.
fn physical_values(
    filter: &Arc<dyn PhysicalExpr>,
    def: &TableDef,
) -> Option<(ColumnId, Intervals)> {
    if let Some(list) = filter.downcast_ref::<InListExpr>() {
        let column = physical_column(list.expr(), def).filter(|_| !list.negated())?;
        let members = list.list().iter();
        let members = members.map(|m| m.downcast_ref::<Literal>().map(Literal::value));
        return Some((column.id, list_values(column, members, false)?));
    }
    if let Some(is_null) = filter.downcast_ref::<IsNullExpr>() {
        return Some((physical_column(is_null.arg(), def)?.id, Intervals::null()));
    }
    let binary = filter.downcast_ref::<PhysicalBinary>()?;
    if *binary.op() == Operator::Or {
        let (column, left) = physical_conjunct(binary.left(), def)?;
        let (other, right) = physical_conjunct(binary.right(), def)?;
        return (column == other).then(|| (column, left.united(&right)));
    }
    let column = physical_column(binary.left(), def)?;
    let value = binary.right().downcast_ref::<Literal>()?.value();
    if *binary.op() == Operator::NotEq {
        return Some((column.id, other_values(column, value)?));
    }
    let op = match binary.op() {
        Operator::Eq => CompareOp::Eq,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::Le,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::Ge,
        _ => return None,
    };
    let bound = bounds::bound(column, op, value).filter(|_| !value.is_null())?;
    Some((column.id, Intervals::of_comparison(&bound)))
}

/// What a physical condition says, if it is about one column.
fn physical_conjunct(
    filter: &Arc<dyn PhysicalExpr>,
    def: &TableDef,
) -> Option<(ColumnId, Intervals)> {
    let mut conjunction = Conjunction::default();
    conjunction.add_physical(filter, def);
    only(conjunction.columns)
}

fn physical_column<'a>(expr: &Arc<dyn PhysicalExpr>, def: &'a TableDef) -> Option<&'a ColumnDef> {
    def.column(as_signed_physical(expr).downcast_ref::<Column>()?.name())
}
