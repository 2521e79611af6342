//! Cursors between whose steps others change the tree: splits before and behind the cursor, nodes
//! that are taken away, roots that are raised and lowered. Each entry that stays is found once.

use super::*;
use std::collections::BTreeSet;
use strandline_storage::pages::Access;

/// Adds and removes entries among those that stay.
fn disturb(tested: &Tested, passing: &mut Vec<(Rect, RowId)>, rng: &mut Rng) {
    for _ in 0..rng.below(30) {
        match rng.below(20) {
            0..9 => {
                let rect = number(rng.below(600));
                let row = RowId(1000 + rng.below(50));
                if tested.add(rect, row) {
                    passing.push((rect, row));
                }
            }
            9..19 if !passing.is_empty() => {
                let at = rng.below(passing.len() as u64) as usize;
                let (rect, row) = passing.swap_remove(at);
                tested.remove(rect, row);
            }
            _ => {
                let kept = rng.below(50);
                let mut keep = |_: &KeyBytes, row: RowId| row.0 < 1000 + kept;
                tested.index.retain(&mut keep).expect("swept");
                passing.retain(|(_, row)| row.0 < 1000 + kept);
            }
        }
    }
}

/// How many entries stay, among how many passing ones the cursor begins.
const SCENES: [(u64, u64); 4] = [(100, 0), (3, 400), (0, 300), (40, 40)];

/// The index, entries that stay, and entries that come and go.
fn scene(seed: u64) -> (Tested, [Vec<(Rect, RowId)>; 2], Rng) {
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let tested = Tested::new([SPATIAL_NODE_BYTES_MIN, 300][rng.below(2) as usize]);
    let (stay, pass) = SCENES[seed as usize % SCENES.len()];
    let stay: Vec<_> = (0..stay)
        .map(|no| (number(no * 7 % 600), RowId(no)))
        .collect();
    let passing = (0..pass).map(|no| (number(no * 11 % 600), RowId(1000 + no % 50)));
    let passing: BTreeSet<_> = passing.collect();
    let passing: Vec<_> = passing.into_iter().collect();
    for (rect, row) in stay.iter().chain(&passing) {
        tested.add(*rect, *row);
    }
    (tested, [stay, passing], rng)
}

#[test]
fn a_cursor_finds_what_stays_once() {
    for seed in 0..24 {
        let (tested, [stay, mut passing], mut rng) = scene(seed);
        let mut cursor = tested.index.search(&SpatialQuery::All).expect("spatial");
        let mut seen = BTreeSet::new();
        while let Some((key, row)) = cursor.next().expect("read") {
            let entry = (SpatialIndex::rect(&key).expect("a box"), row);
            assert!(seen.insert(entry) || row.0 >= 1000, "{entry:?} twice");
            if rng.one_in(4) {
                disturb(&tested, &mut passing, &mut rng);
                assert_sound(&tested.index);
            }
        }
        for entry in &stay {
            assert!(seen.contains(entry), "{entry:?} is missing");
        }
        drop(cursor);
        tested.index.retain(&mut |_, _| true).expect("swept");
        tested.assert_whole();
    }
}

#[test]
fn a_cursor_by_distance_finds_what_stays_once_and_ascends() {
    for seed in 100..124 {
        let (tested, [stay, mut passing], mut rng) = scene(seed);
        let point = [rng.below(64) as f64, rng.below(10) as f64];
        let mut cursor = tested.index.nearest(point).expect("spatial");
        let (mut seen, mut reached) = (BTreeSet::new(), 0.0);
        while let Some(found) = cursor.next().expect("read") {
            assert!(found.distance >= reached, "{found:?} behind {reached}");
            reached = found.distance;
            let entry = (found.rect, found.row);
            assert!(seen.insert(entry) || found.row.0 >= 1000, "{entry:?} twice");
            if rng.one_in(4) {
                disturb(&tested, &mut passing, &mut rng);
            }
        }
        assert!(stay.iter().all(|entry| seen.contains(entry)));
        drop(cursor);
        tested.index.retain(&mut |_, _| true).expect("swept");
        tested.assert_whole();
    }
}

/// A sweep between whose calls others would run is not possible, as it has the writers' lock; but a
/// cursor may be open. The pages of nodes that the sweep takes away wait for the cursor.
#[test]
fn pages_wait_for_the_cursors_that_began_before() {
    let tested = Tested::new(SPATIAL_NODE_BYTES_MIN);
    for no in 0..300 {
        tested.add(number(no), RowId(no));
    }
    let before = tested.pages();
    let mut cursor = tested.index.search(&SpatialQuery::All).expect("spatial");
    cursor.next().expect("read").expect("an entry");
    tested
        .index
        .retain(&mut |_, row| row.0 == 150)
        .expect("swept");
    assert_eq!(tested.pages(), before, "no page is free");
    let (used, nodes) = (
        tested.store.check(FILE).expect("whole").used,
        nodes(&tested.index),
    );
    for page in used.into_iter().filter(|page| !nodes.contains(page)) {
        let left = tested.index.tree.read(page, Access::Random);
        assert!(left.expect("readable").is_gone, "page {page}");
    }
    let mut rows = Vec::new();
    cursor.next_rows(1000, &mut rows).expect("read");
    assert!(rows.contains(&RowId(150)));
    drop(cursor);
    tested.index.retain(&mut |_, _| true).expect("swept");
    tested.assert_whole();
    assert_eq!((tested.pages(), tested.levels()), (1, 1));
}
