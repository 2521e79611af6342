//! Models of the transaction protocols: a controlled scheduler runs the shipping code through many
//! interleavings of its atomic operations and locks. Built with `RUSTFLAGS="--cfg shuttle"`;
//! `make models` runs them. A failure prints the schedule, which `shuttle::replay` runs again.
//! `STRANDLINE_SEED` explores other interleavings, `STRANDLINE_MODEL_RUNS` more of them.
#![cfg(shuttle)]

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;
use shuttle::{Config, Runner};
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, Mutex, Ordering};
use strandline_base::{CommitTs, ManualClock, SqlState};
use strandline_txn::{Durability, StartWord, TxnManager, TxnSlot, TxnStatus};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Half of the runs with random switches, half with few switches at the worst places.
fn explore(model: fn()) {
    let seed = number("STRANDLINE_SEED", 1);
    let runs = number("STRANDLINE_MODEL_RUNS", 3_000) as usize;
    println!("seed {seed}");
    let mut config = Config::new();
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new_from_seed(seed, runs), config.clone()).run(model);
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config).run(model);
}

fn manager(slots: usize) -> Arc<TxnManager> {
    TxnManager::with_slots(Arc::new(ManualClock::new(100)), CommitTs(10), slots)
}

/// The log: its lock orders the commits; it remembers their words and timestamps.
#[derive(Default)]
struct Log(Mutex<Vec<(StartWord, CommitTs)>>);

impl Log {
    /// Appends a commit and returns its timestamp and the end of its log record.
    fn append(
        &self,
        manager: &TxnManager,
        slot: &TxnSlot,
        durability: Durability,
    ) -> (CommitTs, u64) {
        let mut commits = self.0.lock();
        let ts = manager.tick();
        commits.push((slot.word(), ts));
        let end = commits.len() as u64;
        manager.enqueue(slot, ts, end, durability);
        (ts, end)
    }

    fn commits(&self) -> Vec<(StartWord, CommitTs)> {
        self.0.lock().clone()
    }
}

/// A writer's record: its start word, loaded and resolved as a reader does it.
fn resolve(manager: &TxnManager, record: &AtomicU64) -> TxnStatus {
    let mut last_stale = None;
    loop {
        let word = StartWord(record.load(Ordering::Acquire));
        if word == StartWord::ABORTED {
            return TxnStatus::Aborted;
        }
        if let Some(ts) = word.commit_ts() {
            return TxnStatus::Committed(ts);
        }
        if word == StartWord::UNPUBLISHED {
            return TxnStatus::InProgress;
        }
        assert_ne!(last_stale, Some(word), "a stale word has been replaced");
        match manager.status(word) {
            TxnStatus::Stale => last_stale = Some(word),
            status => return status,
        }
    }
}

/// Two threads run transactions through two slots, so both reuse them; readers resolve the words
/// of both records and never see another transaction's timestamp or a step back in state.
#[test]
fn status_while_slots_are_stamped_and_reused() {
    explore(|| {
        let manager = manager(2);
        let log = Arc::new(Log::default());
        let records: Arc<[AtomicU64; 4]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let writers: Vec<_> = [0, 2]
            .into_iter()
            .map(|first| {
                let (manager, log, records) = (manager.clone(), log.clone(), records.clone());
                thread::spawn(move || {
                    for i in [first, first + 1] {
                        let slot = manager.begin().expect("as many slots as writers");
                        records[i].store(slot.word().0, Ordering::Release);
                        if i == 3 {
                            slot.abort();
                            records[i].store(StartWord::ABORTED.0, Ordering::Release);
                        } else {
                            let (ts, end) = log.append(&manager, &slot, Durability::Logged);
                            manager.finish_through(end);
                            assert_eq!(slot.status(), TxnStatus::Committed(ts));
                            records[i].store(StartWord::committed(ts).0, Ordering::Release);
                        }
                        slot.stamped();
                    }
                })
            })
            .collect();
        let seen: Vec<[TxnStatus; 2]> = records
            .iter()
            .map(|record| [resolve(&manager, record), resolve(&manager, record)])
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().expect("no writer panics"));
        for (record, [first, second]) in records.iter().zip(seen) {
            let last = resolve(&manager, record);
            assert_ne!(last, TxnStatus::InProgress);
            assert!(may_follow(first, second), "{first:?}, {second:?}");
            assert!(may_follow(second, last), "{second:?}, {last:?}");
        }
    });
}

/// Whether a state can be seen after another one: no step back, and one timestamp.
fn may_follow(before: TxnStatus, after: TxnStatus) -> bool {
    match before {
        TxnStatus::InProgress => true,
        TxnStatus::PreCommitted(ts) => {
            after == before || matches!(after, TxnStatus::Committed(now) if now == ts)
        }
        finished => after == finished,
    }
}

/// Three threads claim and release slots of a table that has exactly three: none is ever owned
/// twice (the commit of one would be seen by another), none is lost.
#[test]
fn the_free_list_hands_out_every_slot_once() {
    explore(|| {
        let manager = manager(3);
        let owned = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (manager, owned) = (manager.clone(), owned.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let slot = manager.begin().expect("a slot per thread");
                        let number = slot.word().0 & 0xff_ffff;
                        let mut now_owned = owned.lock();
                        assert!(!now_owned.contains(&number), "slot {number} is owned twice");
                        now_owned.push(number);
                        drop(now_owned);
                        owned.lock().retain(|other| *other != number);
                        slot.stamped();
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no thread panics"));
        let slots: Vec<_> = (0..3)
            .map(|_| manager.begin().expect("none is lost"))
            .collect();
        assert!(manager.begin().is_err());
        drop(slots);
    });
}

/// One thread's pop is overtaken by another's pop, pop, push of the same slots (ABA): the second
/// thread must not be handed the slot that it holds.
#[test]
fn a_delayed_pop_does_not_corrupt_the_free_list() {
    explore(|| {
        let manager = manager(3);
        let slots: Vec<_> = (0..2).map(|_| manager.begin().expect("free")).collect();
        slots.into_iter().for_each(TxnSlot::stamped);
        let number = |slot: &TxnSlot| slot.word().0 & 0xff_ffff;
        let other = manager.clone();
        let delayed = thread::spawn(move || other.begin().expect("one of three"));
        let first = manager.begin().expect("one of three");
        let held = manager.begin().expect("one of three");
        first.stamped();
        let again = manager.begin().expect("one of three");
        assert_ne!(number(&again), number(&held));
        let delayed = delayed.join().expect("the thread does not panic");
        assert_ne!(number(&delayed), number(&held));
        assert_ne!(number(&delayed), number(&again));
    });
}

/// What a snapshot sees of the commits in the log; it must not depend on when it looks.
fn visible(manager: &TxnManager, log: &Log, snapshot: CommitTs) -> Vec<CommitTs> {
    let mut seen = Vec::new();
    for (word, ts) in log.commits() {
        match manager.status(word) {
            // The committer of this model stamps only with the log's timestamp.
            TxnStatus::Stale | TxnStatus::Committed(_) if ts <= snapshot => seen.push(ts),
            TxnStatus::Committed(other) => assert_eq!(other, ts),
            TxnStatus::Aborted => panic!("nothing aborts here"),
            TxnStatus::Stale | TxnStatus::InProgress | TxnStatus::PreCommitted(_) => {}
        }
    }
    seen
}

fn committers(
    manager: &Arc<TxnManager>,
    log: &Arc<Log>,
    modes: &'static [Durability],
) -> Vec<thread::JoinHandle<()>> {
    let spawn = |&durability: &'static Durability| {
        let (manager, log) = (manager.clone(), log.clone());
        thread::spawn(move || {
            let slot = manager.begin().expect("a slot");
            let (ts, end) = log.append(&manager, &slot, durability);
            if durability == Durability::Relaxed {
                manager.finish_through(0);
            }
            if durability == Durability::Logged || manager.stable() < ts {
                manager.finish_through(end);
            }
            assert_eq!(slot.status(), TxnStatus::Committed(ts));
            assert!(manager.stable() >= ts, "acknowledged commits are stable");
            slot.stamped();
        })
    };
    modes.iter().map(spawn).collect()
}

const MIXED: &[Durability] = &[Durability::Logged, Durability::Relaxed, Durability::Logged];

/// A snapshot sees the same commits at once and after everything has finished.
#[test]
fn a_snapshot_at_stable_is_complete() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let threads = committers(&manager, &log, MIXED);
        let snapshot = manager.snapshot(None).expect("now");
        assert!(manager.oldest_snapshot() <= snapshot.ts());
        let at_once = visible(&manager, &log, snapshot.ts());
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no committer panics"));
        assert_eq!(visible(&manager, &log, snapshot.ts()), at_once);
        assert_eq!(
            manager.stable(),
            log.commits().last().expect("three commits").1
        );
    });
}

/// The same for a snapshot at a moment that commits are about to get: it waits for those that have
/// drawn a timestamp at or below it, the others get later ones.
#[test]
fn a_snapshot_later_than_stable_is_complete() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let threads = committers(&manager, &log, MIXED);
        let snapshot = manager
            .snapshot(Some(CommitTs(100)))
            .expect("the clock's time");
        let at_once = visible(&manager, &log, snapshot.ts());
        assert!(manager.oldest_snapshot() <= snapshot.ts());
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no committer panics"));
        assert_eq!(visible(&manager, &log, snapshot.ts()), at_once);
        assert!(
            at_once.len() <= 1,
            "the clock stands at 100: one commit gets that, {at_once:?}"
        );
    });
}

/// Taking and dropping snapshots while commits move stable: the oldest is never above a live one.
#[test]
fn the_oldest_snapshot_is_never_too_high() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let mut threads = committers(&manager, &log, &MIXED[..2]);
        let oldest = Arc::new(AtomicU64::new(0));
        let collector = {
            let (manager, oldest) = (manager.clone(), oldest.clone());
            // Published after the fact: a snapshot that is live when it loads this must be at or
            // above it.
            thread::spawn(move || {
                for _ in 0..3 {
                    oldest.store(manager.oldest_snapshot().0, Ordering::SeqCst);
                }
            })
        };
        threads.push(collector);
        for _ in 0..2 {
            let snapshot = manager.snapshot(None).expect("now");
            assert!(oldest.load(Ordering::SeqCst) <= snapshot.ts().0);
            let shared = snapshot.clone();
            drop(snapshot);
            assert!(manager.oldest_snapshot() <= shared.ts());
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no thread panics"));
        assert_eq!(manager.oldest_snapshot(), manager.stable());
    });
}

/// Whatever a live snapshot sees was either registered when the collector looked, or is not below
/// the stable timestamp that it had loaded before.
#[test]
fn no_registered_snapshot_is_missed() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let mut threads = committers(&manager, &log, &MIXED[..2]);
        let seen = Arc::new(Mutex::new((CommitTs::ZERO, Vec::new())));
        let collector = {
            let (manager, seen) = (manager.clone(), seen.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let stable = manager.stable();
                    *seen.lock() = (stable, manager.registered_snapshots());
                }
            })
        };
        threads.push(collector);
        for _ in 0..2 {
            let snapshot = manager.snapshot(None).expect("now");
            let (stable, registered) = seen.lock().clone();
            assert!(snapshot.ts() >= stable || registered.contains(&snapshot.ts()));
            assert!(manager.registered_snapshots().contains(&snapshot.ts()));
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no thread panics"));
        assert_eq!(manager.registered_snapshots(), []);
    });
}

/// Two wait for a holder that finishes meanwhile. A wait never times out here: a lost wake-up is a
/// deadlock, which the scheduler reports.
#[test]
fn no_wake_up_is_lost() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let holder = manager.begin().expect("a slot");
        let word = holder.word();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let manager = manager.clone();
                thread::spawn(move || {
                    let waiter = manager.begin().expect("a slot");
                    manager
                        .wait_for(waiter.word(), word, None, &|| false)
                        .expect("no cycle");
                    assert_ne!(manager.status(word), TxnStatus::InProgress);
                    assert_eq!(
                        manager.stable(),
                        CommitTs(100),
                        "stable has passed the holder"
                    );
                    waiter.stamped();
                })
            })
            .collect();
        let (ts, end) = log.append(&manager, &holder, Durability::Logged);
        assert_eq!(ts, CommitTs(100));
        let other = manager.clone();
        let finisher = thread::spawn(move || other.finish_through(end));
        manager.finish_through(end);
        holder.stamped();
        finisher.join().expect("the finisher does not panic");
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().expect("no waiter panics"));
    });
}

/// Three transactions each wait for the next and abort when told of a deadlock: at least one is,
/// everybody comes to an end.
#[test]
fn a_cycle_has_a_victim() {
    explore(|| {
        let manager = manager(8);
        let slots: Vec<_> = (0..3).map(|_| manager.begin().expect("a slot")).collect();
        let words: Vec<StartWord> = slots.iter().map(TxnSlot::word).collect();
        let threads: Vec<_> = slots
            .into_iter()
            .enumerate()
            .map(|(i, slot)| {
                let (manager, holder) = (manager.clone(), words[(i + 1) % 3]);
                thread::spawn(move || {
                    let waited = manager.wait_for(slot.word(), holder, None, &|| false);
                    slot.abort();
                    slot.stamped();
                    waited.map_err(|error| error.sqlstate())
                })
            })
            .collect();
        let outcomes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect();
        let victims: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.err())
            .collect();
        assert!(
            victims
                .iter()
                .all(|state| *state == SqlState::DEADLOCK_DETECTED)
        );
        assert!(victims.len() <= 1, "one victim is enough: {victims:?}");
    });
}

/// The queue's owner aborts (the log has failed) while others finish what is before and behind it.
#[test]
fn an_abort_in_the_queue_lets_the_others_pass() {
    explore(|| {
        let (manager, log) = (manager(8), Arc::new(Log::default()));
        let failed = manager.begin().expect("a slot");
        log.append(&manager, &failed, Durability::Logged);
        let behind = manager.begin().expect("a slot");
        log.append(&manager, &behind, Durability::Relaxed);
        let waiter = {
            let (manager, holder) = (manager.clone(), behind.word());
            thread::spawn(move || {
                let waiter = manager.begin().expect("a slot");
                manager
                    .wait_for(waiter.word(), holder, None, &|| false)
                    .expect("no cycle");
                manager
                    .snapshot(Some(CommitTs(101)))
                    .expect("given out")
                    .ts()
            })
        };
        let other = manager.clone();
        let finisher = thread::spawn(move || other.finish_through(0));
        failed.abort();
        assert_eq!(failed.status(), TxnStatus::Aborted);
        failed.stamped();
        finisher.join().expect("the finisher does not panic");
        assert_eq!(behind.status(), TxnStatus::Committed(CommitTs(101)));
        assert_eq!(
            waiter.join().expect("the waiter does not panic"),
            CommitTs(101)
        );
        behind.stamped();
    });
}

/// A commit of two records, and a speculative reader of both: it sees all or nothing of what its
/// snapshot reaches, and everything it has seen is committed when stable reaches its snapshot.
#[test]
fn a_speculative_reader_sees_all_or_nothing() {
    explore(|| {
        let (manager, log) = (manager(4), Arc::new(Log::default()));
        let records: Arc<[AtomicU64; 2]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let writer = {
            let (manager, log, records) = (manager.clone(), log.clone(), records.clone());
            thread::spawn(move || {
                let slot = manager.begin().expect("a slot");
                for record in records.iter() {
                    record.store(slot.word().0, Ordering::Release);
                }
                let (ts, end) = log.append(&manager, &slot, Durability::Logged);
                manager.finish_through(end);
                for record in records.iter() {
                    record.store(StartWord::committed(ts).0, Ordering::Release);
                }
                slot.stamped();
            })
        };
        let snapshot = manager.speculative_snapshot().ts();
        let sees = |record: &AtomicU64| match resolve(&manager, record) {
            TxnStatus::PreCommitted(ts) | TxnStatus::Committed(ts) => ts <= snapshot,
            _ => false,
        };
        let seen = [sees(&records[1]), sees(&records[0])];
        assert_eq!(seen[0], seen[1], "at {snapshot}");
        assert_eq!(seen[0], snapshot == CommitTs(100));
        writer.join().expect("the writer does not panic");
        assert!(manager.stable() >= snapshot);
    });
}

/// The log fails for a commit on which a speculative one depends: both abort, whichever comes
/// first, and nobody takes either for committed.
#[test]
fn an_abort_cascades_to_those_who_have_read() {
    explore(|| {
        let (manager, log) = (manager(4), Arc::new(Log::default()));
        let failed = manager.begin().expect("a slot");
        let word = failed.word();
        log.append(&manager, &failed, Durability::Logged);
        let dependent = {
            let (manager, log) = (manager.clone(), log.clone());
            thread::spawn(move || {
                let snapshot = manager.speculative_snapshot().ts();
                let read =
                    matches!(manager.status(word), TxnStatus::PreCommitted(ts) if ts <= snapshot);
                let slot = manager.begin().expect("a slot");
                // What depends on an unfinished commit is finished by the log alone.
                log.append(&manager, &slot, Durability::Logged);
                manager.finish_through(0);
                assert!(!matches!(slot.status(), TxnStatus::Committed(_)), "{read}");
                slot.abort();
                assert_eq!(slot.status(), TxnStatus::Aborted);
                slot.stamped();
            })
        };
        failed.abort();
        assert_eq!(failed.status(), TxnStatus::Aborted);
        failed.stamped();
        dependent.join().expect("the dependent does not panic");
        assert_eq!(manager.stable(), CommitTs(10));
    });
}

/// A waiter that only waits for the pre-commit is woken by the announcement, and can then see it.
#[test]
fn an_announcement_wakes_those_who_wait_for_the_pre_commit() {
    explore(|| {
        let (manager, log) = (manager(4), Arc::new(Log::default()));
        let holder = manager.begin().expect("a slot");
        let word = holder.word();
        let waiter = {
            let manager = manager.clone();
            thread::spawn(move || {
                let waiter = manager.begin().expect("a slot");
                let limits = strandline_txn::WaitLimits {
                    timeout: None,
                    cancelled: &|| false,
                    in_the_way: &|| manager.status(word) == TxnStatus::InProgress,
                };
                let mut looks = strandline_txn::Looks::default();
                // It looks, as a writer does at a record, and each wait settles what it has seen.
                let mut is_over = false;
                while !is_over {
                    is_over = !(limits.in_the_way)();
                    manager
                        .wait_while(waiter.word(), word, &limits, &mut looks)
                        .expect("no cycle");
                }
                assert!(manager.speculative_snapshot().ts() >= CommitTs(100));
                waiter.stamped();
            })
        };
        let (_, end) = log.append(&manager, &holder, Durability::Logged);
        holder.announce();
        waiter.join().expect("the waiter does not panic");
        manager.finish_through(end);
        holder.stamped();
    });
}

/// What a transaction lets go of before its end is had by its waiter while it still runs, and what
/// it waits for then is no deadlock.
#[test]
fn what_is_let_go_of_early_wakes_its_waiter() {
    explore(|| {
        let manager = manager(4);
        let holder = manager.begin().expect("a slot");
        let waiter = manager.begin().expect("a slot");
        let (held, wanted) = (holder.word(), waiter.word());
        let lock = Arc::new(AtomicU64::new(held.0));
        let waits = {
            let (manager, lock) = (manager.clone(), lock.clone());
            thread::spawn(move || {
                let limits = strandline_txn::WaitLimits {
                    timeout: None,
                    cancelled: &|| false,
                    in_the_way: &|| true,
                };
                let mut looks = strandline_txn::Looks::default();
                while lock.load(Ordering::Acquire) != 0 {
                    manager
                        .wait_while(waiter.word(), held, &limits, &mut looks)
                        .expect("no cycle");
                }
                waiter.abort();
                waiter.stamped();
            })
        };
        lock.store(0, Ordering::Release);
        holder.let_go();
        manager
            .wait_for(held, wanted, None, &|| false)
            .expect("the waiter no longer waits for the holder");
        waits.join().expect("the waiter does not panic");
        holder.stamped();
    });
}
