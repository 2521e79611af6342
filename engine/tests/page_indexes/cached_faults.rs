//! The suites of faults below an SSD cache.

use crate::faults::{
    a_missing_file_is_built_again_by_the_opening, indexes_are_whole_after_two_crashes,
};
use crate::full_disk::{
    a_full_disk_does_not_keep_a_damaged_index_from_being_opened,
    a_full_disk_refuses_entries_and_loses_none,
};
use crate::machine::in_places;

in_places! {
    cached_pc = Place::Cached(SsdCacheMode::Pc),
    cached_pc2 = Place::Cached(SsdCacheMode::Pc2),
    cached_lc = Place::Cached(SsdCacheMode::Lc);
    [
        indexes_are_whole_after_two_crashes,
        a_missing_file_is_built_again_by_the_opening,
        a_full_disk_does_not_keep_a_damaged_index_from_being_opened,
        a_full_disk_refuses_entries_and_loses_none,
    ]
}
