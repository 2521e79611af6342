//! `log_min_duration_statement`: what is told to `tracing`, and that nothing is told by default.

use super::{database, run};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the slow statements that it is told of.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "statement" || field.name() == "parameters" {
            write!(self.0, "{}={value:?} ", field.name()).expect("a text");
        }
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "strandline::slow"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("lock").push(line.0.trim().to_string());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn statements_over_the_threshold_are_told_with_their_parameters() {
    let kept = Kept::default();
    tracing::subscriber::with_default(kept.clone(), || {
        let database = database();
        let mut c = database.connect();
        run(
            &mut c,
            &[
                "CREATE TABLE t (a int)",
                "SET log_min_duration_statement = '1h'",
            ],
        );
        run(
            &mut c,
            &[
                "INSERT INTO t VALUES (1)",
                "SET log_min_duration_statement = 0",
            ],
        );
        c.query("SELECT a FROM t WHERE a = $1", (1i64,))
            .expect("rows");
        drop(c.query_stream("SELECT a FROM t", ()).expect("rows"));
        run(&mut c, &["SET log_parameter_max_length = 0"]);
        c.query("SELECT a + $1 FROM t", (1i64,)).expect("rows");
        c.execute("SELECT nonsense", ())
            .expect_err("no such column");
        let prepared = c.prepare("SELECT $1 + 1").expect("prepared");
        c.query_prepared(&prepared, (1i64,)).expect("rows");
        run(&mut c, &["CREATE USER ann PASSWORD 'secret'"]);
        run(&mut c, &["SET log_min_duration_statement = -1", "SELECT 1"]);
    });
    let mut lines = kept.0.lock().expect("lock").clone();
    let secret = lines.iter().position(|line| line.contains("CREATE USER"));
    let secret = lines.remove(secret.expect("it is told"));
    assert!(!secret.contains("secret"), "{secret}");
    assert_eq!(
        lines,
        [
            "statement=\"SELECT a FROM t WHERE a = $1\" parameters=\"$1 = '1'\"",
            "statement=\"SELECT a FROM t\" parameters=\"\"",
            "statement=\"SET log_parameter_max_length = 0\" parameters=\"\"",
            "statement=\"SELECT a + $1 FROM t\" parameters=\"\"",
            "statement=\"SELECT nonsense\" parameters=\"\"",
            "statement=\"SELECT $1 + 1\" parameters=\"\"",
            "statement=\"SET log_min_duration_statement = -1\" parameters=\"\"",
        ]
    );
}
