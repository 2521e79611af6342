//! Indexes over expressions, and partial ones, by an evaluator that knows two of them.

use crate::common::*;
use crate::support::*;
use arrow_array::{ArrayRef, RecordBatch};
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_column::types::{array_of, value_at};
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::{IndexDef, IndexExpression, IndexPart, IndexValue};
use strandline_engine::expressions::{RowExpression, RowExpressions};
use strandline_engine::*;

/// `100 / a`, and `a > 5`.
#[derive(Debug)]
struct Arithmetic;

enum Known {
    Quotient,
    IsLarge,
}

impl RowExpressions for Arithmetic {
    fn compile(
        &self,
        sql: &str,
        columns: &[(&str, SqlType)],
        _result: SqlType,
    ) -> Result<Arc<dyn RowExpression>> {
        assert_eq!(columns, [("a", SqlType::BigInt)]);
        match sql {
            "100 / a" => Ok(Arc::new(Known::Quotient)),
            "a > 5" => Ok(Arc::new(Known::IsLarge)),
            _ => Err(Error::unsupported(sql)),
        }
    }
}

impl RowExpression for Known {
    fn evaluate(&self, columns: &RecordBatch) -> Result<ArrayRef> {
        let column = columns.column(0);
        let rows = (0..columns.num_rows()).map(|row| value_at(SqlType::BigInt, column, row));
        let values: Result<Vec<Value>> = rows.map(|v| self.evaluate_row(&[v])).collect();
        let result = match self {
            Self::Quotient => SqlType::BigInt,
            Self::IsLarge => SqlType::Boolean,
        };
        array_of(result, &values?)
    }
    fn evaluate_row(&self, columns: &[Value]) -> Result<Value> {
        match (self, &columns[0]) {
            (_, Value::Null) => Ok(Value::Null),
            (Self::Quotient, Value::BigInt(0)) => Err(Error::invalid(
                SqlState::DIVISION_BY_ZERO,
                "division by zero",
            )),
            (Self::Quotient, Value::BigInt(v)) => Ok(Value::BigInt(100 / v)),
            (Self::IsLarge, Value::BigInt(v)) => Ok(Value::Boolean(*v > 5)),
            _ => unreachable!("a bigint"),
        }
    }
}

fn expression(sql: &str, sql_type: SqlType) -> IndexExpression {
    IndexExpression {
        sql: sql.into(),
        columns: vec![ColumnId(1)],
        sql_type,
    }
}

fn quotient() -> IndexPart {
    IndexPart {
        operator_class: None,
        value: IndexValue::Expression(expression("100 / a", SqlType::BigInt)),
        ..part(1)
    }
}

/// Unique among the rows whose `a` is greater than 5.
fn partial() -> IndexDef {
    IndexDef {
        predicate: Some(expression("a > 5", SqlType::Boolean)),
        ..unique("t_large", vec![part(1)])
    }
}

fn open_with(
    device: &Arc<MemoryDevice>,
    clock: &Arc<ManualClock>,
    expressions: Option<Arc<dyn RowExpressions>>,
) -> Result<Arc<Db>> {
    let settings = Settings {
        background_maintenance: false,
        reserve_bytes: 0,
        expressions,
        ..Settings::default()
    };
    Db::open(DbOptions {
        device: device.clone(),
        clock: clock.clone(),
        settings,
    })
}

fn world() -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_with(&device, &clock, Some(Arc::new(Arithmetic))).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    World { device, clock, db }
}

/// The keys of the rows under a key of an index.
fn found(db: &Arc<Db>, name: &str, key: i64) -> Vec<i64> {
    let (t, wanted) = (table(db), Value::BigInt(key));
    run(db, |s| {
        let def = named(&t, name).clone();
        let range = s.index_keys(&t, def.id)?.prefix(&[Value::BigInt(key)]);
        let rows = candidates(s, &s.view(&t)?, (&t, &def), &range, 10);
        let key = |row: Vec<Value>| match row[0] {
            Value::BigInt(k) => k,
            _ => unreachable!("a bigint"),
        };
        // An entry may be of another version.
        let has_key = |row: &Vec<Value>| {
            let value = match def.predicate {
                None => Known::Quotient.evaluate_row(&row[1..2]).expect("not 0"),
                Some(_) => row[1].clone(),
            };
            value == wanted
        };
        let rows = rows.into_iter().filter(has_key);
        Ok(rows.map(key).collect())
    })
    .expect("read")
}

#[test]
fn an_expression_is_maintained_built_and_recovered() {
    let world = world();
    // A version of the past that the expression fails for is no obstacle, a row is.
    insert(&world.db, &row(1, 0, "x"));
    let def = index("t_q", vec![quotient()]);
    let refused = create_alone(&world.db, &def).expect_err("a row with 0");
    assert_eq!(refused.sqlstate(), SqlState::DIVISION_BY_ZERO);
    let t = table(&world.db);
    let set = |v: i64| [(ColumnId(1), Value::BigInt(v))];
    let update = |k: i64, v: i64| {
        let t = table(&world.db);
        run(&world.db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(k)], &set(v))
        })
    };
    update(1, 30).expect("update");
    insert(&world.db, &row(9, 0, "goes"));
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(9)])).expect("delete");
    for create in [create_alone, create_online] {
        create(&world.db, &def).expect("create");
        insert(&world.db, &row(2, 31, "x"));
        assert_eq!(found(&world.db, "t_q", 3), [1, 2]);
        update(2, 50).expect("update");
        let refused = update(2, 0).expect_err("division by zero");
        assert_eq!(refused.sqlstate(), SqlState::DIVISION_BY_ZERO);
        assert_eq!(found(&world.db, "t_q", 2), [2]);
        let t = table(&world.db);
        run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(2)])).expect("delete");
        assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
        alter(&world.db, |t| drop_index(t, "t_q"));
    }
    create_online(&world.db, &def).expect("create");
    let World { device, clock, db } = world;
    drop(db);
    let db = open_with(&device, &clock, None).expect("the table is opened without its index");
    let t = table(&db);
    let is_read = run(&db, |s| Ok(s.has_index(&t, named(&t, "t_q").id)));
    assert!(!is_read.expect("statement"));
    assert!(db.failing_work()[0].contains("t_q"));
    insert(&db, &row(60, 33, "beside the unusable index"));
    drop(db);
    let db = open_with(&device, &clock, Some(Arc::new(Arithmetic))).expect("reopen");
    assert_eq!(found(&db, "t_q", 3), [1, 60]);
    assert_eq!(db.failing_work(), Vec::<String>::new());
}

#[test]
fn a_partial_index_has_the_rows_of_its_condition() {
    let world = world();
    for k in 0..10 {
        insert(&world.db, &row(k, k % 6, "x"));
    }
    create_online(&world.db, &partial()).expect("duplicates below 6 are none of its business");
    assert_eq!(entries(&world.db, "t_large"), 0);
    insert(&world.db, &row(10, 7, "x"));
    assert_eq!(found(&world.db, "t_large", 7), [10]);
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &row(11, 7, "x")));
    assert_eq!(
        again.expect_err("a duplicate").sqlstate(),
        SqlState::UNIQUE_VIOLATION
    );
    // A row that leaves the condition leaves the index; its key is free.
    let set = [(ColumnId(1), Value::BigInt(1))];
    run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(10)], &set)
    })
    .expect("update");
    insert(&world.db, &row(11, 7, "x"));
    assert_eq!(found(&world.db, "t_large", 7), [11]);
    // ON CONFLICT looks for the row that has the key.
    let id = named(&t, "t_large").id;
    let proposed = batch(&[(20, Some(7), String::new()), (21, Some(1), String::new())]);
    let conflicts = run(&world.db, |s| s.find_by_index(&t, id, &proposed)).expect("find");
    assert!(
        conflicts[0].is_some() && conflicts[1].is_none(),
        "{conflicts:?}"
    );
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
    // A bulk load goes by the condition as well.
    let rows: Vec<_> = (100..6000).map(|k| (k, Some(k), String::new())).collect();
    run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("load");
    assert_eq!(found(&world.db, "t_large", 5000), [5000]);
    let mut rows: Vec<_> = (6001..12_000)
        .map(|k| (k, Some(k), String::new()))
        .collect();
    rows.push((6000, Some(5000), String::new()));
    let loaded = run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    });
    assert_eq!(
        loaded.expect_err("a duplicate").sqlstate(),
        SqlState::UNIQUE_VIOLATION
    );
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

#[test]
fn an_expression_is_computed_only_for_rows_of_the_condition() {
    let world = world();
    // 100 / 0 fails, and 0 is not greater than 5.
    insert(&world.db, &row(1, 0, "x"));
    insert(&world.db, &row(2, 50, "x"));
    let def = IndexDef {
        predicate: Some(expression("a > 5", SqlType::Boolean)),
        ..index("t_q", vec![quotient()])
    };
    for create in [create_alone, create_online] {
        create(&world.db, &def).expect("create");
        assert_eq!(entries(&world.db, "t_q"), 1);
        alter(&world.db, |t| drop_index(t, "t_q"));
    }
    create_online(&world.db, &def).expect("create");
    let t = table(&world.db);
    let rows: Vec<_> = (100..6000)
        .map(|k| (k, Some(k % 10), String::new()))
        .collect();
    run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        load.append(&batch(&rows))?;
        load.finish()
    })
    .expect("load");
    assert_eq!(entries(&world.db, "t_q"), 1 + 4 * 590);
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

#[test]
fn without_an_evaluator_expressions_are_refused() {
    let world = World::new(HistoryPolicy::None);
    for create in [create_alone, create_online] {
        let refused = create(&world.db, &partial()).expect_err("nobody evaluates it");
        assert_eq!(refused.sqlstate(), SqlState::FEATURE_NOT_SUPPORTED);
        assert!(table(&world.db).indexes.is_empty());
    }
}
