//! Images beside the log: what they cover, and what a crash leaves of both.

use super::*;
use strandline_base::{CommitTs, StorageId};
use strandline_sim::SimDisk;
use strandline_storage::wal::{Lsn, Wal, WalSettings};

const NAME: &str = "levels-00000001";

fn log_settings() -> WalSettings {
    WalSettings {
        segment_bytes: 1 << 16,
    }
}

/// The blocks of a complete index, with a log.
fn logged(disk: &SimDisk) -> LoggedBlocks {
    let log = Arc::new(IndexLog::default());
    let wal = Wal::create(disk.device(), log_settings(), 1).expect("a log");
    log.attach(&Arc::new(wal));
    LoggedBlocks {
        blocks: FileBlocks::open(&*disk.device(), NAME, BLOCK_BYTES).expect("files"),
        log,
        is_complete: AtomicBool::new(true),
        next_covers: AtomicU64::new(0),
        covers: AtomicU64::new(0),
        older_covers: AtomicU64::new(u64::MAX),
    }
}

fn append(blocks: &LoggedBlocks) {
    let appended = blocks.log.append_swept(StorageId(1), CommitTs(5));
    appended.expect("a record");
}

fn store(blocks: &LoggedBlocks) -> Result<()> {
    blocks.begin_image();
    blocks.put_image(b"image")
}

/// A commit between the content of an image and its write is not covered.
#[test]
fn an_image_covers_the_log_up_to_its_content() {
    let disk = SimDisk::new(1);
    let blocks = logged(&disk);
    append(&blocks);
    let end = blocks.log.end().0;
    blocks.begin_image();
    append(&blocks);
    blocks.put_image(b"image").expect("stored");
    let stored = covered(&blocks.blocks).expect("an image");
    assert_eq!(stored, Some(end + 1));
    assert_eq!(blocks.covers.load(Ordering::Acquire), end + 1);
}

/// Crashes at every operation of an image: an image that is found covers no more than the log has.
#[test]
fn a_crash_leaves_no_image_without_its_log() {
    let begin = || {
        let disk = SimDisk::new(1);
        let blocks = logged(&disk);
        store(&blocks).expect("the first image");
        append(&blocks);
        (disk, blocks)
    };
    let (disk, blocks) = begin();
    let (before, first) = (disk.operations(), blocks.covers.load(Ordering::Acquire));
    store(&blocks).expect("without a crash");
    let (mut newer, mut older) = (0, 0);
    for point in before + 1..=disk.operations() + 1 {
        for outcome in 0..4 {
            let (disk, blocks) = begin();
            disk.crash_at(point);
            let _ = store(&blocks);
            drop(blocks);
            let disk = disk.after_crash(outcome);
            let files = FileBlocks::existing(&*disk.device(), NAME, BLOCK_BYTES).expect("files");
            let covers = covered(&files).expect("an image").expect("stored");
            let (device, from) = (disk.device(), Lsn(0));
            let log = Wal::open(device, log_settings(), 1, from, from, &mut |_, _| Ok(()));
            let end = log.expect("a log").end_lsn().0;
            assert!(
                covers <= end + 1,
                "crash at {point}, outcome {outcome}: {covers} of {end} are covered"
            );
            match covers > first {
                true => newer += 1,
                false => older += 1,
            }
        }
    }
    assert!(
        newer > 0 && older > 0,
        "{newer} newer images, {older} older"
    );
}
