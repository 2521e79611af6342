//! Filters that find no room in the filters' memory: lookups read the block of a filter that they
//! need, and find the same.

use super::interleaved::Hooked;
use super::*;
use crate::entry::entry_of;
use crate::fd_tree::FilterMemory;
use strandline_base::RowId;

const KEYS: u64 = 3_000;

/// Levels of 4, 16, 64 blocks of 16 entries and so on, with filters.
fn settings() -> Settings {
    Settings {
        head_bytes: 200 * 40,
        head_blocks: 4,
        ratio: 4,
        block_entries_max: 16,
        batch_bytes: 1 << 12,
        filter_bits: 10,
        ..small(Mode::Fc)
    }
}

fn open(blocks: &Arc<Hooked>, memory: &Arc<FilterMemory>, pool_bytes: usize) -> FdTree {
    let tree = FdTree::open(settings(), blocks.clone(), Pool::new(pool_bytes)).unwrap();
    tree.with_filter_memory(memory.clone())
}

/// Adds even keys in an order like a random one.
fn fill(tree: &FdTree) -> BTreeSet<u64> {
    for number in 0..KEYS {
        tree.add(&key(2 * (number * 7919 % KEYS))).unwrap();
    }
    tree.compact().unwrap();
    (0..KEYS).map(|number| 2 * number).collect()
}

/// The reads of a lookup of each absent key between the others.
fn absent_reads(tree: &FdTree, blocks: &Hooked) -> usize {
    let absent = || (0..KEYS).for_each(|n| assert!(!tree.contains(&key(2 * n + 1)).unwrap()));
    blocks.reads(absent)
}

#[test]
fn filters_stay_within_their_memory_and_are_read_by_block_beyond() {
    let mut filter_bytes = 0;
    for limit in [usize::MAX, 0, 1_000] {
        for pool_bytes in [0, 1 << 20] {
            let what = format!("{limit} bytes, pool of {pool_bytes}");
            let (blocks, memory) = (Hooked::blocks(), Arc::new(FilterMemory::new(limit)));
            let mut tree = open(&blocks, &memory, pool_bytes);
            let model = fill(&tree);
            verify(&tree, &model, 2 * KEYS, &what);
            for is_opened in [false, true] {
                if is_opened {
                    tree.checkpoint().unwrap();
                    tree = open(&blocks, &memory, pool_bytes);
                }
                let (first, second) = (absent_reads(&tree, &blocks), absent_reads(&tree, &blocks));
                let levels = tree.levels().iter().filter(|(.., fences)| !fences).count();
                assert!(memory.taken() <= limit, "{what}");
                // One or two of 100 lookups are led into each level by its filter.
                let few = KEYS as usize / 8;
                match (limit, pool_bytes) {
                    (usize::MAX, _) | (_, 1..) => assert!(second < few, "{what}: {second}"),
                    _ => assert!(second <= levels * KEYS as usize + few, "{what}: {second}"),
                }
                let stored = tree.filter_blocks() as usize;
                if pool_bytes > 0 {
                    assert!(first <= second + stored + few, "{what}: {first}");
                }
                match limit {
                    usize::MAX => filter_bytes = memory.taken(),
                    _ => assert!(memory.taken() * 2 < filter_bytes, "{what}"),
                }
            }
            drop(tree);
            assert_eq!(memory.taken(), 0, "{what}: given back");
        }
    }
}

#[test]
fn memory_of_a_tree_that_goes_serves_the_next_lookups_of_another() {
    let memory = Arc::new(FilterMemory::new(5_000));
    let first = Hooked::blocks();
    let tree = open(&first, &memory, 0);
    fill(&tree);
    let taken = memory.taken();
    assert!(taken > 3_000, "{taken}");
    let second = Hooked::blocks();
    let other = open(&second, &memory, 0);
    fill(&other);
    let without = absent_reads(&other, &second);
    drop(tree);
    absent_reads(&other, &second);
    let with = absent_reads(&other, &second);
    assert!(with * 4 < without, "{with}, without memory {without}");
    assert!(memory.taken() <= memory.limit());
}

/// A load looks into the levels that stay by their filters.
#[test]
fn a_load_drops_what_levels_without_memory_have() {
    let (blocks, memory) = (Hooked::blocks(), Arc::new(FilterMemory::new(0)));
    let tree = open(&blocks, &memory, 1 << 16);
    let mut model = fill(&tree);
    let entries: Vec<[u8; 16]> = (KEYS - 300..KEYS + 300).map(key).collect();
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    let mut met = Vec::new();
    tree.load(&entries, Some(&mut met)).unwrap();
    model.extend(KEYS - 300..KEYS + 300);
    verify(&tree, &model, 2 * KEYS, "loaded");
    assert_eq!(memory.taken(), 0);
}

/// Damage of a block that is read by itself names the block.
#[test]
fn a_damaged_block_of_a_filter_fails_the_lookup_that_needs_it() {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let tree = FdTree::open(settings(), blocks.clone(), Pool::new(0)).unwrap();
    let tree = tree.with_filter_memory(Arc::new(FilterMemory::new(0)));
    fill(&tree);
    let bottom = tree.shared.state.lock().slots.last().unwrap().level.clone();
    let partitions = bottom.partitions();
    let whole = partitions.iter().find(|one| one.numbers.len() > 1).unwrap();
    let damaged = whole.numbers[0];
    let mut bytes = blocks.read(damaged).unwrap();
    bytes[60] ^= 1;
    blocks.write(&[(damaged, bytes)]).unwrap();
    let (mut failed, mut found) = (0, 0);
    for number in 0..KEYS {
        match tree.contains(&key(2 * number)) {
            Ok(is_there) => found += usize::from(is_there),
            Err(error) => {
                let place = format!("block {damaged} of index levels-00000007");
                assert!(error.to_string().contains(&place), "{error}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed + found, KEYS as usize);
    assert!(failed > 50 && failed < 400, "{failed}");
}

/// Filters of entries: an insertion under a key that others have reads nothing, as do removals of
/// absent entries. Filters of keys lead both into the levels.
#[test]
fn an_insertion_under_a_common_key_reads_nothing() {
    let entry = |number: u64| entry_of(&(number % 7).to_be_bytes(), RowId(number));
    for (filter_of, is_few) in [(FilterOf::Keys, false), (FilterOf::Entries, true)] {
        let blocks = Hooked::blocks();
        let settings = Settings {
            filter_of,
            ..settings()
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        for number in 0..KEYS {
            assert!(tree.add(&entry(2 * number)).unwrap());
        }
        tree.compact().unwrap();
        let rows_of = |number: u64| {
            let mut rows = 0;
            let each = |_: &[u8]| {
                rows += 1;
                true
            };
            tree.scan_key(&(number % 7).to_be_bytes(), each).unwrap();
            rows
        };
        let all: usize = (0..7).map(rows_of).sum();
        assert_eq!(all, KEYS as usize);
        let absent = |_: &[u8]| panic!("no row has this key");
        tree.scan_key(&7_u64.to_be_bytes(), absent).unwrap();
        let reads = blocks.reads(|| {
            for number in 0..100 {
                assert!(tree.add(&entry(2 * number + 1)).unwrap());
                assert!(!tree.remove(&entry(2 * (KEYS + number))).unwrap());
            }
        });
        assert_eq!(reads < 80, is_few, "{filter_of:?}: {reads} reads");
    }
}

/// Levels keep the form of the filters with which they were written, whatever the settings say.
#[test]
fn filters_of_both_forms_are_read_beside_one_another() {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let mut model = BTreeSet::new();
    let mut rng = Rng::new(9);
    let mut were_mixed = 0;
    for opening in 0..12 {
        let settings = Settings {
            filter_of: filter_of(2 * opening),
            ..settings()
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        for _ in 0..400 {
            let number = rng.below(2 * KEYS);
            match rng.one_in(3) {
                true => assert_eq!(tree.remove(&key(number)).unwrap(), model.remove(&number)),
                false => assert_eq!(tree.add(&key(number)).unwrap(), model.insert(number)),
            }
        }
        let slots = tree.shared.state.lock().slots.clone();
        let forms = slots.iter().map(|slot| slot.level.filters.of);
        let forms: Vec<FilterOf> = forms.collect();
        were_mixed += usize::from(forms.windows(2).any(|two| two[0] != two[1]));
        // More than are added one by one.
        let loaded: BTreeSet<u64> = (0..100).map(|_| rng.below(2 * KEYS)).collect();
        let entries: Vec<[u8; 16]> = loaded.iter().map(|number| key(*number)).collect();
        let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
        let mut met = Vec::new();
        let is_unique = rng.one_in(2);
        tree.load(&entries, is_unique.then_some(&mut met)).unwrap();
        assert!(met.is_empty(), "each key has one row: {met:?}");
        model.extend(loaded);
        verify(&tree, &model, 2 * KEYS, &format!("opening {opening}"));
        tree.checkpoint().unwrap();
    }
    assert!(were_mixed > 2, "{were_mixed} openings with both forms");
}

/// Blocks whose filters have another form are not kept: their level would take them for its own.
#[test]
fn blocks_with_filters_of_another_form_are_not_kept() {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let mut kept = [0; 2];
    for opening in 0..8 {
        let settings = Settings {
            filter_of: filter_of(2 * (opening / 2)),
            ..settings()
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        let numbers = 300 * opening..300 * (opening + 1);
        for number in numbers {
            tree.add(&key(number)).unwrap();
        }
        tree.compact().unwrap();
        check_whole(&tree, &format!("opening {opening}"));
        let slots = tree.shared.state.lock().slots.clone();
        kept[opening as usize % 2] += slots.iter().map(|slot| slot.level.kept()).sum::<u64>();
        tree.checkpoint().unwrap();
    }
    assert!(kept[1] > 0, "{kept:?}");
}
