//! Values that no row decides: parameters, literals, `now()`, identities.

use datafusion::scalar::ScalarValue;
use strandline_base::SqlType;

/// Where a value comes from that no row decides.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// a parameter: its index, its type (None: its value's), whether it is negated
    Parameter(usize, Option<SqlType>, bool),
    /// a cast of a parameter without a declared type: its index, and the type
    Read(usize, SqlType),
    /// a literal; strings have no type of their own
    Literal(ScalarValue),
    /// `now()`
    Now,
    /// the next value of the column's identity
    Identity,
    /// one of the statement's expressions over parameters
    Computed(usize),
    /// the value of one of the statement's subqueries, and its type
    Query(usize, SqlType),
}

/// A value with the type that it has in the statement.
pub(super) struct Datum {
    pub value: ScalarValue,
    /// None: that of a literal that reads as the value; of a string none at all
    pub known: Option<SqlType>,
}
