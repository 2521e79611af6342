//! The two files of an index with LIDBlocks: the tree's on the capacity tier and, with the next
//! number, the blocks' on the fast tier. Both are kept, lost and removed together.

use crate::common::*;
use crate::machine::{Machine, PAGE, Place};
use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_device::Device;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::{IndexStorage, LidBlocks};
use strandline_engine::*;

/// The name of a file.
pub fn file_name(number: u32) -> String {
    format!("pages-{number:08x}")
}

/// The page files on a device.
pub fn page_files(device: &dyn Device) -> BTreeSet<String> {
    let names = device.list().expect("names").into_iter();
    names.filter(|name| name.starts_with("pages-")).collect()
}

/// The files that the indexes of table `t` name.
pub fn named_files(db: &Db) -> BTreeSet<String> {
    let t = table(db);
    let files = t.readable_indexes().filter_map(|def| def.file_number);
    files
        .flat_map(|tree| [tree, tree + 1])
        .map(file_name)
        .collect()
}

/// The blocks' file of index `t_a`.
fn blocks_of(db: &Db) -> String {
    file_name(named(&table(db), "t_a").file_number.expect("a file") + 1)
}

/// The words of `inspect` about the files of index `t_a`.
fn words_of(db: &Arc<Db>) -> String {
    let inspection = db.inspect().expect("inspected");
    let indexes = inspection
        .sections
        .iter()
        .find(|section| section.title.starts_with("Indexes"));
    let rows = &indexes.expect("indexes").rows;
    let own = rows.iter().find(|row| row[0] == "t_a").expect("t_a");
    own[5].clone()
}

/// How these words end with so many blocks and entries in them.
fn waiting(blocks: usize, entries: usize) -> String {
    let IndexStorage::Blocks(LidBlocks { kind, entries: of }) = crate::STORAGE else {
        panic!("indexes without LIDBlocks");
    };
    format!(
        ": {blocks} {} blocks of {of}, {entries} entries",
        kind.name()
    )
}

fn begin(seed: u64, place: Place) -> (Machine, Arc<strandline_base::ManualClock>, Arc<Db>) {
    let (disk, wall) = (Machine::new(seed, place), clock());
    let db = disk.open(&wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    (disk, wall, db)
}

fn create(db: &Arc<Db>) -> Result<()> {
    create_alone(db, &index("t_a", vec![part(1)]))
}

#[test]
fn the_tree_is_on_the_capacity_tier_and_the_blocks_on_the_fast_one() {
    let (disk, wall, db) = begin(1, Place::TwoDirectories);
    create(&db).expect("create");
    let blocks = blocks_of(&db);
    let tree = file_name(named(&table(&db), "t_a").file_number.expect("a file"));
    let fast = BTreeSet::from([blocks.clone()]);
    assert_eq!(page_files(&*disk.fast.device()), fast);
    let capacity = disk.capacity.as_ref().expect("two directories");
    assert_eq!(page_files(&*capacity.device()), BTreeSet::from([tree]));
    (0..3).for_each(|k| insert(&db, &row(k, 7, "x")));
    let words = words_of(&db);
    assert!(words.contains(&blocks), "{words}");
    assert!(words.ends_with(&waiting(1, 3)), "{words}");
    db.close().expect("close");
    drop(db);
    let db = disk.open(&wall).expect("open");
    assert!(words_of(&db).ends_with(&waiting(1, 3)));
    assert_sound(&db, "opened again");
    // Nearly full: background work moves the block's entries.
    db.merge_due(false).expect("a turn");
    assert!(words_of(&db).ends_with(&waiting(0, 0)));
    assert_sound(&db, "moved");
}

#[test]
fn a_vacuum_moves_all_blocks() {
    let (_, _, db) = begin(1, Place::OneDirectory);
    create(&db).expect("create");
    insert(&db, &row(1, 7, "x"));
    assert!(words_of(&db).ends_with(&waiting(1, 1)));
    let id = named(&table(&db), "t_a").id;
    db.vacuum_index(&table(&db), id).expect("vacuum");
    assert!(words_of(&db).ends_with(&waiting(0, 0)));
    db.vacuum_index(&table(&db), id).expect("nothing to do");
    assert_sound(&db, "moved");
}

#[test]
fn a_dropped_index_and_a_rolled_back_one_leave_no_file() {
    let (disk, _, db) = begin(1, Place::TwoDirectories);
    create(&db).expect("create");
    insert(&db, &row(1, 7, "x"));
    let gone = named(&table(&db), "t_a").file_number.expect("a file");
    alter(&db, |t| drop_index(t, "t_a"));
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(page_files(&*disk.device()), BTreeSet::new());
    let txn = db.begin(TxnOptions::default()).expect("begin");
    create_in(&txn, &index("undone", vec![part(2)])).expect("create");
    assert_eq!(page_files(&*disk.device()).len(), 2);
    txn.rollback();
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(page_files(&*disk.device()), BTreeSet::new());
    // Neither number is used again.
    create(&db).expect("create");
    assert!(named(&table(&db), "t_a").file_number > Some(gone + 3));
    assert_sound(&db, "created again");
}

#[test]
fn a_crash_at_each_step_of_a_creation_leaves_both_files_or_none() {
    let (disk, _, db) = begin(1, Place::TwoDirectories);
    (0..6).for_each(|k| insert(&db, &row(k, k % 2, "x")));
    let first = disk.fast.operations();
    create(&db).expect("create");
    let operations = disk.fast.operations();
    drop(db);
    for point in first + 1..=operations {
        let (disk, wall, db) = begin(1, Place::TwoDirectories);
        (0..6).for_each(|k| insert(&db, &row(k, k % 2, "x")));
        disk.fast.crash_at(point);
        let _ = create(&db);
        drop(db);
        for seed in [0, 1, 2 + point] {
            let (what, disk) = (
                format!("crash at {point}, outcome {seed}"),
                disk.after_crash(seed),
            );
            let db = disk.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(page_files(&*disk.device()), named_files(&db), "{what}");
            assert_sound(&db, &what);
        }
    }
}

#[test]
fn without_the_blocks_file_the_index_is_built_from_the_rows() {
    for damage in ["missing", "foreign", "damaged"] {
        let (disk, wall, db) = begin(1, Place::TwoDirectories);
        create(&db).expect("create");
        (0..9).for_each(|k| insert(&db, &row(k, k % 2, "x")));
        db.checkpoint(true).expect("checkpoint");
        let (blocks, before) = (blocks_of(&db), named_files(&db));
        db.close().expect("close");
        drop(db);
        match damage {
            "missing" => disk.fast.device().remove(&blocks).expect("removed"),
            "foreign" => disk.fast.flip_bits(&blocks, PAGE, 0xff),
            _ => disk.fast.flip_bits(&blocks, PAGE + 200, 4),
        }
        let db = disk.open(&wall).expect("open");
        assert!(named_files(&db).is_disjoint(&before), "{damage}");
        assert_sound(&db, damage);
        db.checkpoint(true).expect("checkpoint");
        assert_eq!(page_files(&*disk.device()), named_files(&db), "{damage}");
    }
}
