//! A database whose capacity tier is an object store: which requests it makes, what happens while
//! the store cannot be reached, and after a crash at any request.

mod common;

use common::*;
use object_store::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strandline_base::ManualClock;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_object::{ObjectDevice, Options};
use strandline_sim::{SimDisk, SimStore, StoreFault};

/// A machine with a disk, and the store.
struct Machine {
    disk: SimDisk,
    store: SimStore,
    /// bytes of the block cache, and of its segments
    block_cache: (u64, u32),
}

impl Machine {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimDisk::new(seed),
            store: SimStore::new(),
            block_cache: (0, u32::MAX),
        }
    }

    /// With a block cache of eight segments.
    fn cached(seed: u64, segment_bytes: u32) -> Self {
        Self {
            block_cache: (4096 + 8 * u64::from(segment_bytes), segment_bytes),
            ..Self::new(seed)
        }
    }

    /// The objects as a device whose clock does not wait. Chunk files are uploaded in parts.
    fn objects(&self) -> Arc<dyn Device> {
        let options = Options {
            part_bytes: 256,
            attempts: 2,
            request_timeout: Duration::from_secs(1),
            ..Options::default()
        };
        let runtime = SimStore::runtime().expect("runtime");
        let (store, prefix) = (Arc::new(self.store.clone()), Path::from("db"));
        let device = ObjectDevice::on_runtime(store, prefix, "sim://db", options, runtime);
        Arc::new(device.expect("device"))
    }

    fn device(&self) -> Result<Arc<dyn Device>> {
        let tiers = TieredDevice::new(self.disk.device(), self.objects(), "sim://db")?;
        Ok(Arc::new(tiers))
    }

    fn open(&self, clock: &Arc<ManualClock>) -> Result<Arc<Db>> {
        let settings = Settings {
            block_cache_bytes: self.block_cache.0,
            block_cache_segment_bytes_max: self.block_cache.1,
            ..Settings::default()
        };
        open_with(self.device()?, clock, settings)
    }

    /// What the next start finds after the crash.
    fn after_crash(&self, seed: u64) -> Self {
        Self {
            disk: self.disk.after_crash(seed),
            store: self.store.after_crash(),
            ..*self
        }
    }

    fn names(&self, kind: &str) -> Vec<String> {
        files(&*self.objects(), kind)
    }
}

fn state(db: &Arc<Db>) -> State {
    state_at(db, db.stable())
}

/// A database with chunks, history and pending records, and a moment of it.
fn build(db: &Arc<Db>, wall: &ManualClock) -> CommitTs {
    create_table(db, HistoryPolicy::Forever);
    (0..200).for_each(|k| insert(db, &row(k, 0, "row")));
    db.checkpoint(true).expect("checkpoint");
    set(db, 0..100, 1).expect("update");
    let then = db.stable();
    wall.advance(1_000);
    db.checkpoint(true).expect("checkpoint");
    set(db, 0..50, 2).expect("update");
    db.checkpoint(false).expect("checkpoint");
    then
}

#[test]
fn chunks_and_history_are_objects_and_all_else_is_local() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    let then = build(&db, &wall);
    let states = (state_at(&db, then), state(&db));
    assert!(!machine.names("chunks-").is_empty());
    assert!(!machine.names("run-").is_empty(), "history");
    for kind in [
        "wal-",
        "manifest-",
        "superblock",
        "lock",
        "reserve",
        "pages-",
    ] {
        assert!(machine.names(kind).is_empty(), "{kind}");
    }
    assert_eq!(machine.names("tier"), ["tier"]);
    assert_eq!(machine.store.unfinished_uploads(), 0);
    assert!(db.check().expect("check").is_empty());
    drop(db);
    let before = machine.store.requests();
    let device = machine.device().expect("device");
    let db = open(device.clone(), &wall).expect("open");
    assert_eq!((state_at(&db, then), state(&db)), states);
    let log = machine.store.log(before);
    // Lengths come from the lists, and no request changes anything but the owner token.
    assert!(
        log.iter()
            .all(|r| r.starts_with("list") || r.starts_with("get ") || r.contains(" owner-")),
        "{log:?}"
    );
    let inspected = db.inspect().expect("inspect");
    assert!(
        inspected
            .sections
            .iter()
            .any(|section| section.title == "Files")
    );
    let stats = device.request_stats();
    assert!(
        stats
            .iter()
            .any(|s| s.kind == "get" && s.requests > 0 && s.errors == 0)
    );
}

#[test]
fn a_backup_is_local_and_is_restored_to_objects() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    let then = build(&db, &wall);
    let states = (state_at(&db, then), state(&db));
    let backup: Arc<dyn Device> = Arc::new(strandline_device::MemoryDevice::new());
    db.backup(&backup, &|_| true).expect("backup");
    let whole = open(backup.clone(), &wall).expect("a backup is a database");
    assert_eq!((state_at(&whole, then), state(&whole)), states);
    drop(whole);
    let restored = Machine::new(2);
    restore(&*backup, &*restored.device().expect("device"), &|_| true).expect("restore");
    let db = restored.open(&wall).expect("open");
    assert!(db.check().expect("check").is_empty());
    assert_eq!((state_at(&db, then), state(&db)), states);
    assert!(!restored.names("chunks-").is_empty());
}

#[test]
fn writes_go_on_while_the_store_cannot_be_reached() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    let then = build(&db, &wall);
    let (before, past) = (state(&db), state_at(&db, then));
    machine.store.set_unreachable(true);
    assert_eq!(state(&db), before, "cached blocks are read");
    set(&db, 100..150, 3).expect("writes need the log only");
    // Merges fail and are set aside; the log is cut all the same.
    let _ = db.checkpoint(true);
    set(&db, 150..200, 4).expect("writes go on");
    let changed = state(&db);
    assert_eq!(changed[&120].0, Some(3));
    assert_eq!(changed[&170].0, Some(4));
    machine.store.set_unreachable(false);
    // Set-aside work is tried again after its pause.
    wall.advance(3_600_000_000);
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(state(&db), changed);
    assert_eq!(state_at(&db, then), past);
    assert!(db.check().expect("check").is_empty());
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_eq!(state(&db), changed);
}

#[test]
fn a_database_does_not_open_without_its_store_and_says_why() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    let newest = state(&db);
    drop(db);
    machine.store.set_unreachable(true);
    let error = machine.open(&wall).err().expect("unreachable");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
    assert!(error.message().contains("sim://db"), "{error}");
    machine.store.set_unreachable(false);
    assert_eq!(state(&machine.open(&wall).expect("open")), newest);
}

#[test]
fn a_second_database_on_the_same_objects_is_refused() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    let other = Machine {
        store: machine.store.clone(),
        ..Machine::new(2)
    };
    let error = other.open(&wall).err().expect("foreign");
    assert!(
        error.message().contains("belongs to another database"),
        "{error}"
    );
    assert!(db.check().expect("check").is_empty());
}

/// Copies the machine's directory as it is, and opens the copy with the same objects.
fn copied(machine: &Machine) -> Machine {
    Machine {
        disk: machine.disk.copied(),
        store: machine.store.clone(),
        ..*machine
    }
}

fn take_over(machine: &Machine) {
    let directory = machine.disk.device();
    directory.create("takeover.signal").expect("create");
    directory.sync_directory().expect("sync");
}

#[test]
fn a_copy_of_the_directory_is_refused_and_changes_nothing() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    let copy = copied(&machine);
    // The original goes on: the copy's manifest does not name its new objects.
    set(&db, 100..200, 3).expect("update");
    db.checkpoint(true).expect("checkpoint");
    let (newest, before) = (state(&db), machine.names(""));
    let (operations, requests) = (copy.disk.operations(), machine.store.requests());
    let error = copy.open(&wall).err().expect("a copy");
    assert_eq!(error.sqlstate(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(
        error.message().contains("is a copy of the directory"),
        "{error}"
    );
    assert!(error.message().contains("sim://db"), "{error}");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("takeover.signal"))
    );
    assert_eq!(copy.disk.operations(), operations, "no lock file either");
    let log = machine.store.log(requests);
    let only_reads = |r: &String| r.starts_with("list") || r.starts_with("get ");
    assert!(log.iter().all(only_reads), "{log:?}");
    // Reading a copy takes nothing: a restore makes a database of its own from it.
    drop(db);
    let closed = copied(&machine);
    let restored = Machine::new(2);
    let (from, to) = (
        closed.device().expect("device"),
        restored.device().expect("device"),
    );
    restore(&*from, &*to, &|_| true).expect("restore");
    assert_eq!(state(&restored.open(&wall).expect("open")), newest);
    assert_eq!(machine.names(""), before);
    assert_eq!(state(&machine.open(&wall).expect("open")), newest);
}

/// The first one is still open when a copy takes its objects over: it removes none of them, and
/// takes no writes that would be lost.
#[test]
fn a_takeover_is_noticed_at_the_next_checkpoint() {
    for merges_all in [true, false] {
        let (machine, wall) = (Machine::new(1), clock());
        let db = machine.open(&wall).expect("open");
        build(&db, &wall);
        let copy = copied(&machine);
        take_over(&copy);
        let other = copy.open(&wall).expect("taken over");
        assert_eq!(state(&other), state(&db));
        set(&other, 0..200, 7).expect("update");
        other.checkpoint(true).expect("checkpoint");
        let (newest, before) = (state(&other), copy.names(""));
        set(&db, 0..100, 8).expect("the log is its own");
        let error = db.checkpoint(merges_all).expect_err("lost");
        assert!(error.message().contains("was taken over"), "{error}");
        assert!(error.message().contains("sim://db"), "{error}");
        let error = set(&db, 0..1, 9).expect_err("refused");
        assert!(error.message().contains("was taken over"), "{error}");
        db.close().expect_err("no last checkpoint");
        drop(db);
        assert_eq!(copy.names(""), before, "objects are the copy's");
        let error = machine.open(&wall).err().expect("the copy's");
        assert!(
            error.message().contains("is owned by another copy"),
            "{error}"
        );
        assert!(other.check().expect("check").is_empty());
        drop(other);
        assert_eq!(state(&copy.open(&wall).expect("open")), newest);
    }
}

/// A machine with the directory of one and the store of another one.
fn with_store_of(directory: &Machine, store: &Machine) -> Machine {
    Machine {
        disk: directory.disk.clone(),
        store: store.store.clone(),
        ..*directory
    }
}

fn backup_of(db: &Arc<Db>) -> Arc<dyn Device> {
    let backup: Arc<dyn Device> = Arc::new(strandline_device::MemoryDevice::new());
    db.backup(&backup, &|_| true).expect("backup");
    backup
}

fn restored_from(source: &dyn Device, seed: u64) -> Machine {
    let machine = Machine::new(seed);
    restore(source, &*machine.device().expect("device"), &|_| true).expect("restore");
    machine
}

#[test]
fn a_restore_to_the_objects_of_an_open_database_is_refused_and_that_one_goes_on() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    let backup = backup_of(&db);
    let closed = copied(&machine);
    let before = machine.names("");
    for source in [backup, closed.device().expect("device")] {
        let target = with_store_of(&Machine::new(2), &machine);
        let restored = restore(&*source, &*target.device().expect("device"), &|_| true);
        let error = restored.expect_err("occupied");
        assert_eq!(error.sqlstate(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert!(
            error.message().contains("belongs to another database"),
            "{error}"
        );
        assert!(error.message().contains("sim://db"), "{error}");
        assert!(files(&*target.disk.device(), "").is_empty());
    }
    assert_eq!(machine.names(""), before);
    set(&db, 0..200, 4).expect("update");
    db.checkpoint(true).expect("still the owner");
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn copies_restored_from_one_backup_have_objects_of_their_own() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    let (newest, backup) = (state(&db), backup_of(&db));
    let (one, two) = (restored_from(&*backup, 2), restored_from(&*backup, 3));
    let (first, second) = (
        one.open(&wall).expect("open"),
        two.open(&wall).expect("open"),
    );
    drop(second);
    let before = one.names("");
    // Both have the backup's database id, and pair ids of their own.
    let error = with_store_of(&two, &one).open(&wall).err();
    let error = error.expect("the other copy's objects");
    assert!(
        error.message().contains("belongs to another database"),
        "{error}"
    );
    assert_eq!(one.names(""), before);
    for (machine, db) in [(&machine, db), (&one, first)] {
        set(&db, 0..200, 5).expect("update");
        db.checkpoint(true).expect("the owner of its objects");
        assert_eq!(machine.names("owner-").len(), 1);
        assert!(db.check().expect("check").is_empty());
    }
    assert_eq!(state(&two.open(&wall).expect("open")), newest);
}

/// All objects were removed, and a backup was restored to the same place, while the database is
/// still open: both have put the token number 1.
#[test]
fn an_open_database_stops_when_a_backup_is_restored_to_its_place() {
    for merges_all in [true, false] {
        let (machine, wall) = (Machine::new(1), clock());
        let db = machine.open(&wall).expect("open");
        build(&db, &wall);
        let (newest, backup) = (state(&db), backup_of(&db));
        let objects = machine.objects();
        for name in objects.list().expect("list") {
            objects.remove(&name).expect("removed");
        }
        let other = with_store_of(&Machine::new(2), &machine);
        restore(&*backup, &*other.device().expect("device"), &|_| true).expect("restore");
        let restored = other.open(&wall).expect("open");
        assert_eq!(machine.names("owner-"), ["owner-0000000000000001"]);
        let before = machine.names("");
        set(&db, 0..100, 8).expect("the log is its own");
        let error = db.checkpoint(merges_all).expect_err("lost");
        assert!(error.message().contains("was taken over"), "{error}");
        let error = set(&db, 0..1, 9).expect_err("refused");
        assert!(error.message().contains("was taken over"), "{error}");
        drop(db);
        assert!(machine.open(&wall).is_err());
        assert_eq!(machine.names(""), before);
        assert!(restored.check().expect("check").is_empty());
        drop(restored);
        assert_eq!(state(&other.open(&wall).expect("open")), newest);
    }
}

#[test]
fn a_database_that_was_taken_over_makes_no_backup_and_a_rewind_harms_no_object() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    let then = build(&db, &wall);
    let copy = copied(&machine);
    take_over(&copy);
    let other = copy.open(&wall).expect("taken over");
    set(&other, 0..200, 7).expect("update");
    other.checkpoint(true).expect("checkpoint");
    let (newest, before) = (state(&other), copy.names(""));
    // It does not know yet; what it stores beside the copy's objects is a left-over for the copy.
    let _ = db.rewind(then);
    let target: Arc<dyn Device> = Arc::new(strandline_device::MemoryDevice::new());
    let error = db.backup(&target, &|_| true).expect_err("lost");
    assert!(error.message().contains("was taken over"), "{error}");
    assert!(!Db::exists(&*target).expect("exists"));
    db.rewind(then).expect_err("it takes no writes any more");
    drop(db);
    let all = copy.names("");
    assert!(before.iter().all(|name| all.contains(name)), "{all:?}");
    assert!(other.check().expect("check").is_empty());
    drop(other);
    let other = copy.open(&wall).expect("open");
    assert_eq!(state(&other), newest);
    let known = |name: &String| before.contains(name) || name.starts_with("owner-");
    assert!(copy.names("").iter().all(known), "{:?}", copy.names(""));
}

#[test]
fn a_rewound_database_and_its_copy_keep_to_the_token() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    let then = build(&db, &wall);
    let (past, copy) = (state_at(&db, then), copied(&machine));
    db.rewind(then).expect("rewind");
    db.checkpoint(true).expect("still the owner");
    assert_eq!(state(&db), past);
    let error = copy.open(&wall).err().expect("a copy from before");
    assert!(
        error.message().contains("is a copy of the directory"),
        "{error}"
    );
    drop(db);
    let db = machine.open(&wall).expect("open");
    assert_eq!(state(&db), past);
    assert!(db.check().expect("check").is_empty());
    // A restored backup is rewound where its own objects are.
    let rewound = restored_from(&*backup_of(&db), 2);
    let restored = rewound.open(&wall).expect("open");
    restored.rewind(then).expect("rewind");
    restored.checkpoint(true).expect("the owner of its objects");
    assert_eq!(state(&restored), past);
    db.checkpoint(true).expect("still the owner");
    assert!(db.check().expect("check").is_empty());
}

/// A takeover may come while a checkpoint merges.
#[test]
fn a_checkpoint_asks_for_its_token_before_merges_before_the_manifest_and_before_removals() {
    let (machine, wall) = (Machine::new(1), clock());
    let db = machine.open(&wall).expect("open");
    build(&db, &wall);
    set(&db, 0..200, 3).expect("update");
    let begun = machine.store.requests();
    db.checkpoint(true).expect("checkpoint");
    let log = machine.store.log(begun);
    let is_token = |r: &String| r.starts_with("get ") && r.contains(" owner-");
    assert!(is_token(&log[0]), "before merges: {log:?}");
    let stored = log
        .iter()
        .rposition(|r| r.contains(" chunks-") && !r.starts_with("delete"));
    let deletes = || (0..log.len()).filter(|at| log[*at].starts_with("delete "));
    let (stored, first) = (
        stored.expect("a merge"),
        deletes().next().expect("a removal"),
    );
    assert!(
        log[stored..first].iter().filter(|r| is_token(r)).count() >= 2,
        "{log:?}"
    );
    assert!(deletes().all(|at| is_token(&log[at - 1])), "{log:?}");
}

/// A crash at each request of an opening, and of a takeover: the directory is the owner afterwards.
#[test]
fn a_crash_at_any_request_of_an_opening_leaves_one_owner() {
    for is_takeover in [false, true] {
        let built = || {
            let (machine, wall) = (Machine::new(1), clock());
            let db = machine.open(&wall).expect("open");
            build(&db, &wall);
            let expected = state(&db);
            drop(db);
            if !is_takeover {
                return (machine, wall, expected);
            }
            let copy = copied(&machine);
            take_over(&copy);
            (copy, wall, expected)
        };
        let (machine, wall, _) = built();
        let begun = machine.store.requests();
        machine.open(&wall).expect("open");
        let requests = machine.store.requests() - begun;
        let log = machine.store.log(begun);
        assert!(log.iter().any(|r| r.starts_with("put owner-")), "{log:?}");
        for at in 1..=requests {
            for is_carried_out in [false, true] {
                let what = format!("{}, carried out: {is_carried_out}", log[at as usize - 1]);
                let (machine, wall, expected) = built();
                let at = machine.store.requests() + at;
                machine.store.crash_at(at, is_carried_out, &machine.disk);
                let _ = machine.open(&wall);
                assert!(machine.store.has_crashed(), "{what}");
                let found = machine.after_crash(at);
                let db = found.open(&wall).expect(&what);
                assert_eq!(state(&db), expected, "{what}");
                assert!(db.check().expect("check").is_empty(), "{what}");
                set(&db, 0..20, 9).expect("update");
                db.checkpoint(true).expect("checkpoint");
                assert_eq!(found.names("owner-").len(), 1, "{what}");
            }
        }
    }
}

/// The workload of the crash tests; the states after each acknowledged commit.
fn workload(db: &Arc<Db>, wall: &ManualClock, known: &mut Vec<State>) -> Result<()> {
    create_table(db, HistoryPolicy::Forever);
    (0..20).for_each(|k| insert(db, &row(k, 0, "row")));
    known.push(state(db));
    for round in 1..5 {
        wall.advance(1_000);
        set(db, 0..5 * round, round)?;
        known.push(state(db));
        db.checkpoint(round % 2 == 0)?;
    }
    Ok(())
}

/// A crash at each request of the store: what was acknowledged is there, orphans are removed, and
/// the database goes on.
#[test]
fn a_crash_at_any_request_loses_nothing_and_leaves_no_orphan() {
    crash_at_any_request(&|| Machine::new(1), 1);
}

#[test]
fn a_crash_at_any_request_loses_nothing_with_a_block_cache() {
    crash_at_any_request(&|| Machine::cached(1, 8 << 10), 3);
}

fn crash_at_any_request(new: &dyn Fn() -> Machine, stride: usize) {
    let counted = new();
    let wall = clock();
    let db = counted.open(&wall).expect("open");
    let opened = counted.store.requests();
    workload(&db, &wall, &mut Vec::new()).expect("no fault");
    let requests = counted.store.requests();
    drop(db);
    let mut crashes = 0;
    for at in (opened + 1..=requests).step_by(stride) {
        for is_carried_out in [false, true] {
            let (machine, wall) = (new(), clock());
            let db = machine.open(&wall).expect("open");
            machine.store.crash_at(at, is_carried_out, &machine.disk);
            let mut known = Vec::new();
            let outcome = workload(&db, &wall, &mut known);
            drop(db);
            if !machine.store.has_crashed() {
                outcome.expect("no crash");
                continue;
            }
            crashes += 1;
            let found = machine.after_crash(at);
            let db = found.open(&wall).expect("recovery");
            let what = format!("request {at}, carried out: {is_carried_out}");
            assert_eq!(Some(&state(&db)), known.last(), "{what}");
            assert!(db.check().expect("check").is_empty(), "{what}");
            set(&db, 0..20, 9).expect("update");
            db.checkpoint(true).expect("checkpoint");
            let newest = state(&db);
            drop(db);
            // Each opening has a token of its own.
            let others = |machine: &Machine| {
                let mut names = machine.names("");
                names.retain(|name| !name.starts_with("owner-"));
                names
            };
            let names = others(&found);
            let db = found.open(&wall).expect("open");
            assert_eq!(state(&db), newest, "{what}");
            assert_eq!(others(&found), names, "{what}: no orphan was left");
            assert_eq!(found.names("owner-").len(), 1, "{what}");
        }
    }
    assert!(
        crashes > 20 / stride,
        "{crashes} crashes of {requests} requests"
    );
}

/// Rows read one by one.
fn rows(db: &Arc<Db>) -> Vec<Vec<Value>> {
    (0..200).map(|k| get(db, k).expect("a row")).collect()
}

/// Blocks, footers and headers come from the block cache, after a restart too: such reads make no
/// request, so they go on while the store cannot be reached.
#[test]
fn cached_blocks_need_no_store() {
    let (machine, wall) = (Machine::cached(1, 4 << 20), clock());
    let db = machine.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    // More than the device reads ahead, also encoded.
    let mut rng = strandline_base::rng::Rng::new(1);
    let texts: Vec<String> = (0..200)
        .map(|_| {
            (0..200)
                .map(|_| format!("{:016x}", rng.next_u64()))
                .collect()
        })
        .collect();
    for (k, text) in (0..).zip(&texts) {
        insert(&db, &row(k, 0, text));
    }
    db.checkpoint(true).expect("checkpoint");
    drop(db);
    let expected = (0..).zip(&texts).map(|(k, text)| row(k, 0, text).to_vec());
    let expected: Vec<Vec<Value>> = expected.collect();
    let mut requests = Vec::new();
    for _ in 0..2 {
        let db = machine.open(&wall).expect("open");
        let before = machine.store.requests();
        assert_eq!(rows(&db), expected);
        requests.push(machine.store.requests() - before);
    }
    assert!(
        requests[0] > 0 && requests[1] == 0,
        "of each opening's reads: {requests:?}"
    );
    let db = machine.open(&wall).expect("open");
    machine.store.set_unreachable(true);
    assert_eq!(rows(&db), expected, "while the store cannot be reached");
    assert!(db.block_cache_stats().is_some_and(|stats| stats.hits > 0));
    machine.store.set_unreachable(false);
    assert!(db.check().expect("check").is_empty());
}

/// One lost or missing answer at any request is overcome and changes nothing.
#[test]
fn one_fault_at_any_request_is_overcome() {
    for fault in [
        StoreFault::Refuse,
        StoreFault::LoseAnswer,
        StoreFault::HangAfter,
    ] {
        let mut at = 0;
        loop {
            at += 3;
            let (machine, wall) = (Machine::new(1), clock());
            machine.store.fault_at(at, fault);
            let db = machine.open(&wall).expect("open");
            let mut known = Vec::new();
            workload(&db, &wall, &mut known).expect("overcome");
            assert_eq!(Some(&state(&db)), known.last(), "{fault:?} at {at}");
            assert!(db.check().expect("check").is_empty());
            if machine.store.requests() < at {
                break;
            }
        }
    }
}

/// All rows get texts of `round` that do not compress; the merge supersedes most of the chunk file.
fn set_texts(db: &Arc<Db>, round: i64) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in 0..100 {
            let mut rng = strandline_base::rng::Rng::new((k * 100 + round) as u64);
            let text = format!("{:032x}{:032x}", rng.next_u64(), rng.next_u64());
            let set = [(ColumnId(2), Value::from(text.as_str()))];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
    .map(drop)
}

/// A range whose next merge compacts its chunk file.
fn before_compaction() -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (machine, wall) = (Machine::new(8), clock());
    let db = machine.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    (0..100).for_each(|k| insert(&db, &row(k, k * 7919 % 1_000, "")));
    set_texts(&db, 0).expect("update");
    db.checkpoint(true).expect("checkpoint");
    set_texts(&db, 1).expect("update");
    (machine, wall, db)
}

/// A compaction puts a new object before the manifest names it, and removes the old one after it: a
/// crash at any request leaves one of both.
#[test]
fn a_crash_at_any_request_of_a_compaction_leaves_the_old_or_the_new_object() {
    let (machine, _, db) = before_compaction();
    let (old, begun) = (machine.names("chunks-"), machine.store.requests());
    assert_eq!(old.len(), 1);
    assert_eq!(db.checkpoint(true).expect("merge").compacted_files, 1);
    let requests = machine.store.requests() - begun;
    let (new, expected) = (machine.names("chunks-"), state(&db));
    assert!(new.len() == 2 && !new.contains(&old[0]), "{new:?}");
    drop(db);
    let mut crashes = 0;
    for at in 1..=requests {
        for is_carried_out in [false, true] {
            let what = format!("request {at} of {requests}, carried out: {is_carried_out}");
            let (machine, wall, db) = before_compaction();
            let at = machine.store.requests() + at;
            machine.store.crash_at(at, is_carried_out, &machine.disk);
            let _ = db.checkpoint(true);
            drop(db);
            if !machine.store.has_crashed() {
                continue;
            }
            crashes += 1;
            let found = machine.after_crash(at);
            let db = found.open(&wall).expect("recovery");
            assert_eq!(state(&db), expected, "{what}");
            assert!(db.check().expect("check").is_empty(), "{what}");
            db.checkpoint(true).expect("merge");
            db.checkpoint(true).expect("checkpoint");
            assert_eq!(state(&db), expected, "{what}");
            assert_eq!(found.names("chunks-").len(), 2, "{what}");
        }
    }
    assert!(crashes > 6, "{crashes} crashes of {requests} requests");
}
