//! Merge-finalize [FD+ §2.3, technical report]: the new levels get the least numbers, and levels
//! that the head can stand in for are skipped.

use super::block::Kind;
use super::level::Level;
use super::state::{Settings, Shared, Slot, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::Result;

/// Level skipping: a level of fences goes if the head can hold the fences to the level below it.
pub(super) fn skip_levels(shared: &Shared) -> Result<()> {
    loop {
        let first = {
            let state = shared.state.lock();
            match state.slots.as_slice() {
                [first, second, ..]
                    if first.level.only_fences
                        && second.blocks() <= shared.settings.capacity(1) =>
                {
                    first.clone()
                }
                _ => return Ok(()),
            }
        };
        let mut fences = BTreeMap::new();
        for ordinal in first.live_from..first.level.end() {
            let block = shared.read(&first.level, ordinal)?;
            for (key, kind) in block.iter() {
                if let Kind::Fence(to) = kind {
                    fences.insert(key, to);
                }
            }
        }
        let blocks = first.level.numbers(first.live_from).into_iter().flatten();
        let mut state = shared.state.lock();
        state.head.set_fences(fences);
        Arc::make_mut(&mut state.slots).remove(0);
        state.reclaim(blocks.collect());
    }
}

/// Level tightening: the least numbers that the new levels' sizes allow (I3, I4). The target, the
/// last of them, may have got no data.
pub(super) fn tighten(settings: &Settings, state: &mut State, new_levels: usize, has_data: bool) {
    let target = new_levels - 1;
    let slots = Arc::make_mut(&mut state.slots);
    if let (Some(slot), false) = (slots.get_mut(target), has_data) {
        let numbers = slot.level.numbers(0).into_iter().flatten();
        let level = Level::opened(slot.level.runs(), true, 0, numbers.collect());
        slot.level = Arc::new(level);
    }
    let mut at = 0;
    let mut kept = 0;
    slots.retain(|slot| {
        at += 1;
        let is_kept = at > new_levels || slot.blocks() > 0;
        kept += u32::from(is_kept && at <= new_levels);
        is_kept
    });
    let Some(last) = kept.checked_sub(1) else {
        return;
    };
    let Some(slot) = slots.get_mut(last as usize) else {
        return;
    };
    let mut numbers = kept..slot.number;
    let fit = numbers.find(|number| slot.blocks() <= settings.capacity(*number));
    let number = fit.unwrap_or(slot.number);
    for (at, slot) in slots.iter_mut().take(kept as usize).enumerate() {
        slot.number = number - (last - at as u32);
    }
    raise(settings, slots);
}

/// Gives levels that are too large for their number a greater one (I3): an image, and the plan of a
/// compaction that it names, may be of an earlier version with a greater size ratio.
pub(super) fn raise(settings: &Settings, slots: &mut [Slot]) {
    let mut above = 0;
    for slot in slots {
        slot.number = slot.number.max(above + 1);
        while !settings.holds(slot.number, slot.blocks()) {
            slot.number += 1;
        }
        above = slot.number;
    }
}
