//! What a serializable transaction remembers of its reads is bounded. Beyond its share everything
//! of a table counts as read: some transactions fail that need not, and none commits that must not.

mod common;

use common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

struct Reader {
    db: Arc<Db>,
    txn: Arc<Transaction>,
}

fn open() -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        background_maintenance: false,
        ..Settings::default()
    };
    let options = DbOptions {
        device: Arc::new(MemoryDevice::new()),
        clock: clock(),
        settings,
    };
    let db = Db::open(options).expect("open");
    create_table(&db, HistoryPolicy::None);
    for k in 0..10 {
        insert(&db, &row(k, k, "before"));
    }
    db
}

impl Reader {
    fn new() -> Self {
        let db = open();
        let options = TxnOptions {
            isolation: Isolation::Serializable,
            ..TxnOptions::default()
        };
        let txn = db.begin(options).expect("begin");
        Self { db, txn }
    }

    /// Looks up keys, one by one.
    fn keys(&self, keys: std::ops::Range<i64>) {
        let (t, statement) = (table(&self.db), self.txn.begin_statement().expect("begin"));
        for k in keys {
            let key = [Value::BigInt(k)];
            let found = statement.point_get(&t, 0, &key, &[], &mut Vec::new());
            assert_eq!(found.expect("read"), k < 10);
        }
    }

    /// Scans for values of column `a` above each of `bounds`.
    fn ranges(&self, bounds: std::ops::Range<i64>) {
        let (t, statement) = (table(&self.db), self.txn.begin_statement().expect("begin"));
        for bound in bounds {
            let above = ColumnPredicate {
                column: ColumnId(1),
                op: CompareOp::Gt,
                value: Value::BigInt(bound),
            };
            let request = ScanRequest {
                columns: vec![ColumnId(0)],
                prune: vec![above],
                ..ScanRequest::default()
            };
            statement.scan(&t, request).expect("scan");
        }
    }

    fn kept(&self) -> usize {
        let counters = self.db.counters();
        let found = counters.iter().find(|c| c.0 == "transaction_bytes");
        found.expect("a counter").1 as usize
    }

    /// Writes a row of its own, while another transaction sets column `b` of row 5.
    fn commit(&self, beside: bool) -> Result<CommitTs> {
        let t = table(&self.db);
        if beside {
            let set = [(ColumnId(2), Value::from("changed"))];
            run(&self.db, |s| {
                s.point_update(&t, 0, &[Value::BigInt(5)], &set)
            })
            .expect("update");
        }
        let statement = self.txn.begin_statement()?;
        statement.point_insert(&t, &row(-1, 0, "own"))?;
        statement.finish()?;
        self.txn.commit()
    }
}

/// The outcome of a commit beside a change of what was not read.
fn state(reader: &Reader, beside: bool) -> Option<SqlState> {
    let state = reader.commit(beside).err().map(|error| error.sqlstate());
    assert_eq!(reader.kept(), 0, "all is given back");
    state
}

#[test]
fn keys_beyond_the_share_make_all_of_the_table_read() {
    let conflict = Some(SqlState::SERIALIZATION_FAILURE);
    for (keys, beside, expected) in [
        (100, true, None),
        (60_000, true, conflict),
        (60_000, false, None),
    ] {
        let reader = Reader::new();
        let share = reader.db.settings().list_bytes() / 16;
        for first in (1_000..1_000 + keys).step_by(100) {
            reader.keys(first..first + 100);
            assert!(reader.kept() <= share, "{} bytes", reader.kept());
        }
        assert_eq!(state(&reader, beside), expected, "{keys} keys");
    }
}

#[test]
fn many_ranges_make_all_of_the_table_read() {
    let conflict = Some(SqlState::SERIALIZATION_FAILURE);
    for (ranges, beside, expected) in [
        (500, true, None),
        (2_000, true, conflict),
        (2_000, false, None),
    ] {
        let reader = Reader::new();
        reader.ranges(1_000..1_000 + ranges);
        assert_eq!(state(&reader, beside), expected, "{ranges} ranges");
    }
}

/// A key that is looked up again and again is kept once.
#[test]
fn reads_of_one_key_are_one_read() {
    let reader = Reader::new();
    for _ in 0..60_000 {
        reader.keys(1_000..1_001);
    }
    assert_eq!(state(&reader, true), None);
}
