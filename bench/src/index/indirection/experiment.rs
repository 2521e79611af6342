//! A table of versions on the capacity tier with indexes, after [Indirection §4, §6.3]: each update
//! appends a version, so that the row has another place (its *record id*) afterwards.
//!
//! On the side `Rid`, indexes hold record ids: an update enters the new one into every index. On
//! the side `Lid` they hold row ids (the paper's logical ids), and a table of their places is on
//! the fast tier, each access of which is one of the device. Its indexes have LIDBlocks or none.
//!
//! Each side has the same memory for pages of indexes and rows. Writes of a window include those of
//! the checkpoint at its end. The log is not counted; `Rid` writes more of it. Every row that is
//! read is compared with the row that it must be.
//!
//! Differences from the product: its row ids never change and it has no table of places, so the
//! accesses of the fast tier for that table are the paper's and not its own.

use super::devices::{Devices, Spent};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_base::rng::Rng;
use strandline_base::{CommitTs, Error, Result, RowId, Value};
use strandline_device::{Device, File, MemoryDevice, TieredDevice};
use strandline_index::{
    AccessMethod, BlockKind, Direction, KeyBytes, LidForm, LidIndex, OrderedKeys, PagedIndex,
    PagedIndexSettings, PartOrder,
};
use strandline_storage::pages::{
    Access, PAGE_BODY_BYTES, PAGE_BYTES, PageFileId, PageLog, PageNumber, PageSettings, PageStore,
};
use strandline_storage::pool::Pool;
use strandline_storage::wal::Lsn;

/// The rows' pages.
const HEAP: PageFileId = PageFileId(1);
/// Bytes of a version, as in [Indirection §5.2].
const VERSION_BYTES: usize = 150;
const VERSIONS: u64 = (PAGE_BODY_BYTES / VERSION_BYTES) as u64;
/// Where a version has the mark of a deleted row, behind its row's number.
const DELETED_AT: usize = 8;
/// The file of places on the fast tier, its unit, and the bytes of a place.
const PLACES: &str = "places";
const PLACES_UNIT: u64 = 4096;
const PLACE_BYTES: u64 = 8;
/// Memory for a load.
const LOAD_BYTES: u64 = 4 << 30;
/// An inner node has at least so many children.
const INNER_CHILDREN: u64 = 200;
/// Distance of inserted keys: a prime number, so that each one is inserted once.
const STRIDE: u64 = 7_368_787;
/// Entries that a range reads at a time.
const RANGE_ROWS: usize = 256;

/// What the entries of the indexes lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Rid,
    /// with blocks of this form
    Lid(Option<LidForm>),
}

/// Blocks of so many entries.
pub fn blocks(kind: BlockKind, entries: usize) -> LidForm {
    LidForm {
        kind,
        entries,
        key_bytes: 12,
    }
}

/// A table and its indexes. The first one is of the rows' unique keys, in the rows' order; the
/// others are of values that several rows share.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub rows: u64,
    pub indexes: usize,
    /// whether there is an index of unique keys
    pub has_key: bool,
    /// different values of an index
    pub values: u64,
}

impl Shape {
    /// The key of a row in an index. Keys of loaded rows are even in the first index, so that rows
    /// are inserted between them.
    fn key(&self, row: u64, changes: u64, index: usize) -> i64 {
        let key = match (self.has_key && index == 0, row < self.rows) {
            (true, true) => 2 * row,
            (true, false) => 2 * ((row - self.rows) * STRIDE % self.rows) + 1,
            _ => {
                let seed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (changes << 8) ^ index as u64;
                Rng::new(seed).below(self.values)
            }
        };
        key as i64
    }
}

/// Memory for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// the way to one leaf of each index
    Small,
    /// all inner nodes
    Inner,
    /// all pages of indexes
    Indexes,
    /// those and the rows
    Rows,
    /// everything, the table of places included
    All,
}

/// A log that counts its bytes.
#[derive(Debug, Default)]
struct Log(AtomicU64);

impl PageLog for Log {
    fn append(&self, record: &[u8]) -> Result<Lsn> {
        let bytes = record.len() as u64;
        Ok(Lsn(self.0.fetch_add(bytes, Relaxed) + bytes))
    }

    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }

    fn end(&self) -> Lsn {
        Lsn(self.0.load(Relaxed))
    }
}

/// The files of an index's tree and blocks.
fn files_of(index: usize) -> (PageFileId, PageFileId) {
    let id = 2 * index as u32 + 2;
    (PageFileId(id), PageFileId(id + 1))
}

/// Settings of an index of a table without snapshots: retired entries go at once.
fn settings() -> PagedIndexSettings {
    PagedIndexSettings::new(vec![PartOrder::default()], Arc::new(|| CommitTs::ZERO))
}

fn page_store(device: Arc<dyn Device>, log: Arc<Log>, memory_bytes: u64) -> Arc<PageStore> {
    let settings = PageSettings {
        pool: Pool::new(memory_bytes as usize),
        ..PageSettings::default()
    };
    PageStore::new(device, log, settings)
}

/// The place of the version with this number.
fn place(version: u64) -> (PageNumber, usize) {
    let page = PageNumber((version / VERSIONS) as u32 + 1);
    (page, (version % VERSIONS) as usize * VERSION_BYTES)
}

/// The number at the begin of bytes.
fn number_in(bytes: &[u8]) -> Result<u64> {
    let number = bytes.first_chunk().copied().map(u64::from_le_bytes);
    number.ok_or_else(|| Error::internal("a number is cut off"))
}

fn wrong(what: &str, row: u64) -> Error {
    Error::internal(format!("{what} of row {row} is wrong"))
}

/// The files of a loaded table.
pub struct Image {
    side: Side,
    shape: Shape,
    files: [Arc<MemoryDevice>; 2],
    log_end: u64,
    /// pages of each index
    index_pages: Vec<u64>,
    row_pages: u64,
}

impl Image {
    /// Loads a table.
    pub fn load(side: Side, shape: Shape) -> Result<Self> {
        let files: [Arc<MemoryDevice>; 2] = Default::default();
        let [fast, capacity] = files.clone();
        let tiers = Arc::new(TieredDevice::new(fast.clone(), capacity, String::new())?);
        let log = Arc::new(Log::default());
        let store = page_store(tiers, log.clone(), LOAD_BYTES);
        store.create_file(HEAP)?;
        for page in 0..shape.rows.div_ceil(VERSIONS) {
            let mut change = store.begin(HEAP);
            let number = change.allocate()?;
            for row in page * VERSIONS..shape.rows.min((page + 1) * VERSIONS) {
                let (expected, at) = place(row);
                if expected != number {
                    return Err(wrong("the page", row));
                }
                change.body_mut(number)[at..at + 8].copy_from_slice(&row.to_le_bytes());
            }
            change.commit()?;
        }
        if side != Side::Rid {
            let places: Vec<u8> = (0..shape.rows).flat_map(u64::to_le_bytes).collect();
            fast.create(PLACES)?.write_all_at(&places, 0)?;
        }
        let mut index_pages = Vec::new();
        for index in 0..shape.indexes {
            let made = side.create(&store, index)?;
            let mut load = made.bulk_load();
            for row in 0..shape.rows {
                let key = Value::BigInt(shape.key(row, 0, index));
                load.push(&[key], RowId(row), &mut Vec::new())?;
            }
            load.finish()?;
            index_pages.push(store.check(files_of(index).0)?.used.len() as u64);
        }
        store.checkpoint()?;
        Ok(Self {
            side,
            shape,
            files,
            log_end: log.end().0,
            index_pages,
            row_pages: store.check(HEAP)?.used.len() as u64,
        })
    }

    fn memory_bytes(&self, memory: Memory, indexes: usize) -> u64 {
        let index_pages: u64 = self.index_pages.iter().take(indexes).sum();
        let ways = 3 * indexes as u64;
        let pages = match memory {
            Memory::Small => ways,
            Memory::Inner => ways + index_pages / INNER_CHILDREN,
            // A quarter for pages that the window adds.
            Memory::Indexes => index_pages * 5 / 4,
            Memory::Rows | Memory::All => (index_pages + self.row_pages) * 5 / 4,
        };
        // The tail and a page of rows, and those of a change.
        (pages + 8) * PAGE_BYTES as u64
    }

    /// Opens a copy of the table with the first `indexes` of its indexes.
    pub fn open(&self, memory: Memory, indexes: usize) -> Result<Table> {
        let copies = self.files.each_ref().map(|files| files.duplicate());
        let devices = Devices::over(copies)?;
        let log = Arc::new(Log(AtomicU64::new(self.log_end)));
        let store = page_store(
            devices.tiers.clone(),
            log,
            self.memory_bytes(memory, indexes),
        );
        store.open_file(HEAP)?;
        let opened = (0..indexes).map(|index| self.side.open(&store, index));
        let indexes = opened.collect::<Result<Vec<_>>>()?;
        let places = match self.side {
            Side::Rid => None,
            Side::Lid(_) => Some(Places::open(&devices, memory == Memory::All)?),
        };
        Ok(Table {
            shape: self.shape,
            devices,
            store,
            indexes,
            keys: OrderedKeys::new(vec![PartOrder::default()]),
            places,
            versions: self.shape.rows,
            rows: self.shape.rows,
            moved: HashMap::new(),
        })
    }
}

impl Side {
    fn create(self, store: &Arc<PageStore>, index: usize) -> Result<Box<dyn AccessMethod>> {
        let files = files_of(index);
        Ok(match self {
            Self::Lid(Some(form)) => {
                Box::new(LidIndex::create(store.clone(), files, settings(), form)?)
            }
            _ => Box::new(PagedIndex::create(store.clone(), files.0, settings())?),
        })
    }

    fn open(self, store: &Arc<PageStore>, index: usize) -> Result<Box<dyn AccessMethod>> {
        let files = files_of(index);
        store.open_file(files.0)?;
        Ok(match self {
            Self::Lid(Some(_)) => {
                store.open_file(files.1)?;
                Box::new(LidIndex::open(store.clone(), files, settings())?)
            }
            _ => Box::new(PagedIndex::open(store.clone(), files.0, settings())?),
        })
    }
}

/// The table of places, by row.
struct Places {
    file: Arc<dyn File>,
    /// the whole table, if it is in memory
    resident: Option<HashMap<u64, u64>>,
}

impl Places {
    fn open(devices: &Devices, is_resident: bool) -> Result<Self> {
        let file = devices.fast.open(PLACES)?;
        let resident = match is_resident {
            true => {
                let mut bytes = vec![0; file.len()? as usize];
                file.read_exact_at(&mut bytes, 0)?;
                let places = bytes.chunks_exact(8).map(number_in);
                Some((0..).zip(places.collect::<Result<Vec<_>>>()?).collect())
            }
            false => None,
        };
        Ok(Self { file, resident })
    }

    /// The present version of a row. `last` is the unit that was read last, with its offset: rows
    /// of a range share units.
    fn get(&self, row: u64, last: &mut Option<(u64, Vec<u8>)>) -> Result<u64> {
        if let Some(resident) = &self.resident {
            let place = resident.get(&row).copied();
            return place.ok_or_else(|| wrong("the place", row));
        }
        let (unit, at) = unit_of(row);
        if last.as_ref().is_none_or(|(of, _)| *of != unit) {
            *last = Some((unit, self.read(unit)?));
        }
        let bytes = last.as_ref().and_then(|(_, bytes)| bytes.get(at..));
        number_in(bytes.unwrap_or_default())
    }

    fn set(&mut self, row: u64, version: u64) -> Result<()> {
        if let Some(resident) = &mut self.resident {
            resident.insert(row, version);
            return Ok(());
        }
        let (unit, at) = unit_of(row);
        let mut bytes = match self.file.len()? > unit {
            true => self.read(unit)?,
            false => vec![0; PLACES_UNIT as usize],
        };
        bytes[at..at + 8].copy_from_slice(&version.to_le_bytes());
        self.file.write_all_at(&bytes, unit)
    }

    /// The unit at this offset; the last one may be short.
    fn read(&self, unit: u64) -> Result<Vec<u8>> {
        let len = PLACES_UNIT.min(self.file.len()?.saturating_sub(unit));
        let mut bytes = vec![0; PLACES_UNIT as usize];
        self.file.read_exact_at(&mut bytes[..len as usize], unit)?;
        Ok(bytes)
    }
}

/// The offset of a row's unit, and where the row is in it.
fn unit_of(row: u64) -> (u64, usize) {
    let at = row * PLACE_BYTES;
    (at / PLACES_UNIT * PLACES_UNIT, (at % PLACES_UNIT) as usize)
}

/// What a measured operation does to one row.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// of an attribute without an index
    Update,
    /// of the attribute of the second index
    KeyUpdate,
    /// of one of so many attributes beside the unique key, each in its turn
    AnyUpdate(usize),
    /// all rows with one value of one of so many attributes, each in its turn: by its index, or by
    /// a scan if it has none
    Query(usize),
    /// with a look whether the first index has the key
    Insert,
    /// into a table whose indexes have no unique keys
    BlindInsert,
    Delete,
    Search,
    /// of so many rows in the order of the first index
    Range(u64),
}

/// An open table.
pub struct Table {
    shape: Shape,
    devices: Devices,
    store: Arc<PageStore>,
    indexes: Vec<Box<dyn AccessMethod>>,
    keys: OrderedKeys,
    places: Option<Places>,
    /// versions so far, the number of the next one
    versions: u64,
    /// rows so far, the number of the next one
    rows: u64,
    /// changed rows
    moved: HashMap<u64, State>,
}

/// A row as it is now.
#[derive(Clone, Copy, Debug)]
struct State {
    version: u64,
    /// the attribute that was changed, by the number that its index has or would have
    changed: usize,
    /// how often
    changes: u64,
}

impl Table {
    /// Runs an operation many times, on random rows, then a checkpoint; what one of them took.
    pub fn measure(&mut self, operation: Operation, count: u64, seed: u64) -> Result<Spent> {
        let mut rng = Rng::new(seed);
        // Memory is full of what the operation needs.
        for _ in 0..count / 4 {
            self.operate(operation, &mut rng)?;
        }
        self.store.checkpoint()?;
        let before = self.devices.spent();
        for _ in 0..count {
            self.operate(operation, &mut rng)?;
        }
        self.store.checkpoint()?;
        Ok(self.devices.spent().since(before, count))
    }

    fn operate(&mut self, operation: Operation, rng: &mut Rng) -> Result<()> {
        let row = rng.below(self.shape.rows);
        match operation {
            Operation::Update => self.update(row, None),
            Operation::KeyUpdate => self.update(row, Some(1)),
            Operation::AnyUpdate(attributes) => {
                self.update(row, Some(1 + row as usize % attributes))
            }
            Operation::Query(attributes) => {
                self.query(row, 1 + rng.below(attributes as u64) as usize)
            }
            Operation::Insert => self.insert(true),
            Operation::BlindInsert => self.insert(false),
            Operation::Delete => self.delete(row),
            Operation::Search => self.find(row).map(drop),
            Operation::Range(rows) => {
                let first = rng.below(self.shape.rows - rows);
                self.range(first, rows)
            }
        }
    }

    fn state(&self, row: u64) -> State {
        let new = State {
            version: row,
            changed: 0,
            changes: 0,
        };
        self.moved.get(&row).copied().unwrap_or(new)
    }

    /// The row's value of the attribute of an index, which may not be there.
    fn value(&self, row: u64, state: State, index: usize) -> i64 {
        let is_changed = state.changed == index;
        let changes = if is_changed { state.changes } else { 0 };
        self.shape.key(row, changes, index)
    }

    fn key(&self, row: u64, state: State, index: usize) -> KeyBytes {
        let value = self.value(row, state, index);
        self.keys.encode(&[Value::BigInt(value)])
    }

    /// What the indexes have of a row.
    fn id(&self, row: u64, version: u64) -> RowId {
        match self.places {
            Some(_) => RowId(row),
            None => RowId(version),
        }
    }

    /// The version that an entry leads to.
    fn version_of(&self, id: RowId, last: &mut Option<(u64, Vec<u8>)>) -> Result<u64> {
        match &self.places {
            Some(places) => places.get(id.0, last),
            None => Ok(id.0),
        }
    }

    fn read(&self, row: u64, version: u64) -> Result<()> {
        let (page, at) = place(version);
        let read = self.store.read(HEAP, page, Access::Random)?;
        match number_in(&read[at..])? == row {
            true => Ok(()),
            false => Err(wrong("the version", row)),
        }
    }

    /// Finds a row by its unique key and reads it; the entry.
    fn find(&self, row: u64) -> Result<RowId> {
        let mut rows = Vec::new();
        let state = self.state(row);
        self.indexes[0].lookup(&self.key(row, state, 0), &mut rows)?;
        let expected = self.id(row, state.version);
        if rows != [expected] {
            return Err(wrong("the entry", row));
        }
        self.read(row, self.version_of(expected, &mut None)?)?;
        Ok(expected)
    }

    /// Appends a version; its number.
    fn append(&mut self, row: u64) -> Result<u64> {
        let version = self.versions;
        let (page, at) = place(version);
        let mut change = self.store.begin(HEAP);
        match at {
            0 => {
                if change.allocate()? != page {
                    return Err(wrong("the page", row));
                }
            }
            _ => change.write(page)?,
        }
        change.body_mut(page)[at..at + 8].copy_from_slice(&row.to_le_bytes());
        change.commit()?;
        self.versions += 1;
        if let Some(places) = &mut self.places {
            places.set(row, version)?;
        }
        Ok(version)
    }

    /// `changed`: the attribute with another value, if one of those that indexes may have.
    fn update(&mut self, row: u64, changed: Option<usize>) -> Result<()> {
        let old = self.find(row)?;
        let before = self.state(row);
        let version = self.append(row)?;
        let after = State {
            version,
            changed: changed.unwrap_or(before.changed),
            changes: before.changes + u64::from(changed.is_some()),
        };
        let new = self.id(row, version);
        for index in 0..self.indexes.len() {
            if old == new && changed != Some(index) {
                continue;
            }
            let keys = [before, after].map(|state| self.key(row, state, index));
            let [old_key, new_key] = keys.each_ref().map(|key| key.as_slice());
            if (old_key, old) != (new_key, new) {
                self.indexes[index].retire(&keys[0], old, CommitTs::ZERO)?;
                self.indexes[index].add(&keys[1], new)?;
            }
        }
        self.moved.insert(row, after);
        Ok(())
    }

    /// Reads all rows with this row's value of an attribute.
    fn query(&self, row: u64, attribute: usize) -> Result<()> {
        let state = self.state(row);
        let found = match self.indexes.get(attribute) {
            Some(index) => {
                let mut ids = Vec::new();
                index.lookup(&self.key(row, state, attribute), &mut ids)?;
                let mut last = None;
                let mut found = 0;
                for id in ids {
                    let version = self.version_of(id, &mut last)?;
                    let (page, at) = place(version);
                    let read = self.store.read(HEAP, page, Access::Random)?;
                    let of = number_in(&read[at..])?;
                    found += usize::from(self.is_present(of, version));
                }
                found
            }
            None => self.scan(attribute, self.value(row, state, attribute))?,
        };
        match found {
            0 => Err(wrong("the entry", row)),
            _ => Ok(()),
        }
    }

    fn is_present(&self, row: u64, version: u64) -> bool {
        self.state(row).version == version
    }

    /// Reads all pages of rows; how many rows have this value.
    fn scan(&self, attribute: usize, value: i64) -> Result<usize> {
        let mut found = 0;
        for first in (0..self.versions).step_by(VERSIONS as usize) {
            let read = self.store.read(HEAP, place(first).0, Access::Sequential)?;
            for version in first..self.versions.min(first + VERSIONS) {
                let row = number_in(&read[place(version).1..])?;
                let is_wanted = self.value(row, self.state(row), attribute) == value;
                found += usize::from(is_wanted && self.is_present(row, version));
            }
        }
        Ok(found)
    }

    fn insert(&mut self, is_unique: bool) -> Result<()> {
        let row = self.rows;
        if is_unique {
            let mut rows = Vec::new();
            self.indexes[0].lookup(&self.key(row, self.state(row), 0), &mut rows)?;
            if !rows.is_empty() {
                return Err(wrong("the absence", row));
            }
        }
        let version = self.append(row)?;
        let id = self.id(row, version);
        for index in 0..self.indexes.len() {
            let key = self.key(row, self.state(row), index);
            self.indexes[index].add(&key, id)?;
        }
        self.rows += 1;
        let state = State {
            version,
            ..self.state(row)
        };
        self.moved.insert(row, state);
        Ok(())
    }

    /// Marks a row, removes it from the first index, and from the others if they have record ids
    /// or blocks: a row id without a place is a deleted row and goes when a reader meets it.
    fn delete(&mut self, row: u64) -> Result<()> {
        let state = self.state(row);
        let mut rows = Vec::new();
        self.indexes[0].lookup(&self.key(row, state, 0), &mut rows)?;
        let [id] = rows[..] else {
            return Ok(());
        };
        let (page, at) = place(self.version_of(id, &mut None)?);
        let mut change = self.store.begin(HEAP);
        change.write(page)?;
        change.body_mut(page)[at + DELETED_AT] = 1;
        change.commit()?;
        if let Some(places) = &mut self.places {
            places.set(row, u64::MAX)?;
        }
        let id = self.id(row, state.version);
        let is_lazy = self.places.is_some();
        for index in 0..self.indexes.len() {
            if index == 0 || !is_lazy {
                let key = self.key(row, state, index);
                self.indexes[index].retire(&key, id, CommitTs::ZERO)?;
            }
        }
        Ok(())
    }

    fn range(&self, first: u64, count: u64) -> Result<()> {
        let from = Value::BigInt(self.shape.key(first, 0, 0));
        let range = self.keys.range(
            &[],
            std::ops::Bound::Included(&from),
            std::ops::Bound::Unbounded,
        );
        let mut cursor = self.indexes[0].cursor(&range, Direction::Forward)?;
        let (mut row, mut rows, mut last) = (first, Vec::new(), None);
        while row < first + count {
            let at_most = ((first + count - row) as usize).min(RANGE_ROWS);
            rows.clear();
            cursor.next_rows(at_most, &mut rows)?;
            if rows.is_empty() {
                return Err(wrong("the entry", row));
            }
            for &id in &rows {
                self.read(row, self.version_of(id, &mut last)?)?;
                row += 1;
            }
        }
        Ok(())
    }
}
