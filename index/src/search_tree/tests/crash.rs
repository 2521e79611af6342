//! A crash at every operation of the device, at a random point of the log behind what is durable:
//! the tree that is replayed is whole, and has exactly the entries whose changes were in the log.

use super::support::*;
use super::*;
use strandline_sim::SimDisk;
use strandline_storage::wal::Lsn;

/// Runs a workload until it fails; returns after each operation the log's end and the entries, and
/// the position from which redo begins.
fn run(disk: &SimDisk, log: &Arc<MemoryLog>, seed: u64) -> (Vec<(Lsn, Entries)>, Lsn) {
    let oldest = Arc::default();
    let store = store(disk.device(), log.clone(), 6);
    let index = PagedIndex::create(store.clone(), FILE, settings(256, &oldest));
    let end = || strandline_storage::pages::PageLog::end(&**log);
    let Ok(index) = index else {
        return (Vec::new(), Lsn::default());
    };
    let (mut model, mut redo) = (Entries::new(), Lsn::default());
    let mut states = vec![(end(), model.clone())];
    let mut rng = Rng::new(seed);
    for _ in 0..100 {
        let entry = (
            index.encode(&number(rng.below(90) as i64)),
            RowId(rng.below(2)),
        );
        let done = match rng.below(30) {
            0 => store.checkpoint().map(|from| redo = from),
            1..=9 => {
                let retired = index.retire(&entry.0, entry.1, CommitTs::ZERO);
                retired.map(|()| _ = model.remove(&entry))
            }
            _ => {
                let added = index.insert(&entry.0, entry.1, &mut Vec::new());
                added.map(|_| _ = model.insert(entry))
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
            let behind: Vec<_> = logged.records.iter().map(|(end, _)| *end).collect();
            let behind: Vec<_> = behind
                .into_iter()
                .filter(|e| *e >= logged.durable)
                .collect();
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
    let index = PagedIndex::open(store.clone(), FILE, settings(256, &oldest)).expect("opened");
    assert_sound(&index);
    let seen: Entries = collect(&index, &KeyRange::default(), Direction::Forward)
        .into_iter()
        .collect();
    // An operation that the crash has interrupted may have been logged or not.
    let changed = before.symmetric_difference(&seen).count();
    let next = states.iter().find(|(end, _)| *end > cut);
    let is_next = next.is_some_and(|(_, next)| *next == seen);
    let is_last = next.is_none() && changed <= 1;
    assert!(
        *before == seen || is_next || is_last,
        "crash at {at}: {changed} entries differ"
    );
    let (nodes, _) = nodes(&index.tree);
    let used = store.check(FILE).expect("whole").used;
    // A page between its join and its release.
    assert!(
        used.len() <= nodes.len() + 1,
        "crash at {at}: {} pages",
        used.len()
    );
    for v in 0..90 {
        index
            .add(&index.encode(&number(v)), RowId(9))
            .expect("added");
    }
    assert_sound(&index);
    assert_eq!(index.len(), seen.len() + 90);
}
