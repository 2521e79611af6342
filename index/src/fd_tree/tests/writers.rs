//! What writers wait for, in blocks of work that they see done (D1 to D6 of the RFC).

use super::interleaved::Hooked;
use super::*;
use crate::fd_tree::budget::{Claim, Verdict, goal};
use crate::fd_tree::drive::Use;
use std::sync::atomic::Ordering;

/// Blocks that a step reads or writes at most: one of each level, or a batch of the settings below.
const STEP_BLOCKS: u64 = 16;

fn paced(mode: Mode) -> Settings {
    Settings {
        mode,
        head_bytes: 8000,
        head_blocks: 8,
        ratio: 2,
        block_entries_max: 16,
        batch_bytes: 8 * 256,
        ..small(mode)
    }
}

/// A tree of these entries, and none of them in the head.
fn loaded(mode: Mode, numbers: impl Iterator<Item = u64>) -> FdTree {
    let blocks = Arc::new(MemoryBlocks::new(256));
    let tree = FdTree::open(paced(mode), blocks, Pool::new(0)).unwrap();
    let entries: Vec<[u8; 16]> = numbers.map(key).collect();
    let entries: Vec<&[u8]> = entries.iter().map(|entry| &entry[..]).collect();
    tree.load(&entries, None).unwrap();
    tree
}

/// The compaction under way: its number, work done and left.
fn progress(tree: &FdTree) -> (u64, u64, u64) {
    let state = tree.shared.state.lock();
    let work = state.old.as_ref().map(|old| old.work).unwrap_or_default();
    (state.begun, work.done, work.left)
}

/// The work that `write` waits for, and all work of the compaction that it does most of.
fn waited(tree: &FdTree, write: impl FnOnce()) -> (u64, u64) {
    let (begun, done, left) = progress(tree);
    write();
    let (begun_now, done_now, left_now) = progress(tree);
    let is_same = begun_now == begun && left_now > 0;
    let paid = if is_same {
        done_now - done
    } else {
        left + done_now
    };
    (paid, (done + left).max(done_now + left_now))
}

/// The longest wait of 1200 writes to a tree of 4000 entries, the work of the longest compaction,
/// and how many writes have waited for a whole one.
fn worst_wait(mode: Mode, number_of: impl Fn(u64) -> u64) -> (u64, u64, usize) {
    let tree = loaded(mode, (0..4000).map(|number| 2 * number));
    let (mut worst, mut whole, mut whole_waits) = (0, 0, 0);
    for at in 0..1200 {
        let begun = progress(&tree).0;
        let (paid, total) = waited(&tree, || {
            assert!(tree.add(&key(number_of(at))).unwrap());
        });
        worst = worst.max(paid);
        whole = whole.max(total);
        let state = tree.shared.state.lock();
        whole_waits += usize::from(state.begun > begun && state.old.is_none());
        if mode == Mode::Fc && state.old.is_some() {
            let goal = goal(&state);
            let new = state.head.data_bytes();
            assert!(new <= goal + 64, "write {at}: {new} bytes, goal {goal}");
        }
    }
    check_whole(&tree, "after the writes");
    assert!(tree.shared.state.lock().begun > 4, "several compactions");
    (worst, whole, whole_waits)
}

/// A writer waits for its share of a compaction, whatever the order of keys, and without a thread
/// that compacts (D4). In mode `Ds` one waits for a whole compaction.
#[test]
fn a_writer_waits_for_its_share() {
    let orders: [fn(u64) -> u64; 3] = [
        |at| 2 * (at * 1237 % 4001) + 1,
        |at| 8000 + at,
        |at| 7999 - 2 * at,
    ];
    for number_of in orders {
        let (worst, whole, whole_waits) = worst_wait(Mode::Fc, number_of);
        // An entry takes 40 of about 3000 bytes.
        let share = (whole * 40).div_ceil(3000);
        assert!(worst <= 4 * share + STEP_BLOCKS, "{worst} of {whole}");
        assert!(worst * 8 < whole, "{worst} of {whole}");
        assert_eq!(whole_waits, 0);
        assert!(worst_wait(Mode::Ds, number_of).2 > 4, "the test sees waits");
    }
}

/// Beside a turn that does no steps, writers with room go on (D5). Of the debt that they leave each
/// later writer pays a few shares, until it is paid (D4).
#[test]
fn a_debt_is_paid_by_several_writers() {
    let tree = loaded(Mode::Fc, (0..4000).map(|number| 2 * number));
    let mut number = 1;
    // Up to the begin of a compaction of most of the tree.
    while progress(&tree).1 + progress(&tree).2 < 300 {
        tree.add(&key(number)).unwrap();
        number += 2;
    }
    let mut add = || {
        let (paid, whole) = waited(&tree, || assert!(tree.add(&key(number)).unwrap()));
        number += 2;
        (paid, whole)
    };
    let turn = tree.drive.take(&tree.shared, Use::Hold);
    for _ in 0..20 {
        assert_eq!(add().0, 0, "nobody drives");
    }
    drop(turn);
    let (mut writers, mut all) = (0, 0);
    loop {
        let (paid, whole) = add();
        let share = (whole * 40).div_ceil(3000);
        assert!(paid <= 4 * share + STEP_BLOCKS, "{paid} of {whole}");
        (writers, all) = (writers + 1, all + paid);
        let state = tree.shared.state.lock();
        let Some(old) = &state.old else { break };
        let goal = goal(&state) as u64;
        let new = state.head.data_bytes() as u64;
        if old.work.done * goal >= new * old.work.total() {
            break;
        }
    }
    assert!(writers > 2 && all > 100, "{writers} writers paid {all}");
    check_whole(&tree, "after the debt");
}

/// A writer that has room waits behind one that has none (D2), and both are admitted when steps go
/// on (D3).
#[test]
fn writers_are_admitted_in_order() {
    let tree = loaded(Mode::Fc, (0..4000).map(|number| 2 * number));
    let mut number = 1;
    while !tree.is_compacting() {
        tree.add(&key(number)).unwrap();
        number += 2;
    }
    let turn = tree.drive.take(&tree.shared, Use::Hold);
    let long = [7; 190];
    let has_room = |bytes| {
        let state = tree.shared.state.lock();
        let claim = Claim::new(&tree.shared.settings, &state, bytes);
        claim.verdict(&tree.shared.settings, &state, false) == Verdict::Admitted
    };
    while has_room(long.len()) {
        tree.add(&key(number)).unwrap();
        number += 2;
    }
    assert!(has_room(16));
    let await_in_line = |writers, is_finished: &dyn Fn() -> bool| {
        while tree.drive.waiting() < writers {
            assert!(!is_finished(), "it does not wait");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| tree.add(&long).unwrap());
        await_in_line(1, &|| first.is_finished());
        let second = scope.spawn(|| tree.add(&key(number)).unwrap());
        await_in_line(2, &|| second.is_finished());
        drop(turn);
        assert!(first.join().unwrap() && second.join().unwrap());
    });
    assert_eq!(tree.drive.waiting(), 0);
    check_whole(&tree, "after both");
}

/// The error of a step reaches callers that ask for steps, and writers without room (D6).
#[test]
fn a_failed_compaction_stops_writers_without_room_only() {
    let (blocks, tree) = Hooked::tree(Mode::Fc);
    for number in 0..400 {
        tree.add(&key(2 * number)).unwrap();
    }
    tree.compact().unwrap();
    let mut odd = (0..400).map(|at| key(2 * (at * 77 % 400) + 1));
    let mut add = || tree.add(&odd.next().unwrap());
    // Up to the begin of a compaction of most of the tree.
    while progress(&tree).1 + progress(&tree).2 < 120 {
        add().unwrap();
    }
    blocks.fails_image.store(true, Ordering::SeqCst);
    while blocks.fails_image.load(Ordering::SeqCst) {
        add().unwrap();
    }
    let work = tree.shared.state.lock().old.as_ref().unwrap().work;
    assert_eq!(work.total(), 0, "writers owe nothing any more");
    let mut added = 0;
    let last = loop {
        match add() {
            Ok(is_new) => added += usize::from(is_new),
            Err(error) => break error.to_string(),
        }
    };
    let failed = tree.compact_step().unwrap_err().to_string();
    assert_eq!(last, failed);
    for refused in [
        tree.compact(),
        tree.checkpoint(),
        tree.check(&mut Vec::new()),
    ] {
        assert_eq!(refused.unwrap_err().to_string(), failed);
    }
    assert!(added > 0, "writers had room");
    assert!((0..400).all(|number| tree.contains(&key(2 * number)).unwrap()));
    assert_eq!(tree.drive.waiting(), 0);
}
