//! Settings that no cache can have.

use crate::common::*;
use crate::machine::*;
use strandline_engine::*;

fn refusal(device: std::sync::Arc<dyn Device>, change: fn(&mut Settings)) {
    let mut settings = with_cache();
    change(&mut settings);
    let opened = open_with(device, &clock(), settings);
    let error = opened.map(drop).expect_err("refused");
    assert_eq!(
        error.sqlstate(),
        SqlState::INVALID_PARAMETER_VALUE,
        "{error}"
    );
    assert!(error.message().contains("block_cache_bytes"), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn settings_that_no_cache_can_have_are_refused() {
    let two = || Machine::new(1).device();
    refusal(two(), |s| s.block_cache_bytes = 1);
    refusal(two(), |s| {
        s.block_cache_bytes = 4095 + 2 * u64::from(SEGMENT_BYTES)
    });
    refusal(two(), |s| s.block_cache_bytes = 1 << 50);
    let one = Machine::new(1).fast.device();
    refusal(one, |_| {});
    let smallest = Settings {
        block_cache_bytes: 4096 + 2 * u64::from(SEGMENT_BYTES),
        ..with_cache()
    };
    let machine = Machine::new(1);
    let db = open_with(machine.device(), &clock(), smallest).expect("two segments");
    assert_eq!(stats(&db).cache_bytes, 2 * u64::from(SEGMENT_BYTES));
}

/// Three segments take at most an eighth of the cached blocks' memory, and a block of 64 KiB is not
/// too large for the smallest one.
#[test]
fn segments_suit_the_memory() {
    let segment = |memory_bytes: usize| {
        let settings = Settings {
            memory_bytes,
            block_cache_bytes: 1 << 30,
            ..Settings::default()
        };
        settings.block_cache(0).expect("a cache").segment_bytes as usize
    };
    assert_eq!(segment(Settings::MEMORY_BYTES_MIN), 256 << 10);
    assert_eq!(segment(64 << 20), 1 << 20);
    assert_eq!(segment(2 << 30), 4 << 20);
    assert_eq!(segment(1 << 40), 4 << 20);
    for memory in [16 << 20, 20 << 20, 100 << 20, 1 << 30] {
        assert!(3 * segment(memory) * 8 <= memory / 8 * 3, "{memory}");
    }
}

/// Both caches share a quarter of the cached blocks' memory.
#[test]
fn both_caches_together_leave_memory_to_the_rest() {
    let settings = |ssd_cache_bytes, block_cache_bytes| Settings {
        memory_bytes: 64 << 20,
        ssd_cache_bytes,
        block_cache_bytes,
        ..Settings::default()
    };
    assert!(settings(0, 128 << 20).check().is_ok());
    assert!(settings(128 << 20, 0).check().is_ok());
    assert!(settings(128 << 20, 128 << 20).check().is_err());
}

/// The memory of the index and of the segments is in the account of the cached blocks.
#[test]
fn the_memory_is_counted_and_is_not_that_of_keys() {
    let keys = |block_cache_bytes| {
        let settings = Settings {
            block_cache_bytes,
            ..with_cache()
        };
        let machine = Machine::new(1);
        let db = open_with(machine.device(), &clock(), settings).expect("open");
        let counters = db.counters();
        let found = counters.iter().find(|(name, _)| *name == "key_bytes");
        found.expect("a counter").1
    };
    assert_eq!(keys(CACHE_BYTES), keys(0));
}
