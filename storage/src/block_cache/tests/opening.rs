//! Openings with other settings, of foreign files, and beside an older database.

use strandline_base::{Error, SqlState};
use strandline_device::{Device, File};

use super::*;

/// A device whose files cannot be read from `offset` on.
#[derive(Debug)]
struct UnreadableFrom {
    inner: Arc<dyn Device>,
    offset: u64,
}

impl Device for UnreadableFrom {
    strandline_device::forward!(inner: create remove rename list sync_directory lock location);

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let (inner, offset) = (self.inner.open(name)?, self.offset);
        Ok(Arc::new(CutFile { inner, offset }))
    }
}

#[derive(Debug)]
struct CutFile {
    inner: Arc<dyn File>,
    offset: u64,
}

impl File for CutFile {
    strandline_device::forward!(inner: name sync len set_len write_all_at);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match offset >= self.offset {
            true => Err(Error::io("reading", &std::io::Error::other("bad sector"))),
            false => self.inner.read_exact_at(buf, offset),
        }
    }
}

fn filled(segments: u64) -> Rig {
    let rig = Rig::new();
    let cache = rig.open(settings(segments));
    fill(&cache, 0..40);
    cache.flush().unwrap();
    rig
}

#[test]
fn a_cache_shrinks_and_grows_between_openings() {
    let rig = filled(8);
    let before = hits(&rig.open(settings(8)), 0..40);
    assert_eq!(before, 40);
    let small = rig.open(settings(3));
    let kept = hits(&small, 0..40);
    assert!(kept > 5 && kept < before, "{kept}");
    let len = rig.disk.content(BLOCK_CACHE_FILE).unwrap().len() as u64;
    assert_eq!(len, 4_096 + 3 * u64::from(SEGMENT_BYTES));
    fill(&small, 100..140);
    assert_eq!(small.stats().failed_writes, 0);
    small.flush().unwrap();
    drop(small);
    let large = rig.open(settings(20));
    assert_eq!(large.stats().cache_bytes, 20 * u64::from(SEGMENT_BYTES));
    assert!(is_cached(&large, block(1, 139)));
    // Empty segments are taken before any is overwritten.
    fill(&large, 200..260);
    assert!(is_cached(&large, block(1, 139)));
    assert_eq!(large.stats().evictions, 0);
}

#[test]
fn the_order_of_overwriting_survives() {
    let rig = filled(3);
    let segments = rig.inspect().segments;
    let cache = rig.open(settings(3));
    let last = segments.last().unwrap().2.clone();
    fill(&cache, 100..106);
    cache.flush().unwrap();
    let now = rig.inspect().segments;
    assert!(
        now.iter().any(|segment| segment.2 == last),
        "the newest stays"
    );
    assert!(now.iter().all(|segment| segment.2 != segments[0].2));
    assert!(now.last().unwrap().1 > segments.last().unwrap().1);
}

#[test]
fn the_index_is_bounded_when_a_cache_is_opened_with_less_memory() {
    let rig = filled(8);
    let settings = Settings {
        index_bytes_max: 10 * 160,
        ..settings(8)
    };
    let cache = rig.open(settings);
    assert_eq!(cache.stats().blocks, 10, "the newest ones");
    fill(&cache, 100..200);
    let stats = cache.stats();
    assert!(stats.blocks <= 10 + 2, "{stats:?}");
    assert!(stats.memory_bytes < 12 * 160 + 2 * u64::from(SEGMENT_BYTES));
}

#[test]
fn memory_is_counted_and_returned() {
    let rig = filled(8);
    let taken = || rig.taken_bytes.load(Ordering::Relaxed);
    assert_eq!(taken(), 0);
    let cache = rig.open(settings(8));
    let warm = taken();
    assert!(warm > 3 * SEGMENT_BYTES as usize);
    fill(&cache, 100..130);
    assert!(taken() > warm);
    drop(cache);
    assert_eq!(taken(), 0);
}

#[test]
fn foreign_and_other_files_are_replaced() {
    let others = [
        Settings {
            identity: 7,
            ..settings(8)
        },
        Settings {
            segment_bytes: 2 * SEGMENT_BYTES,
            ..settings(8)
        },
    ];
    for other in others {
        let rig = filled(8);
        let cache = rig.open(other);
        assert_eq!((cache.stats().replaced, cache.stats().blocks), (1, 0));
        fill(&cache, 0..20);
        assert!(is_cached(&cache, block(1, 19)));
    }
    let rig = Rig::new();
    let file = rig.disk.device().create(BLOCK_CACHE_FILE).unwrap();
    file.write_all_at(b"something else", 0).unwrap();
    assert_eq!(rig.open(settings(3)).stats().replaced, 1);
}

#[test]
fn a_cache_that_is_newer_than_the_database_is_removed_for_good() {
    let rig = Rig::new();
    let cache = rig.try_open(settings(3), 10).unwrap();
    fill(&cache, 0..10);
    cache.raise_files_end(20);
    fill(&cache, 10..30);
    cache.flush().unwrap();
    drop(cache);
    // The same database, or a newer one, has it all.
    for end in [20, 21] {
        let found = Rig::on(rig.disk.after_kill());
        assert!(found.try_open(settings(3), end).unwrap().stats().blocks > 5);
    }
    // An older one has nothing, also after a crash right away.
    let cache = rig.try_open(settings(3), 19).unwrap();
    assert_eq!((cache.stats().blocks, cache.stats().replaced), (0, 1));
    for seed in 0..8 {
        let found = Rig::on(rig.disk.after_crash(seed));
        let cache = found.try_open(settings(3), 30).unwrap();
        assert_eq!(cache.stats().blocks, 0, "seed {seed}");
    }
}

#[test]
fn a_newer_cache_that_cannot_be_removed_is_an_error() {
    let rig = filled(3);
    // The removal, and the sync of the directory.
    for at in [1, 2] {
        let found = Rig::on(rig.disk.after_kill());
        found.disk.fail_operation(at);
        let refused = found.try_open(settings(3), 1).expect_err("not removed");
        assert_eq!(
            refused.sqlstate(),
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        );
        assert!(
            refused
                .hint()
                .is_some_and(|hint| hint.contains("block-cache"))
        );
    }
}

/// What the cache has written is durable, as a device may make it by itself.
fn make_durable(rig: &Rig) {
    let device = rig.disk.device();
    device.open(BLOCK_CACHE_FILE).unwrap().sync().unwrap();
    device.sync_directory().unwrap();
}

/// Bytes that cannot be read now may be there later, when the database has used the numbers that
/// they know: the file goes, durably, or the opening fails.
#[test]
fn a_cache_that_cannot_be_read_is_removed_for_good() {
    let rig = filled(3);
    make_durable(&rig);
    rig.disk.fail_reads(BLOCK_CACHE_FILE);
    let cache = rig.open(settings(3));
    assert_eq!((cache.stats().blocks, cache.stats().replaced), (0, 1));
    drop(cache);
    for seed in 0..4 {
        let found = Rig::on(rig.disk.after_crash(seed));
        assert_eq!(found.open(settings(3)).stats().blocks, 0, "seed {seed}");
    }
    for at in [1, 2] {
        let found = Rig::on(filled(3).disk.after_kill());
        found.disk.fail_reads(BLOCK_CACHE_FILE);
        found.disk.fail_operation(at);
        assert!(
            found.try_open(settings(3), FILES_END).is_err(),
            "not removed"
        );
    }
}

/// The same for a head alone, behind a header that can be read.
#[test]
fn a_cache_with_an_unreadable_head_is_removed_for_good() {
    let rig = filled(3);
    make_durable(&rig);
    let cut = 4_096 + 2 * u64::from(SEGMENT_BYTES);
    let device = UnreadableFrom {
        inner: rig.disk.device(),
        offset: cut,
    };
    let is_live = &|_| true;
    let known = KnownFiles {
        end: FILES_END,
        is_live,
    };
    let cache = BlockCache::open(&device, settings(3), known, &rig.taken_bytes).unwrap();
    assert_eq!((cache.stats().blocks, cache.stats().replaced), (0, 1));
    drop(cache);
    let found = Rig::on(rig.disk.after_crash(0));
    assert_eq!(found.open(settings(3)).stats().blocks, 0);
}

#[test]
fn segments_are_listed_in_the_order_of_their_writing() {
    let rig = filled(3);
    let cache = rig.open(settings(3));
    let listed = cache.segments();
    let found = rig.inspect().segments;
    let numbers = |number: &dyn Fn(usize) -> u64| (0..3).map(number).collect::<Vec<_>>();
    assert_eq!(numbers(&|n| listed[n].number), numbers(&|n| found[n].1));
    assert!(listed[0].number < listed[1].number && listed[1].number < listed[2].number);
    let (blocks, bytes) = listed.iter().fold((0, 0), |(blocks, bytes), segment| {
        (blocks + segment.blocks as u64, bytes + segment.bytes)
    });
    assert_eq!((blocks, bytes), (cache.stats().blocks, cache.stats().bytes));
    // A block that has moved to the segment being filled is no longer one of its old segment.
    let oldest = found[0].2[0];
    assert!(is_cached(&cache, oldest));
    fill(&cache, 100..108);
    let now: u64 = cache.segments().iter().map(|segment| segment.bytes).sum();
    assert!(now <= cache.stats().bytes);
    assert!(cache.segments()[0].number > listed[0].number);
}

#[test]
fn an_unused_cache_is_removed() {
    let rig = filled(3);
    let device = rig.disk.device();
    BlockCache::remove(&*device).unwrap();
    BlockCache::remove(&*device).unwrap();
    assert!(inspect(&*device).unwrap().is_none());
    let found = rig.disk.after_crash(0);
    assert!(inspect(&*found.device()).unwrap().is_none(), "durably");
}

#[test]
fn a_file_of_a_later_version_is_replaced_but_not_inspected() {
    let rig = filled(3);
    let mut header = rig.disk.content(BLOCK_CACHE_FILE).unwrap()[..36].to_vec();
    header[8] = 2;
    let sum = strandline_base::checksum(&[], &header[..32]);
    header[32..].copy_from_slice(&sum.to_le_bytes());
    let device = rig.disk.device();
    let file = device.open(BLOCK_CACHE_FILE).unwrap();
    file.write_all_at(&header, 0).unwrap();
    let refused = inspect(&*device).expect_err("version 2");
    assert_eq!(refused.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
    assert_eq!(rig.open(settings(3)).stats().replaced, 1);
}
