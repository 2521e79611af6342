//! Many clients, of which some vanish at any time, and a server that is killed: what a client was
//! told is committed is there afterwards, and no session is left behind.

use crate::support::{PATIENCE, Raw, message, query};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use strandline::Database;
use strandline_base::rng::Rng;
use strandline_server::{Server, ServerOptions};

const CLIENTS: usize = 200;
/// Where the server of [`victim`] has its database.
const VICTIM: &str = "STRANDLINE_VICTIM";

fn connect(address: SocketAddr) -> Option<Raw> {
    let mut raw = Raw::try_open(address).ok()?;
    use std::io::Write;
    raw.stream
        .write_all(&crate::support::startup(&[("user", "ada")]))
        .ok()?;
    while raw.next()?.0 != b'Z' {}
    Some(raw)
}

/// Whether `sql` was answered without an error.
fn run(raw: &mut Raw, sql: &str) -> Option<bool> {
    use std::io::Write;
    raw.stream.write_all(&query(sql)).ok()?;
    let mut went_well = true;
    loop {
        match raw.next()?.0 {
            b'E' => went_well = false,
            b'Z' => return Some(went_well),
            _ => {}
        }
    }
}

/// One client: transactions of two rows with a number each, until the connection breaks or it has
/// had enough; sometimes it leaves in the middle. The numbers that are acknowledged.
fn client(address: SocketAddr, number: usize, rounds: usize, stop: &AtomicBool) -> Vec<usize> {
    let mut rng = Rng::new(number as u64);
    let mut acknowledged = Vec::new();
    let mut connection = None;
    for round in 0..rounds {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if connection.is_none() {
            connection = connect(address);
        }
        let Some(raw) = &mut connection else { break };
        let id = round * CLIENTS + number;
        let insert = format!("INSERT INTO t VALUES ({id}, 1)");
        let other = format!("INSERT INTO t VALUES ({id}, 2)");
        if run(raw, "BEGIN").is_none() || run(raw, &insert).is_none() {
            connection = None;
            continue;
        }
        if rng.one_in(7) {
            // In the middle of a transaction, or of a message.
            if rng.one_in(2) {
                let _sent = std::io::Write::write_all(&mut raw.stream, &message(b'Q', b"COM")[..6]);
            }
            connection = None;
            continue;
        }
        match (run(raw, &other), run(raw, "COMMIT")) {
            (Some(true), Some(true)) => acknowledged.push(id),
            (Some(_), Some(_)) => {}
            _ => connection = None,
        }
    }
    acknowledged
}

/// All of `acknowledged` are there, and nothing is there by halves.
fn verify(database: &Database, acknowledged: &[usize]) {
    let mut connection = database.connect();
    let halves = "SELECT count(*) FROM (SELECT id FROM t GROUP BY id HAVING count(*) <> 2) AS h";
    assert_eq!(
        connection
            .query(halves, ())
            .unwrap()
            .single::<i64>()
            .unwrap(),
        0
    );
    let rows = connection.query("SELECT DISTINCT id FROM t", ()).unwrap();
    let there: std::collections::HashSet<i64> = rows.rows().map(|r| r.get(0).unwrap()).collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|id| !there.contains(&(**id as i64)))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

const TABLE: &str = "CREATE TABLE t (id bigint, half int, PRIMARY KEY (id, half))";

#[test]
fn two_hundred_clients_some_of_which_vanish() {
    let database = Database::in_memory().unwrap();
    database.connect().execute(TABLE, ()).unwrap();
    let options = crate::support::options();
    let server = Server::start(database.clone(), options, None).unwrap();
    let address = server.addresses()[0];
    let stop = AtomicBool::new(false);
    let acknowledged: Vec<usize> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let stop = &stop;
                    move || client(address, number, 8, stop)
                })
            })
            .collect();
        clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    assert!(acknowledged.len() > CLIENTS);
    let deadline = std::time::Instant::now() + PATIENCE;
    while server.session_count() > 0 {
        assert!(std::time::Instant::now() < deadline, "sessions are left");
        std::thread::yield_now();
    }
    verify(&database, &acknowledged);
    server.shut_down().unwrap();
}

/// The server process that the next test kills; nothing when run as a test.
#[test]
fn victim() {
    let Ok(path) = std::env::var(VICTIM) else {
        return;
    };
    let database = Database::open(path).unwrap();
    let options = ServerOptions {
        max_connections: CLIENTS,
        ..crate::support::options()
    };
    let server = Server::start(database, options, None).unwrap();
    println!("\nlistening on {}", server.addresses()[0]);
    loop {
        std::thread::park();
    }
}

fn start_victim(path: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--nocapture"])
        .env(VICTIM, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| {
        let address = line.strip_prefix("listening on ")?;
        Some(address.parse().unwrap())
    });
    (child, address.unwrap())
}

#[test]
fn a_killed_server_has_lost_no_acknowledged_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = Database::open(&path).unwrap();
    database.connect().execute(TABLE, ()).unwrap();
    database.close().unwrap();
    drop(database);
    let (mut child, address) = start_victim(&path);
    let stop = AtomicBool::new(false);
    let done = AtomicUsize::new(0);
    let acknowledged: Vec<usize> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20)
            .map(|number| {
                let (stop, done) = (&stop, &done);
                scope.spawn(move || {
                    let mut all = Vec::new();
                    for part in 0..1000 {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let own = number + part * CLIENTS * 4;
                        let ids = client_from(address, own, stop);
                        done.fetch_add(ids.len(), Ordering::Relaxed);
                        all.extend(ids);
                    }
                    all
                })
            })
            .collect();
        while done.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        stop.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    let database = Database::open(&path).unwrap();
    verify(&database, &acknowledged);
    assert!(database.check().unwrap().is_empty());
}

/// As [`client`], for a few rounds of a server that may be killed.
fn client_from(address: SocketAddr, number: usize, stop: &AtomicBool) -> Vec<usize> {
    client(address, number, 4, stop)
}
