//! Names of result columns within a plan, where they are distinct.
//!
//! DataFusion wants the names of one SELECT list to be distinct. Of columns with the same name all
//! but the first get [`SEPARATOR`] and a number behind their name.

/// Stands before the number that makes a name distinct; no identifier contains it.
pub const SEPARATOR: char = '\u{1f}';

/// The name of a result column as a user sees it.
pub fn output_name(name: &str) -> &str {
    name.split(SEPARATOR).next().unwrap_or(name)
}
