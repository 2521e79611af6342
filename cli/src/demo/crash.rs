//! Kills a process in mid-transaction and checks that every acknowledged commit survived.
//!
//! The victim is this program again (`demo-victim`). One of its threads enters transactions and
//! prints `try` before and `ack` after each commit. Another thread enters half an order in a
//! transaction that stays open.
//!
//! The demo reads these lines from a pipe, whose content survives its writer. It kills the victim
//! with SIGKILL right after a `try`, opens the database, and compares. Every acknowledged
//! transaction must be there whole, and the open one not at all. The one that was committing when
//! the process died may be there whole or not at all.

use super::mixed::audit;
use super::orders::{Effect, OrderDesk, OrderState, Tables, leave_half_done, read_order};
use super::results::integers;
use super::schema::LEDGER_READ;
use super::victim::{Victim, report};
use crate::args::{CapacityArgs, OpenArgs};
use crate::session::{self, Connection, Database, Error, Result, SqlState};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Acknowledged commits before the kill, at least. The seed adds up to half as many, so that runs
/// with different seeds kill the victim at different places.
const PROMISES: usize = 500;
/// The key of the order that is left half done; far above all other keys.
const HALF_DONE: i64 = 1 << 60;

/// The content of the victim's lines.
#[derive(Default)]
struct Log {
    /// Order → its state after the acknowledged transactions.
    orders: BTreeMap<i64, Option<OrderState>>,
    /// Sequence number of the last acknowledged transaction.
    acknowledged: i64,
    acknowledgements: usize,
    /// The transaction that was announced and not acknowledged.
    pending: Option<Announcement>,
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announcement {
    sequence: i64,
    order: i64,
    state: Option<OrderState>,
}

/// The outcome of the commit that was announced and not acknowledged. Both outcomes are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCommit {
    NoneUnderWay,
    Survived,
    Lost,
}

/// The findings after the crash.
pub struct Recovered {
    /// Commits that the victim reported as acknowledged; all were found.
    pub acknowledged: usize,
    /// Orders compared with the victim's report.
    pub orders: usize,
    /// The outcome of the commit under way when the process died.
    pub last: LastCommit,
    /// Time from opening the database until it answers.
    pub recovery: Duration,
}

/// Starts a victim on the (closed) database at `path`, kills it, opens the database, and verifies
/// it.
pub fn run(path: &Path, open: OpenArgs, seed: u64) -> Result<(Recovered, Database)> {
    let log = kill_one(path, open, seed)?;
    let begin = Instant::now();
    let database = session::open(Some(path), &CapacityArgs::default(), open)?;
    let mut connection = database.connect();
    let [sequence, _, _, _] = integers(&mut connection, LEDGER_READ)?;
    let recovery = begin.elapsed();
    let last = verify(&mut connection, &log, sequence)?;
    let recovered = Recovered {
        acknowledged: log.acknowledgements,
        orders: log.orders.len(),
        last,
        recovery,
    };
    Ok((recovered, database))
}

/// Runs a victim until it has reported enough commits, and kills it in mid-transaction.
fn kill_one(path: &Path, open: OpenArgs, seed: u64) -> Result<Log> {
    let mut arguments = vec![format!("--seed={seed}")];
    arguments.extend(open.memory.map(|bytes| format!("--memory={bytes}")));
    let victim = Victim::start(path, &arguments)?;
    let promises = PROMISES + Rng::new(seed).below(PROMISES as u64 / 2) as usize;
    let mut log = Log::default();
    loop {
        log.note(&victim.next_line()?)?;
        if log.acknowledgements >= promises && log.open && log.pending.is_some() {
            break;
        }
    }
    let rest = victim.kill()?;
    rest.iter().try_for_each(|line| log.note(line))?;
    Ok(log)
}

impl Log {
    /// Parses one line of the victim.
    fn note(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let parsed = match words.as_slice() {
            ["open"] => {
                self.open = true;
                Some(())
            }
            ["ack", sequence] => sequence.parse().ok().and_then(|n| self.acknowledge(n)),
            ["try", numbers @ ..] => parse_announcement(numbers).map(|announcement| {
                self.pending = Some(announcement);
            }),
            _ => None,
        };
        parsed.ok_or_else(|| Error::internal(format!("the process to be killed says {line:?}")))
    }

    fn acknowledge(&mut self, sequence: i64) -> Option<()> {
        let announced = self.pending.take().filter(|a| a.sequence == sequence)?;
        self.orders.insert(announced.order, announced.state);
        self.acknowledged = sequence;
        self.acknowledgements += 1;
        Some(())
    }
}

fn parse_announcement(words: &[&str]) -> Option<Announcement> {
    let numbers: Vec<i64> = words
        .iter()
        .map(|w| w.parse().ok())
        .collect::<Option<_>>()?;
    match numbers[..] {
        [sequence, order] => Some(Announcement {
            sequence,
            order,
            state: None,
        }),
        [sequence, order, total_cents, lines] => {
            let state = OrderState {
                total_cents,
                lines: u64::try_from(lines).ok()?,
            };
            Some(Announcement {
                sequence,
                order,
                state: Some(state),
            })
        }
        _ => None,
    }
}

/// Compares the database with the victim's report; returns the outcome of the commit under way.
fn verify(connection: &mut Connection, log: &Log, sequence: i64) -> Result<LastCommit> {
    let lost = |message: String| Err(Error::invalid(SqlState::DATA_CORRUPTED, message));
    let mut expected = log.orders.clone();
    let last = match log.pending {
        None if sequence == log.acknowledged => LastCommit::NoneUnderWay,
        Some(_) if sequence == log.acknowledged => LastCommit::Lost,
        Some(pending) if sequence == pending.sequence => {
            expected.insert(pending.order, pending.state);
            LastCommit::Survived
        }
        _ => {
            return lost(format!(
                "{} transactions were acknowledged, the database knows {sequence}",
                log.acknowledged
            ));
        }
    };
    let tables = Tables::find(connection)?;
    for (order, state) in &expected {
        let found = read_order(connection, &tables, *order)?;
        if found != *state {
            return lost(format!(
                "order {order} is {found:?}, acknowledged was {state:?}"
            ));
        }
    }
    if let Some(state) = read_order(connection, &tables, HALF_DONE)? {
        return lost(format!(
            "the order that was never committed is there: {state:?}"
        ));
    }
    audit(connection)?;
    Ok(last)
}

/// The process that the demo kills. It enters transactions for ever and reports each one.
pub fn victim(path: &Path, open: OpenArgs, seed: u64) -> Result<()> {
    let database = session::open(Some(path), &CapacityArgs::default(), open)?;
    let mut desk = OrderDesk::open(database.connect(), seed)?;
    let mut aside = database.connect();
    let tables = Tables::find(&aside)?;
    let _open_for_ever = leave_half_done(&mut aside, &tables, HALF_DONE)?;
    report(format_args!("open"))?;
    loop {
        let effect = desk.enter(announce)?;
        report(format_args!("ack {}", effect.sequence))?;
    }
}

fn announce(effect: &Effect) -> Result<()> {
    let Effect {
        sequence,
        order,
        after,
        ..
    } = effect;
    match after {
        None => report(format_args!("try {sequence} {order}")),
        Some(state) => report(format_args!(
            "try {sequence} {order} {} {}",
            state.total_cents, state.lines
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(lines: &[&str]) -> Result<Log> {
        let mut log = Log::default();
        lines.iter().try_for_each(|line| log.note(line))?;
        Ok(log)
    }

    #[test]
    fn the_log_keeps_what_was_acknowledged() {
        let lines = [
            "open\n",
            "try 1 7 100 2\n",
            "ack 1\n",
            "try 2 7\n",
            "ack 2\n",
            "try 3 8 5 1\n",
        ];
        let log = noted(&lines).expect("valid lines");
        assert_eq!(
            (log.acknowledged, log.acknowledgements, log.open),
            (2, 2, true)
        );
        assert_eq!(log.orders, BTreeMap::from([(7, None)]));
        let state = Some(OrderState {
            total_cents: 5,
            lines: 1,
        });
        assert_eq!(
            log.pending,
            Some(Announcement {
                sequence: 3,
                order: 8,
                state
            })
        );
    }

    #[test]
    fn nonsense_is_an_error() {
        for line in ["", "ack 1", "try 1", "try 1 2 3", "try a b", "hello"] {
            assert!(noted(&[line]).is_err(), "{line}");
        }
        assert!(noted(&["try 1 2", "ack 2"]).is_err());
    }
}
