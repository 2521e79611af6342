//! Ranges whose base is an insert range or chunks.

use crate::lineage::base::BaseState;

/// The version of a range that readers load.
pub type RangeVersion = strandline_tail::range::RangeVersion<BaseState>;

/// A range of a storage.
pub type Range = strandline_tail::range::Range<BaseState>;
