//! Where an entry belongs, and how a full node is divided: by the sizes of boxes.
//!
//! Sizes only decide how quick searches are. Infinite sides, and sides with NaN, count as sides of
//! [`SIDE_MAX`].
//!
//! Differences from the literature \[Guttman 1984; Beckmann et al., *R\*-tree*, 1990\]: the R*-tree
//! also chooses leaves by the overlap of their boxes, which costs the square of a node's entries
//! for each insertion, and inserts a part of a full node's entries anew, which readers would miss
//! that run beside. Equal boxes are told apart by rows.

use super::node::{Bound, Entry};
use crate::rect::Rect;
use std::cmp::Ordering;

/// The longest side that counts: an area of it is a finite number.
const SIDE_MAX: f64 = 1e150;

/// The fewest entries of either part of a divided node, in tenths of all.
const SHARE_MIN_TENTHS: usize = 4;

fn sides(rect: &Rect) -> [f64; 2] {
    let ([low_x, low_y], [high_x, high_y]) = (rect.low(), rect.high());
    [high_x - low_x, high_y - low_y].map(|side| side.min(SIDE_MAX))
}

fn area(rect: &Rect) -> f64 {
    let [x, y] = sides(rect);
    x * y
}

fn margin(rect: &Rect) -> f64 {
    let [x, y] = sides(rect);
    x + y
}

/// The area that two boxes have in common.
fn overlap(a: &Rect, b: &Rect) -> f64 {
    if !a.overlaps(b) {
        return 0.0;
    }
    let corner = |low: bool| {
        let pair = match low {
            true => (a.low(), b.low()),
            false => (a.high(), b.high()),
        };
        let ([ax, ay], [bx, by]) = pair;
        let pick = |a: f64, b: f64| match a.total_cmp(&b).is_lt() == low {
            true => b,
            false => a,
        };
        [pick(ax, bx), pick(ay, by)]
    };
    area(&Rect::new(corner(true), corner(false)))
}

fn compare<const N: usize>(a: [f64; N], b: [f64; N]) -> Ordering {
    let pairs = a.iter().zip(&b);
    pairs.fold(Ordering::Equal, |order, (a, b)| order.then(a.total_cmp(b)))
}

/// The position of the child that has to grow least for an entry: by its area, else by its margin;
/// then the smallest one; then the one whose range of rows has to grow least. GiST's penalty.
pub(super) fn choose(children: &[Entry], bound: &Bound) -> Option<usize> {
    let penalty = |child: &Entry| {
        let (old, new) = (&child.bound, child.bound.union(bound));
        let (old_area, old_margin) = (area(&old.rect), margin(&old.rect));
        let ([from, to], [new_from, new_to]) = (old.rows, new.rows);
        let sizes = [
            area(&new.rect) - old_area,
            margin(&new.rect) - old_margin,
            old_area,
            old_margin,
        ];
        (sizes, (from - new_from).saturating_add(new_to - to))
    };
    let penalties = children.iter().map(penalty).enumerate();
    let least = penalties
        .min_by(|(_, (a, a_rows)), (_, (b, b_rows))| compare(*a, *b).then(a_rows.cmp(b_rows)));
    least.map(|(at, _)| at)
}

/// Divides the entries of a full node, two or more; returns the right part. The R*-tree's split:
/// along the axis on which the margins of all permitted divisions are least, where the two boxes
/// overlap least, then where their areas are least, then in the middle.
pub(super) fn divide(entries: &mut Vec<Entry>) -> Vec<Entry> {
    let orders = [0, 1].map(|axis| {
        [Side::Low, Side::High].map(|side| {
            let mut order = entries.clone();
            order.sort_unstable_by(|a, b| by_side(axis, side, a, b));
            let divisions = divisions(&order);
            (order, divisions)
        })
    });
    let margins = |orders: &[(Vec<Entry>, Vec<Division>); 2]| -> f64 {
        let divisions = orders.iter().flat_map(|(_, divisions)| divisions);
        divisions.map(|division| division.margin).sum()
    };
    let [x, y] = orders;
    let axis = if margins(&x) <= margins(&y) { x } else { y };
    let middle = entries.len() / 2;
    let candidates = axis.into_iter().flat_map(|(order, divisions)| {
        let best = divisions.into_iter().min_by(|a, b| by_value(middle, a, b));
        best.map(|division| (order, division))
    });
    let best = candidates.min_by(|(_, a), (_, b)| by_value(middle, a, b));
    let (order, division) = best.expect("two entries have a division");
    *entries = order;
    entries.split_off(division.at)
}

/// The side of boxes by which they are sorted first.
#[derive(Clone, Copy)]
enum Side {
    Low,
    High,
}

/// By one side of the axis, then by the other one, then by row.
fn by_side(axis: usize, first: Side, a: &Entry, b: &Entry) -> Ordering {
    let along = |entry: &Entry| {
        let (low, high) = (entry.bound.rect.low(), entry.bound.rect.high());
        let pick = |[x, y]: [f64; 2]| if axis == 0 { x } else { y };
        match first {
            Side::Low => [pick(low), pick(high)],
            Side::High => [pick(high), pick(low)],
        }
    };
    let by_axis = compare(along(a), along(b));
    by_axis.then_with(|| (a.bound.rows, a.bound.rect).cmp(&(b.bound.rows, b.bound.rect)))
}

/// A division of sorted entries.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// the first entry of the right part
    at: usize,
    overlap: f64,
    area: f64,
    margin: f64,
}

fn by_value(middle: usize, a: &Division, b: &Division) -> Ordering {
    let by_size = compare([a.overlap, a.area], [b.overlap, b.area]);
    by_size.then_with(|| a.at.abs_diff(middle).cmp(&b.at.abs_diff(middle)))
}

/// The permitted divisions of sorted entries.
fn divisions(entries: &[Entry]) -> Vec<Division> {
    let unite = |all: &mut Option<Rect>, entry: &Entry| {
        let rect = entry.bound.rect;
        *all = Some(all.map_or(rect, |all| all.union(&rect)));
        *all
    };
    let left: Vec<Rect> = entries.iter().scan(None, unite).collect();
    let mut right: Vec<Rect> = entries.iter().rev().scan(None, unite).collect();
    right.reverse();
    let least = (entries.len() * SHARE_MIN_TENTHS / 10).max(1);
    let both = left.iter().zip(right.iter().skip(1)).enumerate();
    let permitted = both.skip(least - 1).take(entries.len() + 1 - 2 * least);
    permitted
        .map(|(before, (left, right))| Division {
            at: before + 1,
            overlap: overlap(left, right),
            area: area(left) + area(right),
            margin: margin(left) + margin(right),
        })
        .collect()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::tree_pages::Tail;
    use strandline_base::RowId;
    use strandline_base::rng::Rng;

    fn entry(low: [f64; 2], high: [f64; 2], row: u64) -> Entry {
        Entry {
            bound: Bound::of(Rect::new(low, high), RowId(row)),
            tail: Tail::Live,
        }
    }

    fn rows(entries: &[Entry]) -> Vec<u64> {
        let mut rows: Vec<u64> = entries.iter().map(|e| e.bound.row().0).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn two_groups_are_told_apart_on_either_axis() {
        for axis in 0..2 {
            let at = |v: f64, no: u64| {
                let mut low = [no as f64 % 3.0; 2];
                low[axis] = v + no as f64 / 10.0;
                entry(low, low, no)
            };
            // 6 of 10 entries are near 0, the others near 100, in mixed order.
            let groups = [0.0, 100.0, 0.0, 100.0, 0.0, 0.0, 100.0, 0.0, 100.0, 0.0];
            let mut left: Vec<_> = groups.iter().zip(0..).map(|(v, no)| at(*v, no)).collect();
            let right = divide(&mut left);
            assert_eq!(rows(&left), [0, 2, 4, 5, 7, 9], "axis {axis}");
            assert_eq!(rows(&right), [1, 3, 6, 8]);
        }
    }

    #[test]
    fn equal_boxes_are_divided_by_rows_in_the_middle() {
        let order = [7, 2, 9, 4, 1, 8, 3, 6, 5, 0];
        let mut left: Vec<_> = order.map(|no| entry([1.0; 2], [2.0; 2], no)).to_vec();
        let right = divide(&mut left);
        assert_eq!(
            (rows(&left), rows(&right)),
            ((0..5).collect(), (5..10).collect())
        );
    }

    #[test]
    fn either_part_has_at_least_four_tenths() {
        let special = [
            f64::NEG_INFINITY,
            f64::INFINITY,
            f64::NAN,
            0.0,
            1e308,
            -1e308,
        ];
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let count = 2 + rng.below(40);
            let mut at = || match rng.below(4) {
                0 => special[rng.below(6) as usize],
                _ => 2.0_f64.powi(rng.below(60) as i32),
            };
            let all = (0..count).map(|no| entry([at(), at()], [at(), at()], no));
            let mut left: Vec<_> = all.collect();
            let right = divide(&mut left);
            let least = (count as usize * 4 / 10).max(1);
            assert!(left.len() >= least && right.len() >= least, "seed {seed}");
            let both = [left, right].concat();
            assert_eq!(rows(&both), (0..count).collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn an_entry_goes_where_the_area_grows_least() {
        let child = |low: f64, high: f64, rows| {
            let rect = Rect::new([low, 0.0], [high, 1.0]);
            let bound = Bound { rect, rows };
            Entry::child(bound, strandline_storage::pages::PageNumber(2))
        };
        let children = [
            child(0.0, 10.0, [5, 9]),
            child(2.0, 4.0, [0, 3]),
            child(2.0, 4.0, [4, 8]),
            child(20.0, 21.0, [0, 9]),
        ];
        let at = |x: f64, row| choose(&children, &Bound::of(Rect::point([x, 0.5]), RowId(row)));
        assert_eq!(at(9.0, 7), Some(0));
        assert_eq!(at(3.0, 2), Some(1), "the smallest one that holds it");
        assert_eq!(at(3.0, 9), Some(2), "the one whose rows grow least");
        assert_eq!(at(19.0, 1), Some(3));
        assert_eq!(choose(&[], &children[0].bound), None);
        // Without any area the margin decides.
        let line = |low: f64, high: f64| {
            let bound = Bound {
                rect: Rect::new([low, 0.0], [high, 0.0]),
                rows: [0, 9],
            };
            Entry::child(bound, strandline_storage::pages::PageNumber(2))
        };
        let bound = Bound::of(Rect::point([7.0, 0.0]), RowId(1));
        assert_eq!(choose(&[line(0.0, 5.0), line(8.0, 20.0)], &bound), Some(1));
    }
}
