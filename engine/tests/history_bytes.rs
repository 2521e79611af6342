//! How many bytes of update runs a version takes: what a version repeats of the one before it costs
//! next to nothing, and so does what changes little.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const ROWS: i64 = 200;
const VERSIONS: u64 = 40;

/// A table of a key and columns of one type whose rows are updated in random order.
struct Updated {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    rng: Rng,
}

impl Updated {
    fn new(columns: u32, sql_type: SqlType, value: &Value) -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let db = open(device.clone(), &clock).expect("open");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            let key = column(0, "k", SqlType::BigInt, true);
            let others = (1..=columns).map(|id| column(id, &format!("c{id}"), sql_type, false));
            let columns = [key].into_iter().chain(others).collect();
            let table = definition(catalog, columns, HistoryPolicy::Forever);
            catalog.put_table(table);
            Ok(())
        })
        .expect("create table");
        txn.commit().expect("commit");
        drop(txn);
        for k in 0..ROWS {
            let others = (0..columns).map(|_| value.clone());
            let row: Vec<Value> = [Value::BigInt(k)].into_iter().chain(others).collect();
            insert(&db, &row);
        }
        db.checkpoint(true).expect("checkpoint");
        let rng = Rng::new(11);
        Self {
            device,
            clock,
            db,
            rng,
        }
    }

    /// Bytes of runs per version after `VERSIONS` updates per row with `set`, given the row and how
    /// often it was updated before, with `checkpoints` checkpoints on the way.
    fn bytes_per_version(
        mut self,
        checkpoints: u64,
        mut set: impl FnMut(&mut Rng, i64, u64) -> Vec<(ColumnId, Value)>,
    ) -> f64 {
        let t = table(&self.db);
        let mut updated = vec![0; ROWS as usize];
        let total = VERSIONS * ROWS as u64;
        for n in 1..=total {
            let k = self.rng.below(ROWS as u64) as i64;
            let set = set(&mut self.rng, k, updated[k as usize]);
            updated[k as usize] += 1;
            self.clock.advance(1 + self.rng.below(100));
            let found = run(&self.db, |s| {
                s.point_update(&t, 0, &[Value::BigInt(k)], &set)
            });
            assert!(found.expect("update"));
            if n % (total / checkpoints) == 0 {
                self.db.checkpoint(true).expect("checkpoint");
            }
        }
        assert!(self.db.check().expect("check").is_empty());
        let device: &MemoryDevice = &self.device;
        let names = device.list().expect("list").into_iter();
        let runs = names.filter(|name| name.starts_with("run-"));
        let bytes = runs.map(|name| device.open(&name).expect("open").len().expect("len"));
        bytes.sum::<u64>() as f64 / total as f64
    }
}

fn numbers(checkpoints: u64, changed: u32) -> f64 {
    let world = Updated::new(10, SqlType::BigInt, &Value::BigInt(0));
    world.bytes_per_version(checkpoints, |rng, _, _| {
        let first = rng.below(10) as u32;
        let columns = (0..changed).map(|i| ColumnId(1 + (first + 3 * i) % 10));
        let value = |column| (column, Value::BigInt(rng.below(1_000_000) as i64));
        columns.map(value).collect()
    })
}

fn counter(checkpoints: u64) -> f64 {
    let world = Updated::new(10, SqlType::BigInt, &Value::BigInt(1_000_000));
    world.bytes_per_version(checkpoints, |_, _, before| {
        vec![(ColumnId(3), Value::BigInt(1_000_001 + before as i64))]
    })
}

fn texts(checkpoints: u64) -> f64 {
    let world = Updated::new(3, SqlType::Text, &Value::from("before anything happened"));
    world.bytes_per_version(checkpoints, |rng, k, before| {
        let text = match rng.below(3) {
            0 => format!("order {k}: in state {before}, on its way to the customer's address"),
            1 => format!("https://shop.example/orders/{k}/tracking?version={before}"),
            _ => format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()),
        };
        let column = 1 + u32::from(text.starts_with("https")) + 2 * u32::from(text.len() == 32);
        vec![(ColumnId(column), Value::from(text))]
    })
}

#[test]
fn a_version_takes_the_bytes_of_what_it_changes() {
    for checkpoints in [1, 8] {
        let found = [
            ("one column of ten", numbers(checkpoints, 1), 10.0),
            ("four columns of ten", numbers(checkpoints, 4), 20.0),
            ("a counter", counter(checkpoints), 5.0),
            ("texts", texts(checkpoints), 28.0),
        ];
        for (what, bytes, most) in found {
            println!("{what}, {checkpoints} checkpoints: {bytes:.1} bytes per version");
            assert!(bytes < most, "{what}: {bytes:.1} bytes per version");
        }
    }
}
