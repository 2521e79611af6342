//! The soak's clients. Each has its own connection, which it makes anew whenever the server has
//! gone.
//!
//! | client | does |
//! |---|---|
//! | counter | adds 1 to a counter; some counters have one client, one has all |
//! | queue | one inserts at the end, one deletes at the beginning |
//! | wide | replaces rows of 100 KB |
//! | definer | creates, changes and drops a table |
//! | checkpoints | `CHECKPOINT` |
//! | sums | sums the counters by an analytic query, now and as of a second ago |
//! | stalled | asks for all wide rows and never reads them: a scan, a relaxed scan, COPY |

use crate::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// Counters with one client each. All clients share the counter after them.
const COUNTERS: usize = 3;
/// Rows that the queue may hold, and rows of one statement.
const QUEUE_ROWS: i64 = 2_000;
const QUEUE_BATCH: i64 = 20;
/// The number of wide rows and their bytes.
const WIDE_ROWS: u64 = 50;
const WIDE_BYTES: usize = 100_000;
/// The time for which a client that never reads stays connected.
const STALLED: Duration = Duration::from_secs(30);
/// The time for which a client tries to connect: as long as recovery may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The server's history retention, short enough for files to be flat within a short run.
const HISTORY: &str = "10 seconds";

/// The value of each counter.
pub type Counters = BTreeMap<i32, i64>;

/// The state that the clients and the run share.
pub struct Shared {
    port: AtomicU16,
    has_stopped: AtomicBool,
    seed: u64,
    /// by counter: acknowledged additions, and additions with unknown outcome
    acknowledged: Vec<AtomicU64>,
    unknown: Vec<AtomicU64>,
    /// nanoseconds of counter updates since the last sample
    latencies: Mutex<Vec<u64>>,
    /// and of the longest update so far
    longest: AtomicU64,
    done: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<Vec<String>>,
}

impl Shared {
    /// The state for clients of a server on this port.
    pub fn new(port: u16, seed: u64) -> Self {
        let zeros = || (0..=COUNTERS).map(|_| AtomicU64::new(0)).collect();
        Self {
            port: AtomicU16::new(port),
            has_stopped: AtomicBool::new(false),
            seed,
            acknowledged: zeros(),
            unknown: zeros(),
            latencies: Mutex::default(),
            longest: AtomicU64::new(0),
            done: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Tells the clients the port of the server that has been started again.
    pub fn moved_to(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// Tells the clients to end.
    pub fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether a client has met an unexpected error.
    pub fn has_failed(&self) -> bool {
        !lock(&self.failures).is_empty()
    }

    /// All unexpected errors.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// The number of statements done, by client.
    pub fn done(&self) -> Value {
        json!(*lock(&self.done))
    }

    /// The 99 % quantile of counter updates since the last call, in milliseconds.
    pub fn take_p99(&self) -> Option<f64> {
        let mut latencies = std::mem::take(&mut *lock(&self.latencies));
        latencies.sort_unstable();
        let last = latencies.len().checked_sub(1)?;
        self.longest.fetch_max(latencies[last], Ordering::Relaxed);
        let at = last * 99 / 100;
        Some(latencies[at] as f64 / 1e6)
    }

    /// The longest acknowledged update of a counter, in milliseconds.
    pub fn longest(&self) -> f64 {
        self.longest.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Lists the counters that have unacknowledged additions or lack acknowledged ones.
    pub fn compare(&self, ended: &Counters) -> Vec<String> {
        let load = |counts: &[AtomicU64], n: usize| counts[n].load(Ordering::Relaxed) as i64;
        let wrong = |n: usize| {
            let least = load(&self.acknowledged, n);
            let most = least + load(&self.unknown, n);
            let found = ended.get(&(n as i32)).copied().unwrap_or(-1);
            (!(least..=most).contains(&found)).then(|| {
                format!("counter {n} is {found}, acknowledged were {least}, at most {most} sent")
            })
        };
        (0..=COUNTERS).filter_map(wrong).collect()
    }

    fn is_running(&self) -> bool {
        !self.has_stopped.load(Ordering::Relaxed)
    }

    fn note(&self, client: &'static str) {
        *lock(&self.done).entry(client).or_default() += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no client panics while it holds a lock")
}

/// Creates the tables.
pub async fn define(shared: &Shared) -> Result<()> {
    let client = connect(shared).await?;
    client
        .batch_execute(
            "CREATE TABLE counter (id int PRIMARY KEY, n bigint NOT NULL);
             CREATE TABLE queue (id bigint PRIMARY KEY, payload text NOT NULL);
             CREATE TABLE wide (id bigint PRIMARY KEY, body text NOT NULL);",
        )
        .await?;
    for table in ["counter", "queue", "wide"] {
        let keep = format!("ALTER TABLE {table} SET (history = '{HISTORY}')");
        client.batch_execute(&keep).await?;
    }
    for id in 0..=COUNTERS as i32 {
        let sql = "INSERT INTO counter VALUES ($1, 0)";
        client.execute(sql, &[&id]).await?;
    }
    // The sums query the tables as of a second ago, when they must exist already.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

/// Reads the counters.
pub async fn counters(shared: &Shared) -> Result<Counters> {
    let client = connect(shared).await?;
    let rows = client.query("SELECT id, n FROM counter", &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Starts all clients.
pub fn start(runtime: &Runtime, shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for n in 0..COUNTERS {
        tasks.push(runtime.spawn(counter(shared.clone(), n)));
    }
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Enqueue)));
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Dequeue)));
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Wide)));
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Define)));
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Checkpoint)));
    tasks.push(runtime.spawn(repeat(shared.clone(), Work::Sum)));
    for sql in [
        "SELECT * FROM wide",
        "SET strandline.max_staleness = '1min'; SELECT * FROM wide",
        "COPY wide TO STDOUT",
    ] {
        tasks.push(runtime.spawn(stalled(shared.clone(), sql)));
    }
    tasks
}

/// A connection to the server, which may still be starting.
async fn connect(shared: &Shared) -> Result<Client> {
    let began = Instant::now();
    loop {
        let port = shared.port.load(Ordering::Relaxed);
        let address = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        match tokio_postgres::connect(&address, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return Ok(client);
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Whether a statement failed because the server was killed.
fn is_gone(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => [SqlState::ADMIN_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code),
    }
}

/// Adds 1 to its own counter and to the shared counter in turn.
async fn counter(shared: Arc<Shared>, own: usize) {
    let mut connected = None;
    let mut turn = 0_u64;
    while shared.is_running() {
        let client = match connected.take() {
            Some(client) => client,
            None => match connect(&shared).await {
                Ok(client) => client,
                Err(error) => return fail(&shared, "counter", &error.to_string()),
            },
        };
        let n = if turn.is_multiple_of(2) {
            own
        } else {
            COUNTERS
        };
        turn += 1;
        let began = Instant::now();
        let sql = "UPDATE counter SET n = n + 1 WHERE id = $1";
        match client.execute(sql, &[&(n as i32)]).await {
            Ok(1) => {
                shared.acknowledged[n].fetch_add(1, Ordering::Relaxed);
                lock(&shared.latencies).push(began.elapsed().as_nanos() as u64);
                shared.note("counters");
                connected = Some(client);
            }
            Ok(rows) => return fail(&shared, "counter", &format!("{rows} rows updated")),
            Err(error) if is_gone(&error) => {
                shared.unknown[n].fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return fail(&shared, "counter", &text(&error)),
        }
    }
}

/// The kinds of work of the other clients.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Enqueue,
    Dequeue,
    Wide,
    Define,
    Checkpoint,
    Sum,
}

impl Work {
    /// The work's name, and the pause between two repetitions.
    fn pace(self) -> (&'static str, Duration) {
        let (name, millis) = match self {
            Self::Enqueue => ("enqueue", 10),
            Self::Dequeue => ("dequeue", 10),
            Self::Wide => ("wide", 20),
            Self::Define => ("define", 1_000),
            Self::Checkpoint => ("checkpoint", 10_000),
            Self::Sum => ("sum", 200),
        };
        (name, Duration::from_millis(millis))
    }

    async fn run(
        self,
        client: &Client,
        rng: &mut Rng,
    ) -> std::result::Result<(), tokio_postgres::Error> {
        match self {
            Self::Enqueue => {
                let sql = "INSERT INTO queue SELECT newest + i, repeat('x', 100) \
                           FROM (SELECT coalesce(max(id), 0) AS newest, count(*) AS rows \
                                 FROM queue) q, \
                           generate_series(1, $1) g(i) WHERE rows < $2";
                client.execute(sql, &[&QUEUE_BATCH, &QUEUE_ROWS]).await?;
            }
            Self::Dequeue => {
                let oldest = client.query_one("SELECT min(id) FROM queue", &[]).await?;
                if let Some(oldest) = oldest.get::<_, Option<i64>>(0) {
                    let until = oldest + QUEUE_BATCH;
                    let sql = "DELETE FROM queue WHERE id < $1";
                    client.execute(sql, &[&until]).await?;
                }
            }
            Self::Wide => {
                let (id, letter) = (rng.below(WIDE_ROWS) as i64, b'a' + rng.below(26) as u8);
                let body = char::from(letter).to_string().repeat(WIDE_BYTES);
                let sql = "INSERT INTO wide VALUES ($1, $2) \
                           ON CONFLICT (id) DO UPDATE SET body = excluded.body";
                client.execute(sql, &[&id, &body]).await?;
            }
            Self::Define => {
                client
                    .batch_execute(
                        "DROP TABLE IF EXISTS defined;
                         CREATE TABLE defined (id int PRIMARY KEY, a text);
                         INSERT INTO defined VALUES (1, 'one');
                         ALTER TABLE defined ADD COLUMN b bigint DEFAULT 7;
                         UPDATE defined SET b = b + 1;
                         DROP TABLE defined;",
                    )
                    .await?;
            }
            Self::Checkpoint => client.batch_execute("CHECKPOINT").await?,
            Self::Sum => {
                client
                    .batch_execute(
                        "SELECT sum(n), count(*) FROM counter;
                         SELECT sum(n) FROM counter \
                         FOR SYSTEM_TIME AS OF now() - interval '1 second';
                         SELECT count(*), max(length(payload)) FROM queue;",
                    )
                    .await?;
            }
        }
        Ok(())
    }
}

/// Repeats the work until the end.
async fn repeat(shared: Arc<Shared>, work: Work) {
    let (name, pause) = work.pace();
    let mut rng = Rng::new(shared.seed ^ work as u64);
    let mut connected = None;
    while shared.is_running() {
        tokio::time::sleep(pause).await;
        let client = match connected.take() {
            Some(client) => client,
            None => match connect(&shared).await {
                Ok(client) => client,
                Err(error) => return fail(&shared, name, &error.to_string()),
            },
        };
        match work.run(&client, &mut rng).await {
            Ok(()) => {
                shared.note(name);
                connected = Some(client);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return fail(&shared, name, &text(&error)),
        }
    }
}

/// Sends a query as plain bytes of the protocol and leaves the answer in the socket.
async fn stalled(shared: Arc<Shared>, sql: &'static str) {
    while shared.is_running() {
        let port = shared.port.load(Ordering::Relaxed);
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut bytes = Vec::new();
        let startup = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        bytes.extend((startup.len() as u32 + 4).to_be_bytes());
        bytes.extend(startup);
        bytes.push(b'Q');
        bytes.extend((sql.len() as u32 + 5).to_be_bytes());
        bytes.extend(sql.as_bytes());
        bytes.push(0);
        if socket.write_all(&bytes).await.is_ok() {
            shared.note("stalled");
        }
        let began = Instant::now();
        while shared.is_running() && began.elapsed() < STALLED {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn fail(shared: &Shared, client: &str, error: &str) {
    lock(&shared.failures).push(format!("{client}: {error}"));
}

/// An error with the server's message.
fn text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => error.to_string(),
    }
}
