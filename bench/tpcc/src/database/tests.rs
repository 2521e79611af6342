//! The database in every mode of the SSD cache: consistency after the mix, after threads, after
//! crashes at many operations and after failures.

use std::sync::Arc;
use std::time::Duration;

use strandline_base::{ErrorKind, Result};
use strandline_device::{Device, MemoryDevice};
use strandline_sim::SimDisk;
use strandline_storage::pages::PAGE_BYTES;
use strandline_storage::ssd_cache::{Mode, Settings as CacheSettings};
use strandline_storage::wal::{Lsn, WalSettings};

use super::*;
use crate::consistency::check;
use crate::input::{Input, Inputs};
use crate::terminals::Terminals;
use crate::workload::{Contents, Found, Outcome, Workload};

const ID: u128 = 0x7bcc;
const MODES: [Option<Mode>; 5] = [
    None,
    Some(Mode::Pc),
    Some(Mode::Pc2),
    Some(Mode::Lc),
    Some(Mode::Off),
];

fn scale() -> Scale {
    Scale {
        warehouses: 2,
        districts: 2,
        customers: 10,
        items: 40,
    }
}

/// A database with `memory_pages` in memory and 24 in the cache.
fn settings(mode: Option<Mode>, memory_pages: usize) -> DatabaseSettings {
    let cache = mode.map(|mode| {
        let mut cache = CacheSettings::new(ID, 24 * (8_192 + 512));
        (cache.mode, cache.free_slots, cache.batch) = (mode, 3, 4);
        cache
    });
    DatabaseSettings {
        scale: scale(),
        database_id: ID,
        memory_bytes: memory_pages * PAGE_BYTES,
        cache,
        wal: WalSettings {
            segment_bytes: 64 << 10,
        },
    }
}

fn verify(database: &Database, what: &str) -> crate::consistency::Summary {
    let checked = database.check_indexes().and_then(|()| check(database));
    checked.unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Runs `count` transactions on one thread, with steps and checkpoints in between. Returns the
/// numbers of acknowledged orders and payments.
fn work(database: &Database, seed: u64, count: usize) -> (Result<()>, [u64; 2]) {
    let mut inputs: Vec<Inputs> = (0..4)
        .map(|number| Inputs::new(scale(), number, seed))
        .collect();
    let mut acknowledged = [0; 2];
    for no in 0..count {
        let input = inputs[no % 4].draw();
        let done = database.run(&input).and_then(|outcome| {
            match (&input, outcome) {
                (Input::NewOrder(_), Outcome::Committed(_)) => acknowledged[0] += 1,
                (Input::Payment(_), _) => acknowledged[1] += 1,
                _ => {}
            }
            if no % 3 == 0
                && let Some(cache) = database.cache()
            {
                // A torn slot of a page that redo has repaired stays until the page is written.
                let step = cache.step().map(drop);
                step.or_else(|e| match e.kind() {
                    ErrorKind::Corrupt => Ok(()),
                    _ => Err(e),
                })?;
            }
            match no % 16 {
                15 => database.checkpoint(),
                _ => Ok(()),
            }
        });
        if let Err(e) = done {
            return (Err(e), acknowledged);
        }
    }
    (Ok(()), acknowledged)
}

fn open(disk: &SimDisk, mode: Option<Mode>, redo: Lsn) -> Result<Database> {
    Database::open(disk.device(), &settings(mode, 12), redo, None).map(|(database, _)| database)
}

#[test]
fn the_population_has_the_rows_of_its_scale() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let database = Database::create(device, &settings(None, 64), 1).expect("create");
    let summary = verify(&database, "population");
    assert_eq!((summary.orders, summary.history), (40, 40));
    assert_eq!(summary.new_orders, 12);
    assert!((200..=600).contains(&summary.order_lines));
    let mut customers = 0;
    let mut visit = |found| customers += u32::from(matches!(found, Found::Customer(_)));
    database.visit(&mut visit).expect("visit");
    assert_eq!(customers, 40);
}

#[test]
fn the_mix_keeps_the_conditions_in_every_mode_and_over_openings() {
    for (seed, mode) in (1..).zip(MODES) {
        let disk = SimDisk::new(seed);
        let what = format!("{mode:?}");
        let database = Database::create(disk.device(), &settings(mode, 12), seed).expect("create");
        let (done, [orders, payments]) = work(&database, seed, 300);
        done.unwrap_or_else(|e| panic!("{what}: {e}"));
        let before = verify(&database, &what);
        assert_eq!(before.orders, 40 + orders, "{what}");
        assert_eq!(before.history, 40 + payments, "{what}");
        assert!(orders > 100 && before.new_orders < 12 + orders, "{what}");
        if let Some(cache) = database.cache().filter(|_| mode != Some(Mode::Off)) {
            assert!(cache.stats().hits > 0, "{what}");
        }
        let redo = database.redo_position();
        drop(database);
        let database = open(&disk.after_kill(), mode, redo).expect("open");
        assert_eq!(verify(&database, &what), before, "{what}");
        let (done, _) = work(&database, seed + 50, 100);
        done.unwrap_or_else(|e| panic!("{what}: {e}"));
        verify(&database, &what);
    }
}

#[test]
fn threads_keep_the_conditions() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let database = Database::create(device, &settings(Some(Mode::Pc), 12), 5).expect("create");
    let terminals = Terminals {
        scale: scale(),
        count: 6,
        wait: Duration::ZERO,
        seed: 5,
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                database.cache().expect("cache").step()?;
                database.checkpoint()?;
            }
            Ok::<(), Error>(())
        });
        let timeline = terminals.run(&database, Duration::from_millis(300));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(timeline.expect("terminals").transactions > 0);
        background.join().expect("no panic").expect("background");
    });
    verify(&database, "threads");
}

/// Crashes while transactions run, then again during the recovery. Acknowledged orders and payments
/// stay, and whole transactions only.
#[test]
fn a_crash_keeps_whole_transactions_and_the_acknowledged_ones() {
    for (seed, mode) in (10..).zip(MODES) {
        let disk = SimDisk::new(seed);
        let database = Database::create(disk.device(), &settings(mode, 12), seed).expect("create");
        let (redo, loaded) = (database.redo_position(), disk.operations());
        work(&database, seed, 40).0.expect("no crash");
        drop(database);
        let all = disk.operations() - loaded;
        let populated = SimDisk::new(seed);
        drop(Database::create(populated.device(), &settings(mode, 12), seed).expect("create"));
        let mut repeated = 0;
        for at in (1..=all).step_by(1 + all as usize / 12) {
            let what = format!("{mode:?}, crash at {at} of {all}");
            let disk = populated.after_kill();
            let database = open(&disk, mode, redo).expect("open");
            disk.crash_at(disk.operations() + at);
            let (done, acknowledged) = work(&database, seed, 40);
            assert!(done.is_err() == disk.has_crashed(), "{what}: {done:?}");
            let redo = database.redo_position();
            drop(database);
            let disk = disk.after_crash(at);
            disk.crash_at(disk.operations() + 1 + at * 7 % 60);
            let again = open(&disk, mode, redo);
            assert!(again.is_ok() || disk.has_crashed(), "{what}");
            drop(again);
            let disk = disk.after_crash(at + 1);
            let (database, recovered) =
                Database::open(disk.device(), &settings(mode, 12), redo, None)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
            repeated += recovered.repeated;
            let summary = verify(&database, &what);
            let kept = [summary.orders - 40, summary.history - 40];
            for (kept, acknowledged) in kept.iter().zip(acknowledged) {
                let one_more = acknowledged..=acknowledged + 1;
                assert!(one_more.contains(kept), "{what}: {kept} of {acknowledged}");
            }
            let (done, _) = work(&database, seed + 1, 20);
            done.unwrap_or_else(|e| panic!("{what}: {e}"));
            verify(&database, &what);
        }
        assert!(
            repeated > 0,
            "{mode:?}: no crash was between a commit and its changes"
        );
    }
}

/// A checkpoint between a transaction's commit and its changes does not cut its record off.
#[test]
fn redo_begins_before_running_transactions() {
    let disk = SimDisk::new(4);
    let database = Database::create(disk.device(), &settings(None, 64), 4).expect("create");
    let mut writes = write_set::WriteSet::default();
    let order = tables::Index::NewOrder;
    let key = database.tables.key(order, &[1, 1, 1]);
    writes.add(order, key, strandline_base::RowId(7));
    let begun = database.journal.begin(&writes).expect("begin");
    database.wait_durable(begun.commit).expect("durable");
    database.checkpoint().expect("checkpoint");
    assert!(database.redo_position() < begun.commit);
    let redo = database.redo_position();
    drop(database);
    let opened = Database::open(disk.device(), &settings(None, 64), redo, None);
    let (database, recovered) = opened.expect("open");
    assert_eq!(recovered.repeated, 1);
    let found = database.tables.find(order, &[1, 1, 1]).expect("find");
    assert_eq!(found, Some(strandline_base::RowId(7)));
    database.checkpoint().expect("checkpoint");
    assert!(database.redo_position() > begun.commit);
}

/// A committed transaction that cannot make its changes closes the database for changes.
#[test]
fn a_change_that_cannot_be_made_closes_the_database() {
    let disk = SimDisk::new(3);
    let database = Database::create(disk.device(), &settings(None, 400), 3).expect("create");
    let redo = database.redo_position();
    drop(database);
    let (database, _) =
        Database::open(disk.device(), &settings(None, 400), redo, None).expect("open");
    let mut inputs = Inputs::new(scale(), 0, 3);
    let payment = loop {
        if let Input::Payment(payment) = inputs.draw() {
            break payment;
        }
    };
    database.payment(&payment).expect("a payment");
    let before = verify(&database, "before");
    let mut writes = write_set::WriteSet::default();
    let history = crate::rows::History {
        customer_warehouse: 1,
        customer_district: 1,
        customer: 1,
        warehouse: 1,
        district: 1,
        date: 1,
        amount: 1,
        data: [b' '; 24],
    };
    // The file has no such page.
    writes.set(strandline_base::RowId(999 << 16), &history);
    let refused = database.commit(&writes).expect_err("no such page");
    assert_eq!(refused.kind(), ErrorKind::Closed);
    let refused = database.payment(&payment).expect_err("closed");
    assert!(refused.message().contains("closed since"), "{refused}");
    assert_eq!(
        database.checkpoint().expect_err("closed").kind(),
        ErrorKind::Closed
    );
    assert_eq!(verify(&database, "reads go on"), before);
}
