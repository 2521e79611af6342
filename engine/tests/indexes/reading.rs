//! Rows fetched by their ids, a few or whole blocks of them; cursors that go on chunk by chunk.

use crate::common::*;
use crate::support::*;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

/// 10,000 rows in chunks and 300 behind them, some changed and some gone.
fn world() -> World {
    let world = World::new(HistoryPolicy::Forever);
    let t = table(&world.db);
    let rows: Vec<_> = (0..10_000)
        .map(|k| (k, Some(k % 7), format!("text {k}")))
        .collect();
    run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("load");
    for k in 10_000..10_300 {
        insert(&world.db, &row(k, k % 7, "single"));
    }
    run(&world.db, |s| {
        for k in (0..10_300).step_by(100) {
            let set = [(ColumnId(1), Value::BigInt(77))];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
            s.point_delete(&t, 0, &[Value::BigInt(k + 1)])?;
        }
        Ok(())
    })
    .expect("change");
    world
}

#[test]
fn fetched_rows_are_those_of_a_scan() {
    let world = world();
    let t = table(&world.db);
    let before = world.db.stable();
    world.clock.advance(1000);
    let all = (0..10_300).map(|slot| RowId::new(strandline_base::RangeNo(0), slot as u16));
    let mut ids: Vec<RowId> = all.collect();
    ids.extend((0..300).map(|slot| RowId::new(strandline_base::RangeNo(1), slot)));
    let columns: Vec<ColumnId> = t.columns.iter().map(|c| c.id).collect();
    let values = |batch: &arrow_array::RecordBatch| -> Vec<Vec<Value>> {
        let value = |at: usize, row| {
            let sql_type = t.columns[at].sql_type;
            strandline_column::types::value_at(sql_type, batch.column(at), row)
        };
        (0..batch.num_rows())
            .map(|row| (0..columns.len()).map(|at| value(at, row)).collect())
            .collect()
    };
    for merged in [false, true] {
        if merged {
            world.db.checkpoint(true).expect("merge");
        }
        run(&world.db, |s| {
            let expected = scanned(s, &t);
            for step in [1, 30, 100, 3000] {
                let wanted: Vec<RowId> = ids.iter().step_by(step).copied().collect();
                let (found, rows) = s.fetch(&t, &wanted, &columns)?;
                assert_eq!(found.len(), rows.num_rows());
                assert!(found.is_sorted() && found.iter().all(|row| wanted.contains(row)));
                let rows = values(&rows);
                match step {
                    1 => assert_eq!(sorted(rows), expected),
                    _ => assert!(rows.iter().all(|row| expected.contains(row)) && !rows.is_empty()),
                }
            }
            // In the order given, some twice, as they are, and as they were.
            let wanted: Vec<RowId> = ids[..200].iter().rev().chain(&ids[..70]).copied().collect();
            let (found, rows) = s.fetch(&t, &wanted, &columns)?;
            let visible = |row: &&RowId| found.contains(row);
            let expected: Vec<RowId> = wanted.iter().filter(visible).copied().collect();
            assert_eq!(found, expected);
            assert_eq!(rows.num_rows(), 268 - 1);
            let (found, _) = s.view_as_of(&t, before)?.fetch(&wanted, &columns)?;
            assert_eq!(found, expected);
            let (nothing, rows) = s.fetch(&t, &[], &columns)?;
            assert!(nothing.is_empty() && rows.num_rows() == 0);
            Ok(())
        })
        .expect("fetch");
    }
}

/// Many rows have one key: a cursor goes on within them, also while they come and go.
#[test]
fn cursors_go_on_within_one_key() {
    let world = world();
    create_online(&world.db, &index("t_a", vec![part(1)])).expect("create");
    let t = table(&world.db);
    let def = named(&t, "t_a").clone();
    let statement = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = statement.begin_statement().expect("statement");
    let range = statement.index_keys(&t, def.id).expect("keys");
    let range = range.prefix(&[Value::BigInt(3)]);
    for direction in [Direction::Forward, Direction::Backward] {
        let read = |chunk: usize| {
            let mut rows = statement
                .index_cursor(&t, def.id, &range, direction)
                .expect("a cursor");
            let (mut found, mut chunks) = (Vec::new(), 0);
            while rows.next_chunk(chunk, &mut found).expect("a chunk") {
                chunks += 1;
                if chunks == 2 {
                    // What the cursor stands at goes.
                    let (_, last) = found.last().expect("an entry");
                    let (_, row) = statement
                        .fetch(&t, &[*last], &[ColumnId(0)])
                        .expect("fetch");
                    let key = strandline_column::types::value_at(SqlType::BigInt, row.column(0), 0);
                    run(&world.db, |s| s.point_delete(&t, 0, &[key])).expect("delete");
                    world.db.checkpoint(true).expect("merge");
                }
            }
            found
        };
        let whole = read(1_000_000);
        assert!(whole.len() > 1000);
        assert_eq!(read(100), whole, "{direction:?}");
    }
}

/// A serializable transaction that has read by an index fails if rows have come under its key, have
/// left it or have changed.
#[test]
fn what_is_read_by_a_key_is_validated() {
    let serializable = TxnOptions {
        isolation: Isolation::Serializable,
        ..TxnOptions::default()
    };
    type Change = fn(&Statement, &std::sync::Arc<TableDef>) -> Result<()>;
    let changes: [(Change, bool); 5] = [
        (
            |s, t| s.point_insert(t, &row(50, 3, "phantom")).map(|_| ()),
            true,
        ),
        (
            |s, t| s.point_delete(t, 0, &[Value::BigInt(3)]).map(|_| ()),
            true,
        ),
        (
            |s, t| {
                let set = [(ColumnId(1), Value::BigInt(4))];
                s.point_update(t, 0, &[Value::BigInt(8)], &set).map(|_| ())
            },
            true,
        ),
        (
            |s, t| {
                let set = [(ColumnId(2), Value::from("changed"))];
                s.point_update(t, 0, &[Value::BigInt(3)], &set).map(|_| ())
            },
            true,
        ),
        (
            |s, t| s.point_insert(t, &row(51, 4, "another key")).map(|_| ()),
            false,
        ),
    ];
    for (at, (change, conflicts)) in changes.into_iter().enumerate() {
        let world = World::new(HistoryPolicy::None);
        create_alone(&world.db, &index("t_a", vec![part(1)])).expect("create");
        for k in 0..10 {
            insert(&world.db, &row(k, k % 5, "x"));
        }
        let t = table(&world.db);
        let id = named(&t, "t_a").id;
        let reader = world.db.begin(serializable.clone()).expect("begin");
        let statement = reader.begin_statement().expect("statement");
        let mut rows = Vec::new();
        let key = [Value::BigInt(3)];
        let found = statement.rows_of_index_key(&t, id, &key, &mut rows);
        assert_eq!((found.expect("rows"), rows.len()), ((), 2));
        run(&world.db, |s| change(s, &t)).expect("change");
        statement
            .point_insert(&t, &row(99, 9, "its own"))
            .expect("insert");
        assert_eq!(reader.commit().is_err(), conflicts, "change {at}");
    }
}
