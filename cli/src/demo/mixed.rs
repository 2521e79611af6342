//! Queries alone, then the same queries while transactions run.
//!
//! One thread enters transactions as fast as they become durable. Another runs the four queries and
//! an audit in a loop. Each query runs in a snapshot transaction that also reads the ledger.
//!
//! The ledger's row in that snapshot has the time of the newest transaction that the query saw. The
//! freshness is the age of that transaction when the query started and when its answer was there.
//! The same row has the number of orders and lines that the audit must find.

use super::orders::{Kind, OrderDesk, wall_clock_us};
use super::results::{integers, median, percentile, rows};
use super::schema::{AUDIT, LEDGER_READ, QUERIES};
use crate::session::{Connection, Database, Error, Result, SqlState};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The queries run alone for at least this many rounds, and for at least this long.
const ALONE_ROUNDS: usize = 5;
const ALONE_TIME: Duration = Duration::from_secs(3);

/// The answers of the four queries, as text.
pub type Answers = Vec<Vec<Vec<String>>>;

/// The results of the four queries when nothing else runs.
pub struct Alone {
    pub answers: Answers,
    /// Milliseconds per query and round.
    pub latencies: [Vec<f64>; 4],
}

/// Runs the queries alone, after one round that does not count.
pub fn alone(connection: &mut Connection) -> Result<Alone> {
    let mut answers = Answers::new();
    for query in &QUERIES {
        answers.push(rows(connection, &query.now())?);
    }
    let mut latencies: [Vec<f64>; 4] = Default::default();
    let begin = Instant::now();
    while latencies[0].len() < ALONE_ROUNDS || begin.elapsed() < ALONE_TIME {
        for (query, latencies) in QUERIES.iter().zip(&mut latencies) {
            let begin = Instant::now();
            rows(connection, &query.now())?;
            latencies.push(begin.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(Alone { answers, latencies })
}

/// The measurements of the transactions.
#[derive(Default)]
pub struct Written {
    /// Transactions by [`Kind`].
    pub kinds: [u64; 4],
    /// Milliseconds per transaction, commit included.
    pub latencies: Vec<f64>,
    pub elapsed: Duration,
}

impl Written {
    pub fn transactions(&self) -> u64 {
        self.kinds.iter().sum()
    }
    pub fn per_second(&self) -> f64 {
        self.transactions() as f64 / self.elapsed.as_secs_f64()
    }
}

/// The measurements of the queries that ran beside the transactions.
#[derive(Default)]
pub struct Read {
    /// Milliseconds per query and round.
    pub latencies: [Vec<f64>; 4],
    /// Per query: the age in milliseconds, at its start, of the newest transaction in its snapshot.
    pub ages_at_start: [Vec<f64>; 4],
    /// The same age when the answer was there.
    pub ages_at_answer: [Vec<f64>; 4],
    /// Audits made. Every one of them found the data consistent.
    pub audits: u64,
}

/// The measurements of both sides.
pub struct Mixed {
    pub written: Written,
    pub read: Read,
}

/// The values of the live line.
#[derive(Default)]
struct Live {
    transactions: AtomicU64,
    /// Latest latency of each query and its freshness at the answer, in milliseconds.
    queries: Mutex<[(f64, f64); 4]>,
}

/// Runs transactions and queries side by side.
pub fn run(database: &Database, seed: u64, time: Duration) -> Result<Mixed> {
    let mut desk = OrderDesk::open(database.connect(), seed)?;
    let mut connection = database.connect();
    let stop = AtomicBool::new(false);
    let live = Live::default();
    let (ended, end) = channel();
    std::thread::scope(|scope| {
        let (stop, live) = (&stop, &live);
        let ended_too = ended.clone();
        let writer = scope.spawn(move || {
            let _signal = Ended(ended);
            write(&mut desk, stop, live)
        });
        let reader = scope.spawn(move || {
            let _signal = Ended(ended_too);
            read(&mut connection, stop, live)
        });
        show_live(live, time, || {
            match end.recv_timeout(Duration::from_secs(1)) {
                Err(RecvTimeoutError::Timeout) => true,
                // One side has failed; its error is returned below.
                Ok(()) | Err(RecvTimeoutError::Disconnected) => false,
            }
        });
        stop.store(true, Ordering::Relaxed);
        let written = writer
            .join()
            .map_err(|_| Error::internal("the writing thread panicked"))??;
        let read = reader
            .join()
            .map_err(|_| Error::internal("the reading thread panicked"))??;
        Ok(Mixed { written, read })
    })
}

/// Sends a message when its thread ends, also after an error or a panic.
struct Ended(Sender<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        // There is no receiver any more once the time is over.
        let _ = self.0.send(());
    }
}

fn write(desk: &mut OrderDesk, stop: &AtomicBool, live: &Live) -> Result<Written> {
    let mut written = Written::default();
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let one = Instant::now();
        let effect = desk.enter(|_| Ok(()))?;
        written.latencies.push(one.elapsed().as_secs_f64() * 1e3);
        let kind = Kind::ALL.iter().position(|kind| *kind == effect.kind);
        written.kinds[kind.expect("ALL has every kind")] += 1;
        live.transactions.fetch_add(1, Ordering::Relaxed);
    }
    written.elapsed = begin.elapsed();
    Ok(written)
}

fn read(connection: &mut Connection, stop: &AtomicBool, live: &Live) -> Result<Read> {
    let mut read = Read::default();
    while !stop.load(Ordering::Relaxed) {
        for (i, query) in QUERIES.iter().enumerate() {
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())?;
            let started_us = wall_clock_us();
            let begin = Instant::now();
            rows(connection, &query.now())?;
            let latency = begin.elapsed().as_secs_f64() * 1e3;
            let answered_us = wall_clock_us();
            let [_, _, _, entered_us] = integers(connection, LEDGER_READ)?;
            connection.execute("COMMIT", ())?;
            // Positive, unless the transaction committed between the clock reading and the
            // snapshot.
            let age = |now_us: i64| (now_us - entered_us) as f64 / 1e3;
            read.latencies[i].push(latency);
            read.ages_at_start[i].push(age(started_us).max(0.0));
            read.ages_at_answer[i].push(age(answered_us).max(0.0));
            let mut shown = live.queries.lock().unwrap_or_else(PoisonError::into_inner);
            shown[i] = (latency, age(answered_us));
        }
        audit(connection)?;
        read.audits += 1;
    }
    Ok(read)
}

/// Checks the data's invariants in one snapshot.
pub fn audit(connection: &mut Connection) -> Result<()> {
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())?;
    let [transactions, orders, lines, _] = integers(connection, LEDGER_READ)?;
    let [found_orders, found_lines, wrong] = integers(connection, AUDIT)?;
    connection.execute("COMMIT", ())?;
    if (found_orders, found_lines, wrong) == (orders, lines, 0) {
        return Ok(());
    }
    let message = format!(
        "after transaction {transactions} a snapshot holds {found_orders} orders and \
         {found_lines} lines instead of {orders} and {lines}, and {wrong} orders whose total is \
         not the sum of their lines"
    );
    Err(Error::invalid(SqlState::DATA_CORRUPTED, message))
}

/// Shows a line per second until `time` is over or `tick` (which waits a second) returns false.
fn show_live(live: &Live, time: Duration, tick: impl Fn() -> bool) {
    let begin = Instant::now();
    let terminal = std::io::stdout().is_terminal();
    let mut before = (0, Duration::ZERO);
    while begin.elapsed() < time && tick() {
        let now = (live.transactions.load(Ordering::Relaxed), begin.elapsed());
        let per_second = (now.0 - before.0) as f64 / (now.1 - before.1).as_secs_f64();
        before = now;
        let queries = *live.queries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut line = format!("  {:>4.0} s {per_second:>9.0} tx/s", now.1.as_secs_f64());
        for (query, (latency, _)) in QUERIES.iter().zip(&queries) {
            line.push_str(&format!("  {} {latency:>6.1} ms", query.name));
        }
        let oldest = queries.iter().map(|(_, age)| *age).fold(0.0, f64::max);
        line.push_str(&format!("  newest commit seen {oldest:.0} ms old"));
        let mut out = std::io::stdout().lock();
        // If the output has no reader any more, the next heading ends the demo.
        let _ = match terminal {
            true => write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush()),
            false => writeln!(out, "{line}"),
        };
    }
    if terminal {
        let _ = writeln!(std::io::stdout());
    }
}

/// The rows of the closing table: per query alone, with transactions, ratio, freshness.
pub fn table(alone: &Alone, read: &Read) -> Vec<Vec<String>> {
    let row = |(i, query): (usize, &super::schema::Query)| {
        let (before, during) = (median(&alone.latencies[i]), median(&read.latencies[i]));
        vec![
            query.name.to_string(),
            format!("{before:.1}"),
            format!("{during:.1}"),
            format!("{:.2}", during / before),
            format!("{:.1}", percentile(&read.latencies[i], 0.95)),
            read.latencies[i].len().to_string(),
            format!("{:.1}", median(&read.ages_at_start[i])),
            format!("{:.1}", median(&read.ages_at_answer[i])),
        ]
    };
    QUERIES.iter().enumerate().map(row).collect()
}

/// Names of the table's columns. Values are milliseconds unless the name says otherwise.
pub const TABLE_COLUMNS: [&str; 8] = [
    "query",
    "alone",
    "with tx",
    "ratio",
    "p95",
    "runs",
    "age at start",
    "age at answer",
];
