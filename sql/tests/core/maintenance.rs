//! Statements that maintain the database end when they are cancelled or their time is up.

use super::{fails, rows, run};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use strandline::{Database, Result, SqlState};
use strandline_device::{Device, File, MemoryDevice};

/// A device whose [`Device::sync_directory`] waits while the gate is closed.
#[derive(Clone, Debug)]
struct Gated {
    device: Arc<MemoryDevice>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Gated {
    fn new() -> Self {
        Self {
            device: Arc::new(MemoryDevice::new()),
            gate: Arc::default(),
        }
    }

    fn set_closed(&self, is_closed: bool) {
        *self.gate.0.lock() = is_closed;
        self.gate.1.notify_all();
    }
}

impl Device for Gated {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.device.create(name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        self.device.open(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.device.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.device.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.device.list()
    }
    fn sync_directory(&self) -> Result<()> {
        let mut is_closed = self.gate.0.lock();
        while *is_closed {
            self.gate.1.wait(&mut is_closed);
        }
        self.device.sync_directory()
    }
    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        self.device.lock()
    }
    fn location(&self) -> String {
        self.device.location()
    }
}

#[test]
fn checkpoints_of_a_stuck_device_time_out() {
    let device = Gated::new();
    let database = Database::on_device(Arc::new(device.clone())).build();
    let database = database.expect("opened");
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY)",
            "INSERT INTO t VALUES (1)",
            "SET statement_timeout = '20ms'",
        ],
    );
    device.set_closed(true);
    for sql in ["VACUUM", "VACUUM FULL", "VACUUM t", "CHECKPOINT"] {
        let message = fails(&mut c, sql, SqlState::QUERY_CANCELED);
        assert_eq!(message, "canceling statement due to statement timeout");
    }
    device.set_closed(false);
    run(&mut c, &["SET statement_timeout = 0", "VACUUM FULL"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t"), ["1"]);
}

/// Every statement that may take long looks at the flag.
#[test]
fn cancelled_scopes_end_all_long_statements() {
    let database = Database::in_memory().expect("opened");
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int)",
            "CREATE INDEX t_b ON t (b)",
            "INSERT INTO t SELECT i, i FROM generate_series(1, 100000) AS g(i)",
            "CREATE TABLE u (a int REFERENCES t)",
            "INSERT INTO u SELECT a FROM t",
            "ALTER TABLE u ADD CONSTRAINT later FOREIGN KEY (a) REFERENCES t NOT VALID",
        ],
    );
    let file = std::env::temp_dir().join(format!("strandline-{}.csv", std::process::id()));
    let copy_out = format!("COPY t TO '{}' CSV", file.display());
    run(&mut c, &[&copy_out]);
    let copy_in = format!("COPY t FROM '{}' CSV", file.display());
    for sql in [
        "VACUUM",
        "VACUUM FULL t",
        "CHECKPOINT",
        "REINDEX TABLE t",
        "CREATE INDEX ON t (b, a)",
        "CREATE UNIQUE INDEX ON t (b)",
        "ALTER TABLE t ADD UNIQUE (b)",
        "ALTER TABLE t ADD CHECK (b > 0)",
        "ALTER TABLE t ALTER COLUMN b SET NOT NULL",
        "ALTER TABLE u VALIDATE CONSTRAINT later",
        "CREATE TABLE v AS SELECT * FROM t",
        "CALL strandline_backup('/nowhere/at/all')",
        &copy_out,
        &copy_in,
    ] {
        let scope = c.cancel_scope();
        c.cancel_handle().cancel();
        fails(&mut c, sql, SqlState::QUERY_CANCELED);
        drop(scope);
        assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["100000"], "{sql}");
    }
    let _removed = std::fs::remove_file(file);
}
