//! Predicates, measures and conversions of points and boxes \[PostgreSQL, "Geometric Functions and
//! Operators", `geo_ops.c`\].
//!
//! A point is its coordinates x and y; a box is x and y of its upper right corner, then of its
//! lower left one. Comparisons between boxes, and equality, allow a difference of
//! [`EPSILON`]; whether a point lies in a box is decided exactly. A comparison with NaN is false,
//! but points and corners with NaN at the same places are equal. A finite computation with an
//! infinite result is 22003.

use crate::error::invalid;
use crate::types::arrow_type;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::buffer::{Buffer, NullBuffer};
use datafusion::common::Result;
use strandline_base::{SqlState, SqlType};
use strandline_column::types::{coordinate_array, coordinates_at};

/// The difference up to which coordinates are equal.
pub const EPSILON: f64 = 1e-6;

/// A point's x and y.
pub type Pair = [f64; 2];

/// The corners of a box: upper right, lower left.
#[derive(Clone, Copy)]
pub struct Corners {
    high: Pair,
    low: Pair,
}

/// The point at `row`, which is not NULL.
pub fn point_at(array: &dyn Array, row: usize) -> Pair {
    let at = coordinates_at(array, row);
    [at[0], at[1]]
}

/// The box at `row`, which is not NULL.
pub fn box_at(array: &dyn Array, row: usize) -> Corners {
    let at = coordinates_at(array, row);
    Corners {
        high: [at[0], at[1]],
        low: [at[2], at[3]],
    }
}

/// An array of points or boxes; None is NULL.
pub fn array_of<const N: usize>(
    t: SqlType,
    rows: usize,
    mut f: impl FnMut(usize) -> Result<Option<[f64; N]>>,
) -> Result<ArrayRef> {
    let (mut values, mut is_valid) = (Vec::with_capacity(rows * N), Vec::with_capacity(rows));
    for row in 0..rows {
        let value = f(row)?;
        is_valid.push(value.is_some());
        values.extend(value.unwrap_or([0.0; N]));
    }
    let nulls = Some(NullBuffer::from(is_valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(coordinate_array(
        &arrow_type(t),
        Buffer::from_vec(values),
        nulls,
    ))
}

/// Boxes of zero size at the points.
pub fn boxes_of_points(array: &ArrayRef) -> Result<ArrayRef> {
    array_of(SqlType::Box, array.len(), |row| {
        let is_valid = array.is_valid(row);
        Ok(is_valid
            .then(|| point_at(array, row))
            .map(|[x, y]| [x, y, x, y]))
    })
}

/// The centres of boxes.
pub fn centers(array: &ArrayRef) -> Result<ArrayRef> {
    array_of(SqlType::Point, array.len(), |row| {
        let is_valid = array.is_valid(row);
        is_valid.then(|| box_at(array, row).center()).transpose()
    })
}

impl Corners {
    /// `&&`: whether the boxes have a point in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        all(self.low, other.high, is_at_most) && all(other.low, self.high, is_at_most)
    }

    /// `@>`: whether `other` lies within this box.
    pub fn contains(&self, other: &Self) -> bool {
        all(self.low, other.low, is_at_most) && all(self.high, other.high, is_at_least)
    }

    /// `@>`: whether the point lies within this box.
    pub fn contains_point(&self, point: Pair) -> bool {
        all(self.low, point, |low, at| low <= at) && all(self.high, point, |high, at| high >= at)
    }

    /// `~=`
    pub fn is_same(&self, other: &Self) -> bool {
        is_same_point(self.high, other.high) && is_same_point(self.low, other.low)
    }

    /// Width and height.
    pub fn size(&self) -> Result<Pair> {
        let ([high_x, high_y], [low_x, low_y]) = (self.high, self.low);
        Ok([difference(high_x, low_x)?, difference(high_y, low_y)?])
    }

    /// Width times height.
    pub fn area(&self) -> Result<f64> {
        let [width, height] = self.size()?;
        checked(width * height, [width, height])
    }

    /// The point in the middle.
    pub fn center(&self) -> Result<Pair> {
        let middle = |a: f64, b: f64| checked(a + b, [a, b]).map(|sum| sum / 2.0);
        let ([high_x, high_y], [low_x, low_y]) = (self.high, self.low);
        Ok([middle(high_x, low_x)?, middle(high_y, low_y)?])
    }

    /// `<->`: the distance of the point from the nearest point of the box; 0 within it.
    pub fn distance(&self, [x, y]: Pair) -> Result<f64> {
        let gap = |low: f64, high: f64, at: f64| match () {
            () if at < low => difference(low, at),
            () if at > high => difference(at, high),
            () if low.is_nan() || high.is_nan() || at.is_nan() => Ok(f64::NAN),
            () => Ok(0.0),
        };
        let ([high_x, high_y], [low_x, low_y]) = (self.high, self.low);
        length([gap(low_x, high_x, x)?, gap(low_y, high_y, y)?])
    }
}

/// `~=`: whether the points are at the same place.
pub fn is_same_point(a: Pair, b: Pair) -> bool {
    if a.iter().chain(&b).any(|c| c.is_nan()) {
        return all(a, b, |a, b| a == b || (a.is_nan() && b.is_nan()));
    }
    all(a, b, |a, b| a == b || (a - b).abs() <= EPSILON)
}

/// `<->`: the distance of two points.
pub fn distance([ax, ay]: Pair, [bx, by]: Pair) -> Result<f64> {
    length([difference(ax, bx)?, difference(ay, by)?])
}

/// Whether the comparison holds in both dimensions.
fn all([ax, ay]: Pair, [bx, by]: Pair, holds: impl Fn(f64, f64) -> bool) -> bool {
    holds(ax, bx) && holds(ay, by)
}

fn is_at_most(a: f64, b: f64) -> bool {
    a <= b + EPSILON
}

fn is_at_least(a: f64, b: f64) -> bool {
    a + EPSILON >= b
}

fn difference(a: f64, b: f64) -> Result<f64> {
    checked(a - b, [a, b])
}

fn checked(result: f64, operands: Pair) -> Result<f64> {
    match result.is_infinite() && operands.iter().all(|v| v.is_finite()) {
        true => Err(overflow()),
        false => Ok(result),
    }
}

fn overflow() -> datafusion::error::DataFusionError {
    let message = "value out of range: overflow";
    invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
}

/// The length of a vector, without overflow or underflow in between. An infinite coordinate counts
/// more than NaN.
fn length(vector: Pair) -> Result<f64> {
    let [x, y] = vector.map(f64::abs);
    if x.is_infinite() || y.is_infinite() {
        return Ok(f64::INFINITY);
    }
    if x.is_nan() || y.is_nan() {
        return Ok(f64::NAN);
    }
    let (long, short) = (x.max(y), x.min(y));
    if short == 0.0 {
        return Ok(long);
    }
    let ratio = short / long;
    checked(long * (1.0 + ratio * ratio).sqrt(), [long, short])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners(high: Pair, low: Pair) -> Corners {
        Corners { high, low }
    }

    #[test]
    fn boxes_are_compared_with_a_tolerance_and_points_in_them_exactly() {
        let unit = corners([1.0, 1.0], [0.0, 0.0]);
        let beside = |gap: f64| corners([2.0, 1.0], [1.0 + gap, 0.0]);
        assert!(unit.overlaps(&beside(0.0)) && unit.overlaps(&beside(9e-7)));
        assert!(beside(9e-7).overlaps(&unit));
        assert!(!unit.overlaps(&beside(2e-6)) && !beside(2e-6).overlaps(&unit));
        let above = corners([1.0, 3.0], [0.0, 2.0]);
        assert!(!unit.overlaps(&above) && !above.overlaps(&unit));
        let larger = |by: f64| corners([1.0 + by, 1.0], [0.0, -by]);
        assert!(unit.contains(&unit) && unit.contains(&larger(9e-7)));
        assert!(!unit.contains(&larger(2e-6)) && larger(2e-6).contains(&unit));
        assert!(unit.is_same(&larger(9e-7)) && !unit.is_same(&larger(2e-6)));
        assert!(unit.contains_point([1.0, 0.0]) && !unit.contains_point([1.0 + 1e-7, 0.0]));
        assert!(!unit.contains_point([0.5, -1e-9]));
    }

    #[test]
    fn nan_is_in_no_box_but_the_same_as_nan() {
        let nan = f64::NAN;
        let unknown = corners([nan, 1.0], [0.0, 0.0]);
        assert!(unknown.is_same(&unknown) && !unknown.overlaps(&unknown));
        assert!(!unknown.contains(&unknown) && !unknown.contains_point([0.5, 0.5]));
        assert!(is_same_point([nan, 1.0], [nan, 1.0]));
        assert!(!is_same_point([nan, 1.0], [nan, 1.0 + 1e-7]));
        assert!(is_same_point([f64::INFINITY, 0.0], [f64::INFINITY, -0.0]));
        assert!(!is_same_point(
            [f64::INFINITY, 0.0],
            [f64::NEG_INFINITY, 0.0]
        ));
    }

    #[test]
    fn distances_and_measures() {
        let unit = corners([1.0, 1.0], [0.0, 0.0]);
        let of = |point| unit.distance(point).expect("finite");
        assert_eq!(
            (of([0.5, 1.0]), of([4.0, 5.0]), of([-2.0, 0.5])),
            (0.0, 5.0, 2.0)
        );
        assert_eq!(of([f64::INFINITY, f64::NAN]), f64::INFINITY);
        assert!(of([0.5, f64::NAN]).is_nan());
        assert_eq!(distance([3e200, 0.0], [0.0, 4e200]).expect("finite"), 5e200);
        assert!(distance([1e308, 0.0], [-1e308, 0.0]).is_err());
        assert!(distance([1.7e308, 1.7e308], [0.0, 0.0]).is_err());
        let tall = corners([3.0, 10.0], [1.0, 4.0]);
        assert_eq!(tall.size().expect("finite"), [2.0, 6.0]);
        assert_eq!(tall.area().expect("finite"), 12.0);
        assert_eq!(tall.center().expect("finite"), [2.0, 7.0]);
        assert!(corners([1e200, 1e200], [0.0, 0.0]).area().is_err());
        assert!(corners([1e308, 0.0], [1e308, 0.0]).center().is_err());
    }
}
