//! The metrics over HTTP, and health through a server's life.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use strandline::Settings;

/// Status line and body of a GET.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    (
        head.lines().next().expect("a status").to_string(),
        body.to_string(),
    )
}

fn database() -> Database {
    let device = Arc::new(strandline_device::MemoryDevice::new());
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::on_device(device).settings(settings).build();
    database.expect("opens")
}

#[test]
fn health_follows_the_server() {
    let metrics = Arc::new(Metrics::new());
    let any = "127.0.0.1:0".parse().expect("an address");
    let server = MetricsServer::start(any, metrics.clone()).expect("started");
    let status = |path| get(server.address(), path);
    let (line, body) = status("/health");
    assert!(
        line.contains("503") && body == "recovering\n",
        "{line} {body}"
    );
    assert!(!status("/metrics").1.contains("strandline_transactions"));
    let database = database();
    metrics.serving(&database);
    assert!(status("/health").0.contains("200"));
    database.close().expect("close");
    let (line, body) = status("/health");
    assert!(
        line.contains("503") && body.contains("closed"),
        "{line} {body}"
    );
    metrics.stopping();
    assert_eq!(status("/health").1, "shutting down\n");
    assert!(status("/nothing").0.contains("404"));
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn what_is_counted_is_exported_under_the_documented_names() {
    let metrics = Metrics::new();
    let database = database();
    metrics.serving(&database);
    let mut connection = database.connect();
    connection
        .execute("CREATE TABLE t (a int PRIMARY KEY)", ())
        .expect("create");
    connection
        .execute("INSERT INTO t VALUES (1), (2)", ())
        .expect("insert");
    database.checkpoint().expect("checkpoint");
    let guard = metrics.connection();
    metrics.connection_refused();
    let fast = Duration::from_micros(30);
    metrics.statement("INSERT 0 2", None, fast);
    metrics.statement("update", Some(SqlState::SERIALIZATION_FAILURE), fast);
    metrics.statement("UPDATE", Some(SqlState::DEADLOCK_DETECTED), fast);
    metrics.statement("FROBNICATE", Some(SqlState::SYNTAX_ERROR), fast);
    let text = metrics.text();
    for line in [
        "strandline_connections 1",
        "strandline_connections_accepted_total 1",
        "strandline_connections_refused_total 1",
        "strandline_statements_total{kind=\"INSERT\",result=\"ok\"} 1",
        "strandline_statements_total{kind=\"UPDATE\",result=\"error\"} 2",
        "strandline_statements_total{kind=\"OTHER\",result=\"error\"} 1",
        "strandline_statement_duration_seconds_count{kind=\"UPDATE\"} 2",
        "strandline_serialization_failures_total 1",
        "strandline_deadlocks_total 1",
        "strandline_transactions_total{outcome=\"committed\"} 2",
        "strandline_checkpoints_total 1",
        "strandline_key_index_entries 2",
        "strandline_ranges_set_aside 0",
        "strandline_checkpoints_failing 0",
        "# TYPE strandline_memory_bytes gauge",
        "# TYPE strandline_log_bytes counter",
        "# TYPE strandline_checkpoint_seconds counter",
        "# EOF",
    ] {
        assert!(
            text.lines().any(|l| l == line),
            "{line} is missing in\n{text}"
        );
    }
    drop(guard);
    assert!(
        metrics
            .text()
            .lines()
            .any(|l| l == "strandline_connections 0")
    );
}

/// A database on two tiers with an SSD cache.
#[test]
fn tiers_and_their_caches_are_exported() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        ssd_cache_bytes: 64 << 20,
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::builder(dir.path().join("fast"))
        .capacity_dir(dir.path().join("capacity"))
        .settings(settings);
    let database = database.build().expect("opens");
    let metrics = Metrics::new();
    metrics.serving(&database);
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE t (a int PRIMARY KEY) WITH (key_index = 'btree')",
            (),
        )
        .expect("create");
    let text = metrics.text();
    for tier in ["fast", "capacity", "ssd_cache"] {
        let name = format!("strandline_tier_bytes{{tier=\"{tier}\"}} ");
        assert!(text.lines().any(|l| l.starts_with(&name)), "{name}: {text}");
    }
    for line in [
        "strandline_tier_max_bytes{tier=\"ssd_cache\"} ",
        "strandline_tier_fresh_bytes{tier=\"ssd_cache\"} 0",
        "strandline_tier_blocks_total{tier=\"ssd_cache\",event=\"hits\"} ",
        "strandline_tier_writes_total{tier=\"ssd_cache\"} ",
        "strandline_tier_written_bytes_total{tier=\"ssd_cache\"} ",
    ] {
        assert!(text.lines().any(|l| l.starts_with(line)), "{line}: {text}");
    }
    let of_tier = "strandline_tier_blocks_total{tier=\"fast\"";
    assert!(!text.contains(of_tier), "files are not counted by events");
}

#[test]
fn every_metric_is_documented() {
    let metrics = Metrics::new();
    metrics.serving(&database());
    metrics.statement("SELECT 1", None, Duration::from_micros(30));
    let chapter = include_str!("../../../docs/operations.md");
    let text = metrics.text();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().expect("a name");
        assert!(
            chapter.contains(&format!("`{name}")),
            "docs/operations.md lacks {name}"
        );
    }
}
