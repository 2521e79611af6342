//! Loads beside entries of every kind, against a set.

use super::interleaved::Hooked;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::Result;

const KEYS: u64 = 40;

fn entry(number: u64, row: u64) -> [u8; 16] {
    (u128::from(number) << 64 | u128::from(row)).to_be_bytes()
}

fn number_of(entry: &[u8]) -> u64 {
    (u128::from_be_bytes(entry.try_into().unwrap()) >> 64) as u64
}

fn begin(tree: &FdTree, entries: &BTreeSet<[u8; 16]>, met: Option<&mut Vec<Vec<u8>>>) {
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.begin_load(&entries, met).unwrap();
}

fn equals(tree: &FdTree, model: &BTreeSet<[u8; 16]>, what: &str) {
    let mut found = Vec::new();
    let each = |entry: &[u8]| {
        found.push(<[u8; 16]>::try_from(entry).unwrap());
        true
    };
    tree.scan(&[], None, Direction::Forward, each).unwrap();
    assert!(found.iter().eq(model), "{what}");
    for number in 0..KEYS {
        let mut found = Vec::new();
        let each = |entry: &[u8]| {
            found.push(<[u8; 16]>::try_from(entry).unwrap());
            true
        };
        tree.scan_key(&number.to_be_bytes(), each).unwrap();
        let own = model.range(entry(number, 0)..=entry(number, u64::MAX));
        assert!(found.iter().eq(own), "{what}, key {number}");
        for row in 0..4 {
            let one = entry(number, row);
            let has = tree.contains(&one).unwrap();
            assert_eq!(has, model.contains(&one), "{what}, {number}, {row}");
        }
    }
    check_whole(tree, what);
}

/// The entries of a tree, and all that it has ever had.
#[derive(Default)]
struct Model {
    now: BTreeSet<[u8; 16]>,
    ever: BTreeSet<[u8; 16]>,
}

impl Model {
    /// A random change of a tree and of its model.
    fn change(&mut self, tree: &FdTree, rng: &mut Rng) {
        let one = entry(rng.below(KEYS), rng.below(4));
        match rng.below(10) < 6 {
            true => {
                assert_eq!(tree.add(&one).unwrap(), self.now.insert(one));
                self.ever.insert(one);
            }
            false => assert_eq!(tree.remove(&one).unwrap(), self.now.remove(&one)),
        }
    }
}

/// Whether a set has another entry of this entry's key.
fn has_other(set: &BTreeSet<[u8; 16]>, one: &[u8; 16]) -> bool {
    let number = number_of(one);
    let mut own = set.range(entry(number, 0)..=entry(number, u64::MAX));
    own.any(|other| other != one)
}

/// Entries that a load may meet: in the head, deleted in the head, in levels, deleted in a level
/// above another one, under the same key, in no level, pending; with and without filters. Writers
/// go on during the load's compaction, before and behind the wavefront.
#[test]
fn loads_beside_entries_of_every_kind() {
    // Entries of loads that were: absent, in the head, deleted in the head, in a level, deleted in
    // a level; and those met.
    let mut kinds = [0; 6];
    for seed in 0..32 {
        let mut rng = Rng::new(seed);
        let settings = Settings {
            filter_bits: [0, 10][seed as usize % 2],
            filter_of: filter_of(seed),
            head_bytes: 40 * 20 + 600 * (seed as usize % 3),
            ..small([Mode::Fc, Mode::Fc, Mode::FcTuple, Mode::Ds][rng.below(4) as usize])
        };
        let pool = Pool::new(4000 * (seed as usize % 2));
        let tree = FdTree::open(settings, Arc::new(MemoryBlocks::new(256)), pool).unwrap();
        let mut model = Model::default();
        for round in 0..5 {
            let what = format!("seed {seed}, round {round}");
            (0..rng.below(120)).for_each(|_| model.change(&tree, &mut rng));
            while tree.compact_step().unwrap() {}
            (0..rng.below(40)).for_each(|_| model.change(&tree, &mut rng));
            while tree.compact_step().unwrap() {}
            let (count, first) = (1 + rng.below(40), rng.below(KEYS));
            let near = 1 + count / 2;
            let entries = (0..count).map(|_| (rng.below(near), rng.below(4)));
            let entries = entries.map(|(number, row)| entry((first + number) % KEYS, row));
            let entries: BTreeSet<_> = entries.collect();
            for one in &entries {
                let in_head = tree.shared.state.lock().head.data.get(&one[..]).copied();
                let kind = match (in_head.map(|data| data.is_insert), model.now.contains(one)) {
                    (Some(true), _) => 1,
                    (Some(false), _) => 2,
                    (None, true) => 3,
                    (None, false) if model.ever.contains(one) => 4,
                    (None, false) => 0,
                };
                kinds[kind] += 1;
            }
            let pending = entries.first().copied().filter(|_| rng.one_in(3));
            if let Some(one) = pending {
                let is_new = tree.add_pending(&one).unwrap();
                assert_eq!(is_new, !model.now.contains(&one));
            }
            let mut met = rng.one_in(2).then(Vec::new);
            begin(&tree, &entries, met.as_mut());
            model.now.extend(&entries);
            model.ever.extend(&entries);
            if let Some(met) = met {
                let met = met.iter().map(|one| one[..].try_into().unwrap());
                let met: BTreeSet<[u8; 16]> = met.collect();
                let missed = entries.iter().filter(|one| has_other(&model.now, one));
                assert!(missed.clone().all(|one| met.contains(one)), "{what}");
                assert!(met.is_subset(&entries), "{what}");
                assert!(met.iter().all(|one| has_other(&model.ever, one)), "{what}");
                kinds[5] += met.len();
            }
            equals(&tree, &model.now, &what);
            while tree.is_compacting() {
                model.change(&tree, &mut rng);
                if rng.one_in(6) {
                    equals(&tree, &model.now, &what);
                }
                tree.compact_step().unwrap();
            }
            equals(&tree, &model.now, &what);
            pending.inspect(|one| tree.settle(one));
        }
        while tree.compact_step().unwrap() {}
        assert_eq!(tree.len(), model.now.len(), "seed {seed}");
    }
    assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
}

/// Blocks that count syncs, and the most blocks in use.
#[derive(Debug)]
struct Counted {
    blocks: MemoryBlocks,
    syncs: AtomicUsize,
    most: AtomicUsize,
}

impl LevelBlocks for Counted {
    strandline_storage::forward_blocks!(blocks: block_bytes read write free used set_used);
    strandline_storage::forward_blocks!(blocks: put_image image);

    fn allocate(&self, count: usize) -> Result<Vec<u64>> {
        let allocated = self.blocks.allocate(count);
        self.most.fetch_max(self.blocks.used(), Ordering::SeqCst);
        allocated
    }
    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.blocks.sync()
    }
}

/// A load into a tree of as many entries writes few batches, and takes no more space meanwhile than
/// its own blocks once more.
#[test]
fn a_load_has_few_batches() {
    let blocks = Arc::new(Counted {
        blocks: MemoryBlocks::new(256),
        syncs: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let settings = Settings {
        batch_bytes: 1 << 20,
        block_entries_max: 16,
        ..small(Mode::Fc)
    };
    let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
    let load = |from: u64| {
        let entries: Vec<_> = (0..2000).map(|number| key(2 * number + from)).collect();
        let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
        blocks.syncs.store(0, Ordering::SeqCst);
        tree.load(&entries, None).unwrap();
        blocks.syncs.load(Ordering::SeqCst)
    };
    assert_eq!(load(0), 1, "an empty tree is written in one batch");
    let own = blocks.used();
    assert!(own > 100, "{own} blocks");
    let syncs = load(1);
    assert!(syncs <= 4, "{syncs} batches");
    let most = blocks.most.load(Ordering::SeqCst);
    let after = tree.blocks();
    assert!(most <= after + own + 16, "{most} blocks, after it {after}");
    verify(&tree, &(0..4000).collect(), 4001, "two loads");
}

/// A load of few entries into a large tree reads nothing of the levels that stay: the filters tell
/// that its entries are new. If they are there, it reads a block of each level for each of them,
/// and without filters each block at most once.
#[test]
fn a_load_reads_few_blocks_of_levels_that_stay() {
    for filter_bits in [0, 10] {
        let blocks = Hooked::blocks();
        let settings = Settings {
            filter_bits,
            ..small(Mode::Fc)
        };
        let tree = FdTree::open(settings, blocks.clone(), Pool::new(0)).unwrap();
        for number in 0..1000 {
            tree.add(&key(2 * (number * 77 % 1000))).unwrap();
        }
        tree.compact().unwrap();
        let levels = tree.levels().len() as u64;
        let all = tree.blocks();
        let mut model: BTreeSet<u64> = (0..1000).map(|number| 2 * number).collect();
        let mut reads_of = |numbers: &[u64], is_unique: bool| {
            let entries = numbers.iter().map(|number| key(*number)).collect();
            let mut met = is_unique.then(Vec::new);
            let reads = blocks.reads(|| begin(&tree, &entries, met.as_mut()));
            while tree.compact_step().unwrap() {}
            model.extend(numbers);
            assert_eq!(met.map_or(0, |met| met.len()), 0, "no key twice");
            reads as u64
        };
        for is_unique in [false, true] {
            let few = (0..10).map(|number| 200 * number + 1 + 2 * u64::from(is_unique));
            let few: Vec<u64> = few.collect();
            let absent = reads_of(&few, is_unique);
            let present = reads_of(&few, is_unique);
            match filter_bits {
                0 => assert!(absent > 5 && present > 5, "{absent} {present}"),
                _ => assert!(absent <= 3 && present >= absent, "{absent} {present}"),
            }
            assert!(present <= 2 * levels * 10, "{present} reads");
        }
        let many: Vec<u64> = (0..2000).map(|number| number % 1999).collect();
        let reads = reads_of(&many, false);
        assert!(reads <= all as u64, "{reads} reads of {all} blocks");
        verify(&tree, &model, 2000, "after loads");
    }
}

/// Entries unlike the others make the tables of a level larger, so that it may outgrow the number
/// that its compaction has planned. It is a sound level, during the compaction as well, and has a
/// greater number afterwards.
#[test]
fn a_level_may_outgrow_its_planned_number() {
    let settings = Settings {
        head_bytes: 24_000,
        head_blocks: 4,
        block_entries_max: 200,
        ..small(Mode::Fc)
    };
    let tree = FdTree::open(settings, Arc::new(MemoryBlocks::new(256)), Pool::new(0)).unwrap();
    let dense = |number: u64| (u128::from(number) << 64 | u128::from(number)).to_be_bytes();
    let entries: Vec<[u8; 16]> = (0..5_000).map(dense).collect();
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
    let mut rng = Rng::new(4);
    let mut outgrown = 0;
    let mut wide = 0;
    for _ in 0..600 {
        let row = u128::from(rng.next_u64());
        let entry = (u128::from(rng.below(5_000)) << 64 | row | 1 << 63).to_be_bytes();
        wide += usize::from(tree.add(&entry).unwrap());
        tree.compact_step().unwrap();
        check_whole(&tree, "scattered entries");
        let state = tree.shared.state.lock();
        let new = state.old.as_ref().map_or(0, |old| old.new_levels);
        let written = state.slots.iter().take(new);
        let is_too_large =
            |slot: &&crate::fd_tree::state::Slot| !settings.holds(slot.number, slot.blocks());
        outgrown += written.filter(is_too_large).count();
    }
    while tree.compact_step().unwrap() {}
    check_whole(&tree, "the end");
    assert_eq!(tree.len(), 5_000 + wide);
    assert!(outgrown > 0, "no level was too large");
}
