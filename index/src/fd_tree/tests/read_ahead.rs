//! Cursors that read ahead.

use super::interleaved::Hooked;
use super::*;
use strandline_device::MemoryDevice;
use strandline_storage::level_blocks::{BlockQueue, FileBlocks};

fn entries(numbers: std::ops::Range<u64>) -> Vec<[u8; 16]> {
    numbers.map(key).collect()
}

fn load(tree: &FdTree, numbers: std::ops::Range<u64>) {
    let entries = entries(numbers);
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
}

/// A cursor over a level has several reads at the device at the same time, in both directions, and
/// reads each block once.
#[test]
fn a_cursor_has_several_reads_in_flight() {
    let device: Arc<dyn strandline_device::Device> = Arc::new(MemoryDevice::default());
    for direction in [Direction::Forward, Direction::Backward] {
        let queue = BlockQueue::new(device.clone());
        let blocks = FileBlocks::open(&*device, &format!("{direction:?}"), 4096).unwrap();
        let blocks = blocks.with_queue(queue.clone());
        let settings = Settings {
            head_bytes: 4000,
            batch_bytes: 1 << 20,
            ..small(Mode::Fc)
        };
        let tree = FdTree::open(settings, Arc::new(blocks), Pool::new(0)).unwrap();
        load(&tree, 0..2000);
        let levels = tree.levels();
        assert!(
            levels
                .iter()
                .any(|(_, blocks, only_fences)| *blocks >= 500 && !only_fences)
        );
        assert!(queue.stats().is_none(), "only cursors read ahead");
        let mut found = all(&tree, direction);
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(found.into_iter().eq(0..2000));
        let stats = queue.stats().unwrap();
        assert!(stats.outstanding_max >= 8, "{direction:?}: {stats:?}");
        let most = tree.blocks() as u64 / 8 + 40;
        assert!(stats.submitted < most, "{direction:?}: {stats:?}");
    }
}

/// A cursor that ends early has read at most as many blocks in vain as it has used.
#[test]
fn a_short_cursor_reads_few_blocks() {
    let (blocks, tree) = Hooked::tree(Mode::Fc);
    load(&tree, 0..2000);
    let height = tree.levels().len();
    for direction in [Direction::Forward, Direction::Backward] {
        for wanted in [1, 4, 10, 50, 200] {
            let mut found = 0;
            let reads = blocks.reads(|| {
                let each = |_: &[u8]| {
                    found += 1;
                    found < wanted
                };
                tree.scan(&key(500), Some(&key(1500)), direction, each)
                    .unwrap();
            });
            // A block has at most 4 entries, and at least 2 on average.
            let used = wanted / 2 + 2;
            assert!(
                reads <= 2 * used + 2 * height,
                "{direction:?} {wanted}: {reads}"
            );
        }
    }
}

/// A cursor goes on beside the steps of a compaction, before, at and behind its wavefront: blocks
/// that it keeps are those that do not change.
#[test]
fn a_cursor_beside_steps_misses_nothing() {
    for direction in [Direction::Forward, Direction::Backward] {
        let points = [0, 3, 8, 20, 35].map(|ahead| [2, 4, 5, 7].map(|a_step| (ahead, a_step)));
        for (ahead, a_step) in points.into_iter().flatten() {
            let (_, tree) = Hooked::tree(Mode::Fc);
            load(&tree, 0..400);
            let is_full = || {
                let state = tree.shared.state.lock();
                let old = state.old.as_ref();
                old.is_some_and(|old| old.new_levels == state.slots.len())
            };
            let mut other = 1000;
            while !is_full() {
                if !tree.compact_step().unwrap() {
                    tree.add(&key(other)).unwrap();
                    other += 1;
                }
            }
            for _ in 0..ahead {
                tree.compact_step().unwrap();
            }
            let range = crate::entry::EntryRange {
                before: Some(key(400).as_slice().into()),
                ..Default::default()
            };
            let mut entries = tree.entries(&range, direction);
            let mut found = Vec::new();
            while let Some(entry) = entries.next().unwrap() {
                found.push(entry.to_vec());
                if found.len() % a_step == 0 {
                    tree.compact_step().unwrap();
                }
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            let expected = (0..400).map(|number| key(number).to_vec());
            let what = format!("{direction:?}, {ahead} steps ahead, {a_step} entries a step");
            assert!(found.into_iter().eq(expected), "{what}");
        }
    }
}
