//! Bases of ranges that alone are right at one moment: what a query that may be a little out of
//! date reads instead of the ranges. They are remembered, not held: whoever holds a base holds
//! every page that later merges retire.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use strandline_base::StorageId;
use strandline_table::lineage::base::BaseState;
use strandline_table::lineage::range::{Range, RangeVersion};

/// By storage the ranges to read.
pub(crate) type MergedRanges = BTreeMap<StorageId, Vec<(Arc<Range>, MergedBase)>>;

/// The base of a range that alone is right at the moment.
#[derive(Clone)]
pub(crate) struct MergedBase(Weak<BaseState>);

impl MergedBase {
    /// The base of `version`.
    pub fn new(version: &RangeVersion) -> Self {
        Self(Arc::downgrade(&version.base))
    }

    /// The range without tails, if it still has this base.
    pub fn of(&self, version: &RangeVersion) -> Option<Arc<RangeVersion>> {
        // The weak reference keeps the address from being used again.
        let is_same = std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&version.base));
        is_same.then(|| Arc::new(RangeVersion::of(version.base.clone())))
    }
}
