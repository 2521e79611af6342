//! A table `t (k bigint primary key, a bigint, b text)` and helpers, shared by the engine's tests.

use arrow_array::{Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_engine::catalog::{ColumnDef, HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

/// key → (a, b)
pub type State = BTreeMap<i64, (Option<i64>, String)>;

fn column(id: u32, name: &str, sql_type: SqlType, not_null: bool) -> ColumnDef {
    ColumnDef {
        id: ColumnId(id),
        name: name.into(),
        sql_type,
        not_null,
        default: None,
        missing: Value::Null,
        identity: None,
        comment: None,
    }
}

pub fn create_table(db: &Arc<Db>, history: HistoryPolicy) -> (Arc<TableDef>, CommitTs) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let table = TableDef {
            id: catalog.new_table_id(),
            storage: catalog.new_storage_id(),
            schema: "public".into(),
            name: "t".into(),
            columns: vec![
                column(0, "k", SqlType::BigInt, true),
                column(1, "a", SqlType::BigInt, false),
                column(2, "b", SqlType::Text, false),
            ],
            next_column: 3,
            keys: vec![KeyDef {
                name: "t_pkey".into(),
                primary: true,
                columns: vec![ColumnId(0)],
            }],
            checks: Vec::new(),
            history,
            comment: None,
        };
        catalog.put_table(table);
        Ok(())
    })
    .expect("create table");
    let ts = txn.commit().expect("commit");
    (
        db.catalog().table("public", "t").expect("table").clone(),
        ts,
    )
}

pub fn batch(rows: &[(i64, Option<i64>, String)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8View, true),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
            Arc::new(StringViewArray::from_iter_values(rows.iter().map(|r| &r.2))),
        ],
    )
    .expect("batch")
}

pub fn scan_all(scan: &TableScan) -> State {
    let mut state = State::new();
    for unit in 0..scan.units() {
        for batch in scan.read_unit(unit).expect("read") {
            let k = batch
                .column(0)
                .as_any()
                .downcast_ref::<Int64Array>()
                .expect("k");
            let a = batch
                .column(1)
                .as_any()
                .downcast_ref::<Int64Array>()
                .expect("a");
            let b = batch
                .column(2)
                .as_any()
                .downcast_ref::<StringViewArray>()
                .expect("b");
            for i in 0..batch.num_rows() {
                let a = (!a.is_null(i)).then(|| a.value(i));
                let before = state.insert(k.value(i), (a, b.value(i).to_string()));
                assert!(before.is_none(), "key {} twice in one scan", k.value(i));
            }
        }
    }
    state
}

pub fn request() -> ScanRequest {
    ScanRequest {
        columns: vec![ColumnId(0), ColumnId(1), ColumnId(2)],
        ..Default::default()
    }
}
