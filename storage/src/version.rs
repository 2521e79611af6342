//! Refusing files of a later Strandline by name and version.

use strandline_base::{Error, Result};

/// An error if `found` is newer than `known`, the newest version that this build reads.
pub(crate) fn refuse_newer(file: &str, found: u32, known: u32) -> Result<()> {
    if found <= known {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "\"{file}\" has format version {found}, but this Strandline reads versions up to {known}"
    ))
    .with_hint("Open the database with the Strandline version that wrote it, or a later one."))
}
