//! Crashes and openings: at every write, and between any two steps of a compaction.

use super::*;
use strandline_storage::level_blocks::FileBlocks;

/// Opens the tree of a device; small blocks in files, with filters.
fn open(device: &dyn strandline_device::Device, mode: Mode) -> strandline_base::Result<FdTree> {
    let blocks = FileBlocks::open(device, "tree", 256)?;
    let settings = Settings {
        filter_bits: 10,
        ..small(mode)
    };
    FdTree::open(settings, Arc::new(blocks), Pool::new(0))
}

/// The changes of one seed: number and whether it is added.
fn changes(seed: u64) -> Vec<(u64, bool)> {
    let mut rng = Rng::new(seed);
    let change = |_| (rng.below(120), rng.below(10) < 7);
    (0..60).map(change).collect()
}

/// Crashes at every operation of a run with its compactions; afterwards the log's changes are
/// replayed over the newest image, and the tree equals the model and goes on.
#[test]
fn survives_a_crash_at_every_write() {
    for mode in [Mode::Fc, Mode::Ds] {
        let run = |tree: &FdTree, changes: &[(u64, bool)]| -> strandline_base::Result<()> {
            for (number, is_add) in changes {
                match is_add {
                    true => tree.add(&key(*number))?,
                    false => tree.remove(&key(*number))?,
                };
                tree.compact_step()?;
            }
            Ok(())
        };
        let log = changes(3);
        let whole = strandline_sim::SimDisk::new(1);
        run(&open(&*whole.device(), mode).unwrap(), &log).unwrap();
        let mut resumed = 0;
        for operation in 0..whole.operations() {
            {
                let outcome = operation % 3;
                let disk = strandline_sim::SimDisk::new(1);
                disk.crash_at(operation);
                let crashed = open(&*disk.device(), mode).and_then(|tree| run(&tree, &log));
                assert!(crashed.is_err() || !disk.has_crashed());
                let disk = disk.after_crash(outcome);
                let tree = open(&*disk.device(), mode).unwrap();
                resumed += usize::from(tree.is_compacting());
                let mut model = BTreeSet::new();
                for (number, is_add) in &log {
                    match is_add {
                        true => {
                            model.insert(*number);
                            tree.add(&key(*number)).unwrap();
                        }
                        false => {
                            model.remove(number);
                            tree.remove(&key(*number)).unwrap();
                        }
                    }
                }
                let what = format!("{mode:?}, operation {operation}, outcome {outcome}");
                verify(&tree, &model, 120, &what);
                tree.compact().unwrap();
                verify(&tree, &model, 120, &what);
            }
        }
        assert!(mode == Mode::Ds || resumed > 0, "a compaction was resumed");
    }
}

/// A pending entry is found, but is in no image until it is settled.
#[test]
fn pending_entries_stay_in_the_head() {
    let disk = strandline_sim::SimDisk::new(1);
    let tree = open(&*disk.device(), Mode::Fc).unwrap();
    assert!(tree.add_pending(&key(50)).unwrap() && tree.add_pending(&key(51)).unwrap());
    for number in 0..40 {
        tree.add(&key(number)).unwrap();
    }
    tree.compact().unwrap();
    tree.settle(&key(51));
    tree.checkpoint().unwrap();
    assert!(tree.contains(&key(50)).unwrap());
    let again = open(&*disk.after_crash(0).device(), Mode::Fc).unwrap();
    assert!(!again.contains(&key(50)).unwrap());
    assert!(again.contains(&key(51)).unwrap());
    assert_eq!(again.len(), 41);
}

/// A compaction that leaves levels below it is opened anew after each of its steps. The lookups
/// behind the wavefront need the pointer, and the new blocks the last fence.
#[test]
fn is_resumed_between_any_two_steps() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let blocks = Arc::new(MemoryBlocks::new(256));
        let settings = Settings {
            batch_bytes: 256,
            filter_bits: 10 * (seed as usize % 2),
            filter_of: filter_of(seed),
            ..small(Mode::Fc)
        };
        let mut tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        let mut model = BTreeSet::new();
        let (mut partial, mut resumed) = (0, 0);
        for step in 0..500 {
            let number = rng.below(2000);
            match rng.one_in(4) && !model.is_empty() {
                true => {
                    let first = *model.range(number..).next().unwrap_or(&number);
                    assert_eq!(tree.remove(&key(first)).unwrap(), model.remove(&first));
                }
                false => assert_eq!(tree.add(&key(number)).unwrap(), model.insert(number)),
            }
            let goes_on = tree.compact_step().unwrap();
            if goes_on && step > 300 {
                let state = tree.shared.state.lock();
                let old = state.old.as_ref();
                partial += usize::from(old.is_some_and(|old| old.new_levels < state.slots.len()));
                resumed += usize::from(old.is_some());
                drop(state);
                tree.checkpoint().unwrap();
                tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
                let what = format!("seed {seed}, step {step}");
                check_whole(&tree, &what);
                if rng.one_in(8) {
                    verify(&tree, &model, 2000, &what);
                }
            }
        }
        tree.compact().unwrap();
        verify(&tree, &model, 2000, "the end");
        tree.checkpoint().unwrap();
        let levels: u64 = tree.levels().iter().map(|(_, blocks, _)| blocks).sum();
        assert_eq!(
            tree.blocks() as u64,
            levels + tree.filter_blocks(),
            "no block is lost"
        );
        assert!(
            resumed > 20 && partial > 5,
            "{resumed} resumed, {partial} partial"
        );
    }
}
