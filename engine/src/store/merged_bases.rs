//! Bases of ranges that alone are right at one moment: a query that may be a little out of date
//! reads them instead of the ranges. A base is remembered by a weak reference: a strong one would
//! keep every page that later merges retire.

use super::{Store, StoredRange};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use strandline_base::{CommitTs, StorageId};
use strandline_table::lineage::base::{BaseBody, BaseState};
use strandline_table::lineage::range::RangeVersion;

/// The ranges to read, by storage.
pub(crate) type BaseOnlyRanges = BTreeMap<StorageId, Vec<(StoredRange, MergedBase)>>;

/// The base of a range that alone is right at the moment.
#[derive(Clone)]
pub(crate) struct MergedBase(Weak<BaseState>);

impl MergedBase {
    fn new(version: &RangeVersion) -> Self {
        Self(Arc::downgrade(&version.base))
    }

    /// The range without tails, if it still has this base.
    pub(super) fn of(&self, version: &RangeVersion) -> Option<Arc<RangeVersion>> {
        // The weak reference keeps the address from being used again.
        let is_same = std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&version.base));
        is_same.then(|| Arc::new(RangeVersion::of(version.base.clone())))
    }
}

impl Store {
    /// The bases that alone are right at some moment from `from` to `newest`, both inclusive.
    /// Narrows both bounds to the moments at which this holds for all ranges. None: no such moment
    /// exists.
    pub fn merged_bases(
        &self,
        from: &mut CommitTs,
        newest: &mut CommitTs,
    ) -> Option<Vec<(StoredRange, MergedBase)>> {
        let mut bases = Vec::new();
        for range in self.ranges() {
            let version = range.range().load_full();
            let moments = self.lineage.base_validity(&version, *from);
            *from = (*from).max(moments.from);
            *newest = (*newest).min(CommitTs(moments.before.0 - 1));
            if *newest < *from {
                return None;
            }
            // All rows of an insert range are later than the moment.
            if matches!(version.base.body, BaseBody::Chunks(_)) {
                bases.push((range, MergedBase::new(&version)));
            }
        }
        Some(bases)
    }
}
