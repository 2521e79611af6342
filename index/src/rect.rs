//! Boxes of two dimensions, conditions on them, and distances from a point. A point is a box of
//! zero size.
//!
//! Coordinates are ordered as PostgreSQL orders float8: NaN is above every number and equal to
//! itself, -0 equals 0. PostgreSQL's operators on boxes differ in two ways. A comparison with NaN
//! is false to them, and some of them allow a tolerance of 1e-6. So a caller enlarges the box of a
//! condition by its operator's tolerance, and applies the operator to the rows that are found.

use std::cmp::Ordering;

/// A box; its sides belong to it.
#[derive(Clone, Copy, Debug)]
pub struct Rect {
    low: [f64; 2],
    high: [f64; 2],
}

/// A condition on the boxes of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialQuery {
    /// every box
    All,
    /// `&&`: boxes that have a point in common with this one
    Overlaps(Rect),
    /// `@>`: boxes that this one lies within
    Contains(Rect),
    /// `<@`: boxes that lie within this one
    ContainedIn(Rect),
    /// `~=`: boxes equal to this one
    Equals(Rect),
}

/// The NaN of normal coordinates.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// The relative error of a distance is below this.
const DISTANCE_ERROR: f64 = 8.0 * f64::EPSILON;
/// Distances below this have larger relative errors.
const DISTANCE_MIN: f64 = 1e-300;

/// A coordinate in the form in which equal ones have equal bits, and `total_cmp` is their order.
fn normal(coordinate: f64) -> f64 {
    match coordinate {
        nan if nan.is_nan() => NAN,
        other => other + 0.0,
    }
}

fn is_at_most(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_le()
}

fn least(a: f64, b: f64) -> f64 {
    if is_at_most(a, b) { a } else { b }
}

fn greatest(a: f64, b: f64) -> f64 {
    if is_at_most(a, b) { b } else { a }
}

impl Rect {
    /// The box with two opposite corners (x, y).
    pub fn new(corner: [f64; 2], opposite: [f64; 2]) -> Self {
        let ([ax, ay], [bx, by]) = (corner.map(normal), opposite.map(normal));
        Self {
            low: [least(ax, bx), least(ay, by)],
            high: [greatest(ax, bx), greatest(ay, by)],
        }
    }

    /// The box of zero size at (x, y).
    pub fn point(at: [f64; 2]) -> Self {
        Self::new(at, at)
    }

    /// A box from the coordinates that [`Rect::low`] and [`Rect::high`] gave; None if they did not.
    pub(crate) fn from_stored(low: [f64; 2], high: [f64; 2]) -> Option<Self> {
        let (made, stored) = (Self::new(low, high), Self { low, high });
        (made == stored).then_some(made)
    }

    /// The least coordinates (x, y).
    pub fn low(&self) -> [f64; 2] {
        self.low
    }

    /// The greatest coordinates (x, y).
    pub fn high(&self) -> [f64; 2] {
        self.high
    }

    /// Pairs of a coordinate of `self` and one of `other`: its low ones and the other's high ones.
    fn low_beside_high(&self, other: &Self) -> [(f64, f64); 2] {
        let ([x, y], [high_x, high_y]) = (self.low, other.high);
        [(x, high_x), (y, high_y)]
    }

    /// Whether the boxes have a point in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut sides = self.low_beside_high(other).into_iter();
        let mut others = other.low_beside_high(self).into_iter();
        sides.all(|(low, high)| is_at_most(low, high))
            && others.all(|(low, high)| is_at_most(low, high))
    }

    /// Whether `other` lies within this box.
    pub fn contains(&self, other: &Self) -> bool {
        let mut lows = self.low.iter().zip(&other.low);
        let mut highs = other.high.iter().zip(&self.high);
        lows.all(|(a, b)| is_at_most(*a, *b)) && highs.all(|(a, b)| is_at_most(*a, *b))
    }

    /// The smallest box that contains both.
    pub fn union(&self, other: &Self) -> Self {
        let ([ax, ay], [bx, by]) = (self.low, other.low);
        let ([cx, cy], [dx, dy]) = (self.high, other.high);
        Self {
            low: [least(ax, bx), least(ay, by)],
            high: [greatest(cx, dx), greatest(cy, dy)],
        }
    }

    /// The distance of a point, which is finite, from the nearest point of the box; 0 within it.
    /// PostgreSQL's `<->` between a point and a box or another point: an infinite side counts more
    /// than NaN, and NaN, which is above all numbers, more than a finite one.
    pub fn distance(&self, from: [f64; 2]) -> f64 {
        let [x, y] = self.gaps(from, NAN);
        hypotenuse(x, y)
    }

    /// A number that is at most the distance of a finite point from any box within this one,
    /// whatever the rounding errors are.
    pub(crate) fn distance_at_least(&self, from: [f64; 2]) -> f64 {
        if *self == Self::point(self.low) {
            // Every box within this one is the same one.
            return self.distance(from);
        }
        // A box within this one has NaN where this one has it, or a smaller distance.
        let [x, y] = self.gaps(from, 0.0);
        if x.is_nan() || y.is_nan() {
            // Beside an infinite side NaN does not count.
            return f64::INFINITY;
        }
        let distance = hypotenuse(x, y);
        if x.is_infinite() || y.is_infinite() {
            return distance;
        }
        if distance < DISTANCE_MIN {
            return 0.0;
        }
        distance.min(f64::MAX) * (1.0 - DISTANCE_ERROR)
    }

    /// By how much a finite point is outside of the box in either dimension; `inside_of_unknown`
    /// if the point is not outside, and a side of the box is NaN.
    fn gaps(&self, from: [f64; 2], inside_of_unknown: f64) -> [f64; 2] {
        let gap = |low: f64, high: f64, at: f64| match () {
            () if low.is_nan() => NAN,
            () if at < low => low - at,
            () if at > high => at - high,
            () if high.is_nan() => inside_of_unknown,
            () => 0.0,
        };
        let ([low_x, low_y], [high_x, high_y]) = (self.low, self.high);
        [gap(low_x, high_x, from[0]), gap(low_y, high_y, from[1])]
    }
}

/// The length of a vector by PostgreSQL's formula, which neither overflows nor underflows in
/// between. An infinite side counts more than NaN.
fn hypotenuse(a: f64, b: f64) -> f64 {
    if a.is_infinite() || b.is_infinite() {
        return f64::INFINITY;
    }
    if a.is_nan() || b.is_nan() {
        return NAN;
    }
    let (long, short) = (a.max(b), a.min(b));
    if short == 0.0 {
        return long;
    }
    let ratio = short / long;
    long * (1.0 + ratio * ratio).sqrt()
}

impl PartialEq for Rect {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rect {}

impl PartialOrd for Rect {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An order without a meaning, for sorting and for sets.
impl Ord for Rect {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = self.low.iter().chain(&self.high);
        let pairs = ours.zip(other.low.iter().chain(&other.high));
        pairs.fold(Ordering::Equal, |order, (a, b)| order.then(a.total_cmp(b)))
    }
}

impl SpatialQuery {
    /// Whether a box is one of those wanted.
    pub fn holds(&self, entry: &Rect) -> bool {
        match self {
            Self::All => true,
            Self::Overlaps(rect) => entry.overlaps(rect),
            Self::Contains(rect) => entry.contains(rect),
            Self::ContainedIn(rect) => rect.contains(entry),
            Self::Equals(rect) => entry == rect,
        }
    }

    /// Whether a box within `bound` may be one of those wanted.
    pub(crate) fn may_hold_within(&self, bound: &Rect) -> bool {
        match self {
            Self::All => true,
            Self::Overlaps(rect) | Self::ContainedIn(rect) => bound.overlaps(rect),
            Self::Contains(rect) | Self::Equals(rect) => bound.contains(rect),
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    const SPECIAL: [f64; 10] = [
        f64::NEG_INFINITY,
        -1e308,
        -1.0,
        -0.0,
        0.0,
        5e-324,
        1.0,
        1e308,
        f64::INFINITY,
        f64::NAN,
    ];

    fn random(rng: &mut Rng) -> f64 {
        match rng.below(3) {
            0 => SPECIAL[rng.below(10) as usize],
            1 => rng.below(20) as f64 / 3.0,
            _ => f64::from_bits(rng.next_u64()),
        }
    }

    fn random_point(rng: &mut Rng) -> [f64; 2] {
        [random(rng), random(rng)]
    }

    fn random_rect(rng: &mut Rng) -> Rect {
        Rect::new(random_point(rng), random_point(rng))
    }

    #[test]
    fn corners_are_ordered_and_normal() {
        let rect = Rect::new([1.0, -0.0], [f64::NAN, -3.0]);
        assert_eq!(rect.low()[0].to_bits(), 1.0_f64.to_bits());
        assert!(rect.high()[0].is_nan());
        assert_eq!((rect.low()[1], rect.high()[1].to_bits()), (-3.0, 0));
        assert_eq!(Rect::point([0.0, 1.0]), Rect::point([-0.0, 1.0]));
        let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63 | 5);
        assert_eq!(
            Rect::point([negative_nan, 1.0]),
            Rect::point([f64::NAN, 1.0])
        );
        assert_eq!(Rect::from_stored([-0.0; 2], [1.0; 2]), None);
        assert_eq!(Rect::from_stored([2.0; 2], [1.0; 2]), None);
        assert_eq!(Rect::from_stored(rect.low(), rect.high()), Some(rect));
    }

    #[test]
    fn sides_belong_to_a_box() {
        let rect = |a, b| Rect::new([a, a], [b, b]);
        let unit = rect(0.0, 1.0);
        assert!(unit.overlaps(&rect(1.0, 2.0)) && rect(1.0, 2.0).overlaps(&unit));
        assert!(!unit.overlaps(&rect(1.5, 2.0)) && !rect(1.5, 2.0).overlaps(&unit));
        let beside = Rect::new([0.0, 2.0], [1.0, 3.0]);
        assert!(!unit.overlaps(&beside) && !beside.overlaps(&unit));
        assert!(unit.contains(&unit) && unit.contains(&rect(0.0, 0.5)));
        assert!(!unit.contains(&rect(0.5, 1.5)) && !rect(0.5, 1.5).contains(&unit));
    }

    /// What a search relies on when it passes a node by.
    #[test]
    fn a_condition_that_holds_may_hold_within_every_larger_box() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let (entry, other) = (random_rect(&mut rng), random_rect(&mut rng));
            let bound = entry.union(&random_rect(&mut rng));
            assert!(bound.contains(&entry));
            assert_eq!(
                other.contains(&entry),
                other.union(&entry) == other,
                "{other:?} {entry:?}"
            );
            for query in [
                SpatialQuery::All,
                SpatialQuery::Overlaps(other),
                SpatialQuery::Contains(other),
                SpatialQuery::ContainedIn(other),
                SpatialQuery::Equals(entry),
            ] {
                let may = query.may_hold_within(&bound);
                assert!(may || !query.holds(&entry), "{query:?} {entry:?} {bound:?}");
            }
            let point = random_point(&mut rng);
            let (least, distance) = (bound.distance_at_least(point), entry.distance(point));
            assert!(
                is_at_most(least, distance),
                "{bound:?} {entry:?} {point:?}: {least} {distance}"
            );
        }
    }

    /// The formula's rounding errors may make a larger vector shorter.
    #[test]
    fn a_bound_is_below_distances_that_are_rounded_down() {
        let (mut rng, mut shortened) = (Rng::new(2), 0);
        for _ in 0..20_000 {
            let [x, y] = [0, 1].map(|_| rng.next_u64() as f64 / 1e9);
            let bound = Rect::new([x, y], [f64::INFINITY, f64::INFINITY]);
            let entry = Rect::point([x.next_up(), y]);
            let distance = entry.distance([0.0, 0.0]);
            shortened += usize::from(distance < bound.distance([0.0, 0.0]));
            assert!(bound.distance_at_least([0.0, 0.0]) <= distance, "{x} {y}");
        }
        assert!(shortened > 0);
    }

    #[test]
    fn distances_are_postgresqls() {
        let unit = Rect::new([0.0, 0.0], [1.0, 1.0]);
        assert_eq!(unit.distance([0.5, 1.0]), 0.0);
        assert_eq!(unit.distance([4.0, 5.0]), 5.0);
        assert_eq!(unit.distance([-2.0, 0.5]), 2.0);
        let at_origin = |x: f64, y: f64| Rect::point([x, y]).distance([0.0, 0.0]);
        assert!(at_origin(f64::NAN, 0.0).is_nan());
        assert_eq!(at_origin(f64::NAN, f64::INFINITY), f64::INFINITY);
        let far = Rect::point([f64::INFINITY, 0.0]);
        assert_eq!(far.distance([1e308, 0.0]), f64::INFINITY);
        let unknown = Rect::new([1.0, 0.0], [f64::NAN, 1.0]);
        assert_eq!(unknown.distance([0.0, 0.5]), 1.0);
        assert!(unknown.distance([2.0, 0.5]).is_nan());
        let long = Rect::point([3e200, 4e200]).distance([0.0, 0.0]);
        assert!((long / 5e200 - 1.0).abs() < 1e-15, "{long}");
    }
}
