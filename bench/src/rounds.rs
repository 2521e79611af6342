//! Rounds: the sides take turns, so that a slower phase of the machine affects all of them. A
//! figure is the median of its rounds, with their range.

use crate::Result;
use std::time::{Duration, Instant};

/// One contestant. Every call measures once, in the round with this number. A side that writes
/// draws other rows and values in each round, since a repetition of the last round would change
/// nothing.
pub type Side<'a, T = f64> = Box<dyn FnMut(u64) -> Result<T> + 'a>;

/// A figure of several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median of the rounds.
    pub median: f64,
    /// The smallest of the rounds.
    pub least: f64,
    /// The largest of the rounds.
    pub most: f64,
}

impl Spread {
    /// The spread of `values`, which must not be empty.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let fold =
            |first: f64, choose: fn(f64, f64) -> f64| values.iter().copied().fold(first, choose);
        Self {
            least: fold(f64::INFINITY, f64::min),
            most: fold(f64::NEG_INFINITY, f64::max),
            median: median(values),
        }
    }

    /// The smallest and the largest; None after one measurement, or if all are equal.
    pub fn range(&self) -> Option<[f64; 2]> {
        (self.least < self.most).then_some([self.least, self.most])
    }
}

/// The spread of one measurement.
impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        Self {
            median: value,
            least: value,
            most: value,
        }
    }
}

/// `rounds` interleaved measurements of each side.
pub fn interleave(rounds: usize, sides: Vec<Side<'_>>) -> Result<Vec<Spread>> {
    Ok(take_turns(rounds, sides)?
        .into_iter()
        .map(Spread::of)
        .collect())
}

/// `rounds` interleaved measurements of each side; the side that begins rotates.
pub fn take_turns<T>(rounds: usize, mut sides: Vec<Side<'_, T>>) -> Result<Vec<Vec<T>>> {
    let mut figures: Vec<Vec<T>> = sides.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..sides.len() {
            let side = (round + turn) % sides.len();
            figures[side].push(sides[side](round as u64)?);
        }
    }
    Ok(figures)
}

/// Runs `work` over and over for `seconds`, at least 3 times; returns the median of its seconds.
pub fn repeat(seconds: f64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut times = Vec::new();
    while times.len() < 3 || Instant::now() < deadline {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}

/// The median, or the mean of the middle two of an even number. `values` must not be empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![1.0]), 1.0);
    }

    #[test]
    fn a_spread_has_the_ends_beside_the_median() {
        let spread = Spread::of([3.0, 1.0, 2.0, 9.0]);
        assert_eq!((spread.median, spread.range()), (2.5, Some([1.0, 9.0])));
        assert_eq!(Spread::of([4.0]), Spread::from(4.0));
        assert_eq!(Spread::from(4.0).range(), None);
    }

    #[test]
    fn sides_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name, figure: f64| -> Side<'_> {
            let order = &order;
            Box::new(move |round| {
                order.borrow_mut().push_str(&format!("{name}{round}"));
                Ok(figure)
            })
        };
        let found = interleave(3, vec![side('a', 1.0), side('b', 2.0)]).unwrap();
        assert_eq!(found, [Spread::from(1.0), Spread::from(2.0)]);
        assert_eq!(order.borrow().as_str(), "a0b0b1a1a2b2");
    }

    #[test]
    fn an_error_ends_the_rounds() {
        let sides: Vec<Side<'_>> = vec![Box::new(|_| Ok(1.0)), Box::new(|_| Err("no".into()))];
        assert!(interleave(3, sides).is_err());
    }
}
