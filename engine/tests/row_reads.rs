//! Point reads of several columns of merged rows, which go by decoded rows, see what scans see.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use common::counting_device::CountingDevice;
use common::{batch, clock, column, create_table, definition, open, open_with, request, scan_all};
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

#[test]
fn rows_read_by_key_are_those_of_the_scan() {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    let (table, _) = create_table(&db, HistoryPolicy::Forever);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut load = statement.bulk_insert(&table).expect("load");
    // More than a block, the last one short; NULLs and negative numbers.
    let rows: Vec<_> = (0..9_000)
        .map(|k| {
            (
                k,
                (k % 7 != 3).then_some(k * 31 - 5_000),
                format!("text {k}"),
            )
        })
        .collect();
    load.append(&batch(&rows)).expect("rows");
    load.finish().expect("loaded");
    statement.finish().expect("finish");
    txn.commit().expect("commit");
    db.checkpoint(true).expect("merged");

    // Updates on top of some, merged and not.
    for merged in [true, false] {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        for k in (0..9_000).step_by(if merged { 11 } else { 13 }) {
            let statement = txn.begin_statement().expect("statement");
            let a = if k % 2 == 0 {
                Value::Null
            } else {
                Value::BigInt(-k)
            };
            let set = [(ColumnId(1), a)];
            let found = statement.point_update(&table, 0, &[Value::BigInt(k)], &set);
            assert!(found.expect("update"));
        }
        txn.commit().expect("commit");
        if merged {
            db.checkpoint(true).expect("merged");
        }
    }

    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let expected = scan_all(&statement.scan(&table, request()).expect("scan"));
    assert_eq!(expected.len(), rows.len());
    for (&k, (a, b)) in &expected {
        let mut out = Vec::new();
        let columns = [ColumnId(1), ColumnId(2), ColumnId(0)];
        let found = statement.point_get(&table, 0, &[Value::BigInt(k)], &columns, &mut out);
        assert!(found.expect("read"), "key {k}");
        let a = a.map_or(Value::Null, Value::BigInt);
        assert_eq!(out, [a, Value::from(b.as_str()), Value::BigInt(k)]);
    }
}

/// The column of [`load_wide`] that is text; column 0 is the key, all are bigint beside it.
const TEXT: u32 = 9;

/// Makes a table, loads `rows` rows of `width` columns, and merges them.
fn load_wide(
    db: &Arc<Db>,
    width: u32,
    rows: i64,
    value: impl Fn(i64, u32) -> Value,
) -> Arc<TableDef> {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let mut columns = vec![column(0, "k", SqlType::BigInt, true)];
    columns.extend((1..width).map(|id| column(id, &format!("c{id}"), SqlType::BigInt, false)));
    columns[TEXT as usize].sql_type = SqlType::Text;
    txn.change_catalog(&mut |catalog| {
        let table = definition(catalog, columns.clone(), HistoryPolicy::Forever);
        catalog.put_table(table);
        Ok(())
    })
    .expect("table");
    let table = txn.catalog().table("public", "t").expect("table").clone();
    let statement = txn.begin_statement().expect("statement");
    let mut load = statement.bulk_insert(&table).expect("load");
    let arrays = (0..width).map(|id| {
        let values = (0..rows).map(|k| value(k, id));
        match id {
            TEXT => {
                let texts = values.map(|v| match v {
                    Value::Text(text) => Some(text),
                    _ => None,
                });
                Arc::new(texts.collect::<StringViewArray>()) as ArrayRef
            }
            _ => {
                let integer = |v| match v {
                    Value::BigInt(v) => Some(v),
                    _ => None,
                };
                Arc::new(values.map(integer).collect::<Int64Array>())
            }
        }
    });
    let names = columns.iter().map(|column| column.name.clone());
    let loaded = RecordBatch::try_from_iter(names.zip(arrays)).expect("batch");
    load.append(&loaded).expect("rows");
    load.finish().expect("loaded");
    statement.finish().expect("finish");
    txn.commit().expect("commit");
    db.checkpoint(true).expect("merged");
    table
}

/// Which columns a table is first read by decides how its rows are decoded, not what is read.
#[test]
fn rows_are_read_by_any_columns_in_any_order() {
    const ROWS: i64 = 4_500; // two blocks
    // One column with NULLs, one without fixed-width values.
    let value = |k: i64, id: u32| match id {
        0 => Value::BigInt(k),
        3 if k % 5 == 0 => Value::Null,
        TEXT => Value::from(format!("text {k}").as_str()),
        _ => Value::BigInt(k * 10 + i64::from(id)),
    };
    let reads: [Vec<u32>; 10] = [
        vec![1, 2],
        vec![5],
        vec![3, 4, 6],
        vec![9, 2, 1],
        (0..10).collect(),
        vec![2, 8],
        vec![],
        vec![7, 7],
        vec![1, 70, 79],
        (5..80).collect(),
    ];
    for (width, first) in [10, 80]
        .into_iter()
        .flat_map(|w| (0..reads.len()).map(move |f| (w, f)))
    {
        let is_there = |read: &&Vec<u32>| read.iter().all(|id| *id < width);
        let reads = reads.iter().cycle().skip(first).take(2 * reads.len());
        let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
        let table = load_wide(&db, width, ROWS, value);

        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        for read in reads.filter(is_there) {
            let columns: Vec<ColumnId> = read.iter().map(|id| ColumnId(*id)).collect();
            for k in (0..ROWS).step_by(101) {
                let mut out = Vec::new();
                let key = [Value::BigInt(k)];
                let found = statement.point_get(&table, 0, &key, &columns, &mut out);
                assert!(found.expect("read"), "key {k}");
                let expected: Vec<Value> = read.iter().map(|id| value(k, *id)).collect();
                assert_eq!(
                    out, expected,
                    "key {k} of {width} columns from read {first} on"
                );
            }
        }
    }
}

/// Three blocks of 4,096 rows and a short one, of numbers that take 16 bits each.
const COLD_ROWS: i64 = 13_000;

/// The column with the same value in all rows.
const CONSTANT: u32 = 11;

fn cold_value(k: i64, id: u32) -> Value {
    let noise = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64 ^ i64::from(id) << 20);
    match id {
        0 => Value::BigInt(k),
        TEXT => Value::from(format!("text {k}").as_str()),
        CONSTANT => Value::BigInt(5),
        _ => Value::BigInt(noise >> 20 & 0xffff),
    }
}

/// What a reader has cost.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// how often it has waited for the device
    waits: u64,
    reads: u64,
    bytes: u64,
}

/// A database of one table whose rows are on the device, nothing of them in memory.
struct Cold {
    device: Arc<CountingDevice>,
    db: Arc<Db>,
    table: Arc<TableDef>,
}

impl Cold {
    fn new(rows: i64) -> Self {
        Self::with(rows, Settings::default())
    }

    fn with(rows: i64, settings: Settings) -> Self {
        let (device, clock) = (Arc::new(CountingDevice::default()), clock());
        let db = open(device.clone(), &clock).expect("open");
        load_wide(&db, 12, rows, cold_value);
        db.close().expect("close");
        let db = open_with(device.clone(), &clock, settings).expect("open");
        let table = common::table(&db);
        Self { device, db, table }
    }

    /// The cost of `work` for chunk files.
    fn cost(&self, work: impl FnOnce(&Statement)) -> Cost {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let counts = |device: &CountingDevice| {
            let of = "chunks";
            [device.waits(of), device.reads(of), device.read(of)]
        };
        let before = counts(&self.device);
        work(&statement);
        let after = counts(&self.device);
        txn.rollback();
        let [waits, reads, bytes] = std::array::from_fn(|n| after[n] - before[n]);
        Cost {
            waits,
            reads,
            bytes,
        }
    }

    /// The cost of reading columns of a row, whose values are compared.
    fn read(&self, k: i64, ids: &[u32]) -> Cost {
        let columns: Vec<ColumnId> = ids.iter().map(|id| ColumnId(*id)).collect();
        self.cost(|statement| {
            let mut out = Vec::new();
            let key = [Value::BigInt(k)];
            let found = statement.point_get(&self.table, 0, &key, &columns, &mut out);
            assert!(found.expect("read"), "key {k}");
            let expected: Vec<Value> = ids.iter().map(|id| cold_value(k, *id)).collect();
            assert_eq!(out, expected, "key {k}, columns {ids:?}");
        })
    }
}

/// A block of a column has 8 KiB, so the four of a row have 32 KiB, and all eleven less than 100.
#[test]
fn a_cold_row_is_read_as_one_batch_of_the_columns_asked_for() {
    let cold = Cold::new(COLD_ROWS);
    let first = cold.read(0, &[1, 3, 5, 7]);
    assert_eq!((first.waits, first.reads), (2, 8), "footers, then blocks");
    let second = cold.read(5_000, &[1, 3, 5, 7]);
    assert_eq!((second.waits, second.reads), (1, 4));
    assert!(
        second.bytes > 30_000 && second.bytes <= 36_000,
        "{second:?}"
    );
    let nothing = Cost {
        waits: 0,
        reads: 0,
        bytes: 0,
    };
    for k in [5_000, 5_001, 5_002] {
        assert_eq!(cold.read(k, &[1, 3, 5, 7]), nothing, "it is in memory");
    }
    let others = cold.read(5_003, &[1, 2, 3]);
    assert_eq!((others.waits, others.reads), (2, 2), "column 2 is not");
    let text = cold.read(9_000, &[1, 2, 3, TEXT]);
    // The text's footer; then three numbers, and the text with the table that its blocks share.
    assert_eq!((text.waits, text.reads), (2, 5), "{text:?}");
    let all: Vec<u32> = (1..11).collect();
    cold.read(1, &all);
    let whole = cold.read(12_999, &all);
    assert_eq!(whole.waits, 1, "{whole:?}");
    assert!(whole.reads <= 10 && whole.bytes < 100 << 10, "{whole:?}");
}

/// Its blocks have no bytes: what they have is in the footer, which is part of the first read.
#[test]
fn a_column_of_one_value_is_read_once() {
    let cold = Cold::new(COLD_ROWS);
    assert_eq!(cold.read(0, &[CONSTANT]).reads, 1, "the whole chunk");
    for k in [5_000, 9_000, 12_999] {
        assert_eq!(cold.read(k, &[CONSTANT]).reads, 0, "key {k}");
    }
    assert_eq!(
        cold.read(5_000, &[1, 2, CONSTANT]).reads,
        4,
        "two footers and blocks"
    );
}

/// The four blocks of eight columns have 256 KiB encoded, and 1 MiB as rows.
#[test]
fn rows_stay_encoded_while_there_is_no_room_for_more() {
    let settings = Settings {
        cache_bytes_max: 768 << 10,
        ..Settings::default()
    };
    let cold = Cold::with(COLD_ROWS, settings);
    let columns: Vec<u32> = (1..9).collect();
    let pass = |row: i64| {
        let costs = (0..4).map(|block| cold.read(block * 4096 + row, &columns).reads);
        costs.sum::<u64>()
    };
    let cold_reads: u64 = (0..3).map(pass).sum();
    assert!(cold_reads >= 32, "each block at least once");
    let again: u64 = (3..40).map(pass).sum();
    assert_eq!(again, 0, "what rows drive out is read again");
    let misses = || {
        let counters = cold.db.counters().into_iter();
        let mut misses = counters.filter(|(name, _)| *name == "cache_misses");
        misses.next().map(|(_, count)| count)
    };
    let before = misses();
    // Frames are loaded during the first 1,024 reads of the block, and none during the next.
    for _ in 0..2048 {
        cold.read(4096, &columns);
    }
    assert!(misses() > before, "a hot block becomes rows");
}

/// An update reads the old values of the columns that it sets, as one batch.
#[test]
fn a_cold_update_reads_the_columns_that_it_sets() {
    let cold = Cold::new(COLD_ROWS);
    cold.read(0, &(1..11).collect::<Vec<_>>());
    let cost = cold.cost(|statement| {
        let set = [2, 4, TEXT].map(|id| match id {
            TEXT => (ColumnId(id), Value::from("new")),
            _ => (ColumnId(id), Value::BigInt(-1)),
        });
        let key = [Value::BigInt(5_000)];
        let updated = statement.point_update(&cold.table, 0, &key, &set);
        assert!(updated.expect("update"));
    });
    // The text has a block, and a table that its blocks share.
    assert_eq!((cost.waits, cost.reads), (1, 4), "{cost:?}");
}

/// In a small range the blocks of a row are near each other: a read of at most 64 KiB has several.
#[test]
fn a_cold_row_of_a_small_range_is_few_reads() {
    let cold = Cold::new(1_500);
    let all: Vec<u32> = (1..11).collect();
    let cost = cold.read(7, &all);
    assert_eq!(
        (cost.waits, cost.reads),
        (2, 2),
        "the text's footer, then all"
    );
    assert!(cost.bytes <= (64 + 4) << 10, "{cost:?}");
}
