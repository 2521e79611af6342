//! Verifies a tree by itself: every block, I1 to I4, I6 and the counts of I5. During a compaction
//! it verifies both sides of the wavefront, and the levels below as the target and the rest of the
//! old levels lead to them.
//!
//! Writers go on meanwhile: a check has a copy of the heads, and an era keeps the blocks.

use super::block::Kind;
use super::head::Head;
use super::level::Wanted;
use super::state::{Old, Settings, Shared, Slot, State};
use std::sync::Arc;
use strandline_base::Result;

/// A fence: its key and the ordinal of a block in the next level.
type Fence = (Box<[u8]>, u64);

/// Where a level is.
#[derive(Clone, Copy, Debug)]
enum Side<'a> {
    /// above the wavefront's new head, or below a compaction
    New { through: Option<&'a [u8]> },
    /// below the old head; entries up to here are in the new levels, too
    Old { processed: Option<&'a [u8]> },
}

/// Appends the damage found, one line each. The compaction, which has processed the entries up to
/// `processed`, stands still meanwhile.
pub(super) fn check(
    shared: &Shared,
    processed: Option<&[u8]>,
    damage: &mut Vec<String>,
) -> Result<()> {
    let (era, view) = {
        let state = shared.state.lock();
        (state.enter(), View::of(&state))
    };
    let mut walk = Walk {
        shared,
        damage,
        counted: [0; 2],
    };
    let new_levels = view.old.as_ref().map_or(0, |old| old.new_levels);
    let (new, below) = view.slots.split_at(new_levels);
    walk.head(&view.head, None);
    let mut fences = fences_of(&view.head);
    for (at, slot) in new.iter().enumerate() {
        let is_bottom = below.is_empty() && at + 1 == new_levels;
        fences = walk.level(slot, &fences, Side::New { through: processed }, is_bottom)?;
    }
    if let Some(old) = &view.old {
        walk.head(&old.head, processed);
        let rest = walk.old_levels(old, processed, below.is_empty())?;
        fences.extend(rest.into_iter().filter(|fence| is_behind(fence, processed)));
    }
    for (at, slot) in below.iter().enumerate() {
        let is_bottom = at + 1 == below.len();
        fences = walk.level(slot, &fences, Side::New { through: None }, is_bottom)?;
    }
    let (counted, known) = (walk.counted, [view.inserts, view.deletes]);
    if counted != known {
        damage.push(format!(
            "inserts and deletes {counted:?}, counted {known:?} (I5)"
        ));
    }
    check_sizes(&shared.settings, &view, damage);
    drop(era);
    Ok(())
}

/// What a check needs of the state.
#[derive(Debug)]
struct View {
    head: Head,
    slots: Arc<Vec<Slot>>,
    old: Option<Old>,
    inserts: u64,
    deletes: u64,
}

impl View {
    fn of(state: &State) -> Self {
        Self {
            head: state.head.clone(),
            slots: state.slots.clone(),
            old: state.old.clone(),
            inserts: state.inserts,
            deletes: state.deletes,
        }
    }
}

fn fences_of(head: &Head) -> Vec<Fence> {
    let fences = head.fences.iter();
    fences
        .map(|(key, to)| (key.as_slice().into(), *to))
        .collect()
}

fn is_behind(fence: &Fence, wave: Option<&[u8]>) -> bool {
    wave.is_none_or(|wave| *fence.0 > *wave)
}

/// The fences that readers behind the wavefront follow: of those up to it the last, which may
/// repeat an earlier one (I2) and so stands for the begin of the keys.
fn behind(fences: &[Fence], wave: Option<&[u8]>) -> Vec<Fence> {
    let passed = fences.partition_point(|fence| !is_behind(fence, wave));
    let fences = fences.get(passed.saturating_sub(1)..).unwrap_or_default();
    let mut fences = fences.to_vec();
    if let (Some((key, _)), 1..) = (fences.first_mut(), passed) {
        *key = Box::default();
    }
    fences
}

struct Walk<'a> {
    shared: &'a Shared,
    damage: &'a mut Vec<String>,
    /// inserts and deletes
    counted: [u64; 2],
}

impl Walk<'_> {
    fn report(&mut self, damage: String) {
        self.damage.push(damage);
    }

    /// Counts the data entries of a head that no new level has.
    fn head(&mut self, head: &Head, processed: Option<&[u8]>) {
        for (key, data) in &head.data {
            if data.is_pending || processed.is_none_or(|wave| **key > *wave) {
                self.counted[usize::from(!data.is_insert)] += 1;
            }
        }
    }

    /// The levels below the old head. Returns the fences to the levels below the compaction.
    fn old_levels(
        &mut self,
        old: &Old,
        processed: Option<&[u8]>,
        is_full: bool,
    ) -> Result<Vec<Fence>> {
        let wave = old.wavefront.as_deref();
        let first = old.head.data.keys().chain(old.head.fences.keys()).min();
        if let (Some(wave), Some(first)) = (wave, first)
            && **first <= *wave
        {
            self.report(format!("old head: {first:?} is not behind {wave:?} (I6)"));
        }
        let mut fences: Vec<Fence> = Vec::new();
        fences.extend(old.pointer.map(|to| (Box::default(), to)));
        fences.extend(fences_of(&old.head));
        let side = Side::Old { processed };
        for (at, slot) in old.slots.iter().enumerate() {
            let is_bottom = is_full && at + 1 == old.slots.len();
            fences = behind(&self.level(slot, &fences, side, is_bottom)?, wave);
        }
        if let (Some((_, to)), Some(wave)) = (fences.first(), wave)
            && Some(*to) != old.last_fence
        {
            let last = old.last_fence;
            self.report(format!(
                "behind {wave:?} is block {to}, moved are {last:?} (I6)"
            ));
        }
        Ok(fences)
    }

    /// Verifies a level, to which `above` leads. Returns its fences.
    fn level(
        &mut self,
        slot: &Slot,
        above: &[Fence],
        side: Side<'_>,
        is_bottom: bool,
    ) -> Result<Vec<Fence>> {
        let mut fences = Vec::new();
        let mut before: Option<(Box<[u8]>, Kind)> = None;
        let mut above = above.iter().peekable();
        for ordinal in slot.live_from..slot.level.end() {
            let block = self.shared.read(&slot.level, ordinal)?;
            let place = format!("level {}, block {ordinal}", slot.number);
            let first = block.first_key().unwrap_or_default();
            let first = first.as_slice();
            let is_behind = |key: &[u8]| before.as_ref().is_none_or(|(last, _)| *key > **last);
            match above.next() {
                Some((key, to)) if *to == ordinal && **key <= *first && is_behind(key) => {}
                other => self.report(format!("{place}: fence {other:?} (I1)")),
            }
            while above.next_if(|(_, to)| *to == ordinal).is_some() {}
            let has_fence = matches!(block.get(0), Some((_, Kind::Fence(_))));
            if has_fence == is_bottom {
                self.report(format!("{place}: first entry {:?} (I2)", block.get(0)));
            }
            if ordinal == 0 && !first.is_empty() && !is_bottom {
                self.report(format!("{place}: the first key is {first:?} (I2)"));
            }
            for (entry, kind) in block.iter() {
                let key = entry.as_slice();
                let is_in_order = before.as_ref().is_none_or(|(last, kind_before)| {
                    let is_pair = matches!(kind_before, Kind::Fence(_)) && kind.is_data();
                    *key > **last || *key == **last && is_pair
                });
                if !is_in_order {
                    self.report(format!("{place}: {key:?} {kind:?} is not in order"));
                }
                before = Some((key.into(), kind));
                let wanted = Wanted::entry(key, slot.level.filters.of);
                if kind.is_data() && !self.shared.may_contain(&slot.level, wanted)? {
                    self.report(format!("{place}: the filter does not have {key:?}"));
                }
                if let Side::New {
                    through: Some(wave),
                } = side
                    && key > wave
                {
                    self.report(format!("{place}: {key:?} is behind {wave:?} (I6)"));
                }
                let is_counted = match side {
                    Side::New { .. } => true,
                    Side::Old { processed } => processed.is_none_or(|wave| key > wave),
                };
                match kind {
                    Kind::Fence(to) => fences.push((key.into(), to)),
                    _ if slot.level.only_fences => self.report(format!("{place}: a data entry")),
                    Kind::Delete if is_bottom => self.report(format!("{place}: a delete")),
                    _ if !is_counted => {}
                    Kind::Insert => self.counted[0] += 1,
                    Kind::Delete => self.counted[1] += 1,
                }
            }
        }
        if let Some(rest) = above.next() {
            let number = slot.number;
            self.report(format!("level {number}: fence {rest:?} leads nowhere"));
        }
        Ok(fences)
    }
}

fn check_sizes(settings: &Settings, view: &View, damage: &mut Vec<String>) {
    let old = view.old.as_ref();
    // Levels that the compaction writes get their numbers when they are installed.
    let written = old.map_or(0, |old| old.new_levels);
    let all = std::iter::once((&view.slots, written));
    for (slots, written) in all.chain(old.map(|old| (&old.slots, 0))) {
        let mut above = 0;
        for (at, slot) in slots.iter().enumerate() {
            let (number, blocks) = (slot.number, slot.blocks());
            let is_bound = at >= written;
            if number <= above || is_bound && !settings.holds(number, blocks) {
                damage.push(format!("level {number} has {blocks} blocks (I3)"));
            }
            above = number;
        }
    }
    if let ([first, second, ..], None) = (view.slots.as_slice(), old)
        && first.level.only_fences
        && second.blocks() <= settings.capacity(1)
    {
        damage.push(format!("level {} should be skipped", first.number));
    }
    if let ([.., second, bottom], None) = (view.slots.as_slice(), old) {
        let is_small = bottom.blocks() <= settings.capacity(bottom.number - 1);
        if is_small && second.number + 1 < bottom.number {
            damage.push(format!("bottom level {} is small (I4)", bottom.number));
        }
    }
}
