//! Damage: no byte of the file makes a hit wrong or an opening fail.

use strandline_device::Device;

use super::*;

#[test]
fn damage_of_any_byte_costs_misses_only() {
    let rig = Rig::new();
    let cache = rig.open(settings(2));
    fill(&cache, 0..12);
    cache.flush().unwrap();
    let blocks = cache.stats().blocks;
    drop(cache);
    let len = rig.disk.content(BLOCK_CACHE_FILE).unwrap().len() as u64;
    let used = (0..36).chain(4_096..len);
    let (mut replaced, mut lost, mut damaged) = (0, 0, 0);
    for at in used {
        let found = Rig::on(rig.disk.after_kill());
        found.disk.flip_bits(BLOCK_CACHE_FILE, at, 1 << (at % 8));
        let cache = found.open(settings(2));
        let (hits, stats) = (hits(&cache, 0..12) as u64, cache.stats());
        replaced += stats.replaced;
        lost += u64::from(hits < blocks && stats.replaced + stats.damaged == 0);
        damaged += stats.damaged;
        assert!(stats.damaged <= 1, "byte {at}");
        if stats.damaged == 1 {
            assert_eq!(hits, blocks - 1, "byte {at}");
            let problems = inspect(&*found.disk.device()).unwrap().unwrap().problems;
            assert_eq!(problems.len(), 1, "byte {at}: {problems:?}");
            // The next read finds it in the capacity tier and caches it again.
            read_all(&cache, 0..12);
            assert!((0..12).all(|n| is_cached(&cache, block(1, n))));
            assert_eq!(cache.stats().damaged, 1);
        }
    }
    assert_eq!(replaced, 36, "every byte of the header counts");
    assert!(lost > 0 && damaged > 0);
}

#[test]
fn a_block_in_the_place_of_another_is_damage() {
    let rig = Rig::new();
    let cache = rig.open(settings(2));
    let twin = |n: u64| BlockKey {
        file: 1,
        offset: n * 256,
        len: 100,
    };
    // Same length, so that the bytes of one fit in the place of the other.
    assert!(!read_through(&cache, twin(0)) && !read_through(&cache, twin(1)));
    cache.flush().unwrap();
    let file = rig.disk.device().open(BLOCK_CACHE_FILE).unwrap();
    let first = 4_096 + 32 + 2 * 24;
    file.write_all_at(&content(twin(1)), first).unwrap();
    assert!(!is_cached(&cache, twin(0)));
    assert_eq!(cache.stats().damaged, 1);
    assert!(is_cached(&cache, twin(1)));
}

#[test]
fn a_file_cut_short_is_a_smaller_cache() {
    let rig = Rig::new();
    let cache = rig.open(settings(3));
    fill(&cache, 0..30);
    cache.flush().unwrap();
    drop(cache);
    let len = rig.disk.content(BLOCK_CACHE_FILE).unwrap().len() as u64;
    for cut in [0, 1, 35, 36, 4_096, 4_097, 5_119, 5_120, 6_000, len - 1] {
        let found = Rig::on(rig.disk.after_kill());
        let file = found.disk.device().open(BLOCK_CACHE_FILE).unwrap();
        file.set_len(cut).unwrap();
        let cache = found.open(settings(3));
        read_all(&cache, 0..30);
        fill(&cache, 30..60);
        assert!(is_cached(&cache, block(1, 59)), "cut at {cut}");
        assert_eq!(cache.stats().cache_bytes, 3 * u64::from(SEGMENT_BYTES));
    }
}
