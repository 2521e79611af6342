//! Wall clocks that jump both ways, while the database is open and while it is closed: timestamps
//! of commits grow, retention goes by the time that has passed, and what was once given up stays an
//! error.

mod common;

use common::*;
use std::sync::Arc;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const CENTURY: u64 = 36_525 * DAY;
const JUMPS: [u64; 4] = [3 * SECOND, HOUR, DAY, CENTURY];

/// A commit's timestamp and the value of row 1 from then on.
type Moments = Vec<(CommitTs, i64)>;

impl World {
    /// Sets row 1, whose timestamps must grow.
    fn set(&self, moments: &mut Moments) {
        let a = moments.len() as i64;
        let t = table(&self.db);
        let set = [(ColumnId(1), Value::BigInt(a))];
        let update = |s: &Arc<Statement>| s.point_update(&t, 0, &[Value::BigInt(1)], &set);
        assert!(run(&self.db, update).expect("update"));
        let ts = self.db.stable();
        assert!(moments.last().is_none_or(|(last, _)| *last < ts), "{ts}");
        moments.push((ts, a));
    }

    fn at(&self, ts: CommitTs) -> Result<Option<i64>> {
        let txn = self.db.begin(TxnOptions::default())?;
        let statement = txn.begin_statement()?;
        let catalog = self.db.catalog_at(ts)?;
        let t = catalog.table("public", "t").expect("t").clone();
        let found = scan_all(&statement.scan_as_of(&t, ts, request())?);
        Ok(found.get(&1).and_then(|(a, _)| *a))
    }

    /// All of `moments` can be read.
    fn check(&self, moments: &[(CommitTs, i64)], what: &str) {
        for (ts, a) in moments {
            let found = self.at(*ts).unwrap_or_else(|e| panic!("{what}: {a}: {e}"));
            assert_eq!(found, Some(*a), "{what}: as of {ts}");
        }
    }

    /// None of `moments` can be read.
    fn check_gone(&self, moments: &[(CommitTs, i64)], what: &str) {
        for (ts, a) in moments {
            let error = self.at(*ts).expect_err(what);
            assert_eq!(
                error.sqlstate(),
                SqlState::SNAPSHOT_TOO_OLD,
                "{what}: {a}: {error}"
            );
        }
    }

    fn checkpoint(&self) {
        self.db.checkpoint(true).expect("checkpoint");
    }
}

/// Ten versions of row 1, a minute between each two.
fn world(history: HistoryPolicy) -> (World, Moments) {
    let world = World::new(history);
    insert(&world.db, &row(1, 0, ""));
    let mut moments = vec![(world.db.stable(), 0)];
    for _ in 1..10 {
        world.clock.advance(MINUTE);
        world.set(&mut moments);
    }
    world.checkpoint();
    (world, moments)
}

fn jumped(wall: u64, by: u64, forward: bool) -> u64 {
    match forward {
        true => wall + by,
        false => wall.saturating_sub(by),
    }
}

#[test]
fn a_jump_while_the_database_is_open_ends_no_history_and_time_that_passes_does() {
    for (by, forward) in JUMPS.iter().flat_map(|by| [(*by, true), (*by, false)]) {
        let what = format!("jump of {by} us, forward: {forward}");
        let (world, mut moments) = world(HistoryPolicy::For(30 * MINUTE));
        world.clock.set(jumped(world.clock.now_us(), by, forward));
        for _ in 0..3 {
            world.set(&mut moments);
            world.checkpoint();
        }
        world.check(&moments, &what);
        // Somebody puts it right.
        world.clock.advance(MINUTE);
        world.clock.set(jumped(world.clock.now_us(), by, !forward));
        for _ in 0..3 {
            world.set(&mut moments);
            world.checkpoint();
            world.clock.advance(SECOND);
        }
        world.check(&moments, &what);
        let world = world.reopen();
        world.check(&moments, &what);
        // The first versions were superseded 31 and more minutes ago.
        world.clock.advance(25 * MINUTE);
        world.checkpoint();
        world.check_gone(&moments[..3], &what);
        world.check(&moments[9..], &what);
        world.clock.advance(31 * MINUTE);
        world.checkpoint();
        // Commits a microsecond apart, while the clock was behind, may be kept for longer.
        world.check_gone(&moments[..10], &what);
        world.check(&moments[moments.len() - 1..], &what);
    }
}

#[test]
fn a_jump_across_a_restart_costs_an_hour_of_history_at_most() {
    for (by, forward) in JUMPS.iter().flat_map(|by| [(*by, true), (*by, false)]) {
        let what = format!("jump of {by} us, forward: {forward}");
        let (world, mut moments) = world(HistoryPolicy::For(2 * HOUR));
        world.clock.set(jumped(world.clock.now_us(), by, forward));
        let world = world.reopen();
        for _ in 0..2 {
            world.set(&mut moments);
            world.checkpoint();
        }
        world.check(&moments, &what);
        // And back at the next restart.
        world.clock.set(jumped(world.clock.now_us(), by, !forward));
        let world = world.reopen();
        world.set(&mut moments);
        world.checkpoint();
        world.check(&moments, &what);
        // An hour at most for each of the two restarts.
        world.clock.advance(2 * HOUR + MINUTE);
        world.set(&mut moments);
        world.checkpoint();
        // Commits a microsecond apart, while the clock was behind, may be kept for longer.
        world.check_gone(&moments[..10], &what);
        world.check(&moments[moments.len() - 1..], &what);
    }
}

#[test]
fn what_was_given_up_stays_an_error_and_what_was_promised_stays_readable() {
    for by in JUMPS {
        let what = format!("back by {by} us");
        let (mut world, mut moments) = world(HistoryPolicy::For(30 * MINUTE));
        world.clock.advance(28 * MINUTE);
        world.set(&mut moments);
        world.checkpoint();
        let old = moments[..6].to_vec();
        world.check_gone(&old, &what);
        world.check(&moments[8..], &what);
        for _ in 0..3 {
            world.clock.set(jumped(world.clock.now_us(), by, false));
            world = world.reopen();
            world.set(&mut moments);
            world.checkpoint();
            world.check_gone(&old, &what);
            world.check(&moments[8..], &what);
        }
    }
}

#[test]
fn history_none_goes_by_snapshots_and_by_no_clock() {
    let (world, mut moments) = world(HistoryPolicy::None);
    // Commits are ahead of the wall clock: versions go all the same.
    world.clock.set(world.clock.now_us() - DAY);
    for _ in 0..3 {
        world.set(&mut moments);
    }
    world.checkpoint();
    let (last, old) = moments.split_last().expect("moments");
    world.check_gone(old, "none");
    world.check(&[*last], "none");
    assert!(world.db.inspect().is_ok());
}

/// Merges rest by elapsed time: a clock that is put back does not stop them for as long.
#[test]
fn background_merges_go_on_after_the_clock_was_put_back() {
    let device = Arc::new(strandline_device::MemoryDevice::new());
    let wall = clock();
    let db = open_eager(device, &wall, 4).expect("open");
    create_table(&db, HistoryPolicy::None);
    for k in 0..8 {
        insert(&db, &row(k, k, ""));
    }
    db.checkpoint(true).expect("checkpoint");
    let world = World {
        device: Arc::default(),
        clock: wall,
        db,
    };
    let mut moments = Moments::new();
    for forward in [true, false, false] {
        for _ in 0..5 {
            world.set(&mut moments);
        }
        assert!(
            world.db.merge_due(false).expect("merge"),
            "forward: {forward}"
        );
        world
            .clock
            .set(jumped(world.clock.now_us(), 7 * DAY, forward));
        world.clock.advance(SECOND);
    }
    let counter = |name| {
        let counters = world.db.counters();
        counters.iter().find(|c| c.0 == name).expect("counter").1
    };
    assert_eq!(counter("clock_jumps"), 2);
    assert!(counter("clock_behind_us") > 0);
}

/// Staleness, too, is time that has passed.
#[test]
fn a_moment_some_time_ago_is_found_while_the_clock_is_behind() {
    let (world, mut moments) = world(HistoryPolicy::Forever);
    let wall = world.clock.now_us();
    assert_eq!(
        world.db.moment_ago(MINUTE_AS_DURATION),
        CommitTs(wall - MINUTE)
    );
    world.clock.set(wall - DAY);
    world.set(&mut moments);
    let behind = world.db.moment_ago(MINUTE_AS_DURATION);
    assert!(behind <= world.db.stable());
    world.clock.advance(2 * MINUTE);
    world.set(&mut moments);
    let (newest, before) = (moments[moments.len() - 1], moments[moments.len() - 2]);
    let ago = world.db.moment_ago(MINUTE_AS_DURATION);
    assert!(
        ago >= before.0 && ago < newest.0,
        "{before:?} {ago} {newest:?}"
    );
}

const MINUTE_AS_DURATION: std::time::Duration = std::time::Duration::from_secs(60);
