//! Adds many sorted entries at once: they are a source of a compaction of their own. An empty
//! tree is thus written from its first to its last block, in batches.
//!
//! The entries become visible at one moment, as part of the old side: a reader behind the
//! wavefront looks for them between the old head and the old levels. Inserts and deletes of one
//! entry alternate, so an entry that the tree has must not be inserted again:
//! 1. The load holds the compactor's lock, so that new modifications are in the head, and the
//!    levels stand still.
//! 2. Under the state's lock it drops the entries that the head has, and begins the compaction.
//!    [`State::loads`] tells a writer that has looked for its entry before this moment to look
//!    again.
//! 3. The compaction meets the entries of the levels that it replaces: of an entry that is there
//!    already the load's is dropped ([`Compaction`]'s stage).
//! 4. So the load looks only into levels that the compaction does not replace ([`SortedLookup`]),
//!    and drops what is there. If the head has grown meanwhile, other levels may be replaced: the
//!    load then looks into those that are left, too.
//!
//! A load of a unique index reports the entries whose keys have other entries, too. For that it
//! looks into all levels.
//!
//! The log does not have these entries. A load is durable when its compaction has ended; after a
//! crash the entries up to the last durable wavefront are there.

use super::compaction::Compaction;
use super::head::Data;
use super::loaded::Loaded;
use super::plan::plan;
use super::sorted_lookup::SortedLookup;
use super::state::{Shared, State};
use crate::entry::{ROW_BYTES, key_of};
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use strandline_base::Result;

/// Begins the compaction that adds the entries, of which there is at least one. No other one is
/// under way, and none begins meanwhile. Appends to `met` those that may not be alone under their
/// key.
pub(super) fn begin(
    shared: &Shared,
    entries: &[&[u8]],
    mut met: Option<&mut Vec<Vec<u8>>>,
) -> Result<(Arc<Loaded>, Compaction)> {
    let mut new = entries.to_vec();
    let mut looked_from = usize::MAX;
    if let Some(met) = met.as_deref_mut() {
        meet_own(entries, met);
        drop_those_of_levels(shared, &mut new, 0, Some(met))?;
        looked_from = 0;
    }
    loop {
        let mut loaded = Loaded::of(&new);
        let mut state = shared.state.lock();
        if drop_those_of_head(&mut state, entries, &mut new) {
            loaded = Loaded::of(&new);
        }
        let block_bytes = shared.blocks.block_bytes();
        let plan = plan(&shared.settings, &state, block_bytes, false, Some(&loaded));
        let is_looked = plan.replaced >= looked_from.min(state.slots.len());
        if !is_looked {
            drop(state);
            drop_those_of_levels(shared, &mut new, plan.replaced, None)?;
            looked_from = plan.replaced;
            continue;
        }
        if let Some(met) = met {
            meet_head(&state, entries, met);
            met.sort_unstable();
            met.dedup();
        }
        let loaded = Arc::new(loaded);
        state.loads += 1;
        let compaction = Compaction::begin(shared, &mut state, plan, Some(loaded.clone()));
        return Ok((loaded, compaction));
    }
}

/// Notes entries of a load that have a key in common.
fn meet_own(entries: &[&[u8]], met: &mut Vec<Vec<u8>>) {
    for same in entries.chunk_by(|a, b| key_of(a) == key_of(b)) {
        if same.len() > 1 {
            met.extend(same.iter().map(|entry| entry.to_vec()));
        }
    }
}

/// Drops entries that the levels have, if one from `first` on may have them. Notes those whose key
/// has other entries there.
fn drop_those_of_levels(
    shared: &Shared,
    new: &mut Vec<&[u8]>,
    first: usize,
    mut met: Option<&mut Vec<Vec<u8>>>,
) -> Result<()> {
    let mut lookup = SortedLookup::new(shared);
    let mut kept = 0;
    for at in 0..new.len() {
        let entry = new[at];
        let depth = lookup.depth(entry, first, met.is_some())?;
        let mut is_possible = depth > 0;
        if let (Some(met), true) = (met.as_deref_mut(), is_possible) {
            let (has_any, has_other) = lookup.of_key(entry, depth)?;
            met.extend(has_other.then(|| entry.to_vec()));
            is_possible = has_any;
        }
        if !is_possible || !lookup.has(entry, depth)? {
            new[kept] = entry;
            kept += 1;
        }
    }
    new.truncate(kept);
    Ok(())
}

/// The position of the first entry from `at` on that is not below `bound`. Cheap if it is near.
fn advance(entries: &[&[u8]], at: usize, bound: &[u8]) -> usize {
    let is_below = |at: usize| entries.get(at).is_some_and(|entry| *entry < bound);
    let (mut at, mut step) = (at, 1);
    while is_below(at + step - 1) {
        at += step;
        step *= 2;
    }
    let rest = entries.get(at..entries.len().min(at + step));
    at + rest.map_or(0, |rest| rest.partition_point(|entry| *entry < bound))
}

/// The head's entries with keys from the first to the last one of a load.
fn of_head<'s>(state: &'s State, entries: &[&[u8]]) -> impl Iterator<Item = (&'s [u8], Data)> {
    let from = entries.first().map_or(&[][..], |entry| key_of(entry));
    let last = entries.last().map_or(&[][..], |entry| key_of(entry));
    let before = [last, &[u8::MAX; ROW_BYTES + 1]].concat();
    let range = (Included(from), Excluded(before.as_slice()));
    let own = state.head.data.range::<[u8], _>(range);
    own.map(|(entry, data)| (&**entry, *data))
}

/// Drops entries that the head has. One of the whole load, `own`, that it has deleted is there
/// again. Returns whether one was dropped.
fn drop_those_of_head(state: &mut State, own: &[&[u8]], new: &mut Vec<&[u8]>) -> bool {
    let (mut again, mut dropped) = (Vec::new(), Vec::new());
    let (mut at, mut at_new) = (0, 0);
    for (entry, data) in of_head(state, own) {
        at = advance(own, at, entry);
        if own.get(at).is_none_or(|own| **own != *entry) {
            continue;
        }
        again.extend((!data.is_insert).then(|| entry.to_vec()));
        at_new = advance(new, at_new, entry);
        dropped.extend(
            new.get(at_new)
                .filter(|new| ***new == *entry)
                .map(|_| at_new),
        );
    }
    for entry in again {
        let data = Data {
            is_insert: true,
            is_pending: false,
        };
        let change = state.head.put(&entry, data);
        state.count(change);
    }
    let mut left = dropped.iter().peekable();
    let mut at = 0;
    new.retain(|_| {
        at += 1;
        left.next_if(|dropped| **dropped + 1 == at).is_none()
    });
    !dropped.is_empty()
}

/// Notes entries of a load to whose key the head adds another entry.
fn meet_head(state: &State, entries: &[&[u8]], met: &mut Vec<Vec<u8>>) {
    let mut at = 0;
    for (entry, _) in of_head(state, entries).filter(|(_, data)| data.is_insert) {
        at = advance(entries, at, entry);
        let neighbours = [at.checked_sub(1), Some(at), Some(at + 1)];
        for near in neighbours.into_iter().flatten() {
            let near = entries.get(near).filter(|near| ***near != *entry);
            let near = near.filter(|near| key_of(near) == key_of(entry));
            met.extend(near.map(|near| near.to_vec()));
        }
    }
}
