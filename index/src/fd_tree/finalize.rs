//! Merge-finalize [FD+ §2.3, technical report]: levels that the head can stand in for are skipped.

use super::block::Kind;
use super::state::Shared;
use std::collections::BTreeMap;
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
                    fences.insert(key.into(), to);
                }
            }
        }
        let blocks = (first.live_from..first.level.end()).filter_map(|at| first.level.number(at));
        let mut state = shared.state.lock();
        state.head.set_fences(fences);
        state.slots.remove(0);
        state.reclaim(blocks.collect());
    }
}
