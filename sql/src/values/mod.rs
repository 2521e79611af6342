//! Values of parameters and results: single values in three forms, values as text, results, and the
//! summary of a statement.

pub(crate) mod like_prefix;
pub(crate) mod parameter_value;
pub(crate) mod result;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod value_row;
