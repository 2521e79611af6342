//! All 22 queries of TPC-H against stored answers: of the data as loaded, of the same moment while
//! and after the data is changed (AS OF), and of the changed data; merged or not, and after the
//! database was opened again.

use std::sync::Arc;
use strandline::{Connection, Database};
use strandline_device::MemoryDevice;
use strandline_tests::tpch::{DataState, check, load, updates};

fn check_all(connection: &mut Connection, state: DataState, as_of: Option<&str>) {
    for number in 1..=22 {
        check(connection, number, state, as_of);
    }
}

#[test]
fn answers_before_during_and_after_updates() {
    let device = Arc::new(MemoryDevice::new());
    let open = || {
        Database::on_device(device.clone())
            .build()
            .expect("the database opens")
    };
    let database = open();
    let mut connection = database.connect();
    load(&mut connection).expect("the tables load");
    check_all(&mut connection, DataState::Loaded, None);

    let loaded: String = connection
        .query("select now()::text", ())
        .and_then(|now| now.single())
        .expect("the time is a text");
    let statements = updates();
    let (first, second) = statements.split_at(statements.len() / 2);
    for statement in first {
        connection
            .execute(statement, ())
            .unwrap_or_else(|e| panic!("{statement}: {e:?}"));
    }
    // Half of the changes are in tails only, in mid-transaction.
    let mut open_transaction = database.connect();
    open_transaction
        .execute("begin", ())
        .expect("a transaction begins");
    open_transaction
        .execute(
            "update lineitem set l_quantity = 0 where l_orderkey < 1000",
            (),
        )
        .expect("an update that is never committed");
    for number in [1, 3, 6, 18] {
        check(&mut connection, number, DataState::Loaded, Some(&loaded));
    }
    open_transaction
        .execute("rollback", ())
        .expect("a transaction ends");

    for statement in second {
        connection
            .execute(statement, ())
            .unwrap_or_else(|e| panic!("{statement}: {e:?}"));
    }
    check_all(&mut connection, DataState::Updated, None);
    database.merge_all().expect("everything merges");
    check_all(&mut connection, DataState::Loaded, Some(&loaded));
    for number in [1, 3, 6, 18] {
        check(&mut connection, number, DataState::Updated, None);
    }
    drop((connection, open_transaction));
    database.close().expect("the database closes");
    drop(database);

    let database = open();
    let mut connection = database.connect();
    for number in [1, 3, 6, 9, 18, 21] {
        check(&mut connection, number, DataState::Updated, None);
        check(&mut connection, number, DataState::Loaded, Some(&loaded));
    }
    assert_eq!(
        database.check().expect("the database is checked"),
        Vec::<String>::new()
    );
}
