//! Refuses files of another version of Strandline.

use std::ops::RangeInclusive;

use strandline_base::{Error, Result};

/// An error unless `found` is a supported version.
pub(crate) fn refuse_unknown(file: &str, found: u32, known: RangeInclusive<u32>) -> Result<()> {
    if known.contains(&found) {
        return Ok(());
    }
    let (oldest, newest) = known.into_inner();
    if found > newest {
        return Err(Error::unsupported(format!(
            "\"{file}\" has format version {found}, but this Strandline reads versions up to \
             {newest}"
        ))
        .with_hint(
            "Open the database with the Strandline version that wrote it, or a later one.",
        ));
    }
    Err(Error::unsupported(format!(
        "\"{file}\" has format version {found}, but this Strandline reads versions from {oldest} on"
    ))
    .with_hint(
        "Write the tables to files with the Strandline version that wrote the database \
         (COPY \u{2026} TO), and load them into a new one.",
    ))
}
