//! The part of unsynced work that a crash leaves.

use strandline_base::rng::Rng;

/// How much of the unsynced work a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashStyle {
    /// Every unsynced write and name change reached the disk.
    KeepAll,
    /// None did.
    DropAll,
    /// Each survives, vanishes or tears at random.
    Random,
}

impl CrashStyle {
    pub(crate) fn survives(self, rng: &mut Rng) -> bool {
        match self {
            CrashStyle::KeepAll => true,
            CrashStyle::DropAll => false,
            CrashStyle::Random => rng.one_in(2),
        }
    }
}
