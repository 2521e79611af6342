//! Ages of pending records, and the pause between background merges: see `maintenance::due`.
//!
//! Lock order: `ages` is taken with nothing else held.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::sync::Mutex;
use strandline_base::{RangeNo, StorageId};

/// The schedule; see the module's documentation. Times are those of [`super::Db::elapsed_us`].
#[derive(Debug, Default)]
pub(crate) struct MergeSchedule {
    /// when a range was first seen with pending records, or last tried in vain
    ages: Mutex<BTreeMap<(StorageId, RangeNo), u64>>,
    /// no background merge before this time
    rests_until_us: AtomicU64,
}

impl MergeSchedule {
    /// Rests after work from `from_us` to `to_us`, which may take `percent` of the time.
    pub fn rest(&self, from_us: u64, to_us: u64, percent: u32) {
        let percent = u64::from(percent.clamp(1, 100));
        let rest = to_us.saturating_sub(from_us) * (100 - percent) / percent;
        self.rests_until_us.store(to_us + rest, Ordering::Relaxed);
    }

    /// Whether the rest is over.
    pub fn may_merge(&self, now_us: u64) -> bool {
        now_us >= self.rests_until_us.load(Ordering::Relaxed)
    }

    /// Records the ranges with pending records; a new one has had them since `now_us`.
    pub fn note_pending(&self, ranges: Vec<(StorageId, RangeNo)>, now_us: u64) {
        let mut ages = self.ages.lock();
        let mut before = std::mem::take(&mut *ages);
        let since = |key| (key, before.remove(&key).unwrap_or(now_us));
        ages.extend(ranges.into_iter().map(since));
    }

    /// Records that a range has been merged, so its pending records are new.
    pub fn note_merged(&self, storage: StorageId, range: RangeNo) {
        self.ages.lock().remove(&(storage, range));
    }

    /// Records that all ranges with pending records of at least `age` have been tried. What is left
    /// of them belongs to open transactions, and becomes old again.
    pub fn note_tried(&self, age: Duration, now_us: u64) {
        let mut ages = self.ages.lock();
        let old = ages
            .values_mut()
            .filter(|since| has_passed(**since, age, now_us));
        old.for_each(|since| *since = now_us);
    }

    /// Whether a range has had pending records for at least `age`.
    pub fn is_old(&self, storage: StorageId, range: RangeNo, age: Duration, now_us: u64) -> bool {
        let since = self.ages.lock().get(&(storage, range)).copied();
        since.is_some_and(|since| has_passed(since, age, now_us))
    }
}

fn has_passed(since_us: u64, age: Duration, now_us: u64) -> bool {
    u128::from(now_us.saturating_sub(since_us)) >= age.as_micros()
}
