//! Work on a whole database for its administrator: backup, check, inspection, and the return to an
//! earlier moment.

mod backup;
mod caches;
mod check;
mod check_index;
mod inspect;
mod rewind;
mod tiers;
mod vacuum_index;

pub use backup::{BackupReport, CopyObserver, CopyProgress, restore};
pub use inspect::{Inspection, InspectionSection};
pub use rewind::RewindReport;
pub use tiers::TierCounts;
