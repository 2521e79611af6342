//! A database in two directories: which files are on which tier, a capacity tier that comes later,
//! backup, restore and going back, directories that do not belong together.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_storage::manifest::Manifest;
use strandline_storage::tiers;

/// The two directories of a database.
struct Directories {
    fast: Arc<MemoryDevice>,
    capacity: Arc<MemoryDevice>,
}

impl Directories {
    fn new() -> Self {
        Self {
            fast: Arc::default(),
            capacity: Arc::default(),
        }
    }

    /// The same files in directories of their own.
    fn copy(&self) -> Self {
        Self {
            fast: Arc::new(self.fast.duplicate()),
            capacity: Arc::new(self.capacity.duplicate()),
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        let tiers = TieredDevice::new(self.fast.clone(), self.capacity.clone(), "/capacity");
        Arc::new(tiers.expect("tiers"))
    }

    fn open(&self, clock: &Arc<ManualClock>) -> Arc<Db> {
        open(self.device(), clock).expect("open")
    }
}

/// A database with chunks, history and pending records, and two moments of it.
fn build(db: &Arc<Db>, wall: &ManualClock) -> (CommitTs, CommitTs) {
    create_table(db, HistoryPolicy::Forever);
    (0..200).for_each(|k| insert(db, &row(k, 0, "row")));
    set(db, 0..100, 1).expect("update");
    db.checkpoint(true).expect("checkpoint");
    let then = db.stable();
    wall.advance(1_000);
    set(db, 0..50, 2).expect("update");
    db.checkpoint(false).expect("checkpoint");
    (then, db.stable())
}

#[test]
fn chunks_and_history_are_on_the_capacity_tier_and_all_else_on_the_fast_one() {
    let (directories, wall) = (Directories::new(), clock());
    let Directories { fast, capacity } = &directories;
    let db = directories.open(&wall);
    create_table(&db, HistoryPolicy::Forever);
    (0..200).for_each(|k| insert(&db, &row(k, 0, "row")));
    db.checkpoint(true).expect("checkpoint");
    assert!(!files(&**capacity, "chunks-").is_empty());
    set(&db, 0..100, 1).expect("update");
    db.checkpoint(false).expect("checkpoint");
    let pending = files(&**fast, "run-");
    assert_eq!(pending.len(), 1, "what is not merged is on the fast tier");
    assert!(files(&**capacity, "run-").is_empty());
    let before = db.stable();
    wall.advance(1_000);
    // The merge makes the records history, which leaves the fast tier.
    db.checkpoint(true).expect("checkpoint");
    assert!(files(&**fast, "run-").is_empty());
    assert_eq!(files(&**capacity, "run-").len(), 1);
    set(&db, 0..10, 2).expect("update");
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(files(&**fast, "run-").len(), 1);
    assert_eq!(files(&**capacity, "run-").len(), 1);
    for kind in ["wal-", "manifest-", "superblock", "kept-"] {
        assert!(files(&**capacity, kind).is_empty(), "{kind}");
    }
    assert!(files(&**fast, "chunks-").is_empty());
    let then = state_at(&db, before);
    assert!(then.values().filter(|(a, _)| *a == Some(1)).count() == 100);
    let sections = db.inspect().expect("inspect").sections;
    let listed = sections.iter().find(|section| section.title == "Files");
    let listed = &listed.expect("a section").rows;
    let is_on = |kind: &str, tier: &str| {
        let mut rows = listed.iter().filter(|row| row[0].starts_with(kind));
        rows.all(|row| row[2] == tier)
    };
    assert!(is_on("chunks-", "capacity") && is_on("wal-", "fast"));
    let now = db.stable();
    let newest = state_at(&db, now);
    drop(db);
    let db = directories.open(&wall);
    assert!(db.check().expect("check").is_empty());
    assert_eq!(state_at(&db, before), then);
    assert_eq!(state_at(&db, now), newest);
}

#[test]
fn orphans_on_both_tiers_are_removed_when_the_database_is_opened() {
    let (directories, wall) = (Directories::new(), clock());
    let db = directories.open(&wall);
    build(&db, &wall);
    drop(db);
    let Directories { fast, capacity } = &directories;
    let orphans = ["chunks-00000000000000f1", "run-00000000000000f2"];
    for orphan in orphans {
        fast.create(orphan).expect("create");
    }
    capacity.create("chunks-00000000000000f3").expect("create");
    capacity.create("run-00000000000000f4").expect("create");
    let db = directories.open(&wall);
    for directory in [fast, capacity] {
        for kind in ["chunks-00000000000000f", "run-00000000000000f"] {
            assert!(files(&**directory, kind).is_empty());
        }
    }
    // Numbers of files on either tier are not given again.
    set(&db, 0..10, 9).expect("update");
    db.checkpoint(true).expect("checkpoint");
    assert!(
        files(&**capacity, "chunks-")
            .iter()
            .any(|name| name.as_str() > "chunks-00000000000000f4")
    );
}

#[test]
fn a_capacity_tier_is_added_to_a_database_that_has_none() {
    let (directories, wall) = (Directories::new(), clock());
    let Directories { fast, capacity } = &directories;
    let db = open(fast.clone(), &wall).expect("open");
    let (then, _) = build(&db, &wall);
    let state = state_at(&db, then);
    drop(db);
    let db = directories.open(&wall);
    assert!(
        files(&**capacity, "chunks-").is_empty(),
        "nothing is copied at once"
    );
    assert_eq!(state_at(&db, then), state);
    // Merges move what they rewrite.
    set(&db, 0..200, 3).expect("update");
    db.checkpoint(true).expect("checkpoint");
    assert!(!files(&**capacity, "chunks-").is_empty());
    assert_eq!(state_at(&db, then), state);
    drop(db);
    let refused = open(fast.clone(), &wall)
        .err()
        .expect("it has two directories now");
    assert!(refused.message().contains("second directory"), "{refused}");
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("/capacity"))
    );
    let db = directories.open(&wall);
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn directories_that_do_not_belong_together_are_refused_and_stay_as_they_are() {
    let wall = clock();
    let [one, two] = [Directories::new(), Directories::new()];
    // Both are open at the same time, so that their ids differ although the clock stands still.
    let opened = [&one, &two].map(|directories| directories.open(&wall));
    for db in &opened {
        build(db, &wall);
    }
    drop(opened);
    let wrong = [
        (&one.fast, &two.capacity, "belongs to another database"),
        (&one.capacity, &one.fast, "is the capacity directory"),
        (&one.fast, &one.fast, "holds a database itself"),
        (&one.fast, &Arc::default(), "is empty"),
    ];
    let names = |device: &MemoryDevice| device.list().expect("list");
    for (fast, capacity, message) in wrong {
        let before = (names(fast), names(capacity));
        let device = TieredDevice::new(fast.clone(), capacity.clone(), "").expect("tiers");
        let refused = open(Arc::new(device), &wall).err().expect(message);
        assert!(refused.message().contains(message), "{refused}");
        assert_eq!(
            refused.sqlstate(),
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        );
        assert_eq!((names(fast), names(capacity)), before, "nothing is written");
    }
    // Either directory is locked.
    let db = one.open(&wall);
    for directory in [&one.fast, &one.capacity] {
        let refused = directory.lock().err().expect("in use");
        assert_eq!(refused.sqlstate(), SqlState::OBJECT_IN_USE);
    }
    drop(db);
    one.open(&wall);
}

#[test]
fn backups_have_one_directory_and_are_restored_into_one_or_two() {
    let (directories, wall) = (Directories::new(), clock());
    let db = directories.open(&wall);
    let (then, now) = build(&db, &wall);
    let states = [then, now].map(|ts| state_at(&db, ts));
    let backup: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&backup, &|_| true).expect("backup");
    let whole = open(backup.clone(), &wall).expect("a backup is a database");
    assert_eq!([then, now].map(|ts| state_at(&whole, ts)), states);
    drop(whole);
    let restored = Directories::new();
    restore(&*backup, &*restored.device(), &|_| true).expect("restore");
    assert!(files(&*restored.fast, "chunks-").is_empty());
    let again = restored.open(&wall);
    assert!(again.check().expect("check").is_empty());
    assert_eq!([then, now].map(|ts| state_at(&again, ts)), states);
    again.rewind(then).expect("rewind");
    assert_eq!(state_at(&again, again.stable()), states[0]);
    drop(again);
    // A closed database of two directories is restored as well, and its copies are not mixed up.
    drop(db);
    let other = Directories::new();
    restore(&*directories.device(), &*other.device(), &|_| true).expect("restore");
    assert_eq!(state_at(&other.open(&wall), then), states[0]);
    let mixed = TieredDevice::new(directories.fast.clone(), other.capacity.clone(), "");
    let refused = open(Arc::new(mixed.expect("tiers")), &wall)
        .err()
        .expect("a copy's");
    assert!(refused.message().contains("another database"), "{refused}");
    // The fast tier of a database alone is no backup.
    let target = MemoryDevice::new();
    let refused = restore(&*directories.fast, &target, &|_| true).expect_err("a half");
    assert!(refused.message().contains("second directory"), "{refused}");
    assert!(target.list().expect("list").is_empty());
}

#[test]
fn a_copy_of_both_directories_is_the_same_database() {
    let (directories, wall) = (Directories::new(), clock());
    let db = directories.open(&wall);
    let (then, _) = build(&db, &wall);
    let state = state_at(&db, then);
    db.close().expect("close");
    let copy = directories.copy();
    assert_eq!(state_at(&copy.open(&wall), then), state);
}

/// Refuses the database in `fast` alone, and writes nothing.
#[track_caller]
fn assert_refused_alone(fast: &Arc<MemoryDevice>, wall: &Arc<ManualClock>) {
    let refused = open(fast.clone(), wall).err().expect("there are two");
    assert_eq!(
        refused.sqlstate(),
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
    );
    assert!(refused.message().contains("memory/tier"), "{refused}");
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("capacity_dir"))
    );
}

#[test]
fn a_database_without_its_role_file_is_no_database_of_one_directory() {
    let (directories, wall) = (Directories::new(), clock());
    let Directories { fast, capacity } = &directories;
    // The manifest knows of the second directory before anything is written there.
    drop(directories.open(&wall));
    fast.remove("tier").expect("remove");
    assert_refused_alone(fast, &wall);
    let db = directories.open(&wall);
    let (then, _) = build(&db, &wall);
    let state = state_at(&db, then);
    drop(db);
    fast.remove("tier").expect("remove");
    let contents = |device: &MemoryDevice| {
        let mut names = device.list().expect("list");
        names.retain(|name| name != "lock");
        names
    };
    let before = [fast, capacity].map(|device| contents(device));
    assert_refused_alone(fast, &wall);
    let other = Directories::new();
    drop(other.open(&wall));
    for (capacity, message) in [
        (&other.capacity, "belongs to another database"),
        (&Arc::default(), "is empty"),
    ] {
        let device = TieredDevice::new(fast.clone(), capacity.clone(), "").expect("tiers");
        let refused = open(Arc::new(device), &wall).err().expect(message);
        assert!(refused.message().contains(message), "{refused}");
    }
    assert_eq!([fast, capacity].map(|device| contents(device)), before);
    // With the right directory the file is written anew.
    assert_eq!(state_at(&directories.open(&wall), then), state);
    let recorded = recorded_capacity_path(&**fast).expect("read");
    assert_eq!(recorded.as_deref(), Some("/capacity"));
}

#[test]
fn a_database_from_before_the_record_gets_it_when_it_is_opened() {
    let (directories, wall) = (Directories::new(), clock());
    let Directories { fast, .. } = &directories;
    let db = open(fast.clone(), &wall).expect("open");
    build(&db, &wall);
    drop(db);
    let id = Manifest::identity(&**fast).expect("read").expect("an id");
    tiers::attach(&*directories.device(), id, 5, None).expect("attach");
    // The manifest says nothing: as before, the file is all there is.
    let copy = directories.copy();
    copy.fast.remove("tier").expect("remove");
    open(copy.fast.clone(), &wall).expect("one directory");
    drop(directories.open(&wall));
    fast.remove("tier").expect("remove");
    assert_refused_alone(fast, &wall);
}

#[test]
fn two_directories_are_restored_into_one() {
    let (directories, wall) = (Directories::new(), clock());
    let db = directories.open(&wall);
    let (then, _) = build(&db, &wall);
    let state = state_at(&db, then);
    db.close().expect("close");
    drop(db);
    let one = Arc::new(MemoryDevice::new());
    restore(&*directories.device(), &*one, &|_| true).expect("restore");
    for _ in 0..2 {
        let db = open(one.clone(), &wall).expect("a database of one directory");
        assert_eq!(state_at(&db, then), state);
        assert!(db.check().expect("check").is_empty());
        db.checkpoint(true).expect("checkpoint");
    }
}
