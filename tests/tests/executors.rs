//! Connections are synchronous; they must work on a thread that belongs to somebody's asynchronous
//! runtime just as well: its scheduler's limits are not theirs.

use std::sync::mpsc;
use std::time::Duration;
use strandline::Database;

/// Enough statements to use up the polls that tokio grants one task.
fn work() -> i64 {
    let database = Database::in_memory().expect("a database in memory");
    let mut connection = database.connect();
    connection
        .execute("create table t (a int primary key)", ())
        .expect("a table");
    for i in 0..300 {
        connection
            .execute("insert into t values ($1)", (i,))
            .expect("a row");
        connection
            .query("select count(*) from t where a >= 0", ())
            .expect("a count");
    }
    connection
        .execute("update t set a = a + 1000", ())
        .expect("an update");
    let counted = connection.query("select count(*) from t where a >= 1000", ());
    counted.and_then(|rows| rows.single()).expect("a count")
}

/// Runs the work within `executor`; a thread that spins or waits for ever fails the test.
fn within(executor: impl FnOnce() -> i64 + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(executor()));
    let count = receiver
        .recv_timeout(Duration::from_secs(300))
        .expect("the work ends");
    assert_eq!(count, 300);
}

#[test]
fn in_a_task_of_a_current_thread_runtime() {
    within(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async { work() })
    });
}

#[test]
fn in_a_task_of_a_multi_threaded_runtime() {
    within(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build();
        let runtime = runtime.expect("a runtime");
        let task = runtime.spawn(async { work() });
        runtime.block_on(task).expect("the task ends")
    });
}

#[test]
fn in_an_executor_of_futures() {
    within(|| futures::executor::block_on(async { work() }));
}
