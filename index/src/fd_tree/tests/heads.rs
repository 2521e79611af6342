//! Heads that share memory: they grow before they cause compactions, and give back.

use super::*;
use crate::fd_tree::HeadMemory;

fn tree(memory: &Arc<HeadMemory>) -> FdTree {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let tree = FdTree::open(small(Mode::Fc), blocks, Pool::new(0)).unwrap();
    tree.with_head_memory(memory.clone())
}

fn begun(tree: &FdTree) -> u64 {
    tree.shared.state.lock().begun
}

#[test]
fn a_full_head_grows_in_place_of_a_compaction() {
    let memory = Arc::new(HeadMemory::new(800, 6400, 1 << 20));
    let tree = tree(&memory);
    assert_eq!(tree.head_budget(), 800);
    let mut numbers = 0..;
    while begun(&tree) == 0 {
        tree.add(&key(numbers.next().unwrap())).unwrap();
    }
    // Half of the largest budget, less the reserve for fences, is full: entries of 40 bytes.
    assert_eq!(tree.head_budget(), 6400);
    assert!((60..=80).contains(&numbers.start), "{}", numbers.start);
    let model: BTreeSet<u64> = (0..numbers.start).collect();
    verify(&tree, &model, numbers.start + 1, "grown");
}

#[test]
fn an_idle_head_gives_back_what_a_busy_one_takes() {
    let memory = Arc::new(HeadMemory::new(800, 6400, 2 * 64 * 800));
    let (first, second) = (tree(&memory), tree(&memory));
    for number in 0..100 {
        first.add(&key(number)).unwrap();
    }
    let grown = first.head_budget();
    assert!(grown > 800 && begun(&first) > 0, "{grown}");
    assert_eq!(memory.taken(), grown + 800);
    // It was busy since the last call; then it has only fences.
    first.shrink_head();
    assert_eq!(first.head_budget(), grown);
    first.compact().unwrap();
    first.shrink_head();
    for _ in 0..10 {
        first.shrink_head();
    }
    let kept = first.head_budget();
    assert!(kept <= grown / 2, "{kept} of {grown}");
    assert_eq!(memory.taken(), kept + 800);
    for number in 0..100 {
        second.add(&key(number)).unwrap();
    }
    assert_eq!(second.head_budget(), grown);
    verify(&first, &(0..100).collect(), 101, "shrunk");
    verify(&second, &(0..100).collect(), 101, "grown");
    drop(second);
    assert_eq!(memory.taken(), kept);
}

/// A small load fits into what the head grows to: it costs no compaction.
#[test]
fn a_small_load_lets_the_head_grow() {
    let memory = Arc::new(HeadMemory::new(800, 64 << 10, 1 << 20));
    let tree = tree(&memory);
    let entries: Vec<[u8; 16]> = (0..100).map(key).collect();
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
    assert_eq!((begun(&tree), tree.levels().len()), (0, 0));
    assert!(tree.head_budget() > 800);
    verify(&tree, &(0..100).collect(), 101, "loaded");
}

/// Entries stay right while heads grow and shrink at random moments.
#[test]
fn trees_with_changing_heads_agree_with_a_set() {
    for seed in 1..6 {
        let mut rng = Rng::new(seed);
        let memory = Arc::new(HeadMemory::new(400, 3200, 8 << 10));
        let trees = [(); 3].map(|()| (tree(&memory), BTreeSet::new()));
        let mut trees = Vec::from(trees);
        for _ in 0..3_000 {
            let at = rng.below(3) as usize;
            let (tree, model) = &mut trees[at];
            let number = rng.below(300);
            match rng.below(20) {
                0 => tree.shrink_head(),
                1 => drop(tree.compact_step().unwrap()),
                2..8 => assert_eq!(tree.remove(&key(number)).unwrap(), model.remove(&number)),
                _ => assert_eq!(tree.add(&key(number)).unwrap(), model.insert(number)),
            }
        }
        let budgets: usize = trees.iter().map(|(tree, _)| tree.head_budget()).sum();
        assert_eq!(memory.taken(), budgets);
        for (tree, model) in &trees {
            verify(tree, model, 300, "changing");
        }
    }
}
