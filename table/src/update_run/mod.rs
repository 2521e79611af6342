//! Update runs: sorted runs of committed tail records (see `strandline_storage::run`).
//!
//! A checkpoint writes the committed records that are in no run yet; recovery reads them back
//! into tails, and readers find in runs the versions that the base no longer holds. Ordering the
//! records of one row newest first is L-Store's layout of historic tail records \[L-Store §4.3\].
//!
//! A group holds the records of one row in a block: the times of the versions, then for each column
//! the versions' values, each as the difference to the next newer one. So a row's versions are read
//! newest first, and an unchanged value takes a bit per version (see `group` and `values`).
//!
//! Invariants:
//! 1. the records of a row are sorted by commit timestamp descending, newest first; its old-value
//!    records come after all others;
//! 2. a record is read exactly as it was pushed. The writer, not the codec, leaves out values that
//!    a version would repeat (see `lineage::history`).
//!
//! The byte layout is in docs/format.md, section "Update runs".
//!
//! Differences from the papers: a record carries columns of one row at one commit, not a blind
//! update to be merged; runs keep every version that may be asked for rather than one combined
//! update per key. L-Store has pages per column for a range of rows, oldest version first; here a
//! row's columns stand together, because history is read by row. The newest version comes first,
//! because most readers of the past stop at it.

mod codec;
#[cfg(test)]
mod format_tests;
mod group;
mod record;
#[cfg(test)]
mod tests;
mod values;

pub use codec::UpdateCodec;
pub use record::{RunRecord, RunRecordKind};

/// A run of updates.
pub type Run = strandline_storage::run::Run<UpdateCodec>;
/// Writes the records of one run of updates in order.
pub type RunWriter = strandline_storage::run::RunWriter<UpdateCodec>;
