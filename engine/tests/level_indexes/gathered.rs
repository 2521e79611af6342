//! Ranges of one bulk load are entered into an index in levels together.

use crate::common::counting_device::CountingDevice;
use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const ROWS: i64 = 12_000;
/// Memory for two ranges of 1 MiB in bulk loads.
const MEMORY_BYTES: usize = 16 << 20;
/// Rows of one append: about a range.
const APPENDED: usize = 1_000;

/// Bytes written to the index's files by a load of [`ROWS`] wide rows in statements of so many
/// appends.
fn written(appends: usize) -> u64 {
    let (device, clock) = (Arc::new(CountingDevice::default()), clock());
    let settings = Settings {
        memory_bytes: MEMORY_BYTES,
        ..Settings::default()
    };
    let db = open_with(device.clone(), &clock, settings).expect("open");
    create_table(&db, HistoryPolicy::None);
    alter(&db, |table| {
        put_index(table, &index("t_a", vec![part(1)]));
    });
    let rows = (0..ROWS).map(|k| (k, Some(k * 7919 % ROWS), format!("{k:0>1000}")));
    let rows: Vec<_> = rows.collect();
    let batches: Vec<_> = rows.chunks(APPENDED).map(batch).collect();
    let before = device.written("levels");
    for some in batches.chunks(appends) {
        let load = |statement: &Arc<Statement>| {
            let mut load = statement.bulk_insert(&table(&db))?;
            some.iter().try_for_each(|rows| load.append(rows))?;
            load.finish()
        };
        run(&db, load).expect("load");
    }
    let entries = counter(&db, "index_entries");
    assert_eq!(entries, ROWS as u64);
    assert_eq!(db.check().expect("check"), Vec::<String>::new());
    device.written("levels") - before
}

#[test]
fn one_statement_writes_an_index_once() {
    let (together, apart) = (written(ROWS as usize), written(1));
    assert!(together * 2 < apart, "{together} of {apart} bytes");
}
