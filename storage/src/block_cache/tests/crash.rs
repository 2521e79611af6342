//! Crashes at every operation: whatever is found afterwards, every hit has the block's bytes.

use strandline_device::Device;

use super::*;

/// Fills the cache more than once, opening it twice.
fn work(rig: &Rig) -> Result<()> {
    for round in 0..2 {
        let cache = rig.try_open(settings(3), FILES_END)?;
        for n in 0..60 {
            read_through(&cache, block(1, round * 40 + n));
            if n % 7 == 0 {
                is_cached(&cache, block(1, round * 40 + n));
            }
            // A fault of the cache is no error of its users.
            let _ = cache.step();
        }
        let _ = cache.flush();
        rig.disk.device().sync_directory()?;
    }
    Ok(())
}

#[test]
fn after_a_crash_at_any_operation_every_hit_is_right() {
    let rig = Rig::new();
    work(&rig).unwrap();
    let operations = rig.disk.operations();
    assert!(operations > 15, "{operations}");
    let (mut hit, mut damaged) = (0, 0);
    for at in 1..=operations {
        let rig = Rig::new();
        rig.disk.crash_at(at);
        let _ = work(&rig);
        assert!(rig.disk.has_crashed());
        for seed in 0..8 {
            let found = Rig::on(rig.disk.after_crash(seed));
            let cache = found.open(settings(3));
            hit += hits(&cache, 0..120);
            damaged += cache.stats().damaged;
            // It goes on as any cache.
            fill(&cache, 200..260);
            assert!(is_cached(&cache, block(1, 259)));
            cache.flush().unwrap();
            drop(cache);
            let cache = found.open(settings(3));
            assert!(is_cached(&cache, block(1, 259)), "warm");
            // And after another crash, in what was this recovery.
            let again = Rig::on(found.disk.after_crash(seed + 1));
            let cache = again.open(settings(3));
            hits(&cache, 0..260);
        }
    }
    assert!(hit > 0 && damaged > 0, "both are met: {hit} {damaged}");
}

#[test]
fn a_kill_loses_only_what_was_in_memory() {
    let rig = Rig::new();
    let cache = rig.open(settings(8));
    fill(&cache, 0..40);
    let written: u64 = rig
        .inspect()
        .segments
        .iter()
        .map(|s| s.2.len() as u64)
        .sum();
    assert!(written > 20);
    let found = Rig::on(rig.disk.after_kill());
    let cache = found.open(settings(8));
    assert_eq!(cache.stats().blocks, written);
    assert_eq!(hits(&cache, 0..40) as u64, written);
}
