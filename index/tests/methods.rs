//! What every access method has to do, against a map: the methods of this crate, and an ordered one
//! that is a sorted list, which shows that the trait has room for such.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use strandline_base::rng::Rng;
use strandline_base::{CommitTs, ErrorKind, Result, RowId, Value};
use strandline_device::MemoryDevice;
use strandline_index::{
    AccessMethod, BlockKind, BulkLoad, Capabilities, Cursor, Direction, FdIndex, FdIndexSettings,
    FdTreeMode, FdTreeSettings, KeyBytes, KeyRange, LidForm, LidIndex, Lookup, MemoryIndex,
    NODE_BYTES_MIN, OrderedIndex, PagedIndex, PagedIndexSettings, PartOrder,
};
use strandline_storage::level_blocks::MemoryBlocks;
use strandline_storage::pages::{PageFileId, PageLog, PageSettings, PageStore};
use strandline_storage::pool::Pool;
use strandline_storage::wal::Lsn;

/// Entries by key bytes, then row.
#[derive(Default)]
struct SortedList(Mutex<BTreeSet<(KeyBytes, RowId)>>);

impl SortedList {
    fn rows(&self, key: &KeyBytes) -> Vec<RowId> {
        let entries = self.0.lock().expect("not poisoned");
        let rows = entries.range((key.clone(), RowId(0))..=(key.clone(), RowId(u64::MAX)));
        rows.map(|(_, row)| *row).collect()
    }
}

struct SortedCursor(Vec<(KeyBytes, RowId)>);

impl Cursor for SortedCursor {
    fn next(&mut self) -> Result<Option<(KeyBytes, RowId)>> {
        Ok(self.0.pop())
    }
}

struct SortedLoad<'a>(&'a SortedList);

impl BulkLoad for SortedLoad<'_> {
    fn push(&mut self, key: &[Value], row: RowId, others: &mut Vec<RowId>) -> Result<()> {
        self.0.insert(&self.0.encode(key), row, others).map(|_| ())
    }
    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl AccessMethod for SortedList {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: false,
        }
    }
    fn encode(&self, key: &[Value]) -> KeyBytes {
        let mut bytes = Vec::new();
        for value in key {
            let Value::BigInt(v) = value else {
                panic!("these tests index integers");
            };
            bytes.extend((v ^ i64::MIN).to_be_bytes());
        }
        KeyBytes::encoded(bytes)
    }
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        others.extend(self.rows(key).into_iter().filter(|other| *other != row));
        let mut entries = self.0.lock().expect("not poisoned");
        Ok(entries.insert((key.clone(), row)))
    }
    fn find(&self, key: &[Value]) -> Result<Lookup> {
        Ok(match self.rows(&self.encode(key)).as_slice() {
            [] => Lookup::None,
            [row] => Lookup::One(*row),
            _ => Lookup::Several,
        })
    }
    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        rows.extend(self.rows(key));
        Ok(())
    }
    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        let entries = self.0.lock().expect("not poisoned");
        let is_within = |entry: &&(KeyBytes, RowId)| {
            range.from.as_ref().is_none_or(|from| entry.0 >= *from)
                && range.before.as_ref().is_none_or(|before| entry.0 < *before)
        };
        let mut entries: Vec<_> = entries.iter().filter(is_within).cloned().collect();
        if direction == Direction::Forward {
            entries.reverse();
        }
        Ok(Box::new(SortedCursor(entries)))
    }
    fn retire(&self, key: &KeyBytes, row: RowId, _since: CommitTs) -> Result<()> {
        let mut entries = self.0.lock().expect("not poisoned");
        entries.remove(&(key.clone(), row));
        Ok(())
    }
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        let mut entries = self.0.lock().expect("not poisoned");
        entries.retain(|(key, row)| keep(key, *row));
        Ok(())
    }
    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        Box::new(SortedLoad(self))
    }
    fn check(&self, _damage: &mut Vec<String>) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }
    fn memory_bytes(&self) -> usize {
        self.len() * size_of::<(KeyBytes, RowId)>()
    }
}

/// A log that counts.
#[derive(Debug, Default)]
struct CountingLog(Mutex<u64>);

impl PageLog for CountingLog {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let mut end = self.0.lock().expect("not poisoned");
        *end += record.len() as u64;
        Ok(Lsn(*end))
    }
    fn make_durable(&self, _through: Lsn) -> Result<()> {
        Ok(())
    }
    fn end(&self) -> Lsn {
        Lsn(*self.0.lock().expect("not poisoned"))
    }
}

/// An index whose nodes are small, in a store with memory for four pages.
fn paged() -> PagedIndex {
    let settings = PageSettings {
        pool: Pool::new(0),
        ..PageSettings::default()
    };
    let device = Arc::new(MemoryDevice::default());
    let store = PageStore::new(device, Arc::new(CountingLog::default()), settings);
    let parts = vec![PartOrder::default()];
    let mut settings = PagedIndexSettings::new(parts, Arc::new(|| CommitTs::ZERO));
    settings.node_bytes = NODE_BYTES_MIN;
    PagedIndex::create(store, PageFileId(1), settings).expect("created")
}

/// An index with LIDBlocks before a tree of small nodes, in a store with memory for four pages. Its
/// number of entries is exact after a vacuum.
struct Blocked(LidIndex);

impl Blocked {
    fn new(kind: BlockKind, entries: usize) -> Self {
        let settings = PageSettings {
            pool: Pool::new(0),
            ..PageSettings::default()
        };
        let device = Arc::new(MemoryDevice::default());
        let store = PageStore::new(device, Arc::new(CountingLog::default()), settings);
        let parts = vec![PartOrder::default()];
        let mut settings = PagedIndexSettings::new(parts, Arc::new(|| CommitTs::ZERO));
        settings.node_bytes = NODE_BYTES_MIN;
        let form = LidForm {
            kind,
            entries,
            key_bytes: 12,
        };
        let files = (PageFileId(1), PageFileId(2));
        Self(LidIndex::create(store, files, settings, form).expect("created"))
    }
}

impl AccessMethod for Blocked {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.0.encode(key)
    }
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.0.insert(key, row, others)
    }
    fn find(&self, key: &[Value]) -> Result<Lookup> {
        self.0.find(key)
    }
    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.0.lookup(key, rows)
    }
    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        self.0.cursor(range, direction)
    }
    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        self.0.retire(key, row, since)
    }
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.0.retain(keep)
    }
    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        self.0.bulk_load()
    }
    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        self.0.bulk_load_unique()
    }
    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.0.check(damage)
    }
    fn len(&self) -> usize {
        self.0.vacuum().expect("vacuumed");
        self.0.len()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// An index on an FD+tree with tiny blocks; a step of a compaction after every 3rd operation.
struct Compacting {
    index: FdIndex,
    operations: AtomicUsize,
}

impl Compacting {
    fn new(mode: FdTreeMode) -> Self {
        let mut settings =
            FdIndexSettings::new(vec![PartOrder::default()], Arc::new(|| CommitTs::ZERO));
        settings.tree = FdTreeSettings {
            mode,
            head_bytes: 1000,
            head_blocks: 4,
            ratio: 2,
            block_entries_max: 4,
            batch_bytes: 512,
            ..FdTreeSettings::default()
        };
        let index = FdIndex::open(Arc::new(MemoryBlocks::new(128)), settings);
        Self {
            index: index.expect("opened"),
            operations: AtomicUsize::new(0),
        }
    }

    fn index(&self) -> &FdIndex {
        if self
            .operations
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(3)
        {
            self.index.compact_step().expect("compacted");
        }
        &self.index
    }
}

impl AccessMethod for Compacting {
    fn capabilities(&self) -> Capabilities {
        self.index.capabilities()
    }
    fn encode(&self, key: &[Value]) -> KeyBytes {
        self.index.encode(key)
    }
    fn insert(&self, key: &KeyBytes, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        self.index().insert(key, row, others)
    }
    fn find(&self, key: &[Value]) -> Result<Lookup> {
        self.index().find(key)
    }
    fn lookup(&self, key: &KeyBytes, rows: &mut Vec<RowId>) -> Result<()> {
        self.index().lookup(key, rows)
    }
    fn cursor(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor + '_>> {
        self.index().cursor(range, direction)
    }
    fn retire(&self, key: &KeyBytes, row: RowId, since: CommitTs) -> Result<()> {
        self.index().retire(key, row, since)
    }
    fn retain(&self, keep: &mut dyn FnMut(&KeyBytes, RowId) -> bool) -> Result<()> {
        self.index().retain(keep)
    }
    fn bulk_load(&self) -> Box<dyn BulkLoad + '_> {
        self.index().bulk_load()
    }
    fn bulk_load_unique(&self) -> Box<dyn BulkLoad + '_> {
        self.index().bulk_load_unique()
    }
    fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        self.index().check(damage)
    }
    fn len(&self) -> usize {
        self.index.len()
    }
    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
    }
}

fn methods() -> Vec<(&'static str, Box<dyn AccessMethod>)> {
    vec![
        ("FD+FC", Box::new(Compacting::new(FdTreeMode::Fc))),
        ("FD+XM", Box::new(Compacting::new(FdTreeMode::Xm))),
        ("FD+DS", Box::new(Compacting::new(FdTreeMode::Ds))),
        ("paged", Box::new(paged())),
        ("sparse", Box::new(Blocked::new(BlockKind::Sparse, 3))),
        ("dense", Box::new(Blocked::new(BlockKind::Dense, 2))),
        ("memory", Box::new(MemoryIndex::default())),
        (
            "ordered",
            Box::new(OrderedIndex::counted(
                vec![PartOrder::default()],
                Arc::default(),
            )),
        ),
        ("sorted list", Box::new(SortedList::default())),
    ]
}

fn key(number: i64) -> [Value; 1] {
    [Value::BigInt(number)]
}

type Model = BTreeSet<(i64, RowId)>;

fn rows_of(model: &Model, number: i64) -> Vec<RowId> {
    let rows = model.range((number, RowId(0))..=(number, RowId(u64::MAX)));
    rows.map(|(_, row)| *row).collect()
}

fn sorted(mut rows: Vec<RowId>) -> Vec<RowId> {
    rows.sort();
    rows
}

/// A random change, or a load of rows `*next_row` and on, in the method and in the model.
fn change(method: &dyn AccessMethod, model: &mut Model, rng: &mut Rng, next_row: &mut u64) {
    let number = rng.below(60) as i64 - 30;
    let bytes = method.encode(&key(number));
    let row = RowId(rng.below(20));
    match rng.below(12) {
        0..=5 => {
            let mut others = Vec::new();
            let is_new = method.insert(&bytes, row, &mut others).expect("inserted");
            let mut expected = rows_of(model, number);
            expected.retain(|other| *other != row);
            assert_eq!(sorted(others), expected, "{number}");
            assert_eq!(is_new, model.insert((number, row)));
        }
        6..=9 => {
            method.retire(&bytes, row, CommitTs::ZERO).expect("retired");
            model.remove(&(number, row));
        }
        10 => {
            let mut load = method.bulk_load_unique();
            let (mut met, mut expected) = (Vec::new(), Vec::new());
            for number in number..number + 10 {
                let (row, mut others) = (RowId(*next_row), Vec::new());
                load.push(&key(number), row, &mut others).expect("pushed");
                met.push((row, sorted(others)));
                expected.push((row, rows_of(model, number)));
                model.insert((number, row));
                *next_row += 1;
            }
            let later = load.collisions().expect("entered");
            met.extend(later.into_iter().map(|met| (met.row, sorted(met.others))));
            for reported in [&mut met, &mut expected] {
                reported.retain(|(_, others)| !others.is_empty());
                reported.sort();
            }
            assert_eq!(met, expected);
            load.finish().expect("finished");
        }
        _ => {
            let gone = rng.below(*next_row);
            let mut keep = |_: &KeyBytes, row: RowId| row.0 % 7 != gone % 7;
            method.retain(&mut keep).expect("retained");
            model.retain(|(_, row)| row.0 % 7 != gone % 7);
        }
    }
}

/// A load whose entries are there, as after a crash: it reports the other rows all the same.
#[test]
fn loads_of_present_entries_report_the_other_rows() {
    const KEYS: u64 = 400;
    for others in [0, 1, 3] {
        for again in [0..KEYS, 150..152, 399..400] {
            for (name, method) in methods() {
                println!("{others} others, rows {again:?} again, {name}");
                let mut model = Model::new();
                let mut add = |number: u64, row: u64| {
                    let bytes = method.encode(&key(number as i64));
                    let added = method.insert(&bytes, RowId(row), &mut Vec::new());
                    model.insert((number as i64, RowId(row)));
                    assert!(added.expect("inserted"));
                };
                (0..KEYS).for_each(|number| add(number, number + 1000));
                for number in [0, 7, 150, 151, 399] {
                    // Before and behind the loaded row.
                    (0..others).for_each(|other| add(number, [1, 5000, 5001][other]));
                }
                let (mut met, mut load) = (Vec::new(), method.bulk_load_unique());
                for number in again.clone() {
                    let (row, mut others) = (RowId(number + 1000), Vec::new());
                    let pushed = load.push(&key(number as i64), row, &mut others);
                    pushed.expect("pushed");
                    met.push((row, sorted(others)));
                }
                let later = load.collisions().expect("entered");
                met.extend(later.into_iter().map(|met| (met.row, sorted(met.others))));
                met.retain(|(_, others)| !others.is_empty());
                met.sort();
                let expected = again.clone().map(|number| {
                    let (own, mut rows) = (RowId(number + 1000), rows_of(&model, number as i64));
                    rows.retain(|row| *row != own);
                    (own, rows)
                });
                let expected = expected.filter(|(_, others)| !others.is_empty());
                assert_eq!(met, expected.collect::<Vec<_>>());
                load.finish().expect("finished");
                assert_eq!(method.len(), model.len(), "nothing was added");
            }
        }
    }
}

#[test]
fn methods_agree_with_a_map() {
    for seed in 0..20 {
        for (name, method) in methods() {
            println!("seed {seed}, {name}");
            let (mut rng, mut model, mut next_row) = (Rng::new(seed), Model::new(), 1000);
            for _ in 0..400 {
                change(&*method, &mut model, &mut rng, &mut next_row);
                let number = rng.below(60) as i64 - 30;
                let (expected, mut rows) = (rows_of(&model, number), Vec::new());
                let bytes = method.encode(&key(number));
                method.lookup(&bytes, &mut rows).expect("looked up");
                assert_eq!(sorted(rows), expected, "{number}");
                match method.find(&key(number)).expect("found") {
                    Lookup::None => assert!(expected.is_empty(), "{number}"),
                    // The loaded one of several, or one that a sweep has not come to.
                    Lookup::One(row) => assert!(row.0 >= 1000 || expected == [row], "{number}"),
                    Lookup::Several => assert!(expected.len() > 1, "{number}"),
                }
            }
            assert_eq!(method.len(), model.len());
            let mut damage = Vec::new();
            method.check(&mut damage).expect("checked");
            assert_eq!(damage, Vec::<String>::new());
        }
    }
}

/// The methods that keep sequences.
fn with_sequences() -> Vec<(&'static str, Box<dyn AccessMethod>)> {
    vec![
        ("FD+", Box::new(Compacting::new(FdTreeMode::Fc).index)),
        ("paged", Box::new(paged())),
        ("memory", Box::new(MemoryIndex::default())),
    ]
}

fn load_serial(method: &dyn AccessMethod, numbers: std::ops::Range<i64>) {
    let mut load = method.bulk_load();
    for number in numbers {
        load.push(&key(number), RowId(number as u64), &mut Vec::new())
            .expect("pushed");
    }
    load.finish().expect("finished");
}

#[test]
fn a_swept_sequence_leads_nowhere() {
    for (name, method) in with_sequences() {
        load_serial(&*method, 0..10);
        assert!(method.sequence().is_some(), "{name}");
        let find = |number| method.find(&key(number)).expect("found");
        assert_eq!(find(3), Lookup::One(RowId(3)), "{name}");
        method
            .retain(&mut |_, row| row == RowId(4) || row == RowId(5))
            .expect("retained");
        // The sequence in memory stays as a whole: whether a row is gone the caller sees.
        let swept = match method.capabilities().durable {
            true => Lookup::None,
            false => Lookup::One(RowId(3)),
        };
        assert_eq!(find(3), swept, "{name}");
        assert_eq!(find(5), Lookup::One(RowId(5)), "{name}");
        method.retain(&mut |_, _| false).expect("retained");
        assert_eq!((find(3), find(4)), (Lookup::None, Lookup::None), "{name}");
        assert!(method.sequence().is_none() && method.is_empty(), "{name}");
    }
}

/// Entries that were added one by one are no sequence before a sweep has gone over them.
#[test]
fn indexes_in_files_learn_sequences_from_a_sweep() {
    let files = with_sequences().into_iter();
    for (name, method) in files.filter(|(_, method)| method.capabilities().durable) {
        for number in [-3, 0, 1, 2, 3, 4] {
            let row = RowId((number + 100) as u64);
            let bytes = method.encode(&key(number));
            method.add(&bytes, row).expect("added");
        }
        assert!(method.sequence().is_none(), "{name}");
        method.retain(&mut |_, _| true).expect("swept");
        assert!(
            method.sequence().is_none(),
            "{name}: a gap, and a short one"
        );
        method
            .retain(&mut |_, row| row >= RowId(100))
            .expect("swept");
        let sequence = method.sequence().expect("one without gaps");
        let expected: Vec<_> = (0..5).map(|n| (n, RowId(n as u64 + 100))).collect();
        assert_eq!(sequence.entries().collect::<Vec<_>>(), expected, "{name}");
        // A load goes on with what a sweep has found, and a sweep finds it again.
        let mut load = method.bulk_load();
        for number in 5..8 {
            let row = RowId(number as u64 + 100);
            load.push(&key(number), row, &mut Vec::new())
                .expect("pushed");
        }
        load.finish().expect("finished");
        for _ in 0..2 {
            let rows = method.sequence().map(|found| found.entries().count());
            assert_eq!(rows, Some(8), "{name}");
            method.retain(&mut |_, _| true).expect("swept");
        }
        assert_eq!(
            method.find(&key(7)).expect("found"),
            Lookup::One(RowId(107))
        );
    }
}

#[test]
fn keys_that_are_no_ascending_integers_have_no_sequence() {
    let descending = PartOrder {
        descending: true,
        ..PartOrder::default()
    };
    for parts in [vec![descending], vec![PartOrder::default(); 2]] {
        let settings = FdIndexSettings::new(parts.clone(), Arc::new(|| CommitTs::ZERO));
        let index = FdIndex::open(Arc::new(MemoryBlocks::new(4096)), settings).expect("opened");
        for number in 0..10 {
            let values = vec![Value::BigInt(number); parts.len()];
            let bytes = index.encode(&values);
            index.add(&bytes, RowId(number as u64)).expect("added");
        }
        index.retain(&mut |_, _| true).expect("swept");
        assert!(index.sequence().is_none(), "{parts:?}");
    }
}

#[test]
fn cursors_go_both_ways_over_a_range_if_the_method_is_ordered() {
    for (name, method) in methods() {
        for number in [5, -3, 9, 0, 9] {
            let row = RowId(method.len() as u64);
            let bytes = method.encode(&key(number));
            method
                .insert(&bytes, row, &mut Vec::new())
                .expect("inserted");
        }
        let range = KeyRange {
            from: Some(method.encode(&key(-3))),
            before: Some(method.encode(&key(9))),
        };
        for (direction, expected) in [
            (Direction::Forward, [-3, 0, 5]),
            (Direction::Backward, [5, 0, -3]),
        ] {
            let cursor = method.cursor(&range, direction);
            if !method.capabilities().ordered {
                let Err(error) = cursor else {
                    panic!("{name} has a cursor");
                };
                assert_eq!(error.kind(), ErrorKind::Internal);
                assert!(error.message().contains("not ordered"), "{error}");
                continue;
            }
            let (mut cursor, mut seen) = (cursor.expect("a cursor"), Vec::new());
            while let Some((bytes, _)) = cursor.next().expect("read") {
                seen.push(bytes);
            }
            let expected = expected.map(|number| method.encode(&key(number)));
            assert_eq!(seen, expected, "{name}, {direction:?}");
        }
    }
}

#[test]
fn methods_in_memory_have_logged_nothing_and_refuse_foreign_keys() {
    let method = MemoryIndex::default();
    let error = method.replay(b"entry", CommitTs(1)).expect_err("nothing");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let foreign = KeyBytes::encoded(*b"encoded");
    assert!(method.insert(&foreign, RowId(1), &mut Vec::new()).is_err());
    assert!(method.is_empty());
}
