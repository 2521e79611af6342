//! Verifies a tree by itself: every block, I1 to I5 and the counts. During a compaction only what
//! its end does not change: the blocks below it.

use super::block::Kind;
use super::state::{Shared, State};
use strandline_base::Result;

/// Appends the damage found, one line each. Nobody may change the tree meanwhile.
pub(super) fn check(shared: &Shared, damage: &mut Vec<String>) -> Result<()> {
    let state = shared.state.lock();
    if state.old.is_some() {
        return Ok(());
    }
    let inserts = state
        .head
        .data
        .values()
        .filter(|data| data.is_insert)
        .count() as u64;
    let mut counted = [inserts, state.head.data.len() as u64 - inserts];
    let mut fences: Vec<(Box<[u8]>, u64)> = Vec::new();
    fences.extend(state.head.fences.iter().map(|(key, to)| (key.clone(), *to)));
    for (at, slot) in state.slots.iter().enumerate() {
        let is_bottom = at + 1 == state.slots.len();
        let mut next = Vec::new();
        let mut before: Box<[u8]> = Box::default();
        let mut pointed = fences.iter().peekable();
        for ordinal in slot.live_from..slot.level.end() {
            let block = shared.read(&slot.level, ordinal)?;
            let place = format!("level {}, block {ordinal}", slot.number);
            let first = block.first_key().unwrap_or_default();
            match pointed.next() {
                Some((key, to)) if *to == ordinal && **key <= *first => {}
                other => damage.push(format!("{place}: fence {other:?} (I1)")),
            }
            while pointed.next_if(|(_, to)| *to == ordinal).is_some() {}
            let has_fence = matches!(block.get(0), Some((_, Kind::Fence(_))));
            if has_fence == is_bottom {
                damage.push(format!("{place}: first entry {:?} (I2)", block.get(0)));
            }
            for (key, kind) in block.iter() {
                if *key < *before {
                    damage.push(format!("{place}: keys are not in order"));
                }
                before = key.into();
                match kind {
                    Kind::Fence(to) => next.push((key.into(), to)),
                    Kind::Insert => counted[0] += 1,
                    Kind::Delete if is_bottom => damage.push(format!("{place}: a delete")),
                    Kind::Delete => counted[1] += 1,
                }
            }
        }
        if let Some(rest) = pointed.next() {
            damage.push(format!(
                "level {}: fence {rest:?} leads nowhere",
                slot.number
            ));
        }
        fences = next;
    }
    if counted != [state.inserts, state.deletes] {
        let known = [state.inserts, state.deletes];
        damage.push(format!("entries {counted:?}, counted {known:?}"));
    }
    check_sizes(shared, &state, damage);
    Ok(())
}

fn check_sizes(shared: &Shared, state: &State, damage: &mut Vec<String>) {
    let mut above = 0;
    for slot in &state.slots {
        let (number, blocks) = (slot.number, slot.blocks());
        let capacity = shared.settings.capacity(number);
        if number <= above || blocks > capacity + capacity / 4 + 2 {
            damage.push(format!("level {number} has {blocks} blocks (I3)"));
        }
        above = number;
    }
    if let [.., second, bottom] = state.slots.as_slice() {
        let is_small = bottom.blocks() <= shared.settings.capacity(bottom.number - 1);
        if is_small && second.number + 1 < bottom.number {
            damage.push(format!("bottom level {} is small (I4)", bottom.number));
        }
    }
}
