//! The errors that functions and rules raise inside DataFusion. They travel in
//! [`DataFusionError::External`], from which [`super::convert`] takes them.

use datafusion::error::DataFusionError;
use strandline_base::{Error, SqlState};

/// Wraps an error so that it passes through DataFusion unchanged.
pub fn raise(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error of the request with `state`, ready to be returned inside DataFusion.
pub fn invalid(state: SqlState, message: impl Into<String>) -> DataFusionError {
    raise(Error::invalid(state, message))
}

/// 22003 with PostgreSQL's wording: `bigint out of range`.
pub fn out_of_range(type_name: &str) -> DataFusionError {
    invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{type_name} out of range"),
    )
}

/// 22012.
pub fn division_by_zero() -> DataFusionError {
    invalid(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// 22003: a numeric result that does not fit 38 digits.
pub fn numeric_overflow() -> DataFusionError {
    raise(
        Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "value overflows numeric format",
        )
        .with_hint("Strandline computes numeric values with at most 38 decimal digits."),
    )
}
