//! Files without a database: their memory, and which of them are removed.

use super::*;
use crate::catalog::index::{IndexStorage, LidBlockKind, LidBlocks};
use crate::catalog::index_file::IndexFile;
use std::collections::BTreeSet;
use strandline_base::{Error, ManualClock, SqlState};
use strandline_device::MemoryDevice;
use strandline_index::PartOrder;
use strandline_storage::wal::WalSettings;

/// The files of an empty device, and the pool whose memory they share.
fn files() -> (Arc<dyn Device>, Arc<IndexFiles>, Arc<Pool>) {
    files_with(Settings::default())
}

fn files_with(settings: Settings) -> (Arc<dyn Device>, Arc<IndexFiles>, Arc<Pool>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let txns = TxnManager::new(Arc::new(ManualClock::new(1)), CommitTs(1));
    let pool = Pool::new(1 << 20);
    let database = Database {
        device: &device,
        id: 1,
        pair: None,
        was_cached: false,
        pool: &pool,
        catalog: None,
    };
    let files = IndexFiles::new(&database, &settings, &txns);
    let files = files.expect("no files");
    let log_settings = WalSettings {
        segment_bytes: 1 << 16,
    };
    let wal = Wal::create(device.clone(), log_settings, 1).expect("a log");
    files.attach(&Arc::new(wal));
    (device, files, pool)
}

fn create(files: &Arc<IndexFiles>) -> FileEntries {
    create_as(files, IndexStorage::Pages).expect("a file")
}

fn create_as(files: &Arc<IndexFiles>, storage: IndexStorage) -> Result<FileEntries> {
    files.create(storage, one_part())
}

fn one_part() -> FileKeys {
    FileKeys::Ordered {
        parts: vec![PartOrder::default()],
        is_unique: true,
    }
}

fn ids(device: &dyn Device) -> Vec<u32> {
    let names = device.list().expect("names");
    let files = names.iter().filter_map(|name| IndexFile::of_name(name));
    files.map(IndexFile::number).collect()
}

#[test]
fn the_pages_of_a_file_are_the_pools_while_there_is_the_file() {
    let (device, files, pool) = files();
    assert_eq!(pool.used_bytes(), 0);
    let both = (create(&files), create(&files));
    let of_both = pool.page_bytes();
    assert!(of_both > 0 && pool.used_bytes() == of_both);
    drop(both);
    assert!(files.has_unused());
    files.remove_unused(&BTreeSet::new());
    assert_eq!(pool.used_bytes(), 0);
    let taken = pool.taken_bytes().load(Ordering::Relaxed);
    assert_eq!(taken, files.taken_bytes());
    assert!(ids(&*device).is_empty() && !files.has_unused());
}

#[test]
fn a_file_that_is_held_or_named_is_not_removed() {
    let (device, files, _) = files();
    let (held, named, unused) = (create(&files), create(&files), create(&files));
    let name = BTreeSet::from([named.1.id()]);
    drop((named, unused));
    files.remove_unused(&name);
    assert_eq!(ids(&*device), [1, 2]);
    files.remove_unused(&BTreeSet::new());
    assert_eq!(ids(&*device), [1]);
    drop(held);
    files.remove_unused(&BTreeSet::new());
    assert_eq!(ids(&*device), [0; 0]);
}

#[test]
fn a_lost_file_is_told_as_long_as_it_is_named_or_held() {
    let (_, files, _) = files();
    let (index, held) = create(&files);
    let file = held.id();
    files.note_lost(file, Error::corrupt("a file", "lost"));
    let name = BTreeSet::from([file]);
    // Nothing names the file before its index is committed.
    for named in [&BTreeSet::new(), &name] {
        files.remove_unused(named);
        assert!(files.lost().contains_key(&file) && files.has_unused());
    }
    drop((index, held));
    files.remove_unused(&name);
    assert!(files.lost().contains_key(&file));
    files.remove_unused(&BTreeSet::new());
    assert!(files.lost().is_empty() && !files.has_unused());
}

/// Both files of an index with LIDBlocks fail: the cause is the first failure, and not that the
/// second file has been closed with the first one.
#[test]
fn a_lost_file_keeps_the_first_cause() {
    let (_, files, _) = files();
    let storage = IndexStorage::Blocks(LidBlocks {
        kind: LidBlockKind::Sparse,
        entries: LidBlocks::ENTRIES,
    });
    let (_index, held) = create_as(&files, storage).expect("files");
    for part in held.id().page_files() {
        let failure = Error::corrupt(format!("part {part}"), "damaged");
        files.pages.fail_file(part, failure);
    }
    files.checkpoint().expect("the log's");
    let lost = files.lost();
    let cause = lost.get(&held.id()).expect("lost");
    assert!(cause.message().contains("part 1"), "{cause}");
}

/// Each index in levels takes its head, and is removed with all its files.
#[test]
fn the_memory_of_levels_is_taken_while_they_are_in_use() {
    let (device, files, pool) = files();
    let taken = pool.taken_bytes();
    let head_bytes = Settings::default().index_heads().first();
    let both = [(); 2].map(|()| create_as(&files, IndexStorage::Levels).expect("a file"));
    assert_eq!(ids(&*device), [1, 1, 1, 2, 2, 2]);
    assert!((2 * head_bytes..3 * head_bytes).contains(&taken.load(Ordering::Relaxed)));
    drop(both);
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    files.remove_unused(&BTreeSet::new());
    assert_eq!(ids(&*device), [0; 0]);
}

/// LIDBlocks of values that hardly repeat take no more memory than one index may have for them.
#[test]
fn the_memory_of_blocks_is_taken_and_bounded() {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    let most = settings.index_blocks_bytes();
    let (_, files, pool) = files_with(settings);
    let taken = pool.taken_bytes();
    let storage = IndexStorage::Blocks(LidBlocks {
        kind: LidBlockKind::Dense,
        entries: LidBlocks::ENTRIES,
    });
    let (index, held) = create_as(&files, storage).expect("files");
    let add = |number: i64| {
        let key = index.encode(&[strandline_base::Value::BigInt(number)]);
        index.add(&key, strandline_base::RowId(1)).expect("added");
    };
    (0..most as i64 / 100).for_each(add);
    let of_blocks = taken.load(Ordering::Relaxed);
    assert!(
        (most..most + 1_000).contains(&of_blocks),
        "{of_blocks}, not {most}"
    );
    drop((index, held));
    files.remove_unused(&BTreeSet::new());
    assert_eq!(taken.load(Ordering::Relaxed), files.taken_bytes());
}

/// Nothing changes LIDBlocks at rest, so that the thread of compactions may sleep.
#[test]
fn blocks_at_rest_have_no_changes() {
    let (_, files, _) = files();
    let storage = IndexStorage::Blocks(LidBlocks {
        kind: LidBlockKind::Sparse,
        entries: 4,
    });
    let (index, _held) = create_as(&files, storage).expect("files");
    let steps = || {
        let mut is_more_due = true;
        while std::mem::take(&mut is_more_due) {
            files.compact(&|_| false, &mut |_, steps| {
                is_more_due |= steps().expect("a step");
            });
        }
        files.changes()
    };
    let before = steps();
    for row in 0..5 {
        let key = index.encode(&[strandline_base::Value::BigInt(7)]);
        index.add(&key, strandline_base::RowId(row)).expect("added");
    }
    let after = steps();
    assert!(after > before);
    assert_eq!(steps(), after);
    index
        .lookup(
            &index.encode(&[strandline_base::Value::BigInt(7)]),
            &mut Vec::new(),
        )
        .expect("read");
    assert_eq!(steps(), after);
}

/// Filters that need more than their memory, and more than all indexes may take: entries are found,
/// the bytes taken stay within the share, and indexes in memory get entries as before.
#[test]
fn an_index_whose_filters_exceed_memory_goes_on() {
    const ENTRIES: i64 = 120_000;
    let settings = Settings {
        cache_bytes_max: 128 << 10,
        ..Settings::default()
    };
    let (_, files, pool) = files_with(settings.clone());
    let (index, held) = create_as(&files, IndexStorage::Levels).expect("a file");
    held.store_unlogged().expect("complete");
    let value = |number: i64| [strandline_base::Value::BigInt(2 * number)];
    let mut load = index.bulk_load();
    for number in 0..ENTRIES {
        let row = strandline_base::RowId(number as u64);
        load.push(&value(number), row, &mut Vec::new())
            .expect("pushed");
    }
    load.finish().expect("loaded");
    files.checkpoint().expect("checkpoint");
    // 10 bits an entry.
    assert!(ENTRIES as usize * 10 / 8 > settings.index_bytes());
    let assert_bounded = || {
        let taken = pool.taken_bytes().load(Ordering::Relaxed);
        assert!(taken <= settings.index_bytes(), "{taken}");
        let (filters, limit) = (files.filters.taken(), files.filters.limit());
        assert!((1..=limit).contains(&filters), "{filters} of {limit}");
    };
    assert_bounded();
    let look = |index: &Arc<dyn strandline_index::AccessMethod>| {
        for number in (0..ENTRIES).step_by(97) {
            let mut rows = Vec::new();
            index
                .lookup(&index.encode(&value(number)), &mut rows)
                .expect("read");
            assert_eq!(rows, [strandline_base::RowId(number as u64)]);
            rows.clear();
            let absent = [strandline_base::Value::BigInt(2 * number + 1)];
            index
                .lookup(&index.encode(&absent), &mut rows)
                .expect("read");
            assert_eq!(rows, []);
        }
    };
    look(&index);
    let file = held.id();
    drop((index, held));
    assert_eq!(files.filters.taken(), 0);
    let (index, _held) = files.open_index(file, one_part()).expect("opened");
    look(&index);
    files.checkpoint().expect("checkpoint");
    assert_bounded();
}

/// The heads of all indexes in levels stay within the share of indexes.
#[test]
fn more_heads_than_memory_allows_are_refused() {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    let (_, files, pool) = files_with(settings.clone());
    let taken = pool.taken_bytes();
    let mut all = Vec::new();
    let refusal = loop {
        match create_as(&files, IndexStorage::Levels) {
            Ok(index) => all.push(index),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.sqlstate(), SqlState::OUT_OF_MEMORY, "{refusal}");
    assert!(
        refusal
            .hint()
            .is_some_and(|hint| hint.contains("memory_bytes"))
    );
    assert!((300..800).contains(&all.len()), "{}", all.len());
    let held: usize = all.iter().map(|(index, _)| index.memory_bytes()).sum();
    assert!(taken.load(Ordering::Relaxed) <= settings.index_bytes() + held);
    all.pop();
    assert!(create_as(&files, IndexStorage::Levels).is_ok());
}

/// An older image that lacks entries is not taken for the newest one, nor one of an index that was
/// still being filled.
#[test]
fn an_image_has_to_cover_what_the_manifest_wants() {
    let (device, files, _) = files();
    let (index, held) = create_as(&files, IndexStorage::Levels).expect("a file");
    let file = held.id();
    let unfilled = files.open_index(file, one_part()).err().expect("unfilled");
    assert_eq!(unfilled.sqlstate(), SqlState::DATA_CORRUPTED, "{unfilled}");
    held.store_unlogged().expect("complete");
    let key = index.encode(&[strandline_base::Value::BigInt(7)]);
    files
        .log
        .append_swept(StorageId(1), CommitTs(5))
        .expect("a record");
    index.add(&key, strandline_base::RowId(9)).expect("added");
    let checkpoint = files.checkpoint().expect("checkpoint");
    let covers = checkpoint.levels[&file.number()];
    assert!(covers > checkpoint.redo_from.0);
    // An index that has not changed since is not written again.
    assert_eq!(files.checkpoint().expect("again").levels, checkpoint.levels);
    let wants = |position| {
        files.recover_wanted(WantedLevels {
            known: BTreeMap::from([(file.number(), position)]),
            others: 0,
        });
        files.open_index(file, one_part())
    };
    let (found, _) = wants(covers).expect("covered");
    assert_eq!(found.len(), 1);
    let error = wants(covers + 1).err().expect("not covered");
    assert!(error.message().contains("levels-00000001"), "{error}");
    // Of two images the newer one is damaged.
    let newest = file_of_newest_image(&*device);
    newest.write_all_at(b"damage", 60).expect("damaged");
    assert!(wants(covers).is_err());
}

/// Of two images of one position of the log, the older one lacks an entry of a transaction under
/// way. A checkpoint behind its commit writes another image, so that the older ones are refused.
#[test]
fn an_image_from_before_a_commit_is_not_taken_behind_it() {
    let (device, files, _) = files();
    let (index, held) = create_as(&files, IndexStorage::Levels).expect("a file");
    let file = held.id();
    held.store_unlogged().expect("complete");
    let key = index.encode(&[strandline_base::Value::BigInt(7)]);
    index.add(&key, strandline_base::RowId(9)).expect("added");
    files.checkpoint().expect("with the entry");
    let append = || files.log.append_swept(StorageId(1), CommitTs(5));
    append().expect("the commit");
    let checkpoint = files.checkpoint().expect("behind the commit");
    let covers = checkpoint.levels[&file.number()];
    assert!(covers > checkpoint.redo_from.0);
    // Now a checkpoint may leave the index out: its older image covers less.
    append().expect("another record");
    let later = files.checkpoint().expect("unchanged");
    assert_eq!(later.levels, checkpoint.levels);
    drop((index, held));
    let newest = file_of_newest_image(&*device);
    newest.write_all_at(b"damage", 60).expect("damaged");
    files.recover_wanted(WantedLevels {
        known: later.levels,
        others: 0,
    });
    let refusal = files.open_index(file, one_part()).err();
    let refusal = refusal.expect("lacks an entry");
    assert_eq!(refusal.sqlstate(), SqlState::DATA_CORRUPTED, "{refusal}");
}

/// Images that an opening writes before it has added the entries of all noted rows cover no more
/// than the image that was opened.
#[test]
fn images_of_an_opening_cover_what_the_opened_one_does() {
    let (_, files, _) = files();
    let (index, held) = create_as(&files, IndexStorage::Levels).expect("a file");
    let file = held.id();
    held.store_unlogged().expect("complete");
    let covers = files.checkpoint().expect("checkpoint").levels[&file.number()];
    drop((index, held));
    files
        .log
        .append_swept(StorageId(1), CommitTs(5))
        .expect("a commit that the image does not cover");
    files.recover_wanted(WantedLevels {
        known: BTreeMap::from([(file.number(), covers)]),
        others: 0,
    });
    let (_index, held) = files.open_index(file, one_part()).expect("covered");
    let stored = || files.checkpoint().expect("checkpoint").levels[&file.number()];
    assert_eq!(stored(), covers);
    held.set_complete();
    assert!(stored() > covers);
}

/// A compaction whose failure a writer has met tells it to the thread of compactions as well, which
/// has the index given up.
#[test]
fn a_failure_that_a_writer_has_met_is_told() {
    const REFUSED_IN_SUCCESSION: usize = 50;
    let (device, files, _) = files_with(Settings {
        index_head_bytes_max: 8 << 10,
        ..Settings::default()
    });
    let (index, held) = create_as(&files, IndexStorage::Levels).expect("a file");
    held.store_unlogged().expect("complete");
    let mut numbers = (0..100_003).map(|number| number * 7919 % 100_003);
    let mut add = || {
        let number = numbers.next().expect("a number");
        let key = index.encode(&[strandline_base::Value::BigInt(number)]);
        index.add(&key, strandline_base::RowId(1))
    };
    for _ in 0..10_000 {
        add().expect("added");
    }
    let blocks = device.open("levels-00000001").expect("the blocks");
    let damage = vec![7; blocks.len().expect("a length") as usize];
    blocks.write_all_at(&damage, 0).expect("damaged");
    // A lookup that needs a block fails, too, but not many in succession do.
    let mut refused = 0;
    while refused < REFUSED_IN_SUCCESSION {
        refused = if add().is_err() { refused + 1 } else { 0 };
    }
    let mut told = Vec::new();
    files.compact(&|_| false, &mut |file, steps| told.push((file, steps())));
    let [(file, Err(failure))] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(*file, held.id());
    assert_eq!(failure.sqlstate(), SqlState::DATA_CORRUPTED, "{failure}");
    assert!(
        held.levels
            .as_ref()
            .is_some_and(|one| one.check_usable().is_err())
    );
}

/// The image file with the higher generation.
fn file_of_newest_image(device: &dyn Device) -> Arc<dyn strandline_device::File> {
    let images = ["levels-00000001-image0", "levels-00000001-image1"];
    let images = images.map(|name| device.open(name).expect("an image"));
    let generation = |file: &Arc<dyn strandline_device::File>| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 8).expect("read");
        u64::from_le_bytes(bytes)
    };
    images.into_iter().max_by_key(generation).expect("two")
}
