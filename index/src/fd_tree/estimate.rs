//! Estimates of the number of entries of a range, from the blocks that its bounds lead to.

use super::scan::Scan;
use super::state::{Shared, Slot};
use crate::access_method::Direction;
use crate::entry::EntryRange;
use strandline_base::Result;

/// Up to so many entries are counted one by one.
const COUNTED_ENTRIES: usize = 256;

/// The number of entries of a range: exact up to 256. Otherwise all blocks with data are taken to
/// have equally many. Reads the blocks of two lookups, and those of the entries that it counts.
pub(super) fn estimate(shared: &Shared, range: &EntryRange, all: usize) -> Result<usize> {
    let before = range.before.as_deref();
    let mut scan = Scan::new(shared, &range.from, before, Direction::Forward);
    let mut counted = 0;
    while scan.next()?.is_some() {
        counted += 1;
        if counted == COUNTED_ENTRIES {
            let first = share_before(shared, &range.from)?;
            let end = before.map_or(Ok(1.0), |before| share_before(shared, before))?;
            let share = (end - first).max(0.0);
            return Ok(counted.max((share * all as f64) as usize));
        }
    }
    Ok(counted)
}

/// The share of the blocks with data that come before a key, on both sides of a wavefront.
fn share_before(shared: &Shared, key: &[u8]) -> Result<f64> {
    let state = shared.state.lock();
    let (mut pointer, path) = state.path(key);
    let is_old = state.old.as_ref().is_some_and(|old| old.has(key));
    let new_levels = state.old.as_ref().map_or(0, |old| old.new_levels);
    // Blocks of the side on which the key is not.
    let new = state.slots.iter().take(new_levels);
    let old = state.old.iter().flat_map(|old| old.slots.iter());
    let (new, old): (u64, u64) = (new.map(data_blocks).sum(), old.map(data_blocks).sum());
    let _era = state.enter();
    drop(state);
    let (mut before, other) = if is_old { (new, new) } else { (0, old) };
    let all = other + path.iter().map(data_blocks).sum::<u64>();
    for slot in path.iter() {
        let Some(ordinal) = pointer else { break };
        if !slot.level.only_fences {
            before += ordinal.saturating_sub(slot.live_from);
        }
        pointer = shared.look(&slot.level, ordinal, |block| block.floor_fence(key))?;
    }
    Ok(before as f64 / all.max(1) as f64)
}

fn data_blocks(slot: &Slot) -> u64 {
    match slot.level.only_fences {
        true => 0,
        false => slot.blocks(),
    }
}
