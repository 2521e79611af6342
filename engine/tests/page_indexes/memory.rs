//! The memory of pages: what blocks do not use is theirs, and the reverse.

use crate::common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;

/// Rows whose key on pages has more bytes than an eighth of the least memory, which is 2 MiB.
const ROWS: i64 = 200_000;

fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    let found = counters.iter().find(|(found, _)| *found == name);
    found.expect("a counter").1
}

/// The least memory; the key is on pages.
fn opened(device: &Arc<MemoryDevice>) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        ..Settings::default()
    };
    open_with(device.clone(), &clock(), settings).expect("open")
}

fn loaded(device: &Arc<MemoryDevice>) -> Arc<Db> {
    let db = opened(device);
    create_table(&db, HistoryPolicy::None);
    alter(&db, |table| {
        let key = KeyDef::new("t_pkey", true, vec![ColumnId(0)]);
        table.keys = vec![key.with_ordered_index(crate::STORAGE)];
    });
    let table = table(&db);
    let text = "a text of some length".to_owned();
    let loaded = run(&db, |statement| {
        let mut load = statement.bulk_insert(&table)?;
        for from in (0..ROWS).step_by(4096) {
            let rows = from..ROWS.min(from + 4096);
            let rows: Vec<_> = rows.map(|k| (k, Some(k), text.clone())).collect();
            load.append(&batch(&rows))?;
        }
        load.finish()
    });
    loaded.expect("load");
    db.checkpoint(true).expect("checkpoint");
    db
}

fn look_up_all(db: &Arc<Db>) {
    let table = table(db);
    let keys: Vec<_> = (0..ROWS).map(|k| (k, None, String::new())).collect();
    for keys in keys.chunks(4096) {
        let keys = batch(keys).project(&[0]).expect("the key");
        let found = run(db, |statement| statement.find_by_key(&table, 0, &keys));
        assert!(found.expect("find").iter().all(Option::is_some));
    }
}

#[test]
fn pages_and_blocks_have_the_memory_that_the_other_does_not_use() {
    let device = Arc::new(MemoryDevice::new());
    drop(loaded(&device));
    let db = opened(&device);
    let cache = db.settings().cache_bytes() as u64;
    let eighth = Settings::MEMORY_BYTES_MIN as u64 / 8;
    (0..2).for_each(|_| look_up_all(&db));
    let pages = counter(&db, "index_page_bytes");
    assert!(pages > eighth * 5 / 4, "{pages} of {cache}");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    for _ in 0..2 {
        let statement = txn.begin_statement().expect("statement");
        let scan = statement.scan(&table(&db), request()).expect("scan");
        assert_eq!(scan_all(&scan).len() as i64, ROWS);
        let used = counter(&db, "index_page_bytes") + counter(&db, "cache_bytes");
        assert!(used <= cache, "{used} of {cache}");
    }
    assert!(counter(&db, "footer_bytes") > 0);
}
