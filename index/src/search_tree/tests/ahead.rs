//! Cursors that read leaves ahead.

use super::support::{FILE, Tested, collect, number, store};
use super::*;
use crate::search_tree::node::Probe;
use strandline_device::{Device, MemoryDevice};
use strandline_storage::pages::{Access, PAGE_BYTES, PageStore};

const KEYS: i64 = 3000;

/// An index in a file, and a store over it without pages in memory.
fn reopened(device: &Arc<dyn Device>, pages: usize) -> (Arc<PageStore>, PagedIndex) {
    let store = store(device.clone(), Arc::default(), pages);
    store.open_file(FILE).expect("opened");
    let settings = support::settings(256, &Arc::default());
    let index = PagedIndex::open(store.clone(), FILE, settings).expect("opened");
    (store, index)
}

/// The index's file, and the number of its leaves.
fn written() -> (Arc<dyn Device>, usize) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::default());
    let tested = Tested::on(store(device.clone(), Arc::default(), 10_000), 256);
    for n in 0..KEYS {
        let n = n * 7919 % KEYS;
        let added = tested.index.add(&tested.key(n), RowId(n as u64));
        added.expect("added");
    }
    tested.store.checkpoint().expect("written");
    (device, tested.leaves().len())
}

fn ahead(store: &PageStore) -> (u64, u64) {
    let stats = store.read_ahead_stats();
    stats.map_or((0, 0), |stats| (stats.pages, stats.unused))
}

fn range(index: &PagedIndex, from: i64, before: i64) -> KeyRange {
    let key = |n| Some(index.encode(&number(n)));
    KeyRange {
        from: key(from),
        before: key(before),
    }
}

#[test]
fn a_long_cursor_reads_almost_every_leaf_ahead_and_none_twice() {
    let (device, leaves) = written();
    assert!(leaves > 200, "{leaves} leaves");
    for direction in [Direction::Forward, Direction::Backward] {
        let (store, index) = reopened(&device, 100);
        let found = collect(&index, &KeyRange::default(), direction);
        let rows: Vec<i64> = found.iter().map(|(_, row)| row.0 as i64).collect();
        let mut expected: Vec<i64> = (0..KEYS).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(rows, expected);
        let (pages, unused) = ahead(&store);
        assert!(pages as usize >= leaves * 9 / 10, "{pages} of {leaves}");
        assert_eq!(unused, 0, "{direction:?}");
    }
}

#[test]
fn nothing_is_read_beyond_the_range() {
    let (device, _) = written();
    for (from, before) in [(100, 102), (100, 130), (500, 1500), (2990, 4000), (0, 9)] {
        for direction in [Direction::Forward, Direction::Backward] {
            let (store, index) = reopened(&device, 1000);
            let range = range(&index, from, before);
            let found = collect(&index, &range, direction);
            assert_eq!(found.len() as i64, before.min(KEYS) - from);
            // All that was read ahead has come, and the cursor has been there.
            store.prefetch(FILE, &[]);
            let reads = store.stats().reads;
            collect(&index, &range, direction);
            assert_eq!(store.stats().reads, reads);
            let (pages, _) = ahead(&store);
            let at_most = (before - from) as u64;
            assert!(pages <= at_most, "{pages} pages for {at_most} keys");
            if before - from < 3 {
                assert!(pages <= 1, "{pages} pages for a short range");
            }
        }
    }
}

/// A pool of a few pages, in which most reads ahead are refused or evicted again.
#[test]
fn results_do_not_depend_on_memory() {
    let (device, _) = written();
    for pages in [4, 7, 16] {
        let (_, index) = reopened(&device, pages);
        let range = range(&index, 10, 2000);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = collect(&index, &range, direction);
            found.sort_unstable_by_key(|(_, row)| row.0);
            let rows: Vec<u64> = found.iter().map(|(_, row)| row.0).collect();
            assert_eq!(rows, (10..2000).collect::<Vec<u64>>(), "{pages} pages");
        }
    }
}

/// A damaged leaf is the error of the cursor that comes to it, with the place.
#[test]
fn a_damaged_leaf_is_reported_when_the_cursor_is_there() {
    let (device, _) = written();
    let (_, index) = reopened(&device, 1000);
    let key = index.encode(&number(1500));
    let leaf = index.tree.leaf(Probe::At(key.as_slice()), Access::Random);
    let page_number = leaf.expect("whole").0.0;
    let file = device.open("pages-00000007").expect("opened");
    let place = u64::from(page_number) * PAGE_BYTES as u64 + 5000;
    file.write_all_at(&[0xff; 8], place).expect("written");
    let (_, index) = reopened(&device, 1000);
    let mut cursor = index
        .cursor(&KeyRange::default(), Direction::Forward)
        .expect("ordered");
    let mut seen = 0;
    let error = loop {
        match cursor.next() {
            Ok(entry) => seen += u64::from(entry.is_some()),
            Err(error) => break error,
        }
    };
    assert!((1480..=1500).contains(&seen), "{seen} entries before it");
    assert!(
        error.to_string().contains(&format!("page {page_number}")),
        "{error}"
    );
}
