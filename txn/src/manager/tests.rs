//! Histories against a naive model, waiting, deadlocks, slots, snapshots.

use super::*;
use crate::SnapshotGuard;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::thread::scope;
use strandline_base::rng::Rng;
use strandline_base::{ErrorKind, ManualClock, SqlState};

fn manager() -> Arc<TxnManager> {
    TxnManager::new(Arc::new(ManualClock::new(1_000)), CommitTs(10))
}

/// Draws a timestamp and queues the commit; the log position is the timestamp.
fn enqueue(manager: &TxnManager, slot: &TxnSlot, durability: Durability) -> CommitTs {
    let ts = manager.tick();
    manager.enqueue(slot, ts, ts.0, durability);
    ts
}

const NEVER: &dyn Fn() -> bool = &|| false;

#[test]
fn a_commit_becomes_visible_in_order() {
    let manager = manager();
    let (a, b) = (
        manager.begin().expect("a slot"),
        manager.begin().expect("a slot"),
    );
    assert_ne!(a.word(), b.word());
    assert_eq!(manager.stable(), CommitTs(10));
    let ts_a = manager.tick();
    assert_eq!(ts_a, CommitTs(1_000));
    manager.enqueue_commit(&a, ts_a, 100);
    let ts_b = manager.tick();
    manager.enqueue_commit(&b, ts_b, 200);
    assert_eq!(manager.status(a.word()), TxnStatus::PreCommitted(ts_a));
    assert_eq!((manager.queued(), manager.stable()), (ts_b, CommitTs(10)));
    manager.finish_through(99);
    assert_eq!(
        (a.status(), manager.stable()),
        (TxnStatus::PreCommitted(ts_a), CommitTs(10))
    );
    manager.finish_through(199);
    assert_eq!(
        (a.status(), manager.stable()),
        (TxnStatus::Committed(ts_a), ts_a)
    );
    assert_eq!(b.status(), TxnStatus::PreCommitted(ts_b));
    manager.finish_through(200);
    assert_eq!(
        (b.status(), manager.stable()),
        (TxnStatus::Committed(ts_b), ts_b)
    );
    a.stamped();
    b.stamped();
}

#[test]
fn a_relaxed_commit_waits_only_for_those_before_it() {
    let manager = manager();
    let slots: Vec<TxnSlot> = (0..4).map(|_| manager.begin().expect("a slot")).collect();
    let first = enqueue(&manager, &slots[0], Durability::Relaxed);
    manager.finish_through(0);
    assert_eq!(manager.stable(), first);
    let logged = enqueue(&manager, &slots[1], Durability::Logged);
    let behind = enqueue(&manager, &slots[2], Durability::Relaxed);
    let last = enqueue(&manager, &slots[3], Durability::Logged);
    manager.finish_through(0);
    assert_eq!(manager.stable(), first);
    manager.finish_through(logged.0);
    assert_eq!(manager.stable(), behind);
    manager.finish_through(last.0);
    assert_eq!(manager.stable(), last);
}

#[test]
fn a_reused_slot_makes_old_words_stale() {
    let manager = TxnManager::with_slots(Arc::new(ManualClock::new(0)), CommitTs::ZERO, 1);
    let mut old = Vec::new();
    for round in 0..5 {
        let slot = manager.begin().expect("the slot is free again");
        for word in &old {
            assert_eq!(manager.status(*word), TxnStatus::Stale);
        }
        old.push(slot.word());
        if round % 2 == 0 {
            enqueue(&manager, &slot, Durability::Relaxed);
            manager.finish_through(0);
        } else {
            slot.abort();
            assert_eq!(slot.status(), TxnStatus::Aborted);
        }
        slot.stamped();
    }
}

#[test]
fn slots_run_out_with_a_clear_error() {
    let manager = TxnManager::with_slots(Arc::new(ManualClock::new(0)), CommitTs::ZERO, 3);
    let mut slots: Vec<TxnSlot> = (0..3).map(|_| manager.begin().expect("a slot")).collect();
    let error = manager.begin().expect_err("all slots are taken");
    assert_eq!(
        (error.kind(), error.sqlstate()),
        (ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY)
    );
    slots.remove(1).stamped();
    let again = manager.begin().expect("a slot came free");
    // Dropped without `stamped`: leaked, aborted for ever.
    let word = again.word();
    drop(again);
    assert_eq!(manager.status(word), TxnStatus::Aborted);
    assert!(manager.begin().is_err());
}

#[test]
fn all_slots_can_be_claimed() {
    let manager = manager();
    let slots: Vec<TxnSlot> = (0..SLOTS)
        .map(|_| manager.begin().expect("a slot"))
        .collect();
    assert!(manager.begin().is_err());
    slots.into_iter().for_each(TxnSlot::stamped);
    assert!(manager.begin().is_ok());
}

#[test]
fn a_dropped_commit_finishes_in_its_turn_and_an_aborted_one_leaves_the_queue() {
    let manager = manager();
    let dropped = manager.begin().expect("a slot");
    let word = dropped.word();
    let ts = enqueue(&manager, &dropped, Durability::Logged);
    drop(dropped);
    assert_eq!(manager.status(word), TxnStatus::PreCommitted(ts));
    manager.finish_through(ts.0);
    assert_eq!(manager.status(word), TxnStatus::Committed(ts));

    let failed = manager.begin().expect("a slot");
    enqueue(&manager, &failed, Durability::Logged);
    let relaxed = manager.begin().expect("a slot");
    let ts = enqueue(&manager, &relaxed, Durability::Relaxed);
    failed.abort();
    assert_eq!(failed.status(), TxnStatus::Aborted);
    assert_eq!(
        (relaxed.status(), manager.stable()),
        (TxnStatus::Committed(ts), ts)
    );
    relaxed.abort();
    assert_eq!(
        relaxed.status(),
        TxnStatus::Committed(ts),
        "too late to abort"
    );
}

#[test]
#[should_panic(expected = "stamped before it commits")]
fn a_queued_commit_can_not_be_stamped() {
    let manager = manager();
    let slot = manager.begin().expect("a slot");
    enqueue(&manager, &slot, Durability::Logged);
    slot.stamped();
}

#[test]
fn recovery_moves_clock_and_stable() {
    let manager = manager();
    for ts in [50, 2_000, 30] {
        manager.observe(CommitTs(ts));
    }
    assert_eq!(manager.stable(), CommitTs(2_000));
    assert_eq!(manager.tick(), CommitTs(2_001));
}

#[test]
fn snapshots_hold_the_oldest_back() {
    let manager = manager();
    let commit = || {
        let slot = manager.begin().expect("a slot");
        let ts = enqueue(&manager, &slot, Durability::Relaxed);
        manager.finish_through(0);
        slot.stamped();
        ts
    };
    assert_eq!(manager.oldest_snapshot(), CommitTs(10));
    let first = commit();
    let snapshot = manager.snapshot(None).expect("now");
    assert_eq!(snapshot.ts(), first);
    let second = commit();
    assert_eq!(manager.oldest_snapshot(), first);
    let past = manager.snapshot(Some(CommitTs(7))).expect("the past");
    assert_eq!(
        (past.ts(), manager.oldest_snapshot()),
        (CommitTs(7), CommitTs(7))
    );
    drop(past);
    let shared = snapshot.clone();
    drop(snapshot);
    assert_eq!(manager.oldest_snapshot(), first);
    drop(shared);
    assert_eq!(manager.oldest_snapshot(), second);
}

#[test]
fn a_snapshot_later_than_stable_fixes_the_past() {
    let clock = Arc::new(ManualClock::new(1_000));
    let manager = TxnManager::new(clock.clone(), CommitTs(10));
    let later = manager.snapshot(Some(CommitTs(1_000))).expect("now");
    assert_eq!(
        (later.ts(), manager.stable()),
        (CommitTs(1_000), CommitTs(10))
    );
    assert_eq!(manager.oldest_snapshot(), CommitTs(10));
    clock.set(500);
    assert_eq!(
        manager.tick(),
        CommitTs(1_001),
        "no commit slips below the snapshot"
    );
    let error = manager
        .snapshot(Some(CommitTs(1_002)))
        .expect_err("the future");
    assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
    drop(later);
    assert_eq!(manager.oldest_snapshot(), CommitTs(10));
}

#[test]
fn a_snapshot_waits_for_drawn_and_queued_commits() {
    let manager = manager();
    let slot = manager.begin().expect("a slot");
    let ts = manager.tick();
    let taken = AtomicU64::new(0);
    scope(|scope| {
        let (manager, taken) = (&manager, &taken);
        scope.spawn(move || {
            let snapshot = manager.snapshot(Some(ts)).expect("not the future");
            taken.store(snapshot.ts().0, Ordering::SeqCst);
            assert_eq!(manager.stable(), ts);
        });
        manager.enqueue_commit(&slot, ts, 1);
        assert_eq!(taken.load(Ordering::SeqCst), 0);
        manager.finish_through(1);
    });
    assert_eq!(taken.load(Ordering::SeqCst), ts.0);
}

/// One naive transaction: what the manager must say about it.
struct Modelled {
    slot: TxnSlot,
    ts: Option<CommitTs>,
    durability: Durability,
    status: TxnStatus,
}

/// The naive model: a list in commit order, finished by going through it from the front.
#[derive(Default)]
struct Model {
    running: Vec<Modelled>,
    queue: Vec<StartWord>,
    stable: CommitTs,
    log_end: u64,
    snapshots: Vec<SnapshotGuard>,
    finished: BTreeMap<u64, CommitTs>,
}

impl Model {
    fn find(&mut self, word: StartWord) -> &mut Modelled {
        self.running
            .iter_mut()
            .find(|t| t.slot.word() == word)
            .expect("queued ones are running")
    }

    fn finish(&mut self, log_end: u64) {
        while let Some(&word) = self.queue.first() {
            let txn = self.find(word);
            let ts = txn.ts.expect("queued");
            if txn.durability == Durability::Logged && ts.0 > log_end {
                return;
            }
            txn.status = TxnStatus::Committed(ts);
            self.finished.insert(word.0, ts);
            self.stable = ts;
            self.queue.remove(0);
        }
    }

    fn step(&mut self, manager: &Arc<TxnManager>, rng: &mut Rng, clock: &ManualClock) {
        let pick = |rng: &mut Rng, n: usize| rng.below(n.max(1) as u64) as usize;
        let i = pick(rng, self.running.len());
        match rng.below(9) {
            0 | 1 => self.running.push(Modelled {
                slot: manager.begin().expect("a slot"),
                ts: None,
                durability: Durability::Logged,
                status: TxnStatus::InProgress,
            }),
            2 | 3 => {
                let durability = if rng.one_in(2) {
                    Durability::Relaxed
                } else {
                    Durability::Logged
                };
                let Some(txn) = self.running.get_mut(i) else {
                    return;
                };
                if txn.ts.is_some() || txn.status != TxnStatus::InProgress {
                    return;
                }
                clock.set(rng.below(5_000));
                let ts = enqueue(manager, &txn.slot, durability);
                assert!(ts.0 > self.log_end, "{ts} after {}", self.log_end);
                self.log_end = ts.0;
                (txn.ts, txn.durability) = (Some(ts), durability);
                self.queue.push(txn.slot.word());
            }
            4 => {
                let through = if rng.one_in(2) {
                    0
                } else {
                    rng.below(self.log_end + 2)
                };
                manager.finish_through(through);
                self.finish(through);
            }
            5 => {
                let Some(txn) = self.running.get_mut(i) else {
                    return;
                };
                txn.slot.abort();
                if txn.status == TxnStatus::InProgress {
                    txn.status = TxnStatus::Aborted;
                    let word = txn.slot.word();
                    let queued = self.queue.len();
                    self.queue.retain(|queued| *queued != word);
                    if self.queue.len() < queued {
                        self.finish(0);
                    }
                }
            }
            6 => {
                if self
                    .running
                    .get(i)
                    .is_some_and(|t| t.status != TxnStatus::InProgress)
                {
                    self.running.swap_remove(i).slot.stamped();
                }
            }
            7 => {
                let at = rng
                    .one_in(2)
                    .then(|| CommitTs(rng.below(self.stable.0 + 1)));
                let snapshot = manager.snapshot(at).expect("not the future");
                assert_eq!(snapshot.ts(), at.unwrap_or(self.stable));
                self.snapshots.push(snapshot);
            }
            _ => {
                let n = self.snapshots.len();
                if n > 0 {
                    self.snapshots.swap_remove(pick(rng, n));
                }
            }
        }
    }

    fn check(&self, manager: &TxnManager) {
        assert_eq!(manager.stable(), self.stable);
        for txn in &self.running {
            let status = match (txn.status, txn.ts) {
                (TxnStatus::InProgress, Some(ts)) => TxnStatus::PreCommitted(ts),
                (status, _) => status,
            };
            assert_eq!(txn.slot.status(), status, "{:?}", txn.slot);
            let unfinished = txn.ts.filter(|_| txn.status == TxnStatus::InProgress);
            assert!(
                unfinished.is_none_or(|ts| ts > manager.stable()),
                "stable passed {txn:?}"
            );
        }
        for (&word, &ts) in &self.finished {
            let status = manager.status(StartWord(word));
            assert!(
                status == TxnStatus::Stale || status == TxnStatus::Committed(ts),
                "{status:?}"
            );
        }
        let oldest = self
            .snapshots
            .iter()
            .map(SnapshotGuard::ts)
            .fold(self.stable, CommitTs::min);
        assert_eq!(manager.oldest_snapshot(), oldest);
    }
}

impl std::fmt::Debug for Modelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.slot.word(), self.ts, self.status)
    }
}

#[test]
fn random_histories_agree_with_a_naive_model() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let clock = Arc::new(ManualClock::new(0));
        let manager = TxnManager::new(clock.clone(), CommitTs::ZERO);
        let mut model = Model::default();
        for _ in 0..400 {
            model.step(&manager, &mut rng, &clock);
            model.check(&manager);
        }
    }
}

/// A holder that runs, for waiters in other threads.
fn wait(
    manager: &TxnManager,
    waiter: &TxnSlot,
    holder: StartWord,
    timeout: Option<Duration>,
) -> Result<()> {
    manager.wait_for(waiter.word(), holder, timeout, NEVER)
}

#[test]
fn waiting_for_the_finished_returns_at_once() {
    let manager = manager();
    let waiter = manager.begin().expect("a slot");
    let committed = manager.begin().expect("a slot");
    enqueue(&manager, &committed, Durability::Relaxed);
    manager.finish_through(0);
    let aborted = manager.begin().expect("a slot");
    aborted.abort();
    let reused = manager.begin().expect("a slot");
    let stale = reused.word();
    reused.stamped();
    let _owner = manager.begin().expect("the same slot");
    for holder in [committed.word(), aborted.word(), stale] {
        wait(&manager, &waiter, holder, None).expect("it has finished");
    }
    let error = wait(&manager, &waiter, waiter.word(), None).expect_err("itself");
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn a_wait_times_out_and_names_both() {
    let manager = manager();
    let (waiter, holder) = (
        manager.begin().expect("a slot"),
        manager.begin().expect("a slot"),
    );
    for ms in [0, 1, 120] {
        let timeout = Some(Duration::from_millis(ms));
        let error = wait(&manager, &waiter, holder.word(), timeout).expect_err("it runs");
        assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
        assert_eq!(error.message(), "canceling statement due to lock timeout");
        let detail = error.detail().expect("a detail");
        assert!(detail.contains(&waiter.word().to_string()), "{detail}");
        assert!(detail.contains(&holder.word().to_string()), "{detail}");
    }
    holder.abort();
    wait(&manager, &waiter, holder.word(), Some(Duration::ZERO)).expect("it has finished");
}

#[test]
fn a_wait_can_be_cancelled() {
    let manager = manager();
    let (waiter, holder) = (
        manager.begin().expect("a slot"),
        manager.begin().expect("a slot"),
    );
    let polls = AtomicU64::new(0);
    let cancelled = || polls.fetch_add(1, Ordering::SeqCst) == 2;
    let error = manager
        .wait_for(waiter.word(), holder.word(), None, &cancelled)
        .expect_err("cancelled at the third look");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    assert_eq!(error.message(), "canceling statement due to user request");
    assert_eq!(polls.load(Ordering::SeqCst), 3);
}

#[test]
fn all_waiters_wake_when_the_holder_finishes() {
    for seed in 0..30 {
        println!("seed {seed}");
        let manager = manager();
        let holder = manager.begin().expect("a slot");
        scope(|scope| {
            for _ in 0..4 {
                let (manager, word) = (&manager, holder.word());
                scope.spawn(move || {
                    let waiter = manager.begin().expect("a slot");
                    wait(manager, &waiter, word, None).expect("it finishes");
                    assert_ne!(manager.status(word), TxnStatus::InProgress);
                    waiter.stamped();
                });
            }
            if seed % 2 == 0 {
                let ts = enqueue(&manager, &holder, Durability::Logged);
                manager.finish_through(ts.0);
            } else {
                holder.abort();
            }
        });
    }
}

/// Transactions 0 → 1 → … → n − 1 wait for each other in threads of their own; the last one then
/// waits for the first.
fn deadlock_of(n: usize) {
    let manager = manager();
    let slots: Vec<TxnSlot> = (0..n).map(|_| manager.begin().expect("a slot")).collect();
    let waiting = AtomicU64::new(0);
    scope(|scope| {
        for i in 0..n - 1 {
            let (manager, slots, waiting) = (&manager, &slots, &waiting);
            scope.spawn(move || {
                // The cancel flag is looked at once the edge is in the graph.
                let entered = std::cell::Cell::new(false);
                let note = || {
                    if !entered.replace(true) {
                        waiting.fetch_add(1, Ordering::SeqCst);
                    }
                    false
                };
                let (waiter, holder) = (slots[i].word(), slots[i + 1].word());
                manager
                    .wait_for(waiter, holder, None, &note)
                    .expect("no victim");
                slots[i].abort();
            });
        }
        while waiting.load(Ordering::SeqCst) < n as u64 - 1 {
            std::thread::yield_now();
        }
        let (last, first) = (&slots[n - 1], slots[0].word());
        let error = wait(&manager, last, first, None).expect_err("a cycle");
        assert_eq!(error.sqlstate(), SqlState::DEADLOCK_DETECTED);
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.hint().is_some());
        for word in [last.word(), first] {
            assert!(error.message().contains(&word.to_string()), "{error}");
        }
        let detail = error.detail().expect("the cycle");
        assert_eq!(detail.matches("waits for").count(), n, "{detail}");
        last.abort();
    });
}

#[test]
fn deadlocks_are_found_by_whoever_closes_the_cycle() {
    for n in [2, 3, 7] {
        deadlock_of(n);
    }
}

/// Threads commit and check that everything up to a snapshot is committed, and that the oldest
/// snapshot is never above one that is registered.
#[test]
fn snapshots_see_exactly_the_commits_up_to_them() {
    let manager = TxnManager::new(Arc::new(strandline_base::SystemClock), CommitTs::ZERO);
    let log = empty_log();
    scope(|scope| {
        for seed in 0..3 {
            let (manager, log) = (&manager, &log);
            scope.spawn(move || {
                println!("seed {seed}");
                let mut rng = Rng::new(seed);
                for _ in 0..3_000 {
                    let slot = manager.begin().expect("a slot");
                    let durability = if rng.one_in(3) {
                        Durability::Relaxed
                    } else {
                        Durability::Logged
                    };
                    let end = {
                        let mut words = log.lock();
                        let ts = manager.tick();
                        words.push((slot.word(), ts));
                        manager.enqueue(&slot, ts, words.len() as u64, durability);
                        words.len() as u64
                    };
                    let snapshot = manager.snapshot(None).expect("now");
                    assert!(manager.oldest_snapshot() <= snapshot.ts());
                    manager.finish_through(end);
                    assert!(matches!(slot.status(), TxnStatus::Committed(_)));
                    let newest: Vec<_> = log.lock().iter().rev().take(8).copied().collect();
                    for (word, ts) in newest {
                        let status = manager.status(word);
                        if ts <= snapshot.ts() {
                            let known = [TxnStatus::Committed(ts), TxnStatus::Stale];
                            assert!(known.contains(&status), "{ts} is {status:?}");
                        }
                    }
                    slot.stamped();
                }
            });
        }
    });
    assert_eq!(log.lock().len(), 9_000);
    assert_eq!(manager.oldest_snapshot(), manager.stable());
}

/// The log: words and timestamps in log order, under the log's lock.
fn empty_log() -> strandline_base::sync::Mutex<Vec<(StartWord, CommitTs)>> {
    strandline_base::sync::Mutex::new(Vec::new())
}
