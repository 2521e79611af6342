//! The shape of trees: how many pages operations read, how full nodes are, pages that are given
//! back, loads, and the number of entries after opening.

use super::*;
use strandline_device::MemoryDevice;

/// Uniformly distributed points.
fn points(count: u64, seed: u64) -> Vec<(Rect, RowId)> {
    let mut rng = Rng::new(seed);
    let mut at = || rng.below(1 << 30) as f64 / 1e6;
    let points = (0..count).map(|row| (Rect::point([at(), at()]), RowId(row)));
    points.collect()
}

/// Pages that `act` reads, each anew: memory holds four pages.
fn reads(tested: &Tested, act: impl FnOnce()) -> u64 {
    let before = tested.store.stats().reads;
    act();
    tested.store.stats().reads - before
}

fn with_little_memory(node_bytes: usize) -> Tested {
    let device = Arc::new(MemoryDevice::default());
    Tested::on(store(device, Arc::default(), 4), node_bytes)
}

/// Rows tell entries of one point apart: an entry among many is found on few ways.
#[test]
fn one_of_many_entries_at_a_point_is_found_on_few_ways() {
    let tested = with_little_memory(1000);
    let count = 2_000;
    for no in 0..count {
        let row = RowId(no * 7919 % count);
        assert!(tested.add(Rect::point([2.0, 3.0]), row));
    }
    tested.assert_whole();
    let levels = tested.levels() as u64;
    let mut sum = 0;
    for row in (0..count).step_by(50) {
        sum += reads(&tested, || {
            assert!(!tested.add(Rect::point([2.0, 3.0]), RowId(row)))
        });
    }
    let mean = sum as f64 / (count / 50) as f64;
    assert!(mean < 2.5 * levels as f64, "{mean} pages, {levels} levels");
    for row in 0..count {
        tested.remove(Rect::point([2.0, 3.0]), RowId(row));
    }
    tested.assert_whole();
    assert_eq!((tested.pages(), tested.levels()), (1, 1));
}

#[test]
fn a_full_node_is_divided_by_one_more_entry() {
    for (node_bytes, full) in [
        (SPATIAL_NODE_BYTES_MIN, 4),
        (1000, 20),
        (PAGE_BODY_BYTES, 169),
    ] {
        let tested = Tested::new(node_bytes);
        (0..full).for_each(|v| assert!(tested.add(number(v), RowId(v))));
        assert_eq!((tested.pages(), tested.fills(0)), (1, vec![full as usize]));
        assert!(tested.add(number(full), RowId(full)));
        tested.assert_whole();
        let fills = tested.fills(0);
        let least = (full as usize + 1) * 4 / 10;
        assert_eq!((tested.pages(), fills.len()), (3, 2));
        assert!(fills.iter().all(|fill| *fill >= least), "{fills:?}");
    }
}

#[test]
fn nodes_of_a_growing_tree_are_four_tenths_full() {
    for (_, entries) in [
        ("points", points(2_000, 1)),
        ("ascending", {
            let ascending = (0..2_000).map(|v| (Rect::point([v as f64, v as f64]), RowId(v)));
            ascending.collect()
        }),
    ] {
        let tested = Tested::new(1000);
        for (rect, row) in &entries {
            assert!(tested.add(*rect, *row));
        }
        tested.assert_whole();
        let fills = tested.fills(0);
        assert!(fills.iter().all(|fill| *fill >= 8), "{fills:?}");
        // The root alone may have fewer.
        let levels = tested.levels() as u8;
        for level in 1..levels - 1 {
            assert!(tested.fills(level).iter().all(|fill| *fill >= 7));
        }
    }
}

/// A search reads about as many pages as have what it wants.
#[test]
fn searches_read_few_pages() {
    for is_loaded in [false, true] {
        let tested = with_little_memory(1000);
        let entries = points(900, 7);
        match is_loaded {
            true => tested.load(&entries),
            false => entries
                .iter()
                .for_each(|(rect, row)| _ = tested.add(*rect, *row)),
        }
        let pages = tested.pages() as u64;
        let window = SpatialQuery::Overlaps(Rect::new([200.0, 200.0], [300.0, 300.0]));
        let few = reads(&tested, || _ = tested.collect(window));
        assert!(few * 5 < pages, "{few} of {pages}");
        let nearest = reads(&tested, || {
            let mut cursor = tested.index.nearest([500.0, 500.0]).expect("spatial");
            (0..5).for_each(|_| _ = cursor.next().expect("read").expect("an entry"));
        });
        assert!(nearest * 5 < pages, "{nearest} of {pages}");
        let all = reads(&tested, || _ = tested.collect(SpatialQuery::All));
        assert!(all <= pages, "{all} of {pages}");
    }
}

/// The nearest of many entries at one point are found without all the others: a cursor would have
/// them all in memory.
#[test]
fn the_nearest_of_many_entries_at_a_point_are_found_on_few_ways() {
    for place in [[3.1, 7.7], [f64::NAN, 1.0], [f64::INFINITY, 1.0]] {
        let tested = with_little_memory(1000);
        for row in 0..900 {
            tested.add(Rect::point(place), RowId(row));
        }
        let pages = tested.pages() as u64;
        let few = reads(&tested, || {
            let mut cursor = tested.index.nearest([1.0, 2.0]).expect("spatial");
            (0..5).for_each(|_| _ = cursor.next().expect("read").expect("an entry"));
        });
        assert!(few * 5 < pages, "{few} of {pages}");
    }
}

/// Each update moves an object; the pages that are left are used again.
#[test]
fn pages_that_are_left_are_given_back() {
    let tested = Tested::new(300);
    let place = |v: u64| (Rect::point([v as f64, (v / 3) as f64]), RowId(v % 100));
    let enter = |v| assert!(tested.add(place(v).0, place(v).1));
    (0..500).for_each(enter);
    let fresh = tested.pages();
    for v in 500..2_000 {
        enter(v);
        tested.remove(place(v - 500).0, place(v - 500).1);
    }
    tested.assert_whole();
    assert!(tested.pages() <= fresh + 8, "{} {fresh}", tested.pages());
    for v in (1_500..2_000).rev() {
        tested.remove(place(v).0, place(v).1);
    }
    assert!(tested.index.is_empty());
    tested.assert_whole();
    assert_eq!(
        (tested.pages(), tested.levels()),
        (1, 1),
        "only the root is left"
    );
}

#[test]
fn a_load_fills_nodes() {
    // Runs have 1,000 entries in tests.
    let tested = Tested::new(1000);
    tested.load(&points(1_000, 3));
    tested.assert_whole();
    let fills = tested.fills(0);
    assert!(
        fills.iter().all(|fill| (17..=18).contains(fill)),
        "{fills:?}"
    );
    assert_eq!(tested.memory.load(Relaxed), 0);
    // The second run is added to a tree that is not empty. Entries that come twice are held once.
    let tested = Tested::new(1000);
    let entries = points(1_500, 4);
    tested.load(&[&entries[..300], &entries[..], &entries[..300]].concat());
    tested.assert_whole();
    assert_eq!(tested.index.len(), 1_500);
    let mut sorted = entries.clone();
    sorted.sort_unstable();
    assert_eq!(tested.collect(SpatialQuery::All), sorted);
    for count in [0, 1, 2, 19, 20, 21] {
        let tested = Tested::new(1000);
        tested.load(&entries[..count]);
        tested.assert_whole();
        assert_eq!(tested.index.len(), count);
    }
}

#[test]
fn a_unique_load_reports_equal_boxes() {
    let tested = Tested::new(300);
    tested.add(number(5), RowId(5_000));
    let mut load = tested.index.bulk_load_unique();
    for (row, v) in (0..1_500).map(|v| (v, if v == 1_400 { 3 } else { v })) {
        let pushed = load.push(&values(&number(v)), RowId(row), &mut Vec::new());
        pushed.expect("pushed");
    }
    let found = load.collisions().expect("loaded");
    let mut found: Vec<_> = found
        .into_iter()
        .map(|c| (c.key, c.row, c.others))
        .collect();
    found.sort();
    let at = |v: u64, row, other| (key_of(&number(v)), RowId(row), vec![RowId(other)]);
    let mut expected = vec![at(5, 5, 5_000), at(3, 1_400, 3)];
    expected.sort();
    assert_eq!(found, expected);
    load.finish().expect("loaded");
    tested.assert_whole();
}

#[test]
fn an_opened_index_estimates_its_entries_until_it_is_checked() {
    let tested = Tested::new(600);
    for (rect, row) in points(1_500, 5) {
        tested.add(rect, row);
    }
    let opened = tested.reopened();
    let roughly = opened.index.len();
    assert!((700..3_000).contains(&roughly), "{roughly}");
    opened.assert_whole();
    assert_eq!(opened.index.len(), 1_500);
    assert!(opened.add(number(1), RowId(1)));
    assert_eq!(opened.index.len(), 1_501);
}

#[test]
fn a_node_size_that_no_page_has_is_refused() {
    for node_bytes in [0, SPATIAL_NODE_BYTES_MIN - 1, PAGE_BODY_BYTES + 1] {
        let store = store(Arc::new(MemoryDevice::default()), Arc::default(), 10);
        let settings = settings(node_bytes, &Arc::default());
        assert!(SpatialIndex::create(store, FILE, settings).is_err());
    }
}
