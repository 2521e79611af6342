//! Models of the FD+tree: lookups, cursors and writers beside the steps of compactions, which
//! replace blocks and free them.

use crate::explore;
use shuttle::thread;
use std::sync::Arc;
use strandline_index::{Direction, FdTree, FdTreeMode, FdTreeSettings};
use strandline_storage::level_blocks::MemoryBlocks;
use strandline_storage::pool::Pool;

/// Blocks of two entries, so that a few make a tree of several levels.
fn tree(mode: FdTreeMode, numbers: impl IntoIterator<Item = u8>) -> Arc<FdTree> {
    let settings = FdTreeSettings {
        mode,
        head_bytes: 400,
        head_blocks: 1,
        ratio: 2,
        block_entries_max: 2,
        batch_bytes: 64,
        filter_bits: 0,
        ..FdTreeSettings::default()
    };
    let blocks = Arc::new(MemoryBlocks::new(64));
    let tree = FdTree::open(settings, blocks, Pool::new(0)).expect("in memory");
    for number in numbers {
        assert!(tree.add(&[number]).expect("in memory"));
    }
    tree.compact().expect("in memory");
    Arc::new(tree)
}

fn numbers(tree: &FdTree, direction: Direction) -> Vec<u8> {
    let mut found = Vec::new();
    let seen = tree.scan(&[], None, direction, |entry| {
        found.push(entry[0]);
        true
    });
    seen.expect("in memory");
    found
}

fn assert_whole(tree: &FdTree, expected: &[u8]) {
    let mut damage = Vec::new();
    tree.check(&mut damage).expect("in memory");
    assert_eq!(
        damage,
        Vec::<String>::new(),
        "{:?} {}",
        tree.levels(),
        tree.is_compacting()
    );
    assert_eq!(numbers(tree, Direction::Forward), expected);
    assert_eq!(tree.len(), expected.len());
}

/// Compacts from one state to another, whole and by steps, beside everybody else.
fn compact(tree: &Arc<FdTree>) -> thread::JoinHandle<()> {
    let tree = tree.clone();
    thread::spawn(move || {
        tree.compact().expect("in memory");
        for _ in 0..3 {
            tree.compact_step().expect("in memory");
        }
    })
}

/// A lookup finds what nobody changes, whatever block of its path is replaced and freed meanwhile.
#[test]
fn lookups_find_what_stays_during_compactions() {
    for mode in [FdTreeMode::Fc, FdTreeMode::Ds] {
        explore(move || {
            let tree = tree(mode, (0..12).map(|number| 10 * number));
            let compactor = compact(&tree);
            let writer = {
                let tree = tree.clone();
                thread::spawn(move || {
                    for number in [15, 95, 35] {
                        assert!(tree.add(&[number]).expect("in memory"));
                    }
                    for number in [50, 35] {
                        assert!(tree.remove(&[number]).expect("in memory"));
                    }
                })
            };
            for number in [0, 40, 60, 110] {
                assert!(tree.contains(&[number]).expect("not freed"), "{number}");
                assert!(!tree.contains(&[number + 1]).expect("not freed"));
            }
            writer.join().expect("it does not panic");
            compactor.join().expect("it does not panic");
            let left = [0, 10, 15, 20, 30, 40, 60, 70, 80, 90, 95, 100, 110];
            assert_whole(&tree, &left);
            tree.compact().expect("in memory");
            tree.checkpoint().expect("in memory");
            assert_whole(&tree, &left);
            assert_eq!(tree.unfreed_blocks(), 0, "no reader is left");
        });
    }
}

/// A cursor sees every entry that stays once and in order, on either side of the wavefront.
#[test]
fn cursors_see_what_stays_during_compactions() {
    for direction in [Direction::Forward, Direction::Backward] {
        explore(move || {
            let stay = [10, 20, 30, 40, 50, 60, 70];
            let tree = tree(FdTreeMode::Fc, stay);
            let compactor = compact(&tree);
            let writer = {
                let tree = tree.clone();
                thread::spawn(move || {
                    for number in [25, 65] {
                        assert!(tree.add(&[number]).expect("in memory"));
                    }
                    assert!(tree.remove(&[25]).expect("in memory"));
                })
            };
            let mut found = numbers(&tree, direction);
            if direction == Direction::Backward {
                found.reverse();
            }
            assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
            found.retain(|number| number % 10 == 0);
            assert_eq!(found, stay);
            writer.join().expect("it does not panic");
            compactor.join().expect("it does not panic");
            assert_whole(&tree, &[10, 20, 30, 40, 50, 60, 65, 70]);
        });
    }
}

/// Of several threads that add or remove one entry, the kinds alternate: exactly one more has added
/// than removed it, or as many.
#[test]
fn adders_and_removers_of_one_entry_alternate() {
    explore(|| {
        let tree = tree(FdTreeMode::Fc, [10, 20, 30, 40]);
        let compactor = compact(&tree);
        let changers = [true, false, true].map(|is_adder| {
            let tree = tree.clone();
            thread::spawn(move || {
                let changed = match is_adder {
                    true => tree.add(&[25]),
                    false => tree.remove(&[25]),
                };
                (is_adder, changed.expect("in memory"))
            })
        });
        let mut present = 0;
        for changer in changers {
            match changer.join().expect("it does not panic") {
                (true, true) => present += 1,
                (false, true) => present -= 1,
                (_, false) => {}
            }
        }
        compactor.join().expect("it does not panic");
        assert_eq!(present == 1, tree.contains(&[25]).expect("in memory"));
        let expected: &[u8] = match present {
            1 => &[10, 20, 25, 30, 40],
            0 => &[10, 20, 30, 40],
            _ => panic!("added more than once: {present}"),
        };
        assert_whole(&tree, expected);
    });
}
