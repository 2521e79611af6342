//! The interface of a storage engine in the harness: short transactions by key, sums over rows,
//! merges.
//!
//! The table has 10 bigint columns: `c1` to `c9` and the key `id`, in this order. Rows are numbered
//! by their keys. Transactions run at read committed. They fail at once when they meet another
//! transaction's write (*abort at once*). A sum reads one snapshot.

use crate::Result;
use std::ops::Range;
use strandline_base::ErrorKind;

/// Columns of the table.
pub const COLUMNS: usize = 10;
/// Their names in order.
pub const NAMES: [&str; COLUMNS] = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "id"];
/// An update sets the first columns, 40 % as in [L-Store §6.1].
pub const UPDATED: usize = 4;

/// The reason why a transaction did not commit. It has been rolled back.
#[derive(Debug)]
pub enum Failure {
    /// Another transaction had written one of its rows.
    Conflict,
    /// An unexpected error.
    Error(String),
}

impl From<strandline_base::Error> for Failure {
    fn from(error: strandline_base::Error) -> Self {
        match error.kind() {
            ErrorKind::Conflict => Self::Conflict,
            _ => Self::Error(error.to_string()),
        }
    }
}

/// The result of an operation in a transaction.
pub type Step<T> = std::result::Result<T, Failure>;

/// A running transaction.
pub trait Point {
    /// Copies the first columns of the row `key` into `values`, as many as fit.
    fn read(&mut self, key: u64, values: &mut [i64]) -> Step<()>;
    /// Sets the first columns of the row `key`.
    fn update(&mut self, key: u64, values: &[i64; UPDATED]) -> Step<()>;
}

/// The transactions of one thread.
pub trait Session {
    /// Runs `work` in a transaction. It commits if `work` returns Ok, and is rolled back otherwise.
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()>;
}

/// The scans of one thread.
pub trait Scanner {
    /// The sum of `c1` over rows, in one snapshot.
    fn sum(&mut self, rows: Range<u64>) -> Result<i64>;
}

/// A loaded table.
pub trait Engine: Sync {
    /// The engine's name in the results.
    fn name(&self) -> &'static str;
    /// A session whose reads take up to `columns` columns.
    fn session(&self, columns: usize) -> Result<Box<dyn Session + '_>>;
    /// A scanner.
    fn scanner(&self) -> Result<Box<dyn Scanner + '_>>;
    /// Merges the ranges that are due; false if there were none. Always false for engines that
    /// merge by themselves.
    fn merge(&self) -> bool;
    /// The number of ranges merged so far; 0 for engines that do not count them.
    fn merges(&self) -> u64 {
        0
    }
}

/// The initial values of a row.
pub fn first_values(key: u64, seed: u64) -> [i64; COLUMNS] {
    let mut rng = strandline_base::rng::Rng::new(seed ^ key.wrapping_mul(COLUMNS as u64));
    let mut values = std::array::from_fn(|_| rng.below(1 << 30) as i64);
    values[COLUMNS - 1] = key as i64;
    values
}
