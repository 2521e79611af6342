//! Functions and operators of points and boxes ([`crate::geometry`]).
//!
//! The operators are functions with a name of [`SpatialOperator`]; a plan shows them by it.

use super::overload::Parameter::{Box, Double, Point};
use super::overload::{Call, Function, Overload};
use crate::geometry::{
    Corners, Pair, array_of, box_at, boxes_of_points, centers, distance, is_same_point, point_at,
};
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::{BoxCorners, SqlType};

/// An operator with a point or a box on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialOperator {
    /// `box && box`
    Overlaps,
    /// `box @> box`, `box @> point`
    Contains,
    /// `box <@ box`, `point <@ box`
    ContainedIn,
    /// `point ~= point`, `box ~= box`
    Same,
    /// `<->`: between points the distance, between a point and a box the distance of the point from
    /// the nearest point of the box, between boxes the distance of the centres
    Distance,
}

impl SpatialOperator {
    /// The symbol in SQL.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Overlaps => "&&",
            Self::Contains => "@>",
            Self::ContainedIn => "<@",
            Self::Same => "~=",
            Self::Distance => "<->",
        }
    }

    /// The types of the operands.
    pub fn operands(self) -> &'static [[SqlType; 2]] {
        use SqlType::{Box, Point};
        match self {
            Self::Overlaps => &[[Box, Box]],
            Self::Contains => &[[Box, Box], [Box, Point]],
            Self::ContainedIn => &[[Box, Box], [Point, Box]],
            Self::Same => &[[Point, Point], [Box, Box]],
            Self::Distance => &[[Point, Point], [Point, Box], [Box, Point], [Box, Box]],
        }
    }

    /// The operator of a function.
    pub fn of_function(name: &str) -> Option<Self> {
        let all = [
            Self::Overlaps,
            Self::Contains,
            Self::ContainedIn,
            Self::Same,
            Self::Distance,
        ];
        all.into_iter().find(|operator| operator.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Overlaps => "spatial_overlaps",
            Self::Contains => "spatial_contains",
            Self::ContainedIn => "spatial_contained_in",
            Self::Same => "spatial_same",
            Self::Distance => "spatial_distance",
        }
    }

    /// The operator as a function.
    pub(super) fn function(self) -> Function {
        let boolean = |parameters, body: fn(&Call) -> Result<ArrayRef>| {
            Overload::new(parameters, SqlType::Boolean, body)
        };
        let number = |parameters, body: fn(&Call) -> Result<ArrayRef>| {
            Overload::new(parameters, SqlType::Double, body)
        };
        let overloads = match self {
            Self::Overlaps => vec![boolean(&[Box, Box], |c| {
                test(c, |row| boxed(c, 0, row).overlaps(&boxed(c, 1, row)))
            })],
            Self::Contains => vec![
                boolean(&[Box, Box], |c| {
                    test(c, |row| boxed(c, 0, row).contains(&boxed(c, 1, row)))
                }),
                boolean(&[Box, Point], |c| {
                    test(c, |row| boxed(c, 0, row).contains_point(point(c, 1, row)))
                }),
            ],
            Self::ContainedIn => vec![
                boolean(&[Box, Box], |c| {
                    test(c, |row| boxed(c, 1, row).contains(&boxed(c, 0, row)))
                }),
                boolean(&[Point, Box], |c| {
                    test(c, |row| boxed(c, 1, row).contains_point(point(c, 0, row)))
                }),
            ],
            Self::Same => vec![
                boolean(&[Point, Point], |c| {
                    test(c, |row| is_same_point(point(c, 0, row), point(c, 1, row)))
                }),
                boolean(&[Box, Box], |c| {
                    test(c, |row| boxed(c, 0, row).is_same(&boxed(c, 1, row)))
                }),
            ],
            Self::Distance => vec![
                number(&[Point, Point], |c| {
                    measure(c, |row| distance(point(c, 0, row), point(c, 1, row)))
                }),
                number(&[Point, Box], |c| {
                    measure(c, |row| boxed(c, 1, row).distance(point(c, 0, row)))
                }),
                number(&[Box, Point], |c| {
                    measure(c, |row| boxed(c, 0, row).distance(point(c, 1, row)))
                }),
                number(&[Box, Box], |c| {
                    measure(c, |row| {
                        distance(boxed(c, 0, row).center()?, boxed(c, 1, row).center()?)
                    })
                }),
            ],
        };
        Function::new(self.name(), overloads)
    }
}

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let of_box =
        |name, body| Function::new(name, vec![Overload::new(&[Box], SqlType::Double, body)]);
    vec![
        Function::new(
            "point",
            vec![
                Overload::new(&[Double, Double], SqlType::Point, |c| {
                    array_of(SqlType::Point, c.rows, |row| {
                        let is_null = c.any_null(row);
                        Ok((!is_null).then(|| [c.double(0, row), c.double(1, row)]))
                    })
                }),
                Overload::new(&[Box], SqlType::Point, |c| centers(&c.arrays[0])),
            ],
        ),
        Function::new(
            "box",
            vec![
                Overload::new(&[Point, Point], SqlType::Box, of_corners),
                Overload::new(&[Point], SqlType::Box, |c| boxes_of_points(&c.arrays[0])),
            ],
        ),
        Function::new(
            "center",
            vec![Overload::new(&[Box], SqlType::Point, |c| {
                centers(&c.arrays[0])
            })],
        ),
        of_box("area", |c| measure(c, |row| boxed(c, 0, row).area())),
        of_box("width", |c| {
            measure(c, |row| boxed(c, 0, row).size().map(|[width, _]| width))
        }),
        of_box("height", |c| {
            measure(c, |row| boxed(c, 0, row).size().map(|[_, height]| height))
        }),
    ]
}

fn of_corners(call: &Call) -> Result<ArrayRef> {
    array_of(SqlType::Box, call.rows, |row| {
        if call.any_null(row) {
            return Ok(None);
        }
        // PostgreSQL takes the second point's coordinate for the upper one among equal ones (0, -0).
        let corners = BoxCorners::new(point(call, 1, row), point(call, 0, row));
        let ([high_x, high_y], [low_x, low_y]) = (corners.high(), corners.low());
        Ok(Some([high_x, high_y, low_x, low_y]))
    })
}

fn point(call: &Call, argument: usize, row: usize) -> Pair {
    point_at(&call.arrays[argument], row)
}

fn boxed(call: &Call, argument: usize, row: usize) -> Corners {
    box_at(&call.arrays[argument], row)
}

fn test(call: &Call, holds: impl Fn(usize) -> bool) -> Result<ArrayRef> {
    let values = (0..call.rows).map(|row| (!call.any_null(row)).then(|| holds(row)));
    Ok(Arc::new(values.collect::<BooleanArray>()))
}

fn measure(call: &Call, f: impl Fn(usize) -> Result<f64>) -> Result<ArrayRef> {
    call.map::<Float64Type>(|row| f(row).map(Some))
}
