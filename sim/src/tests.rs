//! The simulator's own promises: what must survive does, what may be lost sometimes is.

use std::collections::BTreeSet;
use std::sync::Arc;

use strandline_base::{ErrorKind, SqlState};
use strandline_device::{Device, File};

use super::*;

/// A disk with one durable file of `bytes`.
fn disk_with(bytes: &[u8]) -> (SimDisk, Arc<SimDevice>, Arc<dyn File>) {
    let disk = SimDisk::new(1);
    let device = disk.device();
    let file = device.create("a").unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync().unwrap();
    device.sync_directory().unwrap();
    (disk, device, file)
}

#[test]
fn synced_bytes_and_names_survive_every_crash() {
    let (disk, ..) = disk_with(&[7; 3000]);
    for seed in 0..50 {
        assert_eq!(
            disk.after_crash(seed).content("a"),
            Some(vec![7; 3000]),
            "seed {seed}"
        );
    }
}

#[test]
fn disks_of_one_machine_count_and_crash_together() {
    let disk = SimDisk::new(1);
    let other = disk.beside(2);
    let (one, two) = (disk.device(), other.device());
    let (a, b) = (one.create("a").unwrap(), two.create("b").unwrap());
    one.sync_directory().unwrap();
    two.sync_directory().unwrap();
    assert_eq!((disk.operations(), other.operations()), (4, 4));
    disk.crash_at(7);
    a.write_all_at(&[1; 600], 0).unwrap();
    b.write_all_at(&[1; 600], 0).unwrap();
    a.sync().unwrap_err();
    assert!(disk.has_crashed() && other.has_crashed());
    b.sync().unwrap_err();
    two.list().unwrap_err();
    // What was not synced is lost on one of them only.
    let content = |disk: &SimDisk, seed, name| disk.after_crash(seed).content(name).unwrap();
    assert!(content(&disk, 0, "a").is_empty());
    assert_eq!(content(&other, 1, "b"), [1; 600]);
    assert!(content(&other, 0, "b").is_empty());
    // The disks found after a crash run again, and crash together again.
    let (disk, other) = (disk.after_crash(0), other.after_crash(1));
    other.join(&disk);
    other.device().open("b").unwrap().sync().unwrap();
    disk.crash_at(2);
    disk.device().sync_directory().unwrap_err();
    other.device().list().unwrap_err();
}

#[test]
fn unsynced_sectors_survive_vanish_or_tear_each_on_its_own() {
    let (disk, _, file) = disk_with(&[1; 2048]);
    file.write_all_at(&[2; 2048], 0).unwrap();
    assert_eq!(disk.after_crash(0).content("a"), Some(vec![1; 2048]));
    assert_eq!(disk.after_crash(1).content("a"), Some(vec![2; 2048]));
    let (mut outcomes, mut torn) = (BTreeSet::new(), 0);
    for seed in 2..200 {
        let found = disk.after_crash(seed).content("a").unwrap();
        assert_eq!(
            found,
            disk.after_crash(seed).content("a").unwrap(),
            "seeds are reproducible"
        );
        for sector in found.chunks(512) {
            let changes = sector.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes <= 1, "a sector tears once");
            torn += changes;
        }
        outcomes.insert(
            found
                .chunks(512)
                .map(|sector| sector[0])
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(
        outcomes.len(),
        16,
        "every combination of four sectors turns up"
    );
    assert!(torn > 0);
}

#[test]
fn unsynced_names_and_lengths_survive_or_not() {
    let (disk, device, file) = disk_with(&[1; 100]);
    file.set_len(10).unwrap();
    device.rename("a", "b").unwrap();
    device.create("c").unwrap();
    assert_eq!(device.list().unwrap(), ["b", "c"]);
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        let after = disk.after_crash(seed);
        let names = after.device().list().unwrap();
        let bytes = after.content(&names[0]).unwrap().len();
        outcomes.insert((names, bytes));
    }
    assert_eq!(outcomes.len(), 2 * 2 * 2);
    device.sync_directory().unwrap();
    assert_eq!(disk.after_crash(0).device().list().unwrap(), ["b", "c"]);
}

#[test]
fn nothing_works_from_the_crash_on_and_the_operation_in_flight_may_have_happened() {
    let (disk, device, file) = disk_with(b"old");
    disk.crash_at(disk.operations() + 1);
    file.write_all_at(b"new", 0).unwrap_err();
    assert!(disk.has_crashed());
    file.read_exact_at(&mut [0; 3], 0).unwrap_err();
    file.sync().unwrap_err();
    device.list().unwrap_err();
    device.create("b").unwrap_err();
    assert_eq!(disk.after_crash(0).content("a"), Some(b"old".to_vec()));
    assert_eq!(disk.after_crash(1).content("a"), Some(b"new".to_vec()));
}

#[test]
fn failed_sync_loses_what_a_later_sync_cannot_save() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let device = disk.device();
        let file = device.create("a").unwrap();
        device.sync_directory().unwrap();
        file.write_all_at(&[5; 5120], 0).unwrap();
        disk.fail_sync(1);
        assert_eq!(file.sync().unwrap_err().sqlstate(), SqlState::IO_ERROR);
        file.sync().unwrap();
        assert_eq!(
            disk.content("a"),
            Some(vec![5; 5120]),
            "the process sees its bytes"
        );
        lost += usize::from(disk.after_crash(1).content("a") != Some(vec![5; 5120]));
    }
    assert!(lost > 0);
}

#[test]
fn an_operation_and_reads_fail_when_told() {
    let (disk, device, file) = disk_with(b"old");
    disk.fail_operation(2);
    file.write_all_at(b"new", 0).unwrap();
    assert_eq!(
        device.create("b").err().unwrap().sqlstate(),
        SqlState::IO_ERROR
    );
    assert_eq!(device.list().unwrap(), ["a"]);
    device.create("b").unwrap();
    disk.fail_reads("a");
    let failure = file.read_exact_at(&mut [0; 3], 0).unwrap_err();
    assert_eq!(failure.sqlstate(), SqlState::IO_ERROR);
    file.write_all_at(b"old", 0).unwrap();
    disk.mend_reads();
    file.read_exact_at(&mut [0; 3], 0).unwrap();
}

#[test]
fn what_the_kernel_could_not_write_is_readable_and_clean_until_it_is_written_again() {
    let (disk, _, file) = disk_with(&[1; 2000]);
    file.write_all_at(&[2; 1000], 0).unwrap();
    disk.lose_unsynced();
    file.write_all_at(&[3; 10], 1990).unwrap();
    file.sync().unwrap();
    let seen = |disk: &SimDisk| {
        let bytes = disk.content("a").unwrap();
        (bytes[0], bytes[999], bytes[1000], bytes[1999])
    };
    assert_eq!(seen(&disk), (2, 2, 1, 3), "readable");
    assert_eq!(seen(&disk.after_crash(1)), (1, 1, 1, 3), "not durable");
    // The same in the next process, which finds nothing to sync.
    let next = disk.after_kill();
    next.device().open("a").unwrap().sync().unwrap();
    assert_eq!(seen(&next), (2, 2, 1, 3));
    assert_eq!(seen(&next.after_crash(1)), (1, 1, 1, 3));
    let evicted = disk.after_kill();
    evicted.drop_clean_pages();
    assert_eq!(seen(&evicted), (1, 1, 1, 3));
    file.write_all_at(&[2; 1000], 0).unwrap();
    disk.drop_clean_pages();
    assert_eq!(seen(&disk), (2, 2, 1, 3), "dirty pages stay");
    file.sync().unwrap();
    assert_eq!(seen(&disk.after_crash(0)), (2, 2, 1, 3), "written again");
}

#[test]
fn names_of_a_failed_directory_sync_are_seen_and_not_saved_by_the_next_one() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let device = disk.device();
        device.create("a").unwrap();
        disk.fail_directory_sync(1);
        let error = device.sync_directory().unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::IO_ERROR);
        device.sync_directory().unwrap();
        assert_eq!(device.list().unwrap(), ["a"]);
        outcomes.insert(disk.after_crash(1).content("a").is_some());
    }
    assert_eq!(outcomes.len(), 2, "lost or not");
}

#[test]
fn failed_write_may_be_done_in_part() {
    let mut lengths = BTreeSet::new();
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let file = disk.device().create("a").unwrap();
        disk.fail_write(2);
        file.write_all_at(b"fine", 0).unwrap();
        file.write_all_at(b"failing", 4).unwrap_err();
        lengths.insert(disk.content("a").unwrap().len());
        file.write_all_at(b"fine again", 0).unwrap();
    }
    assert!(lengths.len() > 3 && lengths.iter().all(|n| (4..=11).contains(n)));
}

#[test]
fn full_disk_refuses_growth_but_not_overwriting() {
    let (disk, device, file) = disk_with(&[1; 100]);
    disk.limit_capacity(Some(150));
    let other = device.create("b").unwrap();
    let error = other.set_len(51).unwrap_err();
    assert_eq!(
        (error.kind(), error.sqlstate()),
        (ErrorKind::Unavailable, SqlState::DISK_FULL)
    );
    assert_eq!(other.len().unwrap(), 0);
    other.set_len(50).unwrap();
    assert_eq!(
        other.write_all_at(&[2; 51], 0).unwrap_err().sqlstate(),
        SqlState::DISK_FULL
    );
    other.write_all_at(&[2; 50], 0).unwrap();
    file.write_all_at(&[3; 100], 0).unwrap();
    assert_eq!(disk.used_bytes(), 150);
    device.remove("b").unwrap();
    file.set_len(150).unwrap();
}

#[test]
fn killed_process_leaves_what_it_wrote_but_not_durably() {
    let (disk, device, file) = disk_with(b"old");
    file.write_all_at(b"new", 0).unwrap();
    device.create("b").unwrap();
    let found = disk.after_kill();
    assert_eq!(found.content("a"), Some(b"new".to_vec()));
    assert_eq!(found.device().list().unwrap(), ["a", "b"]);
    assert_eq!(found.after_crash(0).content("a"), Some(b"old".to_vec()));
    found.device().open("a").unwrap().sync().unwrap();
    assert_eq!(found.after_crash(0).content("a"), Some(b"new".to_vec()));
    assert_eq!(found.after_crash(0).content("b"), None);
}

#[test]
fn bits_flip_where_told_and_the_lock_is_exclusive() {
    let (disk, device, file) = disk_with(&[0; 4]);
    disk.flip_bits("a", 2, 0x81);
    let mut found = [0; 4];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [0, 0, 0x81, 0]);
    assert_eq!(disk.after_crash(0).content("a"), Some(found.to_vec()));
    assert_eq!(
        file.read_exact_at(&mut [0; 5], 0).unwrap_err().kind(),
        ErrorKind::Corrupt
    );

    let guard = device.lock().unwrap();
    assert_eq!(
        device.lock().err().unwrap().sqlstate(),
        SqlState::OBJECT_IN_USE
    );
    // A crash ends the holder.
    drop(disk.after_crash(0).device().lock().unwrap());
    drop(guard);
    drop(device.lock().unwrap());
}
