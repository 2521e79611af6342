//! Texts whose syntax trees do not fit into memory are refused before they are parsed.

use super::{fails, rows, run};
use std::sync::Arc;
use strandline::{Database, SqlState};
use strandline_device::MemoryDevice;

#[test]
fn a_text_of_too_many_tokens_is_refused() {
    let database = Database::on_device(Arc::new(MemoryDevice::new()));
    let database = database.memory_bytes(128 << 20).build().expect("opened");
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int PRIMARY KEY, b text)"]);
    let list = format!("SELECT a FROM t WHERE a IN ({}1)", "1,".repeat(200_000));
    let message = fails(&mut c, &list, SqlState::OUT_OF_MEMORY);
    assert!(message.contains("memory_bytes"), "{message}");
    let refused = c.prepare(&list).map(drop).expect_err("refused");
    assert_eq!(refused.sqlstate(), SqlState::OUT_OF_MEMORY);
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("= ANY ($1)"))
    );
    // Long literals, and rows that are parsed in pieces, need little.
    let literal = "x, ".repeat(1 << 20);
    run(
        &mut c,
        &[&format!("INSERT INTO t VALUES (-1, '{literal}')")],
    );
    let values: Vec<String> = (0..100_000).map(|i| format!("({i},'')")).collect();
    run(
        &mut c,
        &[&format!("INSERT INTO t VALUES {}", values.join(","))],
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["100001"]);
    // The memory of a text is given back.
    let long = format!("SELECT length('{literal}')");
    for _ in 0..40 {
        assert_eq!(rows(&mut c, &long), ["3145728"]);
    }
}

/// An `IN` list of 200 KB takes some 60 MB from parser to result; the pool has 128 MB.
#[test]
fn texts_of_many_sessions_share_the_memory() {
    let database = Database::on_device(Arc::new(MemoryDevice::new()));
    let database = database.memory_bytes(256 << 20).build().expect("opened");
    let items: Vec<String> = (100_000..129_000).map(|i| i.to_string()).collect();
    let list = format!("SELECT 1 WHERE 7 IN ({})", items.join(","));
    assert!((190 << 10..256 << 10).contains(&list.len()));
    let mut held = Vec::new();
    let refused = loop {
        let mut connection = database.connect();
        match connection.prepare(&list) {
            Ok(prepared) => held.push((connection, prepared)),
            Err(error) => break error,
        }
        assert!(held.len() < 20, "nothing is counted");
    };
    assert_eq!(refused.sqlstate(), SqlState::OUT_OF_MEMORY);
    assert!(
        refused
            .detail()
            .is_some_and(|detail| detail.contains("198 kB")),
        "{:?}",
        refused.detail()
    );
    assert!(!held.is_empty());
    // Short statements, and an INSERT of rows that fits, go on.
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int PRIMARY KEY)"]);
    let values: Vec<String> = (0..10_000).map(|i| format!("({i})")).collect();
    let insert = format!("INSERT INTO t VALUES {}", values.join(","));
    drop(held.pop());
    run(&mut c, &[&insert]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["10000"]);
    // What is dropped is given back, also by a session's statements without a name.
    held.clear();
    for _ in 0..10 {
        assert!(rows(&mut c, &list).is_empty());
        assert!(rows(&mut database.connect(), &list).is_empty());
    }
}
