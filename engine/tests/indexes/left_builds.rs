//! A build that ends while another transaction holds its table: the statement ends, and what it has
//! left goes later.

use crate::common::*;
use crate::support::*;
use arrow_array::{ArrayRef, RecordBatch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::{IndexExpression, IndexPart, IndexState, IndexValue};
use strandline_engine::expressions::{RowExpression, RowExpressions};
use strandline_engine::*;

fn by_a() -> IndexPart {
    let expression = IndexExpression {
        sql: "a".into(),
        columns: vec![ColumnId(1)],
        sql_type: SqlType::BigInt,
    };
    IndexPart {
        value: IndexValue::Expression(expression),
        ..part(1)
    }
}

/// `a` itself. Its first evaluation over rows begins a transaction that writes the table and stays
/// open, and cancels the build.
#[derive(Default)]
struct Intruding {
    db: OnceLock<Arc<Db>>,
    writer: Mutex<Option<Arc<Transaction>>>,
    cancel: Arc<AtomicBool>,
}

impl Intruding {
    fn intrude(&self) {
        let Some(db) = self.db.get() else { return };
        let mut writer = self.writer.lock().expect("no panic");
        if writer.is_none() {
            let txn = db.begin(TxnOptions::default()).expect("begin");
            let set = [(ColumnId(2), Value::from("written meanwhile"))];
            let statement = txn.begin_statement().expect("statement");
            let found = statement.point_update(&table(db), 0, &[Value::BigInt(1)], &set);
            assert!(found.expect("update"));
            *writer = Some(txn);
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

/// The expression and its compiler.
#[derive(Clone)]
struct Intruder(Arc<Intruding>);

impl std::fmt::Debug for Intruder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Intruder")
    }
}

impl RowExpressions for Intruder {
    fn compile(
        &self,
        _sql: &str,
        _columns: &[(&str, SqlType)],
        _result: SqlType,
    ) -> Result<Arc<dyn RowExpression>> {
        Ok(Arc::new(self.clone()))
    }
}

impl RowExpression for Intruder {
    fn evaluate(&self, columns: &RecordBatch) -> Result<ArrayRef> {
        self.0.intrude();
        Ok(columns.column(0).clone())
    }
    fn evaluate_row(&self, columns: &[Value]) -> Result<Value> {
        Ok(columns[0].clone())
    }
}

/// The removal of its definition does not wait for a writer that has come meanwhile: the statement
/// ends, and the definition goes later.
#[test]
fn a_cancelled_build_does_not_wait_for_writers() {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let intruder = Intruder(Arc::default());
    let db = Db::open(DbOptions {
        device,
        clock,
        settings: Settings {
            background_maintenance: false,
            expressions: Some(Arc::new(intruder.clone())),
            ..Settings::default()
        },
    })
    .expect("open");
    create_table(&db, HistoryPolicy::None);
    for k in 0..10 {
        insert(&db, &row(k, k, "x"));
    }
    assert!(intruder.0.db.set(db.clone()).is_ok());
    let build = |name: &str| {
        let options = TxnOptions {
            cancel: intruder.0.cancel.clone(),
            ..TxnOptions::default()
        };
        db.create_index(&options, &mut |catalog| {
            let t = catalog.table("public", "t").expect("t").clone();
            let mut t = catalog::TableDef::clone(&t);
            let id = put_index(&mut t, &index(name, vec![by_a()]));
            let place = (t.id, id);
            catalog.put_table(t);
            Ok(place)
        })
    };
    let cancelled = build("by_a").expect_err("cancelled");
    assert_eq!(cancelled.sqlstate(), SqlState::QUERY_CANCELED);
    assert_eq!(table(&db).indexes[0].state, IndexState::Building);
    insert_other_table(&db);
    let writer = intruder.0.writer.lock().expect("no panic").take();
    writer.expect("it has written").commit().expect("commit");
    intruder.0.cancel.store(false, Ordering::Relaxed);
    *intruder.0.writer.lock().expect("no panic") =
        Some(db.begin(TxnOptions::default()).expect("b"));
    build("by_a").expect("the name is free again");
    assert_eq!(table(&db).indexes.len(), 1);
    assert_eq!(table(&db).indexes[0].state, IndexState::Valid);
}

/// Definitions of other tables can be changed.
fn insert_other_table(db: &Arc<Db>) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let columns = vec![column(0, "k", SqlType::BigInt, true)];
        let mut other = definition(catalog, columns, HistoryPolicy::None);
        other.name = "other".into();
        catalog.put_table(other);
        Ok(())
    })
    .expect("nobody holds the right to change definitions");
    txn.commit().expect("commit");
}
