//! Merge-prepare: which levels a compaction replaces, and which it makes [FD+ §2.3, §4.2].

use super::loaded::Loaded;
use super::state::{Settings, State};

/// What a compaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// levels below the head that it replaces, from the top
    pub replaced: usize,
    /// number of the level that takes all data entries
    pub target: u32,
    /// levels above the target that have only fences; the others are skipped
    pub fence_levels: u32,
}

/// Bytes of an entry in a block besides its own: kind and lengths.
const OVERHEAD_BYTES: usize = 4;
/// Bytes of the key of an average entry, if the head has none.
const KEY_BYTES: usize = 32;

/// Chooses the least level that is sure to hold what is above it and the entries of a load; all
/// levels on an underflow.
pub(super) fn plan(
    settings: &Settings,
    state: &State,
    block_bytes: usize,
    is_underflow: bool,
    loaded: Option<&Loaded>,
) -> Plan {
    let (entries, bytes) = (state.head.data.len(), state.head.data_bytes());
    let blocks_of = |entries: usize, bytes: usize| {
        let by_bytes = bytes.div_ceil(block_bytes);
        by_bytes.max(entries.div_ceil(settings.block_entries_max)) as u64
    };
    let head_blocks = blocks_of(entries, bytes);
    let loaded_bytes = loaded.map_or(0, |loaded| loaded.bytes() + loaded.len() * OVERHEAD_BYTES);
    let loaded_entries = loaded.map_or(0, Loaded::len);
    let loaded_blocks = blocks_of(loaded_entries, loaded_bytes);
    let height = state.slots.last().map_or(1, |slot| slot.number + 1);
    let mut chosen = None;
    for target in 1..height {
        let is_full = target + 1 == height;
        if is_underflow && !is_full {
            continue;
        }
        let replaced = state.slots.iter().take_while(|slot| slot.number <= target);
        let replaced = replaced.count();
        let data_blocks: u64 = (state.slots.iter().take(replaced).enumerate())
            .filter(|(at, slot)| !slot.level.only_fences || at + 1 == replaced && !is_full)
            .map(|(_, slot)| slot.blocks())
            .sum();
        let mut bound = head_blocks + data_blocks;
        if is_full {
            // The live entries at the density of all entries.
            let all = (state.inserts + state.deletes).max(1);
            let live = state.inserts.saturating_sub(state.deletes);
            bound = (u128::from(bound) * u128::from(live)).div_ceil(u128::from(all)) as u64;
            bound += loaded_blocks;
        } else {
            // Every new block may begin with a fence that I2 adds.
            let dense = (settings.block_entries_max as u64).clamp(2, 64);
            bound = (bound + loaded_blocks) * dense / (dense - 1) + 1;
        }
        chosen = Some((replaced, target, bound));
        if bound <= settings.capacity(target) {
            break;
        }
        chosen = None;
    }
    let (replaced, target, bound) = chosen.unwrap_or_else(|| {
        let blocks = state.slots.iter().filter(|slot| !slot.level.only_fences);
        let bound = head_blocks + loaded_blocks + blocks.map(|slot| slot.blocks()).sum::<u64>();
        // Mostly a level more; several if the head has more blocks than its capacity.
        let mut target = height;
        while settings.capacity(target) < bound {
            target += 1;
        }
        (state.slots.len(), target, bound)
    });
    let key_bytes = match entries + loaded_entries {
        0 => KEY_BYTES,
        all => (bytes + loaded_bytes) / all,
    };
    let fences_a_block = (block_bytes / key_bytes).clamp(2, settings.block_entries_max) as u64;
    let fence_levels = fence_levels(settings, target, bound, fences_a_block);
    Plan {
        replaced,
        target,
        fence_levels,
    }
}

/// Levels of fences above a target of so many blocks, until the head can hold the fences.
fn fence_levels(settings: &Settings, target: u32, blocks: u64, fences_a_block: u64) -> u32 {
    let (mut levels, mut fences) = (0, blocks);
    while fences > settings.capacity(1) && levels + 1 < target {
        fences = fences.div_ceil(fences_a_block);
        levels += 1;
    }
    levels
}
