//! A crash at every operation of the two devices, at a random point of the log behind what is
//! durable, on both tiers or on one, and a second one soon after: the index that is replayed is
//! sound, and has exactly the entries whose changes were in the log.

use super::*;
use strandline_device::TieredDevice;
use strandline_sim::SimDisk;
use strandline_storage::pages::PageLog;
use strandline_storage::wal::Lsn;

const NODE_BYTES: usize = 256;

/// The fast tier and the capacity tier.
#[derive(Clone)]
struct Disks([SimDisk; 2]);

impl Disks {
    fn new(seed: u64) -> Self {
        let fast = SimDisk::new(seed);
        let capacity = fast.beside(seed + 1);
        Self([fast, capacity])
    }

    fn store(&self, log: &Arc<MemoryLog>) -> Arc<PageStore> {
        let [fast, capacity] = &self.0;
        let device = TieredDevice::new(fast.device(), capacity.device(), String::new());
        store(Arc::new(device.expect("two disks")), log.clone(), 6)
    }

    /// What is left of both disks after a crash; style 1 and 2: only of one, the other one's
    /// unsynced bytes are all there.
    fn after_crash(&self, style: u64) -> Self {
        let [fast, capacity] = &self.0;
        let (fast, capacity) = match style {
            1 => (fast.after_crash(style), capacity.after_kill()),
            2 => (fast.after_kill(), capacity.after_crash(style)),
            _ => (fast.after_crash(style), capacity.after_crash(style + 9)),
        };
        capacity.join(&fast);
        Self([fast, capacity])
    }
}

/// What a run has left: the log's end and the entries after each operation, and where redo begins.
#[derive(Clone, Default)]
struct History {
    states: Vec<(Lsn, Entries)>,
    redo: Lsn,
}

impl History {
    /// The entries that a log up to `cut` may have.
    fn may_be(&self, cut: Lsn, seen: &Entries) -> bool {
        let before = self.states.iter().rev().find(|(end, _)| *end <= cut);
        let Some((_, before)) = before else {
            return true; // the index had not been created
        };
        let behind = self.states.iter().find(|(end, _)| *end > cut);
        // An operation that the crash has interrupted may have been logged or not.
        let changed = before.symmetric_difference(seen).count();
        let is_next = behind.is_some_and(|(_, next)| next == seen);
        before == seen || is_next || behind.is_none() && changed <= 1
    }
}

/// Works on an index until an operation fails.
fn work(
    index: &LidIndex,
    store: &Arc<PageStore>,
    log: &Arc<MemoryLog>,
    history: &mut History,
    (seed, steps): (u64, usize),
) {
    let mut model = history
        .states
        .last()
        .map(|(_, model)| model.clone())
        .unwrap_or_default();
    let rng = &mut Rng::new(seed);
    for _ in 0..steps {
        let key = index.encode(&number(rng.below(50) as i64));
        let entry = (key, RowId(rng.below(3)));
        let (key, row) = (&entry.0, entry.1);
        let done = match rng.below(34) {
            0..2 => store.checkpoint().map(|from| history.redo = from),
            2 => index.flush_step().map(drop),
            3 if rng.one_in(3) => index.vacuum().map(drop),
            4..12 => {
                let retired = index.retire(key, row, CommitTs::ZERO);
                retired.map(|()| _ = model.remove(&entry))
            }
            12..16 => index.lookup(key, &mut Vec::new()),
            16..20 => {
                let added = index.insert(key, row, &mut Vec::new());
                added.map(|_| _ = model.insert(entry))
            }
            _ => index.add(key, row).map(|_| _ = model.insert(entry)),
        };
        if done.is_err() {
            return;
        }
        history.states.push((log.end(), model.clone()));
    }
}

fn run(disks: &Disks, log: &Arc<MemoryLog>, kind: BlockKind, seed: u64) -> History {
    let store = disks.store(log);
    let mut history = History::default();
    if let Ok(tested) = Tested::on(store.clone(), form(kind, 3), NODE_BYTES) {
        history.states.push((log.end(), Entries::new()));
        work(&tested.index, &store, log, &mut history, (seed, 110));
    }
    history
}

/// Replays the log up to `cut`; None if the disks have crashed again.
fn recover(
    disks: &Disks,
    logged: &Logged,
    history: &History,
    cut: Lsn,
) -> Option<(LidIndex, Arc<PageStore>, Arc<MemoryLog>)> {
    let records: Vec<_> = logged
        .records
        .iter()
        .filter(|(end, _)| *end <= cut)
        .cloned()
        .collect();
    let log = Arc::new(MemoryLog::default());
    *log.0.lock().expect("not poisoned") = Logged {
        records: records.clone(),
        durable: cut,
        appends_left: None,
    };
    let store = disks.store(&log);
    let opened = (|| {
        store.open_file(FILES.0)?;
        store.open_file(FILES.1)?;
        for (end, record) in records.iter().filter(|(end, _)| *end > history.redo) {
            store.replay(record, *end)?;
        }
        let settings = settings(NODE_BYTES, &Arc::default());
        LidIndex::open(store.clone(), FILES, settings)
    })();
    match opened {
        Ok(index) => Some((index, store, log)),
        Err(error) => {
            assert!(disks.0.iter().any(SimDisk::has_crashed), "{error}");
            None
        }
    }
}

/// A log's end after a crash: between what is durable and all of it.
fn cut_of(logged: &Logged, style: u64, rng: &mut Rng) -> Lsn {
    let ends = logged.records.iter().map(|(end, _)| *end);
    let behind: Vec<_> = ends.filter(|end| *end >= logged.durable).collect();
    match style % 3 {
        0 => logged.durable,
        1 => logged.end(),
        _ => {
            let at = rng.below(behind.len().max(1) as u64) as usize;
            behind.get(at).copied().unwrap_or(logged.durable)
        }
    }
}

fn verify(index: &LidIndex, history: &History, cut: Lsn, what: &str) -> Entries {
    assert_sound(index);
    let seen = collect(index, &KeyRange::default(), Direction::Forward);
    let seen: Entries = seen.into_iter().collect();
    assert!(
        history.may_be(cut, &seen),
        "{what}: entries lost or too many"
    );
    seen
}

fn crash_at(at: u64, kind: BlockKind) {
    let (disks, log) = (Disks::new(at), Arc::new(MemoryLog::default()));
    disks.0[0].crash_at(at);
    let history = run(&disks, &log, kind, 1);
    let logged = log.0.lock().expect("not poisoned").clone();
    for style in 0..4 {
        let what = format!("{kind:?}, crash at {at}, style {style}");
        let rng = &mut Rng::new(style + at * 10);
        let cut = cut_of(&logged, style + at, rng);
        if !history.states.iter().any(|(end, _)| *end <= cut) {
            continue;
        }
        let left = disks.after_crash(style);
        // The second crash: in recovery or soon after it.
        left.0[0].crash_at(1 + (at * 7 + style * 5) % 40);
        let second = recover(&left, &logged, &history, cut);
        let mut next = History {
            redo: history.redo,
            states: history.states.clone(),
        };
        let (mut logged, mut cut) = (logged.clone(), cut);
        if let Some((index, store, log)) = second {
            // What the crash has left is the state from which the next one starts.
            let Ok(seen) = entries_of(&index) else {
                continue;
            };
            assert!(
                history.may_be(cut, &seen),
                "{what}: entries lost or too many"
            );
            next.states = vec![(cut, seen)];
            work(&index, &store, &log, &mut next, (at + style, 25));
            logged = log.0.lock().expect("not poisoned").clone();
            cut = cut_of(&logged, style + at + 1, rng);
        }
        let left = left.after_crash(style + 1);
        let recovered = recover(&left, &logged, &next, cut);
        let (index, store, _) = recovered.expect("no third crash");
        let seen = verify(&index, &next, cut, &what);
        for v in 0..50 {
            let key = index.encode(&number(v));
            index.add(&key, RowId(9)).expect("added");
        }
        assert_eq!(vacuumed(&index), seen.len() + 50, "{what}");
        store.checkpoint().expect("stored");
        assert_sound(&index);
    }
}

fn entries_of(index: &LidIndex) -> Result<Entries> {
    let range = KeyRange::default();
    let mut cursor = index.cursor(&range, Direction::Forward)?;
    let mut seen = Entries::new();
    while let Some(entry) = cursor.next()? {
        seen.insert(entry);
    }
    Ok(seen)
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_logged() {
    for kind in KINDS {
        let (disks, log) = (Disks::new(1), Arc::new(MemoryLog::default()));
        run(&disks, &log, kind, 1);
        let operations = disks.0[0].operations();
        assert!(operations > 30, "{operations}");
        println!("{operations} operations");
        for at in 1..=operations + 1 {
            crash_at(at, kind);
        }
    }
}
