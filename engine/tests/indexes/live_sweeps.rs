//! Snapshots beside updates, merges and sweeps: the indexes of a table without history keep the
//! entries that an open snapshot needs.

use crate::common::*;
use crate::support::*;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const ROWS: i64 = 20;

/// A change that base has is folded in a run into a later one that base has not. The sweep has to
/// find the version before it, which the snapshot sees.
#[test]
fn a_change_that_was_folded_into_one_that_is_not_merged_is_known() {
    let world = World::new(HistoryPolicy::None);
    let db = &world.db;
    for k in 0..3 * ROWS {
        insert(db, &row(k, 0, "first"));
    }
    create_alone(db, &index("t_b", vec![part(2)])).expect("create");
    db.checkpoint(true).expect("checkpoint");
    let t = table(db);
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = db.begin(options).expect("begin");
    let statement = old.begin_statement().expect("statement");
    let rows = scanned(&statement, &t);
    drop(statement);
    let set = |keys: std::ops::Range<i64>, column, value: Value| {
        for k in keys {
            let set = [(ColumnId(column), value.clone())];
            run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
        }
    };
    set(0..ROWS, 2, Value::from("second"));
    db.checkpoint(true).expect("checkpoint");
    for round in 0..12 {
        set(0..ROWS, 1, Value::BigInt(round));
        // So many rows leave a key that a sweep is due, which looks at all that have left one.
        set(ROWS..3 * ROWS, 2, Value::from(format!("round {round}")));
        db.checkpoint(false).expect("checkpoint");
        let statement = old.begin_statement().expect("statement");
        let view = statement.view(&t).expect("view");
        let context = format!("round {round}");
        assert_eq!(scanned(&statement, &t), rows, "{context}");
        assert_indexes_agree(&statement, &view, &t, &rows, &context);
        assert_sound(db, &context);
    }
}
