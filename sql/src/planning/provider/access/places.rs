//! Conditions on the places of points and boxes: which boxes of an R-tree's entries may fulfil
//! them.
//!
//! Invariant: if the condition is true for a value, its [`Place::query`] holds for the value's box.
//! The other way round it need not be so, as the scan applies its filters again.
//!
//! The operators allow a difference of [`EPSILON`], and so do the rounding errors of their sums. So
//! boxes are enlarged, or shrunk, by four times as much. NaN stays NaN: it is equal to itself only,
//! as in `~=`.

use crate::values::value;
use datafusion::logical_expr::Expr;
use strandline_base::{ColumnId, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::display::value_text;
use strandline_engine::{Rect, SpatialQuery};
use strandline_semantics::functions::SpatialOperator;
use strandline_semantics::geometry::EPSILON;
use strandline_semantics::types::sql_type_of_arrow;

/// More than an operator's tolerance and the rounding error of its sums.
const TOLERANCE: f64 = 4.0 * EPSILON;

/// A condition on the place of a term.
#[derive(Clone, Debug)]
pub struct Place {
    /// a point or a box
    pub term: ColumnId,
    /// the boxes for which it may be true
    pub query: SpatialQuery,
    /// what EXPLAIN shows behind the term: the operator, as if the term stood on its left, and the
    /// value
    pub text: String,
}

/// What `filter` says if it is an operator between a column of `def` and a constant.
pub fn place_of(filter: &Expr, def: &TableDef) -> Option<Place> {
    let Expr::ScalarFunction(call) = filter else {
        return None;
    };
    let operator = SpatialOperator::of_function(call.name())?;
    let (column, constant, operator) = match call.args.as_slice() {
        [Expr::Column(column), Expr::Literal(constant, _)] => (column, constant, operator),
        [Expr::Literal(constant, _), Expr::Column(column)] => {
            (column, constant, commuted(operator))
        }
        _ => return None,
    };
    let column = def.column(&column.name)?;
    if !matches!(column.sql_type, SqlType::Point | SqlType::Box) || constant.is_null() {
        return None;
    }
    let sql_type = sql_type_of_arrow(&constant.data_type())?;
    let constant = value::from_scalar(constant, sql_type).ok()?;
    let query = query_of(operator, rect_of(&constant)?)?;
    let text = format!("{} {}", operator.symbol(), value_text(sql_type, &constant));
    Some(Place {
        term: column.id,
        query,
        text,
    })
}

/// The operator for operands in the other order.
fn commuted(operator: SpatialOperator) -> SpatialOperator {
    match operator {
        SpatialOperator::Contains => SpatialOperator::ContainedIn,
        SpatialOperator::ContainedIn => SpatialOperator::Contains,
        same => same,
    }
}

/// The box of a point or a box.
pub fn rect_of(value: &Value) -> Option<Rect> {
    match value {
        Value::Point(point) => Some(Rect::point(point.coordinates())),
        Value::Box(corners) => Some(Rect::new(corners.high(), corners.low())),
        _ => None,
    }
}

/// The boxes for which an operator with `rect` on its right may be true.
fn query_of(operator: SpatialOperator, rect: Rect) -> Option<SpatialQuery> {
    let large = Rect::new(
        rect.low().map(|at| at - TOLERANCE),
        rect.high().map(|at| at + TOLERANCE),
    );
    match operator {
        SpatialOperator::Overlaps => Some(SpatialQuery::Overlaps(large)),
        SpatialOperator::ContainedIn | SpatialOperator::Same => {
            Some(SpatialQuery::ContainedIn(large))
        }
        SpatialOperator::Contains => Some(match shrunk(&rect) {
            Some(small) => SpatialQuery::Contains(small),
            None => SpatialQuery::Overlaps(large),
        }),
        SpatialOperator::Distance => None,
    }
}

/// What is left of a box without its margins; None: nothing.
fn shrunk(rect: &Rect) -> Option<Rect> {
    let low = rect.low().map(|at| at + TOLERANCE);
    let high = rect.high().map(|at| at - TOLERANCE);
    let is_left = low.iter().zip(&high).all(|(low, high)| low <= high);
    is_left.then(|| Rect::new(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::BoxCorners;
    use strandline_column::types::array_of;
    use strandline_semantics::geometry::{Corners, box_at};

    const SIDES: [f64; 12] = [
        f64::NEG_INFINITY,
        -1e17,
        -8e9,
        -1.0,
        0.0,
        9e-7,
        1e-6,
        1.0,
        1.000_001,
        8e9,
        f64::INFINITY,
        f64::NAN,
    ];

    /// Boxes as rectangles, and as the operators see them.
    fn boxes() -> Vec<(Rect, Corners)> {
        let sides = SIDES.iter().flat_map(|low| SIDES.map(|high| (*low, high)));
        let of = |(low, high)| {
            let value = Value::Box(BoxCorners::new([high, 1.0], [low, 0.0]));
            let array = array_of(SqlType::Box, std::slice::from_ref(&value)).expect("a box");
            (rect_of(&value).expect("a box"), box_at(&array, 0))
        };
        sides.map(of).collect()
    }

    /// Whether an operator is true for the boxes implies that the query holds.
    #[test]
    fn a_query_holds_wherever_its_operator_is_true() {
        let boxes = boxes();
        let mut held = 0;
        for (own_rect, own) in &boxes {
            for (rect, other) in &boxes {
                for (operator, is_true) in [
                    (SpatialOperator::Overlaps, own.overlaps(other)),
                    (SpatialOperator::Contains, own.contains(other)),
                    (SpatialOperator::ContainedIn, other.contains(own)),
                    (SpatialOperator::Same, own.is_same(other)),
                ] {
                    let query = query_of(operator, *rect).expect("a query");
                    assert!(
                        !is_true || query.holds(own_rect),
                        "{own_rect:?} {operator:?} {rect:?}: {query:?}"
                    );
                    held += usize::from(is_true);
                }
            }
        }
        assert!(held > 1000);
    }
}
