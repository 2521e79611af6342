//! Data that was written and read back but never reached the device. After a failed sync, or a
//! failed write-back of the operating system, bytes are readable and clean until the next crash.

use super::*;

/// A log with one acknowledged record and one that was written but not synced.
fn with_a_record_in_flight(disk: &SimDisk) {
    let log = create(disk).unwrap();
    commit(&log, b"good").unwrap();
    append(&log, b"written").unwrap();
    log.write_out().unwrap();
}

#[test]
fn records_that_a_failed_sync_has_lost_are_written_again_by_the_next_open() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let log = create(&disk).unwrap();
        commit(&log, b"good").unwrap();
        append(&log, &[7; 5000]).unwrap();
        disk.fail_sync(1);
        log.sync_all().unwrap_err();
        let disk = disk.after_kill();
        let (log, found) = open(&disk).unwrap();
        assert_eq!(found.len(), 2, "seed {seed}: the cache has both");
        commit(&log, b"acknowledged behind them").unwrap();
        let (_, found) = open(&disk.after_crash(0)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let found: Vec<_> = found.into_iter().map(|(_, payload)| payload).collect();
        let expected = [
            b"good".to_vec(),
            vec![7; 5000],
            b"acknowledged behind them".to_vec(),
        ];
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn records_whose_write_failed_unseen_are_written_again_by_the_next_open() {
    let disk = SimDisk::new(1);
    with_a_record_in_flight(&disk);
    let disk = disk.after_kill();
    disk.lose_unsynced();
    assert_eq!(open(&disk).unwrap().1.len(), 2);
    assert_eq!(open(&disk.after_crash(0)).unwrap().1.len(), 2);
    // Data that the cache no longer shows never existed.
    let disk = SimDisk::new(1);
    with_a_record_in_flight(&disk);
    disk.lose_unsynced();
    disk.drop_clean_pages();
    assert_eq!(open(&disk.after_kill()).unwrap().1.len(), 1);
}

#[test]
fn erasures_that_were_lost_are_written_again() {
    let disk = SimDisk::new(2);
    let log = create(&disk).unwrap();
    commit(&log, b"before").unwrap();
    let first = append(&log, &[1; 400]).unwrap();
    append(&log, &[2; 400]).unwrap();
    log.write_out().unwrap();
    let mut gaps = 0;
    for seed in 0..200 {
        let disk = disk.after_crash(seed);
        // A process erases the second record and ends before its sync.
        let before = disk.operations();
        disk.fail_sync(1);
        open(&disk).unwrap_err();
        let has_written = disk.operations() > before + 1;
        let disk = disk.after_kill();
        disk.lose_unsynced();
        let (log, found) = open(&disk).unwrap();
        gaps += u32::from(has_written && found.len() == 1);
        if found.len() != 1 {
            continue;
        }
        assert_eq!(commit(&log, &[3; 400]).unwrap(), first);
        let (_, found) = open(&disk.after_crash(0)).unwrap();
        assert_eq!(found.last(), Some(&(first, vec![3; 400])), "seed {seed}");
    }
    assert!(
        gaps > 0,
        "some crash leaves the second record without the first"
    );
}

/// Processes that end at any moment or after a failed sync, while the operating system loses their
/// writes, each followed by a power failure.
#[test]
fn what_any_process_has_found_survives_the_power_failure_after_it() {
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let mut disk = SimDisk::new(seed);
        let mut log = create(&disk).unwrap();
        let mut model = Model::default();
        for round in 0..6 {
            match rng.below(3) {
                0 => disk.fail_sync(1 + rng.below(8)),
                1 => disk.fail_directory_sync(1 + rng.below(3)),
                _ => disk.crash_at(disk.operations() + 1 + rng.below(30)),
            }
            let _ = model.run(&log, &mut rng, 40);
            disk = disk.after_kill();
            if rng.one_in(2) {
                disk.lose_unsynced();
            }
            if rng.one_in(4) {
                disk.drop_clean_pages();
            }
            let context = format!("seed {seed}, round {round}");
            log = model.check(&disk, &context);
            let _ = model.run(&log, &mut rng, 10);
            let found = disk.after_crash(rng.next_u64());
            let mut after = Model {
                appended: model.appended.clone(),
                ..model
            };
            log = after.check(&found, &format!("{context}, after the crash"));
            (disk, model) = (found, after);
        }
    }
}
