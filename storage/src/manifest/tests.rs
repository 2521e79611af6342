//! The manifest against a model, over every crash point of creation, edits and compaction.

use strandline_sim::SimDisk;

use super::*;

const ID: u128 = 42 << 70;

fn create(disk: &SimDisk, snapshot: &[u8]) -> Result<Manifest> {
    // A file in place of the log shows the order of creation.
    let device = disk.device();
    let log = || device.create("wal-0000000000000001").map(drop);
    Ok(Manifest::create(disk.device(), ID, snapshot, log)?.0)
}

fn open(disk: &SimDisk) -> Result<(Manifest, Vec<Vec<u8>>)> {
    Manifest::open(disk.device())
}

fn exists(disk: &SimDisk) -> Result<bool> {
    Manifest::exists(&*disk.device())
}

fn edit(number: u64, len: usize) -> Vec<u8> {
    let mut out = number.to_le_bytes().to_vec();
    out.resize(8 + len, number as u8);
    out
}

/// A sequence of edits with compactions between; the model is the list of acknowledged numbers,
/// `attempt` the one under way. A snapshot is the concatenation of all numbers so far.
#[derive(Clone, Default)]
struct Model {
    acknowledged: Vec<u64>,
    attempt: Option<u64>,
}

impl Model {
    fn run(&mut self, manifest: &Manifest) -> Result<()> {
        for number in 0..24u64 {
            if number % 7 == 6 {
                let snapshot = self.acknowledged.iter().flat_map(|n| n.to_le_bytes());
                manifest.compact(&snapshot.collect::<Vec<_>>())?;
            }
            self.attempt = Some(number);
            // Some edits are longer than the space allocated at a time.
            manifest.append(&edit(number, if number % 5 == 4 { 70_000 } else { 100 }))?;
            self.acknowledged.push(number);
            self.attempt = None;
        }
        Ok(())
    }

    fn check(&self, records: &[Vec<u8>], context: &str) {
        let (snapshot, edits) = records.split_first().expect("a manifest has a snapshot");
        let number = |b: &[u8]| u64::from_le_bytes(b[..8].try_into().unwrap());
        let mut found: Vec<u64> = snapshot.chunks_exact(8).map(number).collect();
        found.extend(edits.iter().map(|e| number(e)));
        let mut expected = self.acknowledged.clone();
        if found.len() > expected.len() {
            expected.extend(self.attempt);
        }
        assert_eq!(found, expected, "{context}");
    }
}

#[test]
fn created_appended_compacted_and_reopened() {
    let disk = SimDisk::new(1);
    assert!(!exists(&disk).unwrap());
    let manifest = create(&disk, b"snapshot").unwrap();
    assert!(exists(&disk).unwrap());
    assert_eq!(open(&disk).unwrap().1, [b"snapshot"]);
    manifest.append(b"first").unwrap();
    manifest.append(b"second").unwrap();
    assert!(manifest.append(b"").is_err(), "an empty edit is a mark");
    let (manifest, records) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(records, [&b"snapshot"[..], b"first", b"second"]);
    assert_eq!(manifest.database_id(), ID);

    let (manifest, _) = open(&disk).unwrap();
    manifest.compact(b"").unwrap();
    manifest.append(b"third").unwrap();
    let (_, records) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(records, [&b""[..], b"third"]);
    assert_eq!(manifest.file().0, "manifest-0000000000000002");
}

#[test]
fn every_crash_point_keeps_what_was_acknowledged() {
    let disk = SimDisk::new(2);
    let manifest = create(&disk, b"").unwrap();
    let first = disk.operations();
    Model::default().run(&manifest).unwrap();
    for operation in first + 1..=disk.operations() {
        let disk = SimDisk::new(2);
        let manifest = create(&disk, b"").unwrap();
        disk.crash_at(operation);
        let mut model = Model::default();
        model.run(&manifest).unwrap_err();
        for seed in 0..12 {
            let context = format!("operation {operation}, seed {seed}");
            let after = disk.after_crash(seed);
            let (manifest, records) = open(&after).unwrap_or_else(|e| panic!("{context}: {e}"));
            model.check(&records, &context);
            assert!(
                manifest.mended().is_empty(),
                "{context}: a torn slot is no damage"
            );
            // The records found stay, and the manifest continues after them.
            manifest.append(b"12345678").unwrap();
            let (_, again) = open(&after.after_crash(seed)).unwrap();
            assert_eq!(again[..records.len()], records, "{context}");
            assert_eq!(again[records.len()..], [b"12345678"], "{context}");
        }
    }
}

#[test]
fn creation_that_crashes_anywhere_can_be_repeated() {
    let total = {
        let disk = SimDisk::new(3);
        create(&disk, b"snapshot").unwrap();
        disk.operations()
    };
    for (operation, seed) in (1..=total).flat_map(|o| (0..12).map(move |s| (o, s))) {
        let context = format!("operation {operation}, seed {seed}");
        let disk = SimDisk::new(3);
        disk.crash_at(operation);
        create(&disk, b"snapshot").unwrap_err();
        // A second attempt crashes as well, at the same place; the third succeeds.
        let disk = disk.after_crash(seed);
        if !exists(&disk).unwrap_or_else(|e| panic!("{context}: {e}")) {
            disk.crash_at(operation);
            if create(&disk, b"snapshot").is_ok() {
                disk.crash();
            }
        }
        let disk = disk.after_crash(seed + 100);
        if !exists(&disk).unwrap_or_else(|e| panic!("{context}: {e}")) {
            create(&disk, b"snapshot").unwrap_or_else(|e| panic!("{context}: {e}"));
        }
        let (_, records) = open(&disk.after_crash(0)).unwrap();
        assert_eq!(records, [b"snapshot"], "{context}");
    }
}

#[test]
fn edit_found_after_a_kill_is_durable_from_then_on() {
    let disk = SimDisk::new(3);
    let manifest = create(&disk, b"snapshot").unwrap();
    // The edit is written, but its process ends during the sync.
    disk.crash_at(disk.operations() + 2);
    manifest.append(b"edit").unwrap_err();
    let disk = disk.after_kill();
    let expected = [&b"snapshot"[..], b"edit"];
    assert_eq!(open(&disk).unwrap().1, expected);
    assert_eq!(open(&disk.after_crash(0)).unwrap().1, expected);
}

#[test]
fn directories_that_are_no_database_are_told_apart() {
    let disk = SimDisk::new(4);
    let device = disk.device();
    drop(Device::lock(&*device).unwrap());
    assert!(!exists(&disk).unwrap(), "a lock alone is no database");
    device.create("holiday.jpg").unwrap();
    let error = exists(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.message().contains("not a Strandline database"),
        "{error}"
    );
    assert!(error.message().contains("holiday.jpg"), "{error}");

    for name in [
        "wal-0000000000000001",
        "manifest-0000000000000001",
        "chunks-1",
        "run-1",
    ] {
        let disk = SimDisk::new(4);
        disk.device().create(name).unwrap();
        let error = exists(&disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}");
        assert!(error.message().contains("superblock is missing"), "{error}");
    }

    let disk = SimDisk::new(4);
    let foreign = disk.device().create(SUPERBLOCK_FILE).unwrap();
    foreign.write_all_at(b"something else", 0).unwrap();
    assert_eq!(exists(&disk).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn damage_is_refused_with_file_and_offset() {
    let disk = SimDisk::new(5);
    let manifest = create(&disk, &[1; 50]).unwrap();
    for i in 0..5 {
        manifest.append(&[i; 100]).unwrap();
    }
    let (name, _) = manifest.file();
    let refused = |name: &str, offset: u64, place: &str| {
        let damaged = disk.after_kill();
        damaged.flip_bits(name, offset, 0x08);
        assert!(exists(&damaged).unwrap());
        let error = open(&damaged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "offset {offset}");
        assert!(error.message().contains(place), "{error}");
    };
    for offset in [0, 8, 20, 36, 63] {
        refused(&name, offset, "\" at offset 0");
    }
    let (snapshot, edit) = (frame_bytes(50), frame_bytes(100));
    for offset in [0, 5, 9, 17, 30] {
        refused(&name, HEADER_BYTES + offset, "at offset 64 ");
        let second = HEADER_BYTES + snapshot + edit;
        refused(&name, second + offset, &format!("at offset {second} "));
    }
    let last = HEADER_BYTES + snapshot + 4 * edit;
    refused(&name, last + 40, &format!("at offset {last} "));
    // So it is found after a crash: opening puts the mark there again.
    let reopened = disk.after_crash(0);
    open(&reopened).unwrap();
    reopened.flip_bits(&name, last + 40, 0x08);
    assert_eq!(open(&reopened).unwrap_err().kind(), ErrorKind::Corrupt);
    // The slot in force is the second; the other only says that the creation began.
    let damaged = disk.after_kill();
    damaged.flip_bits(SUPERBLOCK_FILE, 4096 + 12, 1);
    damaged.flip_bits(SUPERBLOCK_FILE, 12, 1);
    assert!(exists(&damaged).unwrap());
    assert!(
        open(&damaged)
            .unwrap_err()
            .message()
            .contains("both slots are damaged")
    );
}

#[test]
fn one_damaged_slot_is_survived_and_repaired() {
    for slot in 0..2 {
        let disk = SimDisk::new(6);
        let manifest = create(&disk, b"first").unwrap();
        for round in 0..3 {
            let damaged = disk.after_crash(round);
            // The lowest bit of the generation could be a torn creation's.
            damaged.flip_bits(SUPERBLOCK_FILE, slot * 4096 + 12, 0x10);
            assert!(exists(&damaged).unwrap());
            let (mended, found) = open(&damaged).unwrap();
            assert_eq!(mended.mended().len(), 1, "slot {slot}, round {round}");
            assert!(open(&damaged).unwrap().0.mended().is_empty());
            // Opening repaired the slot, so the other one may go now.
            damaged.flip_bits(SUPERBLOCK_FILE, (1 - slot) * 4096 + 12, 1);
            assert_eq!(open(&damaged).unwrap().1, found);
            manifest.compact(b"next").unwrap();
        }
    }
    let gone = SimDisk::new(6);
    let manifest = create(&gone, b"first").unwrap();
    gone.device().remove(&manifest.file().0).unwrap();
    assert_eq!(open(&gone).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn damaged_slot_after_a_crash_never_brings_an_older_state_back() {
    // The crash hits a compaction or the edit after it; then the newer slot is damaged, too.
    let run = |disk: &SimDisk, crash_at: Option<u64>| {
        let manifest = create(disk, b"state").unwrap();
        let first = disk.operations();
        if let Some(operation) = crash_at {
            disk.crash_at(operation);
        }
        let compacted = manifest.compact(b"state").is_ok();
        let edited = compacted && manifest.append(b"edit").is_ok();
        (first, edited)
    };
    let disk = SimDisk::new(7);
    let (first, _) = run(&disk, None);
    let total = disk.operations();
    for (operation, seed) in (first + 1..=total + 1).flat_map(|o| (0..20).map(move |s| (o, s))) {
        let disk = SimDisk::new(7);
        let (_, edited) = run(&disk, Some(operation));
        let damaged = disk.after_crash(seed);
        damaged.flip_bits(SUPERBLOCK_FILE, 12, 1);
        if let Ok((_, found)) = open(&damaged) {
            assert_eq!(found[0], b"state");
            assert!(
                found.len() == 2 || !edited,
                "operation {operation}, seed {seed}"
            );
        }
    }
}

#[test]
fn another_format_names_both_versions() {
    for (other, says) in [(9, "up to 2"), (1, "from 2 on")] {
        let disk = SimDisk::new(8);
        create(&disk, b"snapshot").unwrap();
        let file = disk.device().open(SUPERBLOCK_FILE).unwrap();
        let mut slot = vec![0; 4096];
        file.read_exact_at(&mut slot, 4096).unwrap();
        slot[8] = other;
        let sum = checksum(&[], &slot[..4092]);
        slot[4092..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&slot, 4096).unwrap();
        assert!(exists(&disk).unwrap());
        let error = open(&disk).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.message().contains(&format!("version {other}")),
            "{error}"
        );
        assert!(error.message().contains(says), "{error}");
    }
}

#[test]
fn failed_sync_or_write_poisons_for_good() {
    for sync in [true, false] {
        let disk = SimDisk::new(9);
        let manifest = create(&disk, b"snapshot").unwrap();
        manifest.append(b"good").unwrap();
        if sync {
            disk.fail_sync(1)
        } else {
            disk.fail_write(1)
        }
        let error = manifest.append(b"lost").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(
            manifest.append(b"x").unwrap_err().message(),
            error.message()
        );
        assert_eq!(
            manifest.compact(b"x").unwrap_err().message(),
            error.message()
        );
        for seed in 0..10 {
            let (_, records) = open(&disk.after_crash(seed)).unwrap();
            assert_eq!(records[..2], [&b"snapshot"[..], b"good"]);
        }
    }
}

/// Every sync of edits and compactions fails once. The next process reads the cached state,
/// continues, and then power fails.
#[test]
fn what_a_failed_sync_has_lost_is_written_again_by_the_next_open() {
    let disk = SimDisk::new(13);
    let manifest = create(&disk, b"").unwrap();
    let first = disk.syncs();
    Model::default().run(&manifest).unwrap();
    let total = disk.syncs() - first;
    for (sync, seed) in (1..=total).flat_map(|n| (0..6).map(move |seed| (n, seed))) {
        let context = format!("sync {sync}, seed {seed}");
        let disk = SimDisk::new(seed);
        let manifest = create(&disk, b"").unwrap();
        disk.fail_sync(sync);
        let mut model = Model::default();
        model.run(&manifest).unwrap_err();
        let killed = disk.after_kill();
        let (manifest, records) = open(&killed).unwrap_or_else(|e| panic!("{context}: {e}"));
        model.check(&records, &context);
        manifest.append(b"12345678").unwrap();
        let crashed = killed.after_crash(0);
        let (_, again) = open(&crashed).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(again[..records.len()], records, "{context}");
        assert_eq!(again[records.len()..], [b"12345678"], "{context}");
        // Both slots name the generation: one may be damaged.
        for slot in 0..2 {
            let damaged = killed.after_crash(0);
            damaged.flip_bits(SUPERBLOCK_FILE, slot * 4096 + 12, 0x10);
            assert_eq!(open(&damaged).unwrap().1, again, "{context}, slot {slot}");
        }
    }
}

#[test]
fn failed_compaction_leaves_the_old_generation_in_force() {
    let disk = SimDisk::new(10);
    let manifest = create(&disk, b"snapshot").unwrap();
    manifest.append(b"edit").unwrap();
    disk.fail_sync(1);
    manifest.compact(b"never").unwrap_err();
    manifest.append(b"another").unwrap();
    let (_, records) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(records, [&b"snapshot"[..], b"edit", b"another"]);
    manifest.compact(b"now").unwrap();
    assert_eq!(open(&disk.after_crash(0)).unwrap().1, [b"now"]);
}

#[test]
fn full_disk_refuses_the_edit_and_changes_nothing() {
    let disk = SimDisk::new(11);
    let manifest = create(&disk, b"snapshot").unwrap();
    disk.limit_capacity(Some(disk.used_bytes() + 1000));
    let mut accepted = 0;
    let error = loop {
        match manifest.append(&[accepted; 5000]) {
            Ok(()) => accepted += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
    assert_eq!(
        manifest.compact(b"s").unwrap_err().sqlstate(),
        SqlState::DISK_FULL
    );
    manifest.append(b"small").unwrap();
    disk.limit_capacity(None);
    manifest.append(&[9; 5000]).unwrap();
    let (_, records) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(records.len(), 1 + usize::from(accepted) + 2);
}

#[test]
fn compaction_pays_when_edits_outgrow_the_snapshot() {
    let disk = SimDisk::new(12);
    let manifest = create(&disk, &[0; 100_000]).unwrap();
    manifest.append(&[0; 100_000]).unwrap();
    assert!(!manifest.should_compact());
    manifest.append(&[0; 70_000]).unwrap();
    assert!(manifest.should_compact());
    assert!(open(&disk).unwrap().0.should_compact());
    manifest.compact(&[0; 100_000]).unwrap();
    assert!(!manifest.should_compact());
}
