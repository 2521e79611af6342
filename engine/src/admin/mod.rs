//! What an administrator asks of a whole database: a copy of it, whether it is sound, what is in
//! it, and its state of an earlier moment.

mod backup;
mod check;
mod inspect;
mod rewind;

pub use backup::{BackupReport, CopyObserver, CopyProgress, restore};
pub use inspect::{Inspection, InspectionSection};
pub use rewind::RewindReport;
