//! What an operator wants of the rows of its input, as hints: the input may give more rows.

use crate::execution::row_executor::SlotRef;
use datafusion::common::Column;

/// What is wanted of a plan's rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// only the rows with these values are wanted
    pub equal: Vec<Equal>,
    /// only the first rows are wanted
    pub first: Option<First>,
    /// the plan gives the rows of a change: it reads one table, once
    pub of_changed: bool,
}

/// A column of the plan, and the slot of its value.
#[derive(Clone, Debug)]
pub(super) struct Equal {
    pub column: Column,
    pub slot: SlotRef,
}

/// The first rows in an order; in none: any rows.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub order: Vec<Order>,
    /// the slot of the number of rows
    pub enough: usize,
}

/// A column of an order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub column: Column,
    pub descending: bool,
    pub nulls_first: bool,
}

impl Demand {
    /// The same of an input, in which columns have the names that `name` gives.
    pub fn through(&self, name: impl Fn(&Column) -> Option<Column>) -> Self {
        let equal = self.equal.iter().filter_map(|equal| {
            Some(Equal {
                column: name(&equal.column)?,
                slot: equal.slot,
            })
        });
        let order = |first: &First| {
            let order = first.order.iter().map(|by| {
                Some(Order {
                    column: name(&by.column)?,
                    ..by.clone()
                })
            });
            Some(First {
                order: order.collect::<Option<_>>()?,
                enough: first.enough,
            })
        };
        Self {
            equal: equal.collect(),
            first: self.first.as_ref().and_then(order),
            of_changed: self.of_changed,
        }
    }

    pub fn without_first(&self) -> Self {
        Self {
            equal: self.equal.clone(),
            first: None,
            of_changed: false,
        }
    }
}
