//! Names of result columns within a plan, where they must be distinct.
//!
//! DataFusion requires distinct names in a SELECT list. Of several columns with one name, all but
//! the first get [`SEPARATOR`] and a number appended.

/// Precedes the number that makes a name distinct; no identifier contains it.
pub const SEPARATOR: char = '\u{1f}';

/// The name of a result column for users.
pub fn output_name(name: &str) -> &str {
    name.split(SEPARATOR).next().unwrap_or(name)
}
