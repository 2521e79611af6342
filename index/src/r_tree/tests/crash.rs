//! A crash at every operation of the device, at a random point of the log behind what is durable:
//! the tree that is replayed is whole, and has exactly the entries whose changes were in the log.

use super::*;
use std::collections::BTreeSet;
use strandline_sim::SimDisk;
use strandline_storage::wal::Lsn;

type Entries = BTreeSet<(Rect, RowId)>;

/// Runs a workload until it fails; returns after each operation the log's end and the entries, and
/// the position from which redo begins.
fn run(disk: &SimDisk, log: &Arc<MemoryLog>, seed: u64) -> (Vec<(Lsn, Entries)>, Lsn) {
    let oldest = Arc::default();
    let store = store(disk.device(), log.clone(), 6);
    let index = SpatialIndex::create(store.clone(), FILE, settings(300, &oldest));
    let end = || strandline_storage::pages::PageLog::end(&**log);
    let Ok(index) = index else {
        return (Vec::new(), Lsn::default());
    };
    let (mut model, mut redo) = (Entries::new(), Lsn::default());
    let mut states = vec![(end(), model.clone())];
    let mut rng = Rng::new(seed);
    for step in 0..160 {
        let (rect, row) = (number(rng.below(90)), RowId(rng.below(2)));
        // First more is added than removed, then the other way round.
        let removals = if step < 80 { 9 } else { 24 };
        let done = match rng.below(30) {
            0 => store.checkpoint().map(|from| redo = from),
            no if no <= removals => {
                let retired = index.retire(&key_of(&rect), row, CommitTs::ZERO);
                retired.map(|()| _ = model.remove(&(rect, row)))
            }
            _ => {
                let added = index.insert(&key_of(&rect), row, &mut Vec::new());
                added.map(|_| _ = model.insert((rect, row)))
            }
        };
        if done.is_err() {
            break;
        }
        states.push((end(), model.clone()));
    }
    (states, redo)
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_logged() {
    let log = Arc::new(MemoryLog::default());
    let disk = SimDisk::new(1);
    run(&disk, &log, 1);
    let operations = disk.operations();
    assert!(operations > 25, "{operations}");
    for at in 1..=operations + 1 {
        let (disk, log) = (SimDisk::new(at), Arc::new(MemoryLog::default()));
        disk.crash_at(at);
        let (states, redo) = run(&disk, &log, 1);
        let logged = log.0.lock().expect("not poisoned").clone();
        for seed in 0..3 {
            let mut rng = Rng::new(seed + at * 10);
            // The log's end after the crash: between what is durable and all of it.
            let ends = logged.records.iter().map(|(end, _)| *end);
            let behind: Vec<_> = ends.filter(|end| *end >= logged.durable).collect();
            let cut = match seed {
                0 => logged.durable,
                1 => logged.end(),
                _ => behind
                    .get(rng.below(behind.len().max(1) as u64) as usize)
                    .copied()
                    .unwrap_or(logged.durable),
            };
            recover(&disk.after_crash(seed), &logged, (redo, cut), &states, at);
        }
    }
}

fn recover(
    disk: &SimDisk,
    logged: &Logged,
    (redo, cut): (Lsn, Lsn),
    states: &[(Lsn, Entries)],
    at: u64,
) {
    let kept = logged.records.iter().filter(|(end, _)| *end <= cut);
    let records: Vec<_> = kept.cloned().collect();
    let Some((_, before)) = states.iter().rev().find(|(end, _)| *end <= cut) else {
        return; // the index had not been created
    };
    let log = Arc::new(MemoryLog::default());
    *log.0.lock().expect("not poisoned") = Logged {
        records: records.clone(),
        durable: cut,
        appends_left: None,
    };
    let store = store(disk.device(), log, 6);
    store.open_file(FILE).expect("the file is there");
    for (end, record) in records.iter().filter(|(end, _)| *end > redo) {
        store.replay(record, *end).expect("replayed");
    }
    let oldest = Arc::default();
    let index = SpatialIndex::open(store.clone(), FILE, settings(300, &oldest)).expect("opened");
    assert_sound(&index);
    let seen: Entries = collect(&index, SpatialQuery::All).into_iter().collect();
    // An operation that the crash has interrupted may have been logged or not.
    let changed = before.symmetric_difference(&seen).count();
    let next = states.iter().find(|(end, _)| *end > cut);
    let is_next = next.is_some_and(|(_, next)| *next == seen);
    let is_last = next.is_none() && changed <= 1;
    assert!(
        *before == seen || is_next || is_last,
        "crash at {at}: {changed} entries differ"
    );
    let used = store.check(FILE).expect("whole").used;
    // Pages between the removals of their nodes and their release: one operation's.
    let nodes = nodes(&index).len();
    assert!(
        used.len() <= nodes + 4,
        "crash at {at}: {} {nodes}",
        used.len()
    );
    for v in 0..90 {
        index.add(&key_of(&number(v)), RowId(9)).expect("added");
    }
    assert_sound(&index);
    assert_eq!(index.len(), seen.len() + 90);
}
