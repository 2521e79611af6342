//! Adds many sorted entries at once: they are a source of a compaction of their own. An empty
//! tree is thus written from its first to its last block, in batches.
//!
//! The entries become visible at one moment, as part of the old side: a reader behind the
//! wavefront looks for them between the old head and the old levels. Before that moment the load
//! removes those that the tree has already, so that inserts and deletes of one entry alternate:
//! 1. The load holds the compactor's lock, so that new modifications are in the head.
//! 2. It scans the tree beside its entries and drops those that are there.
//! 3. Under the state's lock it drops those that the head has got meanwhile, and begins the
//!    compaction. [`State::loads`] tells a writer that has looked for its entry before this moment
//!    to look again.
//!
//! The log does not have these entries. A load is durable when its compaction has ended; after a
//! crash the entries up to the last durable wavefront are there.

use super::compaction::Compaction;
use super::head::Data;
use super::loaded::Loaded;
use super::scan::Scan;
use super::state::{Shared, State};
use crate::access_method::Direction;
use crate::entry::{ROW_BYTES, key_of};
use std::sync::Arc;
use strandline_base::Result;

/// Entries of a load that the tree does not have, and those of the whole load that may not be alone
/// under their key.
struct New<'e> {
    entries: Vec<&'e [u8]>,
    met: Vec<Vec<u8>>,
}

/// Begins the compaction that adds the entries. No other one is under way, and none begins
/// meanwhile. Appends to `met` those that may not be alone under their key.
pub(super) fn begin(
    shared: &Shared,
    entries: &[&[u8]],
    met: Option<&mut Vec<Vec<u8>>>,
) -> Result<(Arc<Loaded>, Compaction)> {
    let mut new = beside_tree(shared, entries)?;
    let mut state = shared.state.lock();
    drop_those_of_head(&mut state, entries, &mut new);
    if let Some(met) = met {
        met.append(&mut new.met);
        met.sort_unstable();
        met.dedup();
    }
    let loaded = Arc::new(Loaded::of(new.entries));
    state.loads += 1;
    let compaction = Compaction::begin(shared, &mut state, false, Some(loaded.clone()));
    Ok((loaded, compaction))
}

/// Goes over the tree beside the entries.
fn beside_tree<'e>(shared: &Shared, entries: &[&'e [u8]]) -> Result<New<'e>> {
    let mut new = New {
        entries: Vec::with_capacity(entries.len()),
        met: Vec::new(),
    };
    let from = entries.first().map_or(&[][..], |entry| key_of(entry));
    let last = entries.last().map_or(&[][..], |entry| key_of(entry));
    let before = [last, &[u8::MAX; ROW_BYTES + 1]].concat();
    let mut scan = Scan::new(shared, from, Some(&before), Direction::Forward);
    let mut present = scan.next()?;
    // The entry before, of either list, and whether it is one of the load.
    let mut previous: Option<(Vec<u8>, bool)> = None;
    let mut rest = entries.iter().copied().peekable();
    loop {
        // Whether the entry is one of the load, and whether the tree has it.
        let (entry, is_own, is_present): (&[u8], bool, bool) = match (&present, rest.peek()) {
            (None, None) => return Ok(new),
            (Some(present), None) => (present, false, true),
            (Some(present), Some(entry)) if **present < **entry => (present, false, true),
            (Some(present), Some(entry)) => (entry, true, **present == **entry),
            (None, Some(entry)) => (entry, true, false),
        };
        if let Some((before, is_before_own)) = &previous
            && key_of(before) == key_of(entry)
        {
            new.met.extend(is_before_own.then(|| before.clone()));
            new.met.extend(is_own.then(|| entry.to_vec()));
        }
        previous = Some((entry.to_vec(), is_own));
        let own = if is_own { rest.next() } else { None };
        if is_present {
            present = scan.next()?;
        } else {
            new.entries.extend(own);
        }
    }
}

/// Drops entries that the head has; one that it has deleted is there again. `own`: the whole load.
fn drop_those_of_head(state: &mut State, own: &[&[u8]], new: &mut New<'_>) {
    let mut again = Vec::new();
    let mut dropped = Vec::new();
    for (entry, data) in &state.head.data {
        let at = new.entries.partition_point(|new| **new < **entry);
        if new.entries.get(at).is_some_and(|new| **new == **entry) {
            dropped.push(at);
            if !data.is_insert {
                again.push(entry.clone());
            }
        }
        let at = own.partition_point(|own| **own < **entry);
        let neighbours = [at.checked_sub(1), Some(at), Some(at + 1)];
        for near in neighbours.into_iter().flatten() {
            let near = own.get(near).filter(|near| ***near != **entry);
            let near = near.filter(|near| data.is_insert && key_of(near) == key_of(entry));
            new.met.extend(near.map(|near| near.to_vec()));
        }
    }
    for entry in again {
        let data = Data {
            is_insert: true,
            is_pending: false,
        };
        let change = state.head.put(&entry, data);
        state.count(change);
    }
    let mut at = 0;
    new.entries.retain(|_| {
        at += 1;
        dropped.binary_search(&(at - 1)).is_err()
    });
}
