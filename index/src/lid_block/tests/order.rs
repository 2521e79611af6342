//! Named cases: splits and joins under a block, what a move leaves, lazy removal, moves that run
//! beside changes, what costs no read of the tree.

use super::*;
use crate::NODE_BYTES_MIN;
use std::sync::Mutex;
use strandline_device::MemoryDevice;
use strandline_storage::pages::{PageLog, PageSettings, file_of_record};
use strandline_storage::wal::Lsn;

fn sparse(entries: usize) -> Tested {
    Tested::new(BlockKind::Sparse, entries, NODE_BYTES_MIN)
}

fn add_all(tested: &Tested, numbers: impl IntoIterator<Item = i64>, row: u64) {
    for v in numbers {
        tested.index.add(&tested.key(v), RowId(row)).expect("added");
    }
}

fn load_all(tested: &Tested, numbers: impl IntoIterator<Item = i64>, row: u64) {
    let mut load = tested.index.bulk_load();
    for v in numbers {
        load.push(&number(v), RowId(row), &mut Vec::new())
            .expect("pushed");
    }
    load.finish().expect("loaded");
}

fn retire(tested: &Tested, v: i64, row: u64, since: u64) {
    let retired = tested
        .index
        .retire(&tested.key(v), RowId(row), CommitTs(since));
    retired.expect("retired");
}

/// A block's leaf is divided many times under it, and joined again: the block covers what it did.
#[test]
fn a_block_outlives_splits_and_joins_of_its_leaf() {
    let tested = sparse(32);
    add_all(&tested, (0..30).map(|v| v * 10), 1);
    assert_eq!(tested.index.blocks(), 1, "one leaf");
    load_all(&tested, 0..300, 2);
    assert!(tested.index.tree().levels().expect("read") > 1);
    let mut mixed: Vec<_> = (0..300).map(|v| (tested.key(v), RowId(2))).collect();
    mixed.extend((0..30).map(|v| (tested.key(v * 10), RowId(1))));
    mixed.sort();
    assert_eq!(
        collect(&tested.index, &KeyRange::default(), Direction::Forward),
        mixed
    );
    assert_eq!(tested.rows(150), [1, 2]);
    // Another block would overlap with the one that covers everything.
    add_all(&tested, [305, 306], 1);
    assert_eq!(tested.index.blocks(), 1);
    // Joins: the tree loses its entries while the block has its own.
    let others = tested.index.tree().retain(&mut |_, row| row.0 != 2);
    others.expect("swept");
    assert_eq!(tested.index.tree().levels().expect("read"), 1);
    assert_eq!(tested.rows(150), [1]);
    assert_eq!(tested.vacuumed(), 32);
    assert_sound(&tested.index);
}

/// Behind a full block there are blocks of the leaves that there are then.
#[test]
fn blocks_follow_the_leaves() {
    let tested = sparse(4);
    load_all(&tested, (0..200).map(|v| v * 10), 1);
    add_all(&tested, (0..200).map(|v| v * 10 + 1), 1);
    assert!(tested.index.blocks() > 10, "{}", tested.index.blocks());
    assert_eq!(tested.index.len(), 400);
    for v in 0..200 {
        assert_eq!(
            (tested.rows(v * 10), tested.rows(v * 10 + 1)),
            (vec![1], vec![1])
        );
        assert_eq!(tested.rows(v * 10 + 2), [0; 0]);
    }
}

/// A dense block has one value.
#[test]
fn a_dense_block_has_one_value() {
    let tested = Tested::new(BlockKind::Dense, 8, PAGE_BODY_BYTES);
    for row in 0..7 {
        add_all(&tested, 0..20, row);
    }
    assert_eq!((tested.index.blocks(), tested.index.tree().len()), (20, 0));
    add_all(&tested, [5], 7);
    assert!(tested.index.is_flush_due());
    add_all(&tested, [5], 8);
    assert_eq!((tested.index.blocks(), tested.index.tree().len()), (20, 8));
    assert_eq!(tested.rows(5), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Blocks that are nearly full are moved before an insertion finds them full.
#[test]
fn nearly_full_blocks_are_moved_early() {
    let tested = Tested::new(BlockKind::Dense, 8, PAGE_BODY_BYTES);
    for row in 0..6 {
        assert!(!tested.index.is_flush_due());
        add_all(&tested, [5], row);
    }
    assert!(tested.index.is_flush_due());
    assert!(!tested.index.flush_step().expect("flushed"));
    assert_eq!((tested.index.blocks(), tested.index.tree().len()), (0, 6));
    assert_eq!(tested.rows(5), [0, 1, 2, 3, 4, 5]);
}

/// A retirement hides the tree's entry at once. A reader that meets the entry removes it and frees
/// the block's slot.
#[test]
fn readers_remove_what_a_block_says_is_gone() {
    let tested = sparse(4);
    load_all(&tested, 0..10, 1);
    retire(&tested, 3, 1, 0);
    retire(&tested, 4, 1, 0);
    assert_eq!((tested.index.tree().len(), tested.index.len()), (10, 8));
    assert_eq!(tested.rows(3), [0; 0]);
    assert_eq!((tested.index.tree().len(), tested.index.len()), (9, 8));
    assert_eq!(tested.index.blocks(), 1, "4 is still there");
    let seen = collect(&tested.index, &KeyRange::default(), Direction::Backward);
    assert_eq!(seen.len(), 8);
    assert_eq!((tested.index.tree().len(), tested.index.blocks()), (8, 0));
}

/// An entry that old snapshots need stays for them, in the block, in the tree, and over a move.
#[test]
fn retired_entries_stay_for_old_snapshots() {
    for is_moved in [false, true] {
        let tested = sparse(8);
        load_all(&tested, [1], 1);
        add_all(&tested, [2], 1);
        retire(&tested, 1, 1, 5);
        retire(&tested, 2, 1, 5);
        // Nobody had this one: a retirement is no entry.
        retire(&tested, 3, 1, 5);
        if is_moved {
            tested.index.vacuum().expect("vacuumed");
        }
        assert_eq!(
            (tested.rows(1), tested.rows(2), tested.rows(3)),
            (vec![1], vec![1], vec![])
        );
        tested.advance(5);
        assert_eq!(tested.vacuumed(), 0);
    }
}

/// A load revives an entry that a block has as retired, and reports rows that only blocks have.
#[test]
fn loads_see_blocks() {
    let tested = sparse(8);
    add_all(&tested, [1, 2], 1);
    retire(&tested, 1, 1, 0);
    let mut load = tested.index.bulk_load_unique();
    for (v, row) in [(1, 1), (2, 2), (3, 3)] {
        load.push(&number(v), RowId(row), &mut Vec::new())
            .expect("pushed");
    }
    let collisions = load.collisions().expect("entered");
    let [collision] = collisions.as_slice() else {
        panic!("{collisions:?}");
    };
    assert_eq!(
        (collision.row, &*collision.others),
        (RowId(2), &[RowId(1)][..])
    );
    load.finish().expect("loaded");
    assert_eq!((tested.rows(1), tested.rows(2)), (vec![1], vec![1, 2]));
}

/// A range's estimate counts what the blocks add.
#[test]
fn estimates_count_blocks() {
    let tested = Tested::new(BlockKind::Sparse, 8, PAGE_BODY_BYTES);
    load_all(&tested, 0..100, 1);
    add_all(&tested, [200, 201], 1);
    retire(&tested, 3, 1, 0);
    let estimate = tested.index.estimate(&KeyRange::default());
    assert_eq!(estimate, Some(101));
}

/// An estimate of many blocks is no less than what some of them have, whatever the tree has.
#[test]
fn an_estimate_beside_an_empty_tree_counts_blocks() {
    let tested = Tested::new(BlockKind::Dense, 8, PAGE_BODY_BYTES);
    for row in 0..3 {
        add_all(&tested, 0..100, row);
    }
    assert_eq!((tested.index.blocks(), tested.index.tree().len()), (100, 0));
    let estimate = tested.index.estimate(&KeyRange::default());
    assert!(
        estimate.is_some_and(|entries| (150..=300).contains(&entries)),
        "{estimate:?}"
    );
}

/// Blocks that do not fit into a page, or take keys that the tree refuses, are refused.
#[test]
fn forms_that_do_not_fit_are_refused() {
    for (entries, key_bytes, node_bytes) in [(0, 12, 216), (900, 12, 216), (4, 13, 216)] {
        let device = Arc::new(strandline_device::MemoryDevice::default());
        let refused = LidForm {
            kind: BlockKind::Sparse,
            entries,
            key_bytes,
        };
        let made = Tested::on(store(device, Arc::default(), 40), refused, node_bytes);
        let error = made.err().expect("refused");
        assert_eq!(
            error.sqlstate(),
            SqlState::INVALID_PARAMETER_VALUE,
            "{error}"
        );
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A log that runs `work` once, before it takes a record about the tree.
struct HookedLog {
    log: MemoryLog,
    /// records about the tree until then, and the work
    work: Mutex<Option<(usize, Work)>>,
}

impl std::fmt::Debug for HookedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.log.fmt(f)
    }
}

impl PageLog for HookedLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let due = {
            let mut work = self.work.lock().expect("not poisoned");
            if let Some((left, _)) = &mut *work
                && file_of_record(record)? == FILES.0
            {
                *left -= 1;
            }
            work.take_if(|(left, _)| *left == 0)
        };
        if let Some((_, work)) = due {
            work();
        }
        self.log.append(record)
    }
    fn make_durable(&self, through: Lsn) -> Result<()> {
        self.log.make_durable(through)
    }
    fn end(&self) -> Lsn {
        self.log.end()
    }
}

/// A load adds an entry that a block has as retired. A move that ends before the load has looked
/// into the blocks does not remove the entry again.
#[test]
fn a_move_beside_a_load_keeps_the_loads_entries() {
    let log = Arc::new(HookedLog {
        log: MemoryLog::default(),
        work: Mutex::default(),
    });
    let settings = PageSettings::default();
    let store = PageStore::new(Arc::new(MemoryDevice::default()), log.clone(), settings);
    let form = form(BlockKind::Sparse, 8);
    let tested = Arc::new(Tested::on(store, form, NODE_BYTES_MIN).expect("created"));
    load_all(&tested, 0..300, 2);
    add_all(&tested, [10], 1);
    retire(&tested, 10, 1, 0);
    assert_eq!((tested.rows(10), tested.index.blocks()), (vec![2], 1));
    // The load has entered the first of its leaves when it logs the second one.
    let mover = tested.clone();
    let work = Box::new(move || mover.index.move_all().expect("moved"));
    *log.work.lock().expect("not poisoned") = Some((2, work));
    load_all(&tested, [10, 290], 1);
    assert!(log.work.lock().expect("not poisoned").is_none(), "moved");
    assert_eq!(
        (tested.rows(10), tested.rows(290)),
        (vec![1, 2], vec![1, 2])
    );
    assert_eq!(tested.vacuumed(), 302);
    assert_eq!(tested.rows(10), [1, 2]);
}

/// Values with few rows have a block each, which never fills. Their memory is counted and has a
/// bound; beyond it changes go into the tree.
#[test]
fn blocks_take_no_more_memory_than_they_may() {
    const MOST: usize = 5_000;
    let store = store(Arc::new(MemoryDevice::default()), Arc::default(), 40);
    let mut settings = settings(256, &Arc::default());
    let memory = Arc::new(std::sync::atomic::AtomicUsize::new(7));
    settings.memory = memory.clone();
    let taken = || memory.load(std::sync::atomic::Ordering::Relaxed) - 7;
    let form = form(BlockKind::Dense, 8);
    let index = LidIndex::create(store.clone(), FILES, settings.clone(), form).expect("created");
    let index = index.with_block_memory(MOST);
    let key = |v: i64| index.encode(&number(v));
    for v in 0..300 {
        index.add(&key(v), RowId(1)).expect("added");
        if v % 3 == 0 {
            index
                .retire(&key(v), RowId(1), CommitTs::ZERO)
                .expect("retired");
        }
    }
    let of_one = taken() / index.blocks();
    assert!((MOST..MOST + of_one).contains(&taken()), "{}", taken());
    let expected: Vec<_> = (0..300)
        .filter(|v| v % 3 > 0)
        .map(|v| (key(v), RowId(1)))
        .collect();
    let assert_whole = || {
        let all = collect(&index, &KeyRange::default(), Direction::Forward);
        assert_eq!(all, expected);
        assert_sound(&index);
    };
    assert_whole();
    // Background work makes room, a block at a time.
    let blocks = index.blocks();
    assert!(!index.flush_step().expect("moved"), "none is nearly full");
    assert_eq!(index.blocks(), blocks - 1);
    assert!(taken() < MOST);
    assert_whole();
    let (before, blocks) = (taken(), index.blocks());
    drop(index);
    assert_eq!(taken(), 0);
    let index = LidIndex::open(store, FILES, settings).expect("opened");
    assert_eq!((taken(), index.blocks()), (before, blocks));
}
