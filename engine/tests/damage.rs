//! Damaged files, in one directory and in two: every flipped bit of any file, and every write that
//! was lost or went to another place, is found when the database is opened or by `check`, and no
//! read answers wrongly meanwhile.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_device::Device;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// The disks of a database: one directory, or two.
struct Disks {
    fast: SimDisk,
    capacity: Option<SimDisk>,
}

impl Disks {
    fn new(seed: u64, has_two: bool) -> Self {
        let fast = SimDisk::new(seed);
        let capacity = has_two.then(|| fast.beside(seed + 1));
        Self { fast, capacity }
    }

    fn device(&self) -> Arc<dyn Device> {
        let Some(capacity) = &self.capacity else {
            return self.fast.device();
        };
        let tiers = TieredDevice::new(self.fast.device(), capacity.device(), "/capacity");
        Arc::new(tiers.expect("tiers"))
    }

    fn after_kill(&self) -> Self {
        let fast = self.fast.after_kill();
        let capacity = self.capacity.as_ref().map(SimDisk::after_kill);
        capacity.iter().for_each(|disk| disk.join(&fast));
        Self { fast, capacity }
    }

    fn all(&self) -> impl Iterator<Item = &SimDisk> {
        std::iter::once(&self.fast).chain(&self.capacity)
    }

    /// Every file but the locks: the number of its disk, its name and its content.
    fn files(&self) -> Vec<(usize, String, Vec<u8>)> {
        let mut files = Vec::new();
        for (at, disk) in self.all().enumerate() {
            for name in disk.device().list().expect("list") {
                let content = disk.content(&name).expect("a file");
                files.push((at, name, content));
            }
        }
        files.retain(|(_, name, _)| name != "lock");
        files
    }

    /// The same disks after a kill, of which one has other bytes in a file from `offset` on.
    fn damaged(&self, at: usize, name: &str, offset: usize, old: &[u8], new: &[u8]) -> Self {
        let damaged = self.after_kill();
        let disk = damaged.all().nth(at).expect("a disk");
        for (n, (old, new)) in old.iter().zip(new).enumerate() {
            if old != new {
                disk.flip_bits(name, (offset + n) as u64, old ^ new);
            }
        }
        damaged
    }
}

/// Moments of a table with chunks, row metadata and runs, and a dropped one of which only the past
/// can be read, all of them on the disk; and where the log ends.
fn build(disks: &Disks) -> (Vec<(CommitTs, State)>, u64) {
    let db = open(disks.device(), &clock()).expect("open");
    let (dropped, _) = create_table(&db, HistoryPolicy::Forever);
    for k in 0..20 {
        insert(&db, &row(k, k, "of a table that is dropped"));
    }
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        catalog.tables.remove(&dropped.id);
        Ok(())
    })
    .expect("drop");
    txn.commit().expect("commit");
    let (t, _) = create_table(&db, HistoryPolicy::Forever);
    let mut state = State::new();
    let mut moments = Vec::new();
    for round in 0..3i64 {
        for k in 0..40 {
            let text = format!("text {round} of row {k}, long enough for a view");
            if round == 0 {
                insert(&db, &row(k, k, &text));
            } else if k % (round + 1) == 0 {
                let set = [
                    (ColumnId(1), Value::BigInt(round)),
                    (ColumnId(2), text.as_str().into()),
                ];
                run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
            } else {
                continue;
            }
            state.insert(k, (Some(if round == 0 { k } else { round }), text));
        }
        moments.push((db.stable(), state.clone()));
        // One merge: a second one would leave parts of the first file that nothing refers to.
        db.checkpoint(round == 0).expect("checkpoint");
    }
    db.close().expect("close");
    (moments, log_end(&db))
}

/// What a damaged database may do: refuse to open, refuse a read, or answer rightly.
fn is_found(disks: &Disks, moments: &[(CommitTs, State)], what: &str) -> bool {
    let Ok(db) = open(disks.device(), &clock()) else {
        return true;
    };
    let t = table(&db);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    for (ts, expected) in moments {
        let Ok(scan) = statement.scan_as_of(&t, *ts, request()) else {
            continue; // the table could not be restored
        };
        let batches: Result<Vec<_>> = (0..scan.units()).map(|unit| scan.read_unit(unit)).collect();
        if batches.is_ok() {
            assert_eq!(&scan_all(&scan), expected, "{what}: as of {ts}");
        }
    }
    db.check().map_or(true, |damage| !damage.is_empty())
}

/// Bytes at the start of a segment that mean something, and where the log begins in it.
const SEGMENT_HEADER: (u64, u64) = (56, 4096);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Whether a byte of a file of the closed database carries nothing that the database still needs:
/// padding, space allocated ahead, the log before the last checkpoint.
fn is_unused(content: &[u8], name: &str, offset: u64, log_end: u64) -> bool {
    let at = offset as usize;
    if name.starts_with("chunks-") {
        // Zeros between two blobs belong to none.
        let next = ((at | 7) + 1).min(content.len());
        return at >= 64 && content[at..next].iter().all(|b| *b == 0);
    }
    if name.starts_with("wal-") {
        let (base, bytes) = (u64_at(content, 36), u64_at(content, 44));
        let holds_end = base <= log_end && log_end < base + bytes - SEGMENT_HEADER.1;
        return offset >= SEGMENT_HEADER.0 || !holds_end;
    }
    name.starts_with("manifest-") && is_unused_in_manifest(content, at)
}

/// Between frames and from the mark on, which only shows that the last edit is durable.
fn is_unused_in_manifest(content: &[u8], at: usize) -> bool {
    let mut frame = 64;
    if at < frame {
        return false;
    }
    loop {
        let length = u32::from_le_bytes(content[frame..frame + 4].try_into().expect("4 bytes"));
        if at < frame || length == 0 {
            return true;
        }
        let end = frame + 24 + length as usize;
        if at < end {
            return false;
        }
        frame = end.next_multiple_of(8);
    }
}

fn flipped_bits_are_found(disks: &Disks, kinds: &[&str]) {
    let (moments, log_end) = build(disks);
    assert!(
        !is_found(&disks.after_kill(), &moments, "no damage"),
        "damage where there is none"
    );
    let files = disks.files();
    for kind in kinds {
        assert!(
            files.iter().any(|(_, name, _)| name.starts_with(kind)),
            "{kind}"
        );
    }
    let mut rng = Rng::new(7);
    let mut tried = 0;
    for (at, name, content) in &files {
        let bytes = content.len() as u64;
        // Every byte of the header, then some of the rest.
        let mut offsets: Vec<u64> = (0..bytes.min(64)).collect();
        offsets.extend((0..60).map(|_| rng.below(bytes)));
        offsets.extend((0..20).map(|_| rng.below(bytes.min(1 << 13))));
        for offset in offsets {
            let damaged = disks.after_kill();
            let disk = damaged.all().nth(*at).expect("a disk");
            disk.flip_bits(name, offset, 1 << rng.below(8));
            let what = format!("{name} at {offset} of {bytes}");
            let found = is_found(&damaged, &moments, &what);
            if !is_unused(content, name, offset, log_end) {
                assert!(found, "{what}: not found");
                tried += 1;
            }
        }
    }
    assert!(tried > 800, "only {tried} places");
}

const KINDS: [&str; 5] = ["superblock", "manifest-", "wal-", "chunks-", "run-"];

#[test]
fn every_flipped_bit_is_found() {
    flipped_bits_are_found(&Disks::new(1, false), &KINDS);
}

#[test]
fn every_flipped_bit_of_two_directories_is_found() {
    let disks = Disks::new(1, true);
    flipped_bits_are_found(&disks, &[&KINDS[..], &["tier"]].concat());
    let capacity = disks.capacity.expect("two directories").device();
    let names = capacity.list().expect("list");
    for kind in ["chunks-", "tier"] {
        assert!(names.iter().any(|name| name.starts_with(kind)), "{kind}");
    }
}

/// Bytes of a write, or of the part of one, that is lost or misdirected.
const WRITE_BYTES: usize = 128;

/// A write of a data file was lost, or another one, of this file or of another, has gone to its
/// place.
#[test]
fn lost_and_misdirected_writes_are_found() {
    let disks = Disks::new(3, true);
    let (moments, log_end) = build(&disks);
    let files = disks.files();
    let is_data = |name: &str| name.starts_with("chunks-") || name.starts_with("run-");
    let data: Vec<_> = files.iter().filter(|(_, name, _)| is_data(name)).collect();
    let writes: Vec<&[u8]> = data
        .iter()
        .flat_map(|(_, _, content)| content.chunks(WRITE_BYTES))
        .collect();
    let lost = [0; WRITE_BYTES];
    let mut rng = Rng::new(5);
    let mut tried = 0;
    for (at, name, content) in data {
        for (n, old) in content.chunks(WRITE_BYTES).enumerate() {
            let offset = n * WRITE_BYTES;
            let other = writes[rng.below(writes.len() as u64) as usize];
            for new in [&lost[..], other] {
                let changed = old.iter().zip(new).enumerate();
                let mut changed = changed.filter(|(_, (old, new))| old != new);
                let is_felt =
                    changed.any(|(n, _)| !is_unused(content, name, (offset + n) as u64, log_end));
                if !is_felt {
                    continue;
                }
                let damaged = disks.damaged(*at, name, offset, old, new);
                let what = format!("{name} from {offset} on");
                assert!(is_found(&damaged, &moments, &what), "{what}: not found");
                tried += 1;
            }
        }
    }
    assert!(tried > 30, "only {tried} writes");
}

/// Of a log that was not closed, all but the last record are known to have been durable.
#[test]
fn a_flipped_bit_in_the_log_is_found_or_tears_off_its_last_record() {
    let disk = SimDisk::new(2);
    let db = open(disk.device(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    let mut ends = vec![log_end(&db)];
    let mut state = State::new();
    let mut states = vec![state.clone()];
    for k in 0..30 {
        insert(&db, &row(k, k, &"text".repeat(10)));
        state.insert(k, (Some(k), "text".repeat(10)));
        states.push(state.clone());
        ends.push(log_end(&db));
    }
    let name = "wal-0000000000000001";
    let (last, end) = (ends[ends.len() - 2], ends[ends.len() - 1]);
    let mut rng = Rng::new(3);
    for offset in (0..last).step_by(13).chain(last..end) {
        let damaged = disk.after_kill();
        let at = SEGMENT_HEADER.1 + offset;
        damaged.flip_bits(name, at, 1 << rng.below(8));
        let db = match open(damaged.device(), &clock()) {
            Ok(db) => db,
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    ErrorKind::Corrupt,
                    "position {offset}: {error}"
                );
                assert!(offset < last, "position {offset}: {error}");
                continue;
            }
        };
        let t = table(&db);
        let found = run(&db, |s| s.scan(&t, request()).map(|scan| scan_all(&scan)));
        let found = found.expect("scan");
        let is_last = offset >= last && found == states[states.len() - 2];
        let is_padding = found == states[states.len() - 1];
        assert!(is_last || is_padding, "position {offset}: {found:?}");
    }
}

fn log_end(db: &Db) -> u64 {
    let counters = db.counters();
    let log = counters.iter().find(|(name, _)| *name == "log_bytes");
    log.expect("the counter").1
}
