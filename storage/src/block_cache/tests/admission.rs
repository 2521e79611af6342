//! Which blocks enter, which stay, which leave first.

use super::*;

#[test]
fn the_second_read_admits_if_it_comes_soon() {
    let rig = Rig::new();
    let settings = Settings {
        admission: Admission::SecondRead,
        // The window has 16 blocks.
        index_bytes_max: 16 * 160,
        ..settings(2)
    };
    let cache = rig.open(settings);
    let first = block(1, 0);
    assert!(!read_through(&cache, first));
    (1..16).for_each(|n| assert!(!read_through(&cache, block(1, n))));
    assert!(!read_through(&cache, first), "read once so far");
    assert!(read_through(&cache, first), "admitted by the second read");
    // The window has moved on: block 1 was forgotten.
    assert!(!read_through(&cache, block(1, 16)));
    assert!(!read_through(&cache, block(1, 17)));
    assert!(!read_through(&cache, block(1, 1)));
    assert!(!read_through(&cache, block(1, 1)));
    assert_eq!(cache.stats().admissions, 2);
}

#[test]
fn the_oldest_segment_leaves_but_its_blocks_that_were_read_stay() {
    let rig = Rig::new();
    let cache = rig.open(settings(4));
    fill(&cache, 0..60);
    let segments = rig.inspect().segments;
    assert_eq!(segments.len(), 4);
    // A block of the oldest segment is read, and enough blocks come to overwrite all segments.
    let oldest = &segments[0].2;
    assert!(is_cached(&cache, oldest[0]));
    // Three segments: the oldest is overwritten, and none twice.
    fill(&cache, 100..120);
    assert!(is_cached(&cache, oldest[0]), "it was read");
    assert!(oldest[1..].iter().all(|&block| !is_cached(&cache, block)));
    assert!(cache.stats().reinsertions > 0);
    // It was read once more just now, but a reinsertion alone is no reading.
    fill(&cache, 200..240);
    fill(&cache, 300..340);
    fill(&cache, 400..440);
    assert!(!is_cached(&cache, oldest[0]));
}

#[test]
fn a_segment_of_touched_blocks_leaves_room_for_new_ones() {
    let rig = Rig::new();
    let cache = rig.open(settings(3));
    fill(&cache, 0..40);
    for round in 1..40 {
        // Everything is touched.
        hits(&cache, 0..40 * round);
        fill(&cache, 40 * round..40 * round + 40);
        let newest = block(1, 40 * round + 39);
        assert!(is_cached(&cache, newest), "round {round}");
    }
    let stats = cache.stats();
    assert_eq!(stats.refusals, 0, "{stats:?}");
}

#[test]
fn blocks_that_do_not_qualify_are_refused() {
    let rig = Rig::new();
    let cache = rig.try_open(settings(3), 5).unwrap();
    let large = |len| BlockKey { len, ..block(1, 0) };
    let admit = |block: BlockKey| {
        cache.admit(block, &content(block));
        is_cached(&cache, block)
    };
    assert!(admit(large(SEGMENT_BYTES / 4)));
    assert!(!admit(large(SEGMENT_BYTES / 4 + 1)));
    assert!(!admit(large(100_000)));
    assert!(!admit(large(0)));
    assert_eq!(cache.stats().refusals, 2);
    // A file whose number a crash would give away again.
    assert!(admit(block(4, 1)));
    assert!(!admit(block(5, 1)));
    cache.raise_files_end(6);
    assert!(admit(block(5, 1)));
    cache.raise_files_end(2);
    assert!(admit(block(5, 2)), "it never goes back");
}

#[test]
fn an_address_with_another_length_is_another_block() {
    let rig = Rig::new();
    let cache = rig.open(settings(3));
    let (short, long) = (
        BlockKey {
            len: 12,
            ..block(1, 0)
        },
        block(1, 0),
    );
    assert!(!read_through(&cache, short));
    assert!(!read_through(&cache, long));
    assert!(read_through(&cache, long));
    assert!(
        !read_through(&cache, short),
        "the later one has replaced it"
    );
    cache.flush().unwrap();
    let stats = cache.stats();
    assert_eq!((stats.blocks, stats.bytes), (1, 12));
    drop(cache);
    let cache = rig.open(settings(3));
    assert!(is_cached(&cache, short) && !is_cached(&cache, long));
}

#[test]
fn without_a_writer_two_segments_fill_and_then_blocks_are_refused() {
    let rig = Rig::new();
    let cache = rig.open(settings(3));
    let writes = rig.disk.writes();
    read_all(&cache, 0..500);
    let stats = cache.stats();
    assert!(stats.refusals > 400 && stats.blocks > 5, "{stats:?}");
    let half = u64::from(SEGMENT_BYTES) / 2;
    assert!(
        stats.bytes <= 3 * half,
        "half a segment is left to reinsertions: {stats:?}"
    );
    assert_eq!(rig.disk.writes(), writes, "no reader writes");
    // Blocks in memory are hits.
    assert!(is_cached(&cache, block(1, 0)));
    assert!(cache.step().unwrap());
    assert!(!cache.step().unwrap(), "one segment waited");
    assert!(is_cached(&cache, block(1, 0)));
    assert!(!read_through(&cache, block(1, 499)));
    assert!(is_cached(&cache, block(1, 499)), "there is room again");
}

#[test]
fn forgotten_files_are_gone_wherever_their_blocks_are() {
    let rig = Rig::new();
    let cache = rig.open(settings(3));
    // Blocks of both files in written segments, in one that waits, and in one that is filled.
    for n in 0..8 {
        read_through(&cache, block(1, n));
        read_through(&cache, block(2, n));
        cache.step().unwrap();
    }
    for n in 8..14 {
        read_through(&cache, block(1, n));
        read_through(&cache, block(2, n));
    }
    let before = cache.stats().blocks;
    cache.forget_file(1);
    assert!((0..14).all(|n| !is_cached(&cache, block(1, n))));
    assert!((0..14).any(|n| is_cached(&cache, block(2, n))));
    let stats = cache.stats();
    assert_eq!(stats.blocks + stats.forgotten, before);
    cache.flush().unwrap();
    assert!((0..14).all(|n| !is_cached(&cache, block(1, n))));
    // A segment of nothing but forgotten blocks is not written.
    let writes = rig.disk.writes();
    (0..3).for_each(|n| assert!(!read_through(&cache, block(3, n))));
    cache.forget_file(3);
    cache.flush().unwrap();
    assert_eq!(rig.disk.writes(), writes);
    drop(cache);
    let known = KnownFiles {
        end: FILES_END,
        is_live: &|file| file != 1,
    };
    let device = rig.disk.device();
    let cache = BlockCache::open(&*device, settings(3), known, &rig.taken_bytes).unwrap();
    assert!((0..14).all(|n| !is_cached(&cache, block(1, n))));
    assert!((0..14).any(|n| is_cached(&cache, block(2, n))));
}
