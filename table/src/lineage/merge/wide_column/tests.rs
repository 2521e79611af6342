//! A range of narrow rows that updates have made wide is merged block by block.

use super::*;
use crate::lineage::horizon::Horizon;
use crate::lineage::{Lineage, Shared};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use strandline_base::rng::Rng;
use strandline_base::{ColumnId, CommitTs, ManualClock, RangeNo, RowId, SqlType, StorageId, Value};
use strandline_device::{Device, File, MemoryDevice};
use strandline_storage::file::DataFiles;
use strandline_storage::pool::Pool;
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_tail::schema::StorageSchema;
use strandline_txn::{StartWord, TxnManager, Visibility};

/// Rows of the range: three blocks and a part of one.
const ROWS: usize = 3 * BLOCK_ROWS + 100;
/// Bytes of a wide text: a block of them has 4.5 MB, more than a column may have that is merged as
/// a whole.
const TEXT_BYTES: usize = 1_100;

/// The most bytes that were read or written at once.
type Largest = Arc<AtomicUsize>;

#[derive(Debug, Default)]
struct Noting {
    inner: MemoryDevice,
    largest: Largest,
}

#[derive(Debug)]
struct NotingFile {
    inner: Arc<dyn File>,
    largest: Largest,
}

impl Noting {
    fn noting(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let largest = self.largest.clone();
        Arc::new(NotingFile { inner, largest })
    }
}

impl Device for Noting {
    strandline_device::forward!(inner: remove rename list sync_directory lock location);

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.noting(self.inner.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(self.noting(self.inner.open(name)?))
    }
}

impl File for NotingFile {
    strandline_device::forward!(inner: name sync len set_len);

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.largest.fetch_max(buf.len(), Ordering::Relaxed);
        self.inner.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.largest.fetch_max(buf.len(), Ordering::Relaxed);
        self.inner.write_all_at(buf, offset)
    }
}

/// Of a transaction that committed at `ts`.
fn writer(ts: u64) -> Writer {
    Writer {
        word: StartWord::committed(CommitTs(ts)),
        statement: 0,
        snapshot: CommitTs(ts),
        speculative: false,
    }
}

struct Table {
    lineage: Arc<Lineage>,
    largest: Largest,
}

impl Table {
    /// With [`ROWS`] rows of an empty text, inserted at 1 and merged.
    fn new() -> Self {
        Self::with_ranges(64 << 20)
    }

    /// With ranges of `range_bytes`.
    fn with_ranges(range_bytes: usize) -> Self {
        let device = Noting::default();
        let largest = device.largest.clone();
        let shared = Shared {
            files: DataFiles::new(Arc::new(device)),
            pool: Pool::new(256 << 20),
            txns: TxnManager::new(Arc::new(ManualClock::new(1)), CommitTs(100)),
            page_bytes: Arc::default(),
            next_file: Arc::new(AtomicU64::new(1)),
            consolidation: Arc::default(),
            range_bytes_max: range_bytes,
            row_bytes_max: 1 << 30,
        };
        let schema = StorageSchema::new([(SqlType::Text, Value::Null)]);
        let lineage = Lineage::new(StorageId(1), schema, shared);
        for _ in 0..ROWS {
            let row = lineage.insert(&[Value::from("")], &writer(1), &mut Vec::new());
            row.expect("inserted");
        }
        let table = Self { lineage, largest };
        table.merge(1);
        table
    }

    fn row(slot: usize) -> RowId {
        RowId::new(RangeNo(0), slot as u16)
    }

    /// Updates the rows `slots` at `ts`.
    fn update(&self, slots: impl Iterator<Item = usize>, ts: u64, text: impl Fn(usize) -> Value) {
        for slot in slots {
            let set = [(ColumnId(0), text(slot))];
            let change = Change::Update(&set);
            let outcome = self
                .lineage
                .write(Self::row(slot), change, &writer(ts), &mut Vec::new());
            assert!(matches!(outcome, Ok(WriteOutcome::Done(_))));
        }
    }

    /// Merges what was committed up to `ts`; the bytes of the new file and the most that were read
    /// or written at once.
    fn merge(&self, ts: u64) -> (usize, usize) {
        self.largest.store(0, Ordering::Relaxed);
        let range = self.lineage.range(RangeNo(0)).expect("the range");
        let horizon = Horizon::new(CommitTs(0), Vec::new(), Vec::new());
        let merged = self
            .lineage
            .merge_range(range, CommitTs(ts), &horizon, 1, true);
        let merged = merged.expect("merged").expect("something to merge");
        self.lineage.publish_merge(&merged);
        let largest = self.largest.load(Ordering::Relaxed);
        (merged.bytes as usize, largest)
    }

    fn check(&self, expected: impl Fn(usize) -> Value) {
        let newest = Visibility {
            ts: CommitTs::MAX,
            own: StartWord(0),
            statement: 0,
        };
        for slot in (0..ROWS).step_by(97).chain([ROWS - 1]) {
            let mut out = [Value::Null];
            let found = self
                .lineage
                .read(Self::row(slot), &newest, &[ColumnId(0)], &mut out);
            assert!(found.expect("read"));
            assert!(out[0] == expected(slot), "row {slot}");
        }
    }
}

/// A text that hardly compresses, or NULL.
fn text(seed: usize, slot: usize) -> Value {
    if slot % 500 == 1 {
        return Value::Null;
    }
    let mut rng = Rng::new((seed * ROWS + slot) as u64);
    let mut text = String::with_capacity(TEXT_BYTES);
    while text.len() < TEXT_BYTES {
        let mut bits = rng.next_u64();
        for _ in 0..10 {
            text.push(char::from(b'0' + (bits % 64) as u8));
            bits >>= 6;
        }
    }
    Value::from(text.as_str())
}

#[test]
fn a_widened_range_is_merged_block_by_block() {
    let table = Table::new();
    table.update(0..ROWS, 2, |slot| text(1, slot));
    let (bytes, largest) = table.merge(2);
    assert!(bytes > ROWS * TEXT_BYTES / 2, "a file of {bytes}");
    assert!(largest < bytes / 2, "{largest} of {bytes} at once");
    table.check(|slot| text(1, slot));
    // Its chunk is read block by block as well.
    table.update((0..ROWS).step_by(2), 3, |slot| text(2, slot));
    let (bytes, largest) = table.merge(3);
    assert!(largest < bytes / 2, "{largest} of {bytes} at once");
    table.check(|slot| text(if slot % 2 == 0 { 2 } else { 1 }, slot));
}

/// Invariant 3.
#[test]
fn few_wide_values_get_a_dictionary() {
    let table = Table::new();
    table.update(0..ROWS, 2, |slot| text(slot % 3, 0));
    let (bytes, _) = table.merge(2);
    assert!(bytes < 1 << 20, "a file of {bytes}");
    table.check(|slot| text(slot % 3, 0));
}

/// With a small memory, columns that a large one merges as a whole go block by block.
#[test]
fn the_bytes_of_a_whole_column_follow_the_range() {
    let short = |slot: usize| match text(1, slot) {
        Value::Text(text) => Value::from(&text[..250]),
        other => other,
    };
    let [whole, by_block] = [64 << 20, 4 << 20].map(|range_bytes| {
        let table = Table::with_ranges(range_bytes);
        table.update(0..ROWS, 2, short);
        let (bytes, largest) = table.merge(2);
        table.check(short);
        largest * 100 / bytes
    });
    assert!(
        whole > 90 && by_block < 80,
        "parts written at once: {whole} %, {by_block} %"
    );
}
