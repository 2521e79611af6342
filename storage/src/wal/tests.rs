//! The log against a model: acknowledged records exist, in order, after every crash.

use strandline_base::rng::Rng;
use strandline_sim::SimDisk;

use super::preparation::SPARE_SEGMENTS_MAX;
use super::*;

mod lost_writes;

const ID: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
const SEGMENT_BYTES: u64 = 8192;

/// Records with their ends.
type Records = Vec<(Lsn, Vec<u8>)>;

fn settings() -> WalSettings {
    WalSettings {
        segment_bytes: SEGMENT_BYTES,
    }
}

fn create(disk: &SimDisk) -> Result<Wal> {
    Wal::create(disk.device(), settings(), ID)
}

/// Opens and returns the records found with their ends.
fn open_from(disk: &SimDisk, from: Lsn, known: Lsn) -> Result<(Wal, Records)> {
    let mut records = Vec::new();
    let log = Wal::open(
        disk.device(),
        settings(),
        ID,
        from,
        known,
        &mut |lsn, payload| {
            records.push((lsn, payload.to_vec()));
            Ok(())
        },
    )?;
    Ok((log, records))
}

fn open(disk: &SimDisk) -> Result<(Wal, Records)> {
    open_from(disk, Lsn(0), Lsn(0))
}

fn append(log: &Wal, payload: &[u8]) -> Result<Lsn> {
    Ok(log.append(&mut payload.to_vec(), &mut |_, _| Ok(()))?.end)
}

fn commit(log: &Wal, payload: &[u8]) -> Result<Lsn> {
    let end = append(log, payload)?;
    log.wait_durable(end)?;
    Ok(end)
}

/// A device whose files panic during a sync while it is armed.
#[derive(Debug)]
struct Panicking {
    device: Arc<dyn Device>,
    armed: Arc<std::sync::atomic::AtomicBool>,
}

#[derive(Debug)]
struct PanickingFile(Arc<dyn File>, Arc<std::sync::atomic::AtomicBool>);

impl Panicking {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PanickingFile(file, self.armed.clone()))
    }
}

impl Device for Panicking {
    strandline_device::forward!(device: remove rename list sync_directory lock location);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.file(self.device.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.file(self.device.open(name)?))
    }
}

impl File for PanickingFile {
    strandline_device::forward!(0: name read_exact_at write_all_at len set_len);

    fn sync(&self) -> Result<()> {
        assert!(!self.1.load(Ordering::SeqCst), "the device is armed");
        self.0.sync()
    }
}

fn panics(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

/// Every later call fails, and none waits for the panicked thread.
fn assert_poisoned(log: &Wal, durable: Lsn) {
    assert_eq!(
        append(log, b"later").expect_err("poisoned").kind(),
        ErrorKind::Closed
    );
    log.wait_durable(durable).expect("it was durable before");
    let end = log.end_lsn();
    if end > durable {
        assert_eq!(
            log.wait_durable(end).expect_err("poisoned").kind(),
            ErrorKind::Closed
        );
    }
    assert!(log.check_usable().is_err() && log.write_out().is_err());
    assert!(!log.wait_for_records(Duration::ZERO));
}

#[test]
fn a_leader_that_panics_fails_the_log_and_keeps_nobody_waiting() {
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let device = Panicking {
        device: SimDisk::new(1).device(),
        armed: armed.clone(),
    };
    let log = Wal::create(Arc::new(device), settings(), ID).expect("create");
    let durable = commit(&log, b"first").expect("commit");
    armed.store(true, Ordering::SeqCst);
    assert!(panics(|| drop(commit(&log, b"second"))));
    armed.store(false, Ordering::SeqCst);
    assert_poisoned(&log, durable);
}

#[test]
fn a_caller_that_panics_while_it_stamps_its_record_fails_the_log() {
    let log = create(&SimDisk::new(1)).expect("create");
    let durable = commit(&log, b"first").expect("commit");
    let stamp = &mut |_: &mut [u8], _| panic!("before the record has its place");
    assert!(panics(|| drop(log.append(&mut [0; 8], stamp))));
    assert_poisoned(&log, durable);
    assert_eq!(log.end_lsn(), durable, "nothing was appended");
}

/// A payload with its number, of a length that may exceed a segment.
fn payload(rng: &mut Rng, number: u64) -> Vec<u8> {
    let len = match rng.below(8) {
        0 => 0,
        1 => rng.below(3 * SEGMENT_BYTES),
        _ => rng.below(700),
    };
    let mut out = number.to_le_bytes().to_vec();
    out.extend((0..len).map(|i| (i as u8).wrapping_mul(31) ^ number as u8));
    out
}

/// The progress of a run up to the crash.
#[derive(Default)]
struct Model {
    /// Every record that was appended, with its end.
    appended: Records,
    /// Acknowledged up to here.
    durable: Lsn,
    /// The position of a `cut_before`, where replay starts.
    from: Lsn,
    numbers: u64,
}

impl Model {
    /// Random appends, waits, write-outs, preparations and cuts; ends with the first error.
    fn run(&mut self, log: &Wal, rng: &mut Rng, steps: u64) -> Result<()> {
        for _ in 0..steps {
            match rng.below(10) {
                0..6 => {
                    self.numbers += 1;
                    let bytes = payload(rng, self.numbers);
                    let end = append(log, &bytes)?;
                    self.appended.push((end, bytes));
                }
                6 | 7 => {
                    if let Some((end, _)) = self.appended.last() {
                        log.wait_durable(*end)?;
                        self.durable = *end;
                    }
                }
                8 => log.write_out()?,
                _ if rng.one_in(2) => log.prepare_next_segment()?,
                _ => {
                    // As after a checkpoint: the manifest holds the position before the cut.
                    self.from = self.durable;
                    log.cut_before(self.from)?;
                }
            }
        }
        Ok(())
    }

    /// Reopens `disk` and checks the records: all acknowledged ones, then at most a prefix of the
    /// rest.
    fn check(&mut self, disk: &SimDisk, context: &str) -> Wal {
        let (log, found) =
            open_from(disk, self.from, self.durable).unwrap_or_else(|e| panic!("{context}: {e:?}"));
        let expected: Vec<_> = self
            .appended
            .iter()
            .filter(|(end, _)| *end > self.from)
            .cloned()
            .collect();
        let acknowledged = expected
            .iter()
            .filter(|(end, _)| *end <= self.durable)
            .count();
        assert!(
            found.len() >= acknowledged,
            "{context}: acknowledged records are lost"
        );
        assert!(
            found.len() <= expected.len(),
            "{context}: more records than appended"
        );
        assert!(
            found[..] == expected[..found.len()],
            "{context}: other records than appended"
        );
        let end = found.last().map_or(self.from, |(end, _)| *end);
        assert_eq!((log.end_lsn(), log.durable_lsn()), (end, end), "{context}");
        self.appended.retain(|(e, _)| *e <= end);
        self.durable = end;
        log
    }
}

#[test]
fn empty_log_and_boundaries_reopen() {
    let disk = SimDisk::new(1);
    let log = create(&disk).unwrap();
    assert_eq!(log.end_lsn(), Lsn(0));
    assert_eq!(open(&disk).unwrap().1, []);
    // A record that fills the first segment exactly, then one after it.
    let fill = (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) as usize - 24;
    let first = commit(&log, &vec![7; fill]).unwrap();
    assert_eq!(first, Lsn(SEGMENT_BYTES - SEGMENT_HEADER_BYTES));
    assert_eq!(log.segments().len(), 1);
    assert_eq!(open_from(&disk, first, first).unwrap().1, []);
    let second = commit(&log, b"").unwrap();
    assert_eq!(log.segments().len(), 2);
    let (_, found) = open(&disk).unwrap();
    assert_eq!(found, [(first, vec![7; fill]), (second, vec![])]);
    assert_eq!(
        open_from(&disk, first, second).unwrap().1,
        [(second, vec![])]
    );
}

#[test]
fn stamp_changes_what_is_stored() {
    let disk = SimDisk::new(1);
    let log = create(&disk).unwrap();
    let mut bytes = vec![0; 8];
    let appended = log
        .append(&mut bytes, &mut |payload, end| {
            payload.copy_from_slice(&end.0.to_le_bytes());
            Ok(())
        })
        .unwrap();
    log.wait_durable(appended.end).unwrap();
    assert_eq!(
        open(&disk).unwrap().1,
        [(appended.end, appended.end.0.to_le_bytes().to_vec())]
    );
}

#[test]
fn lone_commit_is_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let log = create(&disk).unwrap();
    commit(&log, b"first").unwrap();
    let before = (disk.writes(), disk.syncs(), disk.operations());
    commit(&log, b"second").unwrap();
    let after = (disk.writes(), disk.syncs(), disk.operations());
    assert_eq!(after, (before.0 + 1, before.1 + 1, before.2 + 2));
}

#[test]
fn every_crash_point_keeps_what_was_acknowledged() {
    for workload in 0..6 {
        let total = {
            let disk = SimDisk::new(workload);
            let log = create(&disk).unwrap();
            Model::default()
                .run(&log, &mut Rng::new(workload), 60)
                .unwrap();
            disk.operations()
        };
        let first = {
            let disk = SimDisk::new(workload);
            create(&disk).unwrap();
            disk.operations()
        };
        for operation in first + 1..=total {
            let disk = SimDisk::new(workload);
            let log = create(&disk).unwrap();
            disk.crash_at(operation);
            let mut model = Model::default();
            model.run(&log, &mut Rng::new(workload), 60).unwrap_err();
            for seed in 0..6 {
                let context = format!("workload {workload}, operation {operation}, seed {seed}");
                let mut model = Model {
                    appended: model.appended.clone(),
                    ..model
                };
                model.check(&disk.after_crash(seed), &context);
            }
        }
    }
}

#[test]
fn crash_after_crash_never_brings_cut_records_back() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut disk = SimDisk::new(seed);
        let mut log = create(&disk).unwrap();
        let mut model = Model::default();
        for round in 0..6 {
            disk.crash_at(disk.operations() + 1 + rng.below(30));
            let _ = model.run(&log, &mut rng, 40);
            disk.crash();
            disk = disk.after_crash(rng.next_u64());
            // The recovery itself may crash too.
            if rng.one_in(3) {
                disk.crash_at(1 + rng.below(6));
                if open_from(&disk, model.from, model.durable).is_err() {
                    disk = disk.after_crash(rng.next_u64());
                } else {
                    disk = disk.after_kill();
                }
            }
            log = model.check(&disk, &format!("seed {seed}, round {round}"));
        }
    }
}

#[test]
fn record_behind_a_torn_one_stays_cut_when_the_gap_is_filled() {
    let disk = SimDisk::new(2);
    let log = create(&disk).unwrap();
    let start = commit(&log, b"before").unwrap();
    let first = append(&log, &[1; 400]).unwrap();
    let second = append(&log, &[2; 400]).unwrap();
    log.write_out().unwrap();
    let mut gaps = 0;
    for seed in 0..100 {
        let disk = disk.after_crash(seed);
        let segment = disk.content(&log.segments()[0].name).unwrap();
        let at = |lsn: Lsn| (SEGMENT_HEADER_BYTES + lsn.0) as usize;
        let is_whole = |from: Lsn, to: Lsn, byte: u8| {
            let frame = &segment[at(from)..at(to)];
            frame[8..16] == from.0.to_le_bytes() && frame[24..] == [byte; 400]
        };
        let (log, found) = open(&disk).unwrap();
        if found.len() != 1 || !is_whole(first, second, 2) {
            continue;
        }
        gaps += 1;
        assert_eq!(log.end_lsn(), start, "seed {seed}");
        // As long as the lost record, so that the old second record would follow it.
        assert_eq!(commit(&log, &[3; 400]).unwrap(), first);
        let (_, found) = open(&disk.after_crash(seed)).unwrap();
        assert_eq!(found.last(), Some(&(first, vec![3; 400])), "seed {seed}");
    }
    assert!(
        gaps > 0,
        "some crash leaves the second record without the first"
    );
}

#[test]
fn killed_process_loses_nothing_written_even_if_power_fails_later() {
    let disk = SimDisk::new(3);
    let log = create(&disk).unwrap();
    append(&log, b"written, not synced").unwrap();
    log.write_out().unwrap();
    append(&log, b"only in memory").unwrap();
    let disk = disk.after_kill();
    let (_, found) = open(&disk).unwrap();
    assert_eq!(found.len(), 1);
    // The open showed the record to its caller, so it must be durable now.
    let (_, found) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn damaged_middle_is_refused_with_file_and_offset() {
    let disk = SimDisk::new(4);
    let log = create(&disk).unwrap();
    let mut ends = vec![Lsn(0)];
    for i in 0..40u8 {
        ends.push(commit(&log, &[i; 300]).unwrap());
    }
    let segments = log.segments();
    drop(log);
    for (i, start) in ends.iter().enumerate().take(39) {
        let segment = segments.iter().rev().find(|s| s.base <= *start).unwrap();
        let offset = SEGMENT_HEADER_BYTES + (start.0 - segment.base.0);
        for byte in [0, 4, 8, 16] {
            if offset + byte >= segment.bytes {
                continue;
            }
            let damaged = disk.after_kill();
            damaged.flip_bits(&segment.name, offset + byte, 0x40);
            let error = open(&damaged).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "record {i}, byte {byte}");
            let place = format!("\"{}\" at offset {offset}", segment.name);
            assert!(error.message().contains(&place), "{error}");
        }
    }
}

#[test]
fn damaged_or_missing_segment_is_refused() {
    let disk = SimDisk::new(5);
    let log = create(&disk).unwrap();
    while log.segments().len() < 5 {
        commit(&log, &[9; 300]).unwrap();
    }
    for _ in 0..4 {
        commit(&log, &[9; 300]).unwrap();
    }
    let end = log.end_lsn();
    let segments = log.segments();
    drop(log);
    for (i, segment) in segments.iter().enumerate() {
        let damaged = disk.after_kill();
        damaged.flip_bits(&segment.name, 30, 1);
        // Only the caller's knowledge proves that the last segment was needed.
        let known = if i + 1 == segments.len() { end } else { Lsn(0) };
        let error = open_from(&damaged, Lsn(0), known).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");

        let damaged = disk.after_kill();
        damaged.device().remove(&segment.name).unwrap();
        let error = open_from(&damaged, Lsn(0), known).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn log_that_ends_before_what_is_known_durable_is_refused() {
    let disk = SimDisk::new(6);
    let log = create(&disk).unwrap();
    let first = commit(&log, b"one").unwrap();
    let second = commit(&log, b"two").unwrap();
    disk.flip_bits(
        &log.segments()[0].name,
        SEGMENT_HEADER_BYTES + first.0 + 26,
        1,
    );
    drop(log);
    let error = open_from(&disk, Lsn(0), second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.message().contains("durable up to position"),
        "{error}"
    );
    // Without that knowledge it is a torn tail.
    assert_eq!(open(&disk).unwrap().1, [(first, b"one".to_vec())]);
}

#[test]
fn replay_error_and_wrong_settings_are_returned() {
    let disk = SimDisk::new(7);
    commit(&create(&disk).unwrap(), b"x").unwrap();
    let refuse = &mut |_: Lsn, _: &[u8]| Err(Error::internal("no"));
    let error = Wal::open(disk.device(), settings(), ID, Lsn(0), Lsn(0), refuse).unwrap_err();
    assert_eq!(error.message(), "no");
    for segment_bytes in [0, 4096, 8193] {
        let wrong = WalSettings { segment_bytes };
        let error = Wal::create(SimDisk::new(0).device(), wrong, ID).unwrap_err();
        assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
    }
    let other = Wal::open(
        disk.device(),
        settings(),
        ID + 1,
        Lsn(0),
        Lsn(0),
        &mut |_, _| Ok(()),
    );
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn recycled_segments_keep_the_directory_small_and_show_nothing_stale() {
    let disk = SimDisk::new(8);
    let log = create(&disk).unwrap();
    for i in 0..400u32 {
        let last = commit(&log, &[i as u8; 500]).unwrap();
        if i % 10 == 0 {
            log.cut_before(last).unwrap();
            let (_, found) = open_from(&disk.after_crash(u64::from(i)), last, last).unwrap();
            assert_eq!(found, []);
        }
    }
    let segments = log.segments();
    assert!(segments.len() <= 2 + SPARE_SEGMENTS_MAX, "{segments:?}");
    let before = disk.used_bytes();
    for i in 0..200u32 {
        let last = commit(&log, &[i as u8; 500]).unwrap();
        log.cut_before(last).unwrap();
    }
    assert!(
        disk.used_bytes() <= before,
        "steady state allocates nothing"
    );
}

#[test]
fn failed_sync_or_write_poisons_for_good() {
    for sync in [true, false] {
        let disk = SimDisk::new(9);
        let log = create(&disk).unwrap();
        let first = commit(&log, b"good").unwrap();
        if sync {
            disk.fail_sync(1)
        } else {
            disk.fail_write(1)
        }
        let error = commit(&log, b"lost").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.message().contains("injected"), "{error}");
        let same = |e: Error| assert_eq!(e.message(), error.message());
        same(append(&log, b"x").unwrap_err());
        same(log.wait_durable(log.end_lsn()).unwrap_err());
        same(log.write_out().unwrap_err());
        same(log.sync_all().unwrap_err());
        same(log.prepare_next_segment().unwrap_err());
        same(log.cut_before(first).unwrap_err());
        same(log.check_usable().unwrap_err());
        log.wait_durable(first).unwrap();
        for seed in 0..20 {
            let (_, found) = open_from(&disk.after_crash(seed), Lsn(0), first).unwrap();
            assert_eq!(found[0], (first, b"good".to_vec()));
            assert!(found.len() <= 2);
        }
    }
}

#[test]
fn full_disk_refuses_the_append_and_loses_nothing() {
    let disk = SimDisk::new(10);
    let log = create(&disk).unwrap();
    disk.limit_capacity(Some(disk.used_bytes() + SEGMENT_BYTES / 2));
    let mut ends = Vec::new();
    let error = loop {
        match commit(&log, &[3; 600]) {
            Ok(end) => ends.push(end),
            Err(e) => break e,
        }
    };
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL);
    assert_eq!(ends.len(), 6);
    log.check_usable().unwrap();
    // A smaller record still fits, and with free space the log continues.
    ends.push(commit(&log, b"small").unwrap());
    assert_eq!(open(&disk.after_crash(2)).unwrap().1.len(), 7);
    disk.limit_capacity(None);
    ends.push(commit(&log, &[3; 600]).unwrap());
    let (_, found) = open(&disk.after_crash(2)).unwrap();
    assert_eq!(found.iter().map(|r| r.0).collect::<Vec<_>>(), ends);
}

#[test]
fn newer_format_is_refused_by_both_versions() {
    let disk = SimDisk::new(11);
    let log = create(&disk).unwrap();
    let name = log.segments()[0].name.clone();
    let device = disk.device();
    let file = strandline_device::Device::open(&*device, &name).unwrap();
    let mut header = vec![0; 56];
    file.read_exact_at(&mut header, 0).unwrap();
    header[8] = 2;
    let sum = strandline_base::checksum(&[], &header[..52]);
    header[52..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&header, 0).unwrap();
    let error = open(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("version 2") && error.message().contains("up to 1"));
}

#[test]
fn many_threads_commit_in_groups() {
    const THREADS: u64 = 8;
    const COMMITS: u64 = 200;
    let disk = SimDisk::new(12);
    let log = create(&disk).unwrap();
    let stamps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, stamps) = (&log, &stamps);
            scope.spawn(move || {
                for i in 0..COMMITS {
                    let mut bytes = vec![0; 16];
                    bytes[8..].copy_from_slice(&(thread * COMMITS + i).to_le_bytes());
                    let appended = log
                        .append(&mut bytes, &mut |payload, _| {
                            let stamp = stamps.fetch_add(1, Ordering::Relaxed);
                            payload[..8].copy_from_slice(&stamp.to_le_bytes());
                            Ok(())
                        })
                        .unwrap();
                    log.wait_durable(appended.end).unwrap();
                    assert!(log.durable_lsn() >= appended.end);
                    if i % 50 == 0 {
                        log.prepare_next_segment().unwrap();
                    }
                }
            });
        }
    });
    // Nothing was unsynced, so even the worst crash keeps everything; log order is stamp order.
    let (_, found) = open(&disk.after_crash(0)).unwrap();
    assert_eq!(found.len() as u64, THREADS * COMMITS);
    let mut seen = std::collections::BTreeSet::new();
    for (i, (_, bytes)) in found.iter().enumerate() {
        assert_eq!(bytes[..8], (i as u64).to_le_bytes());
        assert!(seen.insert(bytes[8..].to_vec()), "a record is there twice");
    }
}

#[test]
fn threads_waiting_on_a_failed_sync_all_get_the_error() {
    let disk = SimDisk::new(13);
    let log = create(&disk).unwrap();
    commit(&log, b"good").unwrap();
    disk.fail_sync(3);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while commit(&log, b"some record").is_ok() {}
                failed.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(failed.into_inner(), 8);
    assert_eq!(log.check_usable().unwrap_err().kind(), ErrorKind::Closed);
}

/// A device whose files run a hook once, in the middle of a sync.
#[derive(Debug)]
struct Hooked {
    inner: Arc<dyn Device>,
    hook: Arc<Hook>,
}

#[derive(Default)]
struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug)]
struct HookedFile {
    inner: Arc<dyn File>,
    hook: Arc<Hook>,
}

impl Device for Hooked {
    strandline_device::forward!(inner: open remove rename list sync_directory lock location);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let (inner, hook) = (self.inner.create(name)?, Arc::clone(&self.hook));
        Ok(Arc::new(HookedFile { inner, hook }))
    }
}

impl File for HookedFile {
    strandline_device::forward!(inner: name read_exact_at write_all_at len set_len);

    fn sync(&self) -> Result<()> {
        if let Some(hook) = self.hook.0.lock().take() {
            hook();
        }
        self.inner.sync()
    }
}

#[test]
fn record_appended_during_a_sync_waits_for_the_next_one() {
    let disk = SimDisk::new(14);
    let hook = Arc::new(Hook::default());
    let device = Hooked {
        inner: disk.device(),
        hook: Arc::clone(&hook),
    };
    let log = Arc::new(Wal::create(Arc::new(device), settings(), ID).unwrap());
    let late = Arc::clone(&log);
    *hook.0.lock() = Some(Box::new(move || {
        append(&late, b"late").unwrap();
    }));
    let first = commit(&log, b"first").unwrap();
    assert!(log.end_lsn() > first, "the late record was appended");
    assert_eq!(log.durable_lsn(), first);
    assert_eq!(open(&disk.after_crash(0)).unwrap().1.len(), 1);
    log.sync_all().unwrap();
    assert_eq!(open(&disk.after_crash(0)).unwrap().1.len(), 2);
}

#[test]
fn what_any_thread_was_told_is_durable_survives_the_worst_crash() {
    for round in 0..60 {
        let disk = SimDisk::new(round);
        let log = create(&disk).unwrap();
        disk.crash_at(disk.operations() + 20 + round);
        let acknowledged = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..6u8 {
                let (log, acknowledged) = (&log, &acknowledged);
                scope.spawn(move || {
                    while let Ok(end) = commit(log, &[thread; 40]) {
                        acknowledged.lock().push((end, vec![thread; 40]));
                    }
                });
            }
        });
        let (_, found) = open(&disk.after_crash(0)).unwrap();
        for record in acknowledged.into_inner() {
            assert!(
                found.contains(&record),
                "round {round}: {:?} is lost",
                record.0
            );
        }
    }
}

#[test]
fn who_waits_for_records_learns_of_the_first_of_many_and_of_the_end() {
    let disk = SimDisk::new(1);
    let log = create(&disk).unwrap();
    let (none, long) = (Duration::ZERO, Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_for_records(none));
        append(&log, b"first").unwrap();
        assert!(waiter.join().unwrap());
    });
    assert!(log.wait_for_records(none), "nobody has written it");
    log.write_out().unwrap();
    assert!(log.wait_for_records(none), "it is not durable");
    // One more record does not end the wait early, many do.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_for_records(long));
        append(&log, &[7; 100]).unwrap();
        append(&log, &vec![7; WRITTEN_AT_BYTES]).unwrap();
        assert!(waiter.join().unwrap());
    });
    log.sync_all().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_for_records(long));
        log.close(poisoned(&Error::internal("closed"))).unwrap();
        assert!(!waiter.join().unwrap());
    });
    assert!(!log.wait_for_records(none));
}

#[test]
fn a_failed_log_has_no_more_records_to_wait_for() {
    let disk = SimDisk::new(1);
    let log = create(&disk).unwrap();
    append(&log, b"lost").unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_for_records(Duration::from_secs(3600)));
        disk.fail_sync(1);
        let failed = log.sync_all();
        assert!(failed.is_err() && !waiter.join().unwrap());
    });
}
