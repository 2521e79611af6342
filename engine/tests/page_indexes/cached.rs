//! Indexes on pages below an SSD cache: crashes in every mode, and a cache that is lost, damaged,
//! stale, foreign, smaller, full, failing or turned off.

use crate::common::*;
use crate::faults::{begin, insert_some, update_some, verify};
use crate::files::{named_files, page_files};
use crate::looks::look;
use crate::machine::{CACHE_BYTES, Machine, Place};
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

const PC: Place = Place::Cached(SsdCacheMode::Pc);
const SLOTS: &str = "ssd-cache";
const DIRECTORY: &str = "ssd-cache-directory";
const MARKER: &str = "ssd-cache-marker";

/// A closed database whose cache has pages that are fresher than their files.
fn closed(seed: u64) -> (Machine, Arc<ManualClock>) {
    let (machine, wall, db) = begin(seed, PC);
    for round in 0..3 {
        insert_some(&db, round * 20..round * 20 + 20).expect("insert");
        update_some(&db, 100 * (round + 1)).expect("update");
        db.merge_due(false).expect("a turn");
        db.checkpoint(round == 1).expect("checkpoint");
    }
    db.close().expect("close");
    drop(db);
    (machine.after_crash(0), wall)
}

fn remove(disk: &SimDisk, name: &str) {
    disk.device().remove(name).expect("removed");
    disk.device().sync_directory().expect("durable");
}

fn capacity(machine: &Machine) -> &SimDisk {
    machine.capacity.as_ref().expect("two directories")
}

fn overwrite(disk: &SimDisk, name: &str, content: &[u8]) {
    if disk.content(name).is_some() {
        disk.device().remove(name).expect("removed");
    }
    let file = disk.device().create(name).expect("create");
    file.write_all_at(content, 0).expect("write");
    file.sync().expect("sync");
    disk.device().sync_directory().expect("durable");
}

#[test]
fn page_files_are_on_the_capacity_tier_and_the_cache_is_warm_after_an_opening() {
    let (machine, wall) = closed(1);
    let on = |disk: &SimDisk| page_files(&*disk.device()).len();
    assert_eq!((on(&machine.fast), on(capacity(&machine))), (0, 3));
    let db = machine.open(&wall).expect("open");
    let before = named_files(&db);
    assert_sound(&db, "warm");
    let stats = db.ssd_cache_stats().expect("a cache");
    assert!(stats.hits > 0 && stats.fresh_blocks > 0, "{stats:?}");
    drop(db);
    verify(&machine.after_crash(1), &wall, "warm");
    let db = machine.after_crash(0).open(&wall).expect("open");
    assert_eq!(named_files(&db), before, "nothing was built");
}

/// The choice to go on without the cache costs no index, wherever a crash comes.
#[test]
fn a_cache_that_is_turned_off_is_not_lost_when_a_crash_comes_before_a_checkpoint() {
    let (machine, wall) = closed(9);
    let before = named_files(&machine.open(&wall).expect("open"));
    for seed in 0..12 {
        let (machine, wall) = closed(9);
        let off = machine.at(Place::TwoDirectories);
        let db = off.open(&wall).expect("open");
        assert_eq!(named_files(&db), before, "turned off");
        drop(db);
        for place in [Place::TwoDirectories, PC] {
            let machine = off.after_crash(seed).at(place);
            let db = machine.open(&wall).expect("open");
            assert_eq!(
                named_files(&db),
                before,
                "{place:?} {seed}: nothing was built"
            );
            assert_sound(&db, "after the crash");
        }
    }
    // A checkpoint without the cache ends the marker at the next opening.
    let off = machine.at(Place::TwoDirectories);
    let db = off.open(&wall).expect("open");
    assert!(
        capacity(&off).content(MARKER).is_some(),
        "the manifest asks for it"
    );
    db.checkpoint(true).expect("checkpoint");
    db.close().expect("close");
    drop(db);
    let db = off.open(&wall).expect("open");
    assert!(capacity(&off).content(MARKER).is_none());
    assert_eq!(named_files(&db), before);
}

/// `check` and `inspect` open a database without knowing the cache that its server has.
#[test]
fn an_opening_that_only_looks_leaves_the_cache_as_it_is() {
    let (machine, wall) = closed(10);
    let settings = Settings {
        only_looks: true,
        ..machine.at(Place::TwoDirectories).settings()
    };
    let slots = |machine: &Machine| machine.fast.content(SLOTS).map(|bytes| bytes.len());
    let before = slots(&machine);
    assert!(before.is_some());
    let db = open_with(machine.device(), &wall, settings).expect("open");
    assert_sound(&db, "looked at");
    let stats = db.ssd_cache_stats().expect("a cache");
    assert!(stats.hits > 0 && stats.fresh_blocks > 0, "{stats:?}");
    let named = named_files(&db);
    drop(db);
    let machine = machine.after_crash(0);
    assert_eq!(slots(&machine), before);
    let db = machine.open(&wall).expect("open");
    assert_eq!(named_files(&db), named, "nothing was built");
    assert!(db.ssd_cache_stats().expect("a cache").fresh_blocks > 0);
}

/// A cache that is lost is reported by a look, which leaves everything so that the cache can be put
/// back; after a checkpoint without it the page files are given up.
#[test]
fn a_look_beside_a_lost_cache_changes_nothing_that_the_cache_belongs_to() {
    for takes_backup in [false, true] {
        let (machine, wall) = closed(12);
        let db = machine.open(&wall).expect("open");
        let named = named_files(&db);
        db.close().expect("close");
        drop(db);
        let machine = machine.after_crash(0);
        let slots = machine.fast.content(SLOTS).expect("slots");
        remove(&machine.fast, SLOTS);
        let content = |machine: &Machine| {
            let names = [DIRECTORY, MARKER]
                .into_iter()
                .chain(named.iter().map(String::as_str));
            let disk = |name| machine.disks().find_map(|disk| disk.content(name));
            names.map(disk).collect::<Vec<_>>()
        };
        let before = content(&machine);
        let db = look(&machine, &wall);
        let damage = db.check().expect("a check");
        for file in &named {
            let is_named = |line: &String| line.contains(file) && line.contains("SSD cache");
            assert!(damage.iter().any(is_named), "{file}: {damage:?}");
        }
        if takes_backup {
            let copy: Arc<dyn Device> = Arc::new(MemoryDevice::new());
            db.backup(&copy, &|_| true).expect("backup");
        }
        drop(db);
        assert_eq!(content(&machine), before);
        overwrite(&machine.fast, SLOTS, &slots);
        let db = machine.open(&wall).expect("open");
        assert_eq!(named_files(&db) == named, !takes_backup);
        assert_sound(&db, "put back");
        drop(db);
        verify(&machine.after_crash(1), &wall, "put back");
    }
}

/// Old databases have page files on the fast tier.
#[test]
fn page_files_on_the_fast_tier_are_used_where_they_are() {
    let (machine, wall) = closed(2);
    let (fast, large) = (&machine.fast, capacity(&machine));
    let off = machine.at(Place::TwoDirectories);
    off.open(&wall).expect("open").close().expect("close");
    let names = page_files(&*large.device());
    for name in &names {
        overwrite(fast, name, &large.content(name).expect("a file"));
        remove(large, name);
    }
    for place in [Place::TwoDirectories, PC] {
        let db = machine.at(place).open(&wall).expect("open");
        assert_eq!(named_files(&db), names, "{place:?}");
        assert_sound(&db, "on the fast tier");
        insert_some(&db, 60..70).expect("insert");
        db.close().expect("close");
        assert_eq!(page_files(&*fast.device()), names);
        let db = machine.at(place).open(&wall).expect("open");
        run(&db, |s| {
            let t = table(&db);
            (60..70).try_for_each(|k| s.point_delete(&t, 0, &[Value::BigInt(k)]).map(drop))
        })
        .expect("delete");
        db.close().expect("close");
    }
}

/// What happens to a cache; the second machine has another database.
type Lose = fn(&Machine, &Machine);

/// What happens to a cache between two openings so that it is lost.
fn losses() -> Vec<(&'static str, Lose)> {
    vec![
        ("slots", |m, _| remove(&m.fast, SLOTS)),
        ("directory", |m, _| remove(&m.fast, DIRECTORY)),
        ("marker", |m, _| remove(capacity(m), MARKER)),
        ("everything", |m, _| {
            remove(&m.fast, SLOTS);
            remove(&m.fast, DIRECTORY);
            remove(capacity(m), MARKER);
        }),
        ("a damaged directory", |m, _| {
            m.fast.flip_bits(DIRECTORY, 70, 4)
        }),
        ("a damaged directory without marker", |m, _| {
            m.fast.flip_bits(DIRECTORY, 70, 4);
            remove(capacity(m), MARKER);
        }),
        ("cut slots", |m, _| overwrite(&m.fast, SLOTS, &[])),
        ("a foreign cache", |m, other| {
            for name in [SLOTS, DIRECTORY] {
                overwrite(&m.fast, name, &other.fast.content(name).expect("there"));
            }
            let marker = capacity(other).content(MARKER).expect("there");
            overwrite(capacity(m), MARKER, &marker);
        }),
    ]
}

/// The files that were fresher in the cache count as lost: their indexes are built from the rows,
/// also if a crash ends the opening.
#[test]
fn a_lost_cache_costs_no_index() {
    let (other, _) = closed(11);
    for (what, lose) in losses() {
        let (machine, wall) = closed(3);
        let before = page_files(&*machine.device());
        lose(&machine, &other);
        let intact = machine.after_crash(0);
        let first = machine.fast.operations();
        let db = machine
            .open(&wall)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_sound(&db, what);
        let after = page_files(&*machine.device());
        assert!(after.is_disjoint(&before), "{what}: {before:?} {after:?}");
        drop(db);
        let end = machine.fast.operations();
        verify(&machine.after_crash(0), &wall, what);
        for point in (1..=end - first).step_by(7) {
            let crashed = intact.after_crash(0);
            crashed.fast.crash_at(point);
            drop(crashed.open(&wall));
            let outcomes = [0, 1, 2 + point];
            let crashed = crashed.after_crash(outcomes[point as usize % 3]);
            verify(&crashed, &wall, &format!("{what}, crash at {point}"));
        }
    }
}

/// Slots and directory of an earlier moment beside a newer marker.
#[test]
fn a_stale_cache_is_not_used() {
    let (machine, wall) = closed(4);
    let old = [SLOTS, DIRECTORY].map(|name| machine.fast.content(name).expect("there"));
    let db = machine.open(&wall).expect("open");
    insert_some(&db, 60..80).expect("insert");
    update_some(&db, 900).expect("update");
    db.close().expect("close");
    drop(db);
    for (name, content) in [SLOTS, DIRECTORY].into_iter().zip(old) {
        overwrite(&machine.fast, name, &content);
    }
    let db = machine.open(&wall).expect("open");
    assert_sound(&db, "stale");
}

/// A damaged slot is an error of the index that names its page, or costs nothing; scans go on.
#[test]
fn a_damaged_slot_gives_no_wrong_entries() {
    let mut met = 0;
    for slot in 0..CACHE_BYTES / 8704 {
        let (machine, wall) = closed(5);
        machine.fast.flip_bits(SLOTS, slot * 8704 + 600, 16);
        let db = machine.open(&wall).expect("open");
        let count = run(&db, |s| Ok(scanned(s, &table(&db)).len()));
        assert_eq!(count.expect("a scan"), 60);
        let damage = db.check().expect("check");
        match damage.iter().find(|line| line.contains("SSD cache")) {
            Some(line) => {
                let is_named =
                    line.contains("table public.t, index \"t_") && line.contains("REINDEX");
                assert!(is_named, "{line}");
                met += 1;
            }
            None => assert_sound(&db, "damage that costs nothing"),
        }
    }
    assert!(met > 0, "fresh slots were damaged");
}

#[test]
fn every_mode_may_follow_every_other_and_none() {
    let places = SsdCacheMode::ALL.map(Place::Cached);
    let places = places.into_iter().chain([Place::TwoDirectories]);
    for next in places.clone() {
        for last in places.clone() {
            let (machine, wall) = closed(6);
            let what = format!("{next:?}, then {last:?}");
            let files = page_files(&*machine.device());
            for (round, place) in [next, last].into_iter().enumerate() {
                let db = machine.at(place).open(&wall).expect("open");
                let from = 60 + 5 * round as i64;
                insert_some(&db, from..from + 5).expect("insert");
                assert_sound(&db, &what);
                db.close().expect("close");
                let has_cache = machine.fast.content(DIRECTORY).is_some();
                let is_off = [Place::TwoDirectories, Place::Cached(SsdCacheMode::Off)];
                assert_eq!(has_cache, !is_off.contains(&place), "{what}");
                assert_eq!(page_files(&*machine.device()), files, "{what}");
            }
            verify(&machine.at(last).after_crash(0), &wall, &what);
        }
    }
}

/// A crash, and the next opening has another mode or no cache.
#[test]
fn a_crash_may_be_followed_by_another_mode() {
    for seed in 0..12 {
        let (machine, wall, db) = begin(20 + seed, PC);
        machine
            .fast
            .crash_at(machine.fast.operations() + 40 + 17 * seed);
        let _ = crate::faults::workload(&db);
        drop(db);
        for outcome in [0, 1, 2 + seed] {
            for place in [Place::TwoDirectories, Place::Cached(SsdCacheMode::Lc)] {
                let crashed = machine.after_crash(outcome).at(place);
                verify(
                    &crashed,
                    &wall,
                    &format!("seed {seed}, {outcome}, {place:?}"),
                );
            }
        }
    }
}

/// The directories are tied before an index is built in the second one.
#[test]
fn a_crash_while_a_second_directory_comes_leaves_a_database() {
    let (single, wall, db) = begin(9, Place::OneDirectory);
    insert_some(&db, 0..40).expect("insert");
    db.close().expect("close");
    drop(db);
    let lost = page_files(&*single.device());
    lost.iter().for_each(|name| remove(&single.fast, name));
    for point in (1..).step_by(2) {
        let fast = single.fast.after_crash(0);
        let machine = Machine {
            place: PC,
            capacity: Some(fast.beside(7)),
            fast,
        };
        machine.fast.crash_at(point);
        drop(machine.open(&wall));
        if !machine.fast.has_crashed() {
            break;
        }
        for seed in [0, 1, 2 + point] {
            let what = format!("crash at {point}, outcome {seed}");
            verify(&machine.after_crash(seed), &wall, &what);
        }
    }
}

/// The thread of the cache makes slots free, and ends with the database.
#[test]
fn a_thread_makes_the_steps() {
    for is_closed in [true, false] {
        let machine = Machine::new(1, PC);
        let device = machine.device();
        let settings = Settings {
            reserve_bytes: 0,
            ..machine.settings()
        };
        let db = Db::open(DbOptions {
            device: device.clone(),
            clock: clock(),
            settings,
        })
        .expect("open");
        create_table(&db, HistoryPolicy::None);
        create_alone(&db, &index("t_b", vec![part(2)])).expect("create");
        let evictions = || db.ssd_cache_stats().expect("a cache").evictions;
        for round in 0.. {
            insert_some(&db, round * 20..round * 20 + 20).expect("insert");
            if evictions() > 0 {
                break;
            }
            std::thread::yield_now();
        }
        if is_closed {
            db.close().expect("close");
        }
        drop(db);
        drop(machine.open(&clock()).expect("no thread has the lock"));
    }
}

/// A row for each tier and one for the cache.
#[test]
fn tiers_are_counted() {
    let (machine, wall) = closed(10);
    let db = machine.open(&wall).expect("open");
    assert_sound(&db, "counted");
    let rows = db.tier_counts().expect("counts");
    let names: Vec<_> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names, ["fast", "capacity", "ssd_cache"]);
    assert!(rows.iter().all(|row| row.bytes > 0), "{rows:?}");
    let cache = &rows[2];
    assert_eq!(
        (cache.mode, cache.bytes_max),
        (Some("pc"), Some(CACHE_BYTES))
    );
    assert!(
        cache
            .fresh_bytes
            .is_some_and(|bytes| bytes > 0 && bytes <= cache.bytes)
    );
    assert!(cache.events.is_some_and(|events| events[0] > 0), "hits");
    let sections = db.inspect().expect("inspect").sections;
    assert!(
        sections
            .iter()
            .any(|s| s.title == "Tiers" && s.rows.len() == 3)
    );
    let single = Machine::new(1, Place::OneDirectory);
    let rows = single.open(&wall).expect("open").tier_counts();
    assert_eq!(rows.expect("counts").len(), 1);
}

/// After a failed sync of the cache its indexes cannot be used and are told; a new one goes on
/// without the cache, the log is cut, and the next opening has all indexes.
#[test]
fn a_failed_sync_of_the_cache_ends_its_use() {
    let mut ended = 0;
    for n in 1..10 {
        let (machine, wall, db) = begin(n, PC);
        insert_some(&db, 0..40).expect("insert");
        machine.fast.fail_sync(n);
        let _ = db.checkpoint(true);
        let _ = db.merge_due(false);
        let _ = db.checkpoint(true);
        let t = table(&db);
        let is_usable = run(&db, |s| Ok(s.has_index(&t, named(&t, "t_a").id)));
        if is_usable.is_ok_and(|is_usable| !is_usable) {
            ended += 1;
            // Without the index of its constraint no row can be checked.
            let error = insert_some(&db, 40..45).expect_err("refused");
            assert_eq!(error.sqlstate(), SqlState::DATA_CORRUPTED, "{error}");
            alter(&db, |t| t.keys.retain(|key| key.name != "t_ak_key"));
            let told = db.failing_work();
            assert!(
                told.iter().any(|line| line.contains("SSD cache")),
                "{told:?}"
            );
            let def = named(&t, "t_b").clone();
            alter(&db, |t| drop_index(t, "t_b"));
            create_online(&db, &def).expect("built again");
            insert_some(&db, 40..60).expect("insert");
            db.checkpoint(true).expect("the log is cut");
            assert!(db.check_health().is_ok());
            assert!(entries(&db, "t_b") == 60);
        }
        drop(db);
        for seed in [0, 1, 2 + n] {
            verify(
                &machine.after_crash(seed),
                &wall,
                &format!("sync {n}, outcome {seed}"),
            );
        }
    }
    assert!(ended > 0);
}

/// A full fast tier: the database is opened, and the cache works again when there is room.
#[test]
fn a_full_fast_tier_keeps_no_database_closed() {
    for room in [0, 1 << 12, 1 << 14, 1 << 16] {
        let (machine, wall) = closed(7);
        machine.leave_room(Some(room));
        let db = machine
            .open(&wall)
            .unwrap_or_else(|e| panic!("room {room}: {e}"));
        assert_sound(&db, "full");
        let _ = db.checkpoint(true);
        machine.leave_room(None);
        insert_some(&db, 60..70).expect("insert");
        for _ in 0..3 {
            let _ = db.checkpoint(true);
        }
        db.checkpoint(true).expect("room again");
        assert_sound(&db, "room again");
        drop(db);
        verify(&machine.after_crash(0), &wall, &format!("room {room}"));
    }
}

#[test]
fn a_smaller_and_a_larger_cache_keep_every_page() {
    let (machine, wall) = closed(8);
    for slots in [8, 40, 9, 200] {
        let settings = Settings {
            ssd_cache_bytes: slots * 8704,
            ..machine.settings()
        };
        let db = open_with(machine.device(), &wall, settings).expect("open");
        assert_sound(&db, "another size");
        update_some(&db, slots as i64).expect("update");
        db.merge_due(false).expect("a turn");
        db.close().expect("close");
        let stats = db.ssd_cache_stats().expect("a cache");
        assert_eq!(stats.slots, slots, "{stats:?}");
    }
    verify(&machine, &wall, "sizes");
}

#[test]
fn settings_that_no_cache_can_have_are_refused() {
    let refusal = |place: Place, change: fn(&mut Settings)| {
        let machine = Machine::new(1, place);
        let mut settings = machine.settings();
        change(&mut settings);
        let opened = open_with(machine.device(), &clock(), settings);
        let error = opened.map(drop).expect_err("refused");
        assert_eq!(
            error.sqlstate(),
            SqlState::INVALID_PARAMETER_VALUE,
            "{error}"
        );
        assert!(error.message().contains("ssd_cache_bytes") && error.hint().is_some());
    };
    refusal(PC, |s| s.ssd_cache_bytes = 1000);
    refusal(PC, |s| s.ssd_cache_bytes = 1 << 50);
    refusal(Place::OneDirectory, |s| s.ssd_cache_bytes = 1 << 20);
    let machine = Machine::new(1, Place::OneDirectory);
    let off = Settings {
        ssd_cache_bytes: 1 << 20,
        ssd_cache_mode: SsdCacheMode::Off,
        ..machine.settings()
    };
    open_with(machine.device(), &clock(), off).expect("no cache is wanted");
}
