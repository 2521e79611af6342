//! Definitions of indexes: uniqueness, transactions, builds.

use crate::common::*;
use crate::support::*;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

fn code<T>(outcome: Result<T>) -> SqlState {
    outcome.err().expect("an error").sqlstate()
}

#[test]
fn a_unique_index_keeps_duplicates_out() {
    let world = World::new(HistoryPolicy::None);
    create_alone(&world.db, &unique("t_a", vec![part(1)])).expect("create");
    insert(&world.db, &row(1, 10, "x"));
    let t = table(&world.db);
    let again = run(&world.db, |s| s.point_insert(&t, &row(2, 10, "y")));
    let error = again.expect_err("a duplicate");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.detail(), Some("Key (a)=(10) already exists."));
    insert(&world.db, &row(2, 20, "y"));
    let set = [(ColumnId(1), Value::BigInt(10))];
    let key = [Value::BigInt(2)];
    let moved = run(&world.db, |s| s.point_update(&t, 0, &key, &set));
    assert_eq!(code(moved), SqlState::UNIQUE_VIOLATION);
    // NULLs are distinct; what a deletion leaves is free.
    for k in [3, 4] {
        insert(&world.db, &[Value::BigInt(k), Value::Null, Value::Null]);
    }
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(1)])).expect("delete");
    insert(&world.db, &row(5, 10, "z"));
}

#[test]
fn a_unique_index_over_duplicates_is_not_made() {
    let world = World::new(HistoryPolicy::None);
    for k in 0..10 {
        insert(&world.db, &row(k, k % 9, "x"));
    }
    for create in [create_alone, create_online] {
        let error = create(&world.db, &unique("t_a", vec![part(1)])).expect_err("duplicates");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
        assert_eq!(error.message(), "could not create unique index \"t_a\"");
        assert_eq!(error.detail(), Some("Key (a)=(0) is duplicated."));
        assert!(table(&world.db).indexes.is_empty(), "nothing is left");
    }
    assert_eq!(counter(&world.db, "index_entries"), 0);
    let both = unique("t_ab", vec![part(1), part(0)]);
    create_online(&world.db, &both).expect("no duplicates");
}
