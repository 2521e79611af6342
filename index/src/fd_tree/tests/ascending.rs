//! Keys that come in order: compactions keep blocks (RFC 3, "Kept blocks").

use super::interleaved::Hooked;
use super::*;
use crate::entry::EntryRange;
use crate::fd_tree::level::Level;
use std::ops::Range;
use strandline_storage::level_blocks::FileBlocks;

/// The target of the compaction under way, or the lowest level.
fn target(tree: &FdTree) -> Option<Arc<Level>> {
    let state = tree.shared.state.lock();
    let levels = state
        .old
        .as_ref()
        .map_or(state.slots.len(), |old| old.new_levels);
    let slot = state.slots.get(levels.checked_sub(1)?)?;
    Some(slot.level.clone())
}

fn kept(tree: &FdTree) -> u64 {
    target(tree).map_or(0, |level| level.kept())
}

/// No block is lost, and none is in two lists.
fn check_blocks(tree: &FdTree, what: &str) {
    tree.checkpoint().unwrap();
    let blocks: u64 = tree.levels().iter().map(|(_, blocks, _)| blocks).sum();
    let blocks = blocks + tree.filter_blocks();
    assert_eq!(tree.blocks() as u64, blocks, "{what}: no block is lost");
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    /// up to 12 places from its own
    Nearly,
    /// one of 16 is anywhere
    Mixed,
}

impl Order {
    fn number(self, rng: &mut Rng, at: u64) -> u64 {
        match self {
            Self::Ascending => at,
            Self::Nearly => (at + rng.below(24)).saturating_sub(12),
            Self::Mixed if rng.one_in(16) => rng.below(at + 1),
            Self::Mixed => at,
        }
    }
}

/// A tree beside a set, with all invariants after each step. Returns how many steps had kept blocks
/// while a compaction replaced one level, and while it replaced several.
fn run_ascending(order: Order, mode: Mode, seed: u64) -> [usize; 2] {
    let mut rng = Rng::new(seed);
    let mut settings = Settings {
        filter_bits: 10 * (seed as usize % 2),
        ..small(mode)
    };
    let blocks = Arc::new(MemoryBlocks::new(256));
    let pool = || Pool::new(4000 * seed as usize);
    let mut tree = FdTree::open(settings, blocks.clone(), pool()).unwrap();
    let mut model = BTreeSet::new();
    let mut keeping = [0; 2];
    let keys = 200;
    for at in 0..keys {
        let what = format!("{order:?}, {mode:?}, seed {seed}, step {at}");
        let number = order.number(&mut rng, at);
        let is_new = tree.add(&key(number)).unwrap();
        assert_eq!(is_new, model.insert(number), "{what}");
        if rng.one_in(12) {
            let number = order.number(&mut rng, at);
            let was = tree.remove(&key(number)).unwrap();
            assert_eq!(was, model.remove(&number), "{what}");
        }
        for _ in 0..rng.below(3) {
            tree.compact_step().unwrap();
            check_whole(&tree, &what);
            let replaced = tree
                .shared
                .state
                .lock()
                .old
                .as_ref()
                .map(|old| old.slots.len());
            if let (Some(replaced @ 1..), 1..) = (replaced, kept(&tree)) {
                keeping[usize::from(replaced > 1)] += 1;
            }
        }
        check_whole(&tree, &what);
        if rng.one_in(40) {
            tree.checkpoint().unwrap();
            if seed == 2 {
                settings.filter_bits = 10 * rng.below(2) as usize;
                settings.filter_of = filter_of(2 * rng.below(2));
            }
            tree = FdTree::open(settings, blocks.clone(), pool()).unwrap();
            check_whole(&tree, &what);
        }
        if at % 53 == 0 {
            verify(&tree, &model, keys + 12, &what);
        }
    }
    tree.compact().unwrap();
    verify(&tree, &model, keys + 12, "the end");
    check_blocks(&tree, "the end");
    keeping
}

#[test]
fn ascending_keys_equal_a_set_in_every_mode() {
    let modes = [
        Mode::Xm,
        Mode::Fc,
        Mode::Ds,
        Mode::FcNoSharing,
        Mode::FcTuple,
    ];
    for order in [Order::Ascending, Order::Nearly, Order::Mixed] {
        for mode in modes {
            let mut keeping = [0; 2];
            for seed in 0..3 {
                let seen = run_ascending(order, mode, seed);
                keeping = [keeping[0] + seen[0], keeping[1] + seen[1]];
            }
            let is_seen = match mode {
                // Its compactions are one step.
                Mode::Xm => continue,
                Mode::Ds => keeping == [0; 2],
                // Entries that are out of order by more than a level's size keep none of it.
                _ if !matches!(order, Order::Ascending) => keeping.iter().sum::<usize>() > 20,
                _ => keeping.iter().all(|steps| *steps > 3),
            };
            assert!(is_seen, "{order:?}, {mode:?}: {keeping:?}");
        }
    }
}

/// Blocks of 16 entries, levels of 4, 16, 64 blocks and so on.
fn wide() -> Settings {
    Settings {
        head_bytes: 200 * 40,
        head_blocks: 4,
        ratio: 4,
        block_entries_max: 16,
        batch_bytes: 1 << 20,
        filter_bits: 10,
        ..small(Mode::Fc)
    }
}

/// The blocks that are written to add these keys, and the tree.
fn written(numbers: impl Iterator<Item = u64>) -> (u64, Arc<Hooked>, FdTree) {
    let blocks = Hooked::blocks();
    let tree = FdTree::open(wide(), blocks.clone(), Pool::new(1 << 20)).unwrap();
    for number in numbers {
        tree.add(&key(number)).unwrap();
    }
    tree.compact().unwrap();
    check_whole(&tree, "after all keys");
    check_blocks(&tree, "after all keys");
    (blocks.written(), blocks, tree)
}

/// Each level writes a block of ascending keys about once. What is kept stays where it is.
#[test]
fn ascending_keys_write_each_block_of_a_level_once() {
    let (ascending, _, tree) = written(0..10_000);
    let levels = tree.levels();
    let blocks: u64 = levels.iter().map(|(_, blocks, _)| blocks).sum();
    let height = u64::from(levels.last().unwrap().0);
    let (random, ..) = written((0..10_000).map(|at| at * 7919 % 10_007));
    println!("10,000 keys in {blocks} blocks: {ascending} written in order, {random} at random");
    assert!(height >= 4, "{levels:?}");
    assert!(
        ascending < height * blocks && 2 * ascending < random,
        "{ascending} blocks for {levels:?}, {random} at random"
    );
    let numbers = |level: &Level| {
        let numbers = (0..level.end()).map(|at| level.number(at));
        numbers.collect::<Vec<_>>()
    };
    let bottom = target(&tree).unwrap();
    let before = numbers(&bottom);
    let mut next = 10_000..;
    while tree.is_compacting() || target(&tree).unwrap().run == bottom.run {
        tree.add(&key(next.next().unwrap())).unwrap();
    }
    let after = numbers(&target(&tree).unwrap());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b);
    let (same, kept) = (same.count(), kept(&tree) as usize);
    assert!(kept == same && kept + 2 > before.len(), "{same}, {kept}");
}

/// Entries a few places from their order make a compaction go back by as much.
#[test]
fn nearly_ascending_keys_write_little_more() {
    let (ascending, ..) = written(0..10_000);
    let (nearly, ..) = written((0..10_000).map(|at| at ^ 31));
    let (random, ..) = written((0..10_000).map(|at| at * 7919 % 10_007));
    assert!(
        nearly < 2 * ascending && 2 * nearly < random,
        "{nearly}, in order {ascending}, at random {random}"
    );
}

/// A batch behind all entries is written once, and nothing else but the levels of fences.
#[test]
fn a_load_behind_the_end_keeps_all_before() {
    let (_, blocks, tree) = written(0..5000);
    let before = blocks.written();
    let entries: Vec<[u8; 16]> = (5000..7000).map(key).collect();
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
    let own = 2000_u64.div_ceil(12);
    let more = blocks.written() - before;
    assert!(
        kept(&tree) > 100 && more < own + 60,
        "{more} blocks for {own}, kept {}",
        kept(&tree)
    );
    verify(&tree, &(0..7000).collect(), 7050, "loaded");
    check_blocks(&tree, "loaded");
}

/// An opened tree knows its absent keys by the filters that were kept, and those beside a
/// compaction by one that is lent.
#[test]
fn kept_filters_come_back_after_an_opening() {
    let (_, blocks, tree) = written((0..4000).map(|at| 2 * at));
    drop(tree);
    let tree = FdTree::open(wide(), blocks.clone(), Pool::new(0)).unwrap();
    assert!(kept(&tree) > 100);
    let absent = || (0..4000).for_each(|n| assert!(!tree.contains(&key(2 * n + 1)).unwrap()));
    let (first, second) = (blocks.reads(absent), blocks.reads(absent));
    assert!(second < 200, "{second} reads of blocks of entries");
    assert!(
        first <= second + tree.filter_blocks() as usize,
        "{first}, {second}"
    );
    // The wavefront of ascending keys stands before all that are added.
    let mut beside = 0;
    let mut reads = 0;
    for number in 4000..4600 {
        if tree.is_compacting() && kept(&tree) > 0 {
            let contains = || assert!(!tree.contains(&key(2 * number)).unwrap());
            (beside, reads) = (beside + 1, reads + blocks.reads(contains));
        }
        tree.add(&key(2 * number)).unwrap();
    }
    assert!(
        beside > 20 && reads * 10 < beside,
        "{reads} reads of {beside} lookups"
    );
    let model = (0..4600).map(|at| 2 * at).collect();
    verify(&tree, &model, 9300, "after the opening");
}

/// Opens the tree of a device; small blocks in files, with filters.
fn open(device: &dyn strandline_device::Device) -> strandline_base::Result<FdTree> {
    let blocks = FileBlocks::open(device, "tree", 256)?;
    let settings = Settings {
        filter_bits: 10,
        batch_bytes: 256,
        ..small(Mode::Fc)
    };
    FdTree::open(settings, Arc::new(blocks), Pool::new(0))
}

/// Adds keys in order; each tenth is removed again.
fn add_in_order(tree: &FdTree, keys: Range<u64>) -> strandline_base::Result<()> {
    for number in keys {
        tree.add(&key(number))?;
        if number % 10 == 9 {
            tree.remove(&key(number - 3))?;
        }
        tree.compact_step()?;
    }
    Ok(())
}

/// A crash at every operation with kept blocks, and a second one soon after the opening.
#[test]
fn kept_blocks_survive_two_crashes_in_a_row() {
    let keys = 0..90;
    let model: BTreeSet<u64> = keys.clone().filter(|number| number % 10 != 6).collect();
    let run = |tree: &FdTree| add_in_order(tree, keys.clone());
    let whole = strandline_sim::SimDisk::new(1);
    let tree = open(&*whole.device()).unwrap();
    run(&tree).unwrap();
    assert!(kept(&tree) > 4);
    let mut resumed = 0;
    for operation in 0..whole.operations() {
        let mut disk = strandline_sim::SimDisk::new(1);
        disk.crash_at(operation);
        for crash in 0..2 {
            let crashed = open(&*disk.device()).and_then(|tree| run(&tree));
            assert!(crashed.is_err() || !disk.has_crashed());
            disk = disk.after_crash((operation + crash) % 3);
            // The second crash: within the steps that go on with the compaction.
            disk.crash_at(disk.operations() + operation % 17);
        }
        let disk = disk.after_crash(operation % 3);
        let tree = open(&*disk.device()).unwrap();
        let what = format!("operation {operation}");
        check_whole(&tree, &what);
        resumed += usize::from(tree.is_compacting() && kept(&tree) > 0);
        run(&tree).unwrap();
        verify(&tree, &model, 100, &what);
        tree.compact().unwrap();
        verify(&tree, &model, 100, &what);
        check_blocks(&tree, &what);
    }
    assert!(resumed > 10, "{resumed} were resumed with kept blocks");
}

/// If all of the block with which the merge begins is removed, the target has kept blocks only. It
/// goes on with a block of its own or ends with them, also after an opening between any two steps.
#[test]
fn a_target_may_have_kept_blocks_only() {
    let mut seen = 0;
    for last in 20..90_u64 {
        let blocks = Arc::new(MemoryBlocks::new(256));
        let settings = Settings {
            filter_bits: 10,
            head_bytes: 4000,
            head_blocks: 16,
            batch_bytes: 256,
            ..small(Mode::Fc)
        };
        let open = || FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        let mut tree = open();
        let mut model: BTreeSet<u64> = (0..90).collect();
        model
            .iter()
            .for_each(|number| assert!(tree.add(&key(*number)).unwrap()));
        tree.compact().unwrap();
        for number in last..90 {
            assert!(tree.remove(&key(number)).unwrap() && model.remove(&number));
        }
        for number in (100..120).take(last as usize % 3 * 4) {
            assert!(tree.add(&key(number)).unwrap() && model.insert(number));
        }
        let mut is_forced = false;
        loop {
            let goes_on = match std::mem::replace(&mut is_forced, true) {
                false => tree.step(true).unwrap(),
                true => tree.compact_step().unwrap(),
            };
            if !goes_on {
                break;
            }
            let what = format!("{last} keys are left");
            check_whole(&tree, &what);
            if kept(&tree) == 0 || last % 8 >= 4 {
                continue;
            }
            tree.checkpoint().unwrap();
            tree = open();
            check_whole(&tree, &what);
            let level = target(&tree).unwrap();
            let has_own = level.kept() < level.end();
            seen += usize::from(tree.is_compacting() && level.kept() > 0 && !has_own);
        }
        verify(&tree, &model, 130, "after the removals");
        check_blocks(&tree, "after the removals");
    }
    assert!(seen > 3, "{seen} openings with kept blocks only");
}

/// Pending entries before the kept blocks' end move to the new head.
#[test]
fn pending_entries_among_kept_blocks_stay() {
    let (_, _, tree) = written((0..1000).map(|at| 2 * at));
    for number in [1, 501, 1501] {
        assert!(tree.add_pending(&key(number)).unwrap());
    }
    let mut most = 0;
    for number in 1000..1200 {
        tree.add(&key(2 * number)).unwrap();
        most = most.max(kept(&tree));
        check_whole(&tree, "beside pending entries");
    }
    tree.compact().unwrap();
    assert!(most > 10, "{most} blocks are kept");
    assert!(
        [1, 501, 1501]
            .iter()
            .all(|number| tree.contains(&key(*number)).unwrap())
    );
    assert_eq!(tree.len(), 1203);
}

/// Between any two steps of a cursor compactions keep blocks; it finds all that was there.
#[test]
fn a_cursor_beside_kept_blocks_misses_nothing() {
    for direction in [Direction::Forward, Direction::Backward] {
        let blocks = Arc::new(MemoryBlocks::new(256));
        let tree = FdTree::open(small(Mode::Fc), blocks, Pool::new(0)).unwrap();
        let mut next = 0..;
        let mut add = |count| {
            for number in next.by_ref().take(count) {
                tree.add(&key(number)).unwrap();
            }
        };
        add(200);
        let range = EntryRange {
            from: Box::default(),
            before: None,
        };
        let mut cursor = tree.entries(&range, direction);
        let mut found = Vec::new();
        let mut keeping = 0;
        while let Some(entry) = cursor.next().unwrap() {
            let number = (u128::from_be_bytes((*entry).try_into().unwrap()) >> 64) as u64;
            found.extend((number < 200).then_some(number));
            if found.len() < 200 {
                add(1);
            }
            tree.compact_step().unwrap();
            keeping += usize::from(tree.is_compacting() && kept(&tree) > 0);
        }
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(found.into_iter().eq(0..200), "{direction:?}");
        assert!(keeping > 20, "{keeping} steps with kept blocks");
    }
}

/// Between any two block reads of a lookup or cursor whole compactions keep blocks.
#[test]
fn a_reader_may_pause_while_blocks_are_kept() {
    let (blocks, tree) = Hooked::tree(Mode::Fc);
    for number in 0..200 {
        tree.add(&key(number)).unwrap();
    }
    let mut next = 1000;
    let mut paused = 0;
    for reads in 0..40 {
        for direction in [Direction::Forward, Direction::Backward] {
            blocks.disturb_from(reads, next);
            let mut found = all(&tree, direction);
            found.retain(|number| *number < 200);
            if direction == Direction::Backward {
                found.reverse();
            }
            assert!(found.into_iter().eq(0..200), "{reads} reads, {direction:?}");
            paused += usize::from(blocks.was_disturbed());
            next += 20;
        }
        blocks.disturb_from(reads % 6, next);
        assert!(tree.contains(&key(5 * reads as u64)).unwrap());
        paused += usize::from(blocks.was_disturbed());
        next += 20;
    }
    assert!(paused > 60, "{paused} readers were paused");
    assert!(kept(&tree) > 40);
    check_whole(&tree, "after the readers");
    check_blocks(&tree, "after the readers");
}
