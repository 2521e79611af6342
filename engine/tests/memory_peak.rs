//! The memory of a process with a keyed table of ten times `memory_bytes`. It takes minutes:
//!
//! ```text
//! STRANDLINE_PEAK_MIB=256 cargo test --release -p strandline-engine --test memory_peak -- \
//!     --ignored --nocapture
//! ```
//!
//! The files are in the temporary folder, which must be on a disk.

mod common;

use common::*;
use std::path::Path;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_base::{Clock, SystemClock};
use strandline_device::OsDevice;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;

/// The allocator of the product's binaries: what it keeps of freed memory counts.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of a row's text; no codec makes less than three quarters of them.
const TEXT_BYTES: usize = 100;
/// Updates of a transaction.
const TRANSACTION_ROWS: i64 = 20;
/// Bytes of a row with its numbers.
const ROW_BYTES: u64 = TEXT_BYTES as u64 + 16;

/// The most bytes that the process had in memory since the last reset.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.expect("a peak").trim().trim_end_matches(" kB");
    digits.parse::<usize>().expect("a number") << 10
}

/// Lets [`peak_bytes`] begin anew.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
}

fn opened(directory: &Path, memory_bytes: usize) -> Arc<Db> {
    strandline_allocator::keep_freed_memory_for(memory_bytes);
    let settings = Settings {
        memory_bytes,
        ..Settings::default()
    };
    Db::open(DbOptions {
        device: Arc::new(OsDevice::open(directory).expect("a directory")),
        clock: Arc::new(SystemClock),
        settings,
    })
    .expect("open")
}

fn text(rng: &mut Rng) -> String {
    let letter = |six: u64| char::from(b'0' + (six & 63) as u8);
    let letters = |word: u64| (0..10).map(move |at| letter(word >> (6 * at)));
    let words = (0..TEXT_BYTES / 10).map(|_| rng.next_u64());
    words.flat_map(letters).collect()
}

fn load(db: &Arc<Db>, rows: i64) {
    create_table(db, HistoryPolicy::None);
    alter(db, |table| {
        let key = KeyDef::new("t_pkey", true, vec![ColumnId(0)]);
        table.keys = vec![key.with_ordered_index(IndexStorage::Pages)];
    });
    let (table, rng) = (table(db), &mut Rng::new(1));
    let loaded = run(db, |statement| {
        let mut load = statement.bulk_insert(&table)?;
        for from in (0..rows).step_by(4096) {
            let keys = from..rows.min(from + 4096);
            let rows: Vec<_> = keys.map(|k| (k, Some(k), text(rng))).collect();
            load.append(&batch(&rows))?;
        }
        load.finish()
    });
    loaded.expect("load");
}

fn update(db: &Arc<Db>, rows: i64, rng: &mut Rng) {
    let table = table(db);
    for _ in 0..rows / 100 / TRANSACTION_ROWS {
        let updated = run(db, |statement| {
            (0..TRANSACTION_ROWS).try_for_each(|_| {
                let key = Value::BigInt(rng.below(rows as u64) as i64);
                let set = [
                    (ColumnId(1), Value::BigInt(1)),
                    (ColumnId(2), Value::from(text(rng).as_str())),
                ];
                statement.point_update(&table, 0, &[key], &set).map(drop)
            })
        });
        updated.expect("update");
    }
}

fn scan(db: &Arc<Db>) -> i64 {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let scan = statement.scan(&table(db), request()).expect("scan");
    let units = 0..scan.units();
    let rows = units.map(|unit| {
        let batches = scan.read_unit(unit).expect("read").into_iter();
        batches.map(|batch| batch.num_rows() as i64).sum::<i64>()
    });
    rows.sum()
}

#[test]
#[ignore = "takes minutes and ten times its memory on a disk"]
fn a_table_of_ten_times_the_memory() {
    let mib = std::env::var("STRANDLINE_PEAK_MIB").unwrap_or_else(|_| "32".into());
    let memory_bytes = mib.parse::<usize>().expect("a number of MiB") << 20;
    let rows = (memory_bytes as u64 * 10 / ROW_BYTES) as i64;
    let directory = std::env::temp_dir().join(format!("memory-peak-{}", std::process::id()));
    let empty = opened(&directory.join("empty"), memory_bytes);
    create_table(&empty, HistoryPolicy::None);
    empty.close().expect("close");
    drop(empty);
    let base = peak_bytes();
    let mut most = 0.0_f64;
    let began_us = SystemClock.elapsed_us();
    let mut end_stage = |what: &str| {
        let share = peak_bytes().saturating_sub(base) as f64 / memory_bytes as f64;
        let seconds = (SystemClock.elapsed_us() - began_us) / 1_000_000;
        println!("{what}: {share:.2} of {mib} MiB, after {seconds} s");
        most = most.max(share);
        reset_peak();
    };
    let path = directory.join("full");
    let (rng, db) = (&mut Rng::new(2), opened(&path, memory_bytes));
    load(&db, rows);
    end_stage("load");
    db.checkpoint(true).expect("checkpoint");
    end_stage("checkpoint");
    update(&db, rows, rng);
    end_stage("updates");
    assert_eq!(scan(&db), rows);
    end_stage("scan");
    db.checkpoint(true).expect("merge");
    end_stage("merge");
    update(&db, rows, rng);
    db.close().expect("close");
    drop(db);
    let db = opened(&path, memory_bytes);
    end_stage("reopening");
    update(&db, rows, rng);
    assert_eq!(scan(&db), rows);
    end_stage("updates and a scan");
    db.close().expect("close");
    drop(db);
    std::fs::remove_dir_all(&directory).expect("removed");
    assert!(most <= 1.1, "{most:.2}");
}
