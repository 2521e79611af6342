//! Rounds: the two sides take turns, so that a machine that slows down slows both.

use crate::Result;
use std::time::{Duration, Instant};

/// One contestant: every call measures once, in the round with this number. Who writes draws other
/// rows and values in each: a round that repeated the last one would change nothing.
pub type Side<'a, T = f64> = Box<dyn FnMut(u64) -> Result<T> + 'a>;

/// The median of `rounds` interleaved measurements of each side.
pub fn interleave(rounds: usize, sides: Vec<Side<'_>>) -> Result<Vec<f64>> {
    Ok(take_turns(rounds, sides)?.into_iter().map(median).collect())
}

/// `rounds` interleaved measurements of each side; who begins rotates.
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

/// Runs `work` over and over for `seconds`, at least 3 times: the median of the seconds it took.
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

/// The median; the mean of the middle two if there is an even number. `values` is not empty.
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
    fn sides_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name, figure: f64| -> Side<'_> {
            let order = &order;
            Box::new(move |round| {
                order.borrow_mut().push_str(&format!("{name}{round}"));
                Ok(figure)
            })
        };
        let medians = interleave(3, vec![side('a', 1.0), side('b', 2.0)]).unwrap();
        assert_eq!(
            (medians.as_slice(), order.borrow().as_str()),
            (&[1.0, 2.0][..], "a0b0b1a1a2b2")
        );
    }

    #[test]
    fn an_error_ends_the_rounds() {
        let sides: Vec<Side<'_>> = vec![Box::new(|_| Ok(1.0)), Box::new(|_| Err("no".into()))];
        assert!(interleave(3, sides).is_err());
    }
}
