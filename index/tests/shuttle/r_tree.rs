//! Models of the R-tree: searches beside writers that divide nodes, take nodes away, and raise and
//! lower the root.

use crate::explore;
use shuttle::thread;
use std::sync::{Arc, Mutex};
use strandline_base::{CommitTs, Result, RowId};
use strandline_device::MemoryDevice;
use strandline_index::{
    AccessMethod, Rect, SPATIAL_NODE_BYTES_MIN, SpatialIndex, SpatialIndexSettings, SpatialMethod,
    SpatialQuery,
};
use strandline_storage::pages::{PageFileId, PageLog, PageSettings, PageStore};
use strandline_storage::wal::Lsn;

/// A log that keeps nothing but its end.
#[derive(Debug, Default)]
struct Log(Mutex<u64>);

impl PageLog for Log {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut end = self.0.lock().expect("not poisoned");
        *end += record.len() as u64;
        Ok(Lsn(*end))
    }
    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
    fn end(&self) -> Lsn {
        Lsn(*self.0.lock().expect("not poisoned"))
    }
}

fn rect(v: u64) -> Rect {
    Rect::point([v as f64, 0.0])
}

fn add(index: &SpatialIndex, v: u64) {
    let added = index.add(&SpatialIndex::key(&rect(v)), RowId(v));
    assert!(added.expect("in memory"));
}

fn remove(index: &SpatialIndex, v: u64) {
    let retired = index.retire(&SpatialIndex::key(&rect(v)), RowId(v), CommitTs::ZERO);
    retired.expect("in memory");
}

/// Nodes have four entries, so that a few make a tree of several levels.
fn index(rows: impl IntoIterator<Item = u64>) -> Arc<SpatialIndex> {
    let device = Arc::new(MemoryDevice::default());
    let store = PageStore::new(device, Arc::new(Log::default()), PageSettings::default());
    let mut settings = SpatialIndexSettings::new(Arc::new(|| CommitTs::ZERO));
    settings.node_bytes = SPATIAL_NODE_BYTES_MIN;
    let index = SpatialIndex::create(store, PageFileId(1), settings).expect("in memory");
    rows.into_iter().for_each(|v| add(&index, v));
    Arc::new(index)
}

fn rows(index: &SpatialIndex) -> Vec<u64> {
    let (mut cursor, mut rows) = (
        index.search(&SpatialQuery::All).expect("spatial"),
        Vec::new(),
    );
    let is_more = cursor.next_rows(usize::MAX, &mut rows);
    assert!(!is_more.expect("in memory"));
    let mut rows: Vec<u64> = rows.into_iter().map(|row| row.0).collect();
    rows.sort_unstable();
    rows
}

fn rows_by_distance(index: &SpatialIndex) -> Vec<u64> {
    let mut cursor = index.nearest([0.0, 0.0]).expect("spatial");
    let next = || cursor.next().expect("in memory");
    std::iter::from_fn(next).map(|near| near.row.0).collect()
}

fn assert_seen(seen: &[u64], stay: &[u64]) {
    assert!(seen.is_sorted_by(|a, b| a < b), "an entry twice: {seen:?}");
    assert!(
        stay.iter().all(|v| seen.contains(v)),
        "an entry too few: {seen:?}"
    );
}

fn assert_whole(index: &SpatialIndex, left: &[u64]) {
    let mut damage = Vec::new();
    index.check(&mut damage).expect("in memory");
    assert_eq!(damage, Vec::<String>::new());
    assert_eq!((rows(index), index.len()), (left.to_vec(), left.len()));
}

/// A search finds every entry that stays once, while nodes on its way are divided.
#[test]
fn searches_find_what_stays_beside_splits() {
    explore(|| {
        let stay = [10, 20, 30, 40, 50, 60];
        let index = index(stay);
        let adders: Vec<_> = [[12, 13, 14], [52, 53, 54]]
            .map(|added| {
                let index = index.clone();
                thread::spawn(move || added.into_iter().for_each(|v| add(&index, v)))
            })
            .into();
        assert_seen(&rows(&index), &stay);
        assert_seen(&rows_by_distance(&index), &stay);
        for adder in adders {
            adder.join().expect("it does not panic");
        }
        assert_whole(&index, &[10, 12, 13, 14, 20, 30, 40, 50, 52, 53, 54, 60]);
    });
}

/// A search finds every entry that stays once, while others are removed, nodes are taken away, the
/// root is lowered and raised, and pages are used again.
#[test]
fn searches_find_what_stays_beside_removals() {
    explore(|| {
        let stay = [10, 20];
        let index = index([10, 11, 20, 21, 30, 31, 40, 41, 50, 51]);
        let remover = {
            let index = index.clone();
            thread::spawn(move || {
                for v in [30, 31, 40, 41, 50] {
                    remove(&index, v);
                }
                index.retain(&mut |_, row| row.0 != 51).expect("in memory");
                for v in [12, 13, 22, 23] {
                    add(&index, v);
                }
            })
        };
        assert_seen(&rows_by_distance(&index), &stay);
        assert_seen(&rows(&index), &stay);
        let mut damage = Vec::new();
        index.check(&mut damage).expect("in memory");
        assert_eq!(damage, Vec::<String>::new());
        remover.join().expect("it does not panic");
        assert_whole(&index, &[10, 11, 12, 13, 20, 21, 22, 23]);
    });
}

/// A sweep finds what it is to remove, even if the root takes over a leaf meanwhile.
#[test]
fn sweeps_find_what_is_unwanted() {
    explore(|| {
        let index = index([10, 11, 20, 21, 30, 31]);
        let remover = {
            let index = index.clone();
            thread::spawn(move || [30, 20, 31, 21].into_iter().for_each(|v| remove(&index, v)))
        };
        let kept = index.retain(&mut |_, row| row.0 != 11);
        kept.expect("in memory");
        remover.join().expect("it does not panic");
        assert_whole(&index, &[10]);
    });
}

/// Of two adders of equal boxes exactly one sees the other.
#[test]
fn of_two_adders_of_a_box_one_sees_the_other() {
    explore(|| {
        let index = index([1, 2, 3, 4]);
        let adders: Vec<_> = [8, 9]
            .map(|row| {
                let index = index.clone();
                thread::spawn(move || {
                    let mut others = Vec::new();
                    let added = index.insert(&SpatialIndex::key(&rect(2)), RowId(row), &mut others);
                    assert!(added.expect("in memory") && others.contains(&RowId(2)));
                    others.len()
                })
            })
            .into();
        let seen = adders
            .into_iter()
            .map(|a| a.join().expect("it does not panic"));
        assert_eq!(seen.sum::<usize>(), 3);
    });
}
