//! The operators of short plans.

mod aggregate;
mod change;
mod join;
mod rows;
mod scan;
mod shape;
mod table;

pub(super) use aggregate::{Aggregate, Call};
pub(super) use change::{Change, Returned, Widen};
pub(super) use join::{Join, JoinKind, Key};
pub(super) use rows::{KeptRows, Nothing, Values};
pub(super) use scan::{Bound, Scan};
pub(super) use shape::{Filter, Limit, Project, Sort, Union};
pub(super) use table::{ByLookup, SmallTable, Stored};
