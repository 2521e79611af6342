//! Random typed statements whose answers are compared with PostgreSQL's.
//!
//! A seed gives the tables and their rows ([`setup`]); a seed and a number give one [`Unit`]: a
//! query, or a change and a query of the changed table, both in a transaction that is rolled back.
//! So every unit starts from the same rows and can be run by itself.
//!
//! Every answer is determined by the statement: results are compared as multisets unless the order
//! is total, LIMIT and window functions have orders that leave only equal rows open, a change takes
//! at most one row of another table for each of its own. There are no floats, no volatile
//! functions, and no averages but rounded ones.
//!
//! Expressions may fail (division by zero, integer overflow): neither system says which rows it
//! evaluates first, and PostgreSQL's failure allows ours to succeed.

mod answer;
mod changes;
mod data;
mod expressions;
mod generator;
mod known;
mod ours;
mod postgres;
mod queries;
mod scope;

pub use answer::{Answer, Outcome, Standing, escaped, plain, standing};
pub use data::{indexes, setup};
pub use known::Known;
pub use ours::Ours;
pub use postgres::Postgres;

use generator::Generator;
use scope::Scope;
use strandline_base::rng::Rng;

/// What is run and compared by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// a statement that changes rows, rolled back after the query
    pub change: Option<String>,
    pub query: String,
}

impl Unit {
    /// Unit `number` of a seed.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut mixed = Rng::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut generator = Generator::new(Rng::new(mixed.next_u64()));
        if generator.rng.one_in(5) {
            let (change, query) = generator.change();
            return Self {
                change: Some(change),
                query,
            };
        }
        let around = Scope {
            subqueries: 2,
            ..Scope::default()
        };
        let query = generator.query(&around, None);
        let order = match generator.rng.one_in(3) && !query.sql.contains(" LIMIT ") {
            true => generator.order_by_all(query.kinds.len()),
            false => String::new(),
        };
        Self {
            change: None,
            query: format!("{}{order}", query.sql),
        }
    }

    /// A query without a change.
    pub fn of_query(query: &str) -> Self {
        Self {
            change: None,
            query: query.to_string(),
        }
    }

    /// Whether the rows come in one order only: the query ends with an ORDER BY, which names every
    /// column.
    pub fn is_ordered(&self) -> bool {
        match self.query.rsplit_once(" ORDER BY 1") {
            Some((_, terms)) => !terms.contains(')'),
            None => false,
        }
    }
}
