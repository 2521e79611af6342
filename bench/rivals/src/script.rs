//! A script of prepared statements on bigints, run over and over by several clients.
//!
//! The suite `index` and the peer SQLite both compile this file, so that each side of a comparison
//! runs the same statements with values drawn in the same way. Only the [`Runner`] differs.

use crate::Result;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// How much of a load's seconds its clients work before they are counted.
const WARM_PART: f64 = 0.25;

/// The value of a parameter.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// The number of the run of the script, unique among all clients.
    Run,
    /// The number of the statement's execution within the run, from 0.
    Execution,
    /// A random number from the first on, below the second.
    Between(i64, i64),
}

/// A statement of a script.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// `$1` and so on are the parameters, in the order of their first appearance.
    pub sql: String,
    pub values: Vec<Draw>,
    /// executions in a row
    pub times: i64,
    /// rows that each execution returns
    pub rows: usize,
}

/// Statements that are run in this order.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Script {
    pub steps: Vec<Step>,
    /// whether they are one writing transaction; else each is one of its own
    pub is_transaction: bool,
}

/// Clients that run a script for some time.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Load {
    pub script: Script,
    pub clients: u64,
    pub seconds: f64,
    pub seed: u64,
    /// the number of the first run
    pub first: i64,
}

/// One client's connection, with the steps prepared.
pub trait Runner {
    /// Begins a transaction that writes.
    fn begin(&mut self) -> Result<()>;
    /// Commits it.
    fn commit(&mut self) -> Result<()>;
    /// Executes the step with this number: the rows that it returned.
    fn execute(&mut self, step: usize, values: &[i64]) -> Result<usize>;
}

impl Script {
    /// Runs the steps once.
    pub fn run(&self, runner: &mut impl Runner, rng: &mut Rng, run: i64) -> Result<()> {
        if self.is_transaction {
            runner.begin()?;
        }
        let mut values = Vec::new();
        for (no, step) in self.steps.iter().enumerate() {
            for execution in 0..step.times {
                values.clear();
                values.extend(step.values.iter().map(|draw| match *draw {
                    Draw::Run => run,
                    Draw::Execution => execution,
                    Draw::Between(from, to) => from + rng.below((to - from) as u64) as i64,
                }));
                let rows = runner.execute(no, &values)?;
                if rows != step.rows {
                    let (expected, sql) = (step.rows, &step.sql);
                    return Err(format!("{rows} rows of {expected}: {sql} {values:?}").into());
                }
            }
        }
        if self.is_transaction {
            runner.commit()?;
        }
        Ok(())
    }
}

impl Load {
    /// Runs of the script per second of all clients; each has the connection that `connect` makes.
    pub fn rate<R: Runner>(&self, connect: impl Fn() -> Result<R> + Sync) -> Result<f64> {
        let start = Barrier::new(self.clients as usize + 1);
        let next = AtomicI64::new(self.first);
        let client = |client: u64| -> Result<u64> {
            let mut rng = Rng::new(self.seed ^ (client << 32));
            let connected = connect();
            let mut work = |runner: &mut R, seconds: f64| -> Result<u64> {
                let deadline = Instant::now() + Duration::from_secs_f64(seconds);
                let mut done = 0;
                while done == 0 || Instant::now() < deadline {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    self.script.run(runner, &mut rng, run)?;
                    done += 1;
                }
                Ok(done)
            };
            let warmed = connected.and_then(|mut runner| {
                work(&mut runner, self.seconds * WARM_PART)?;
                Ok(runner)
            });
            start.wait(); // also after an error: the others wait for this client
            work(&mut warmed?, self.seconds)
        };
        let client = &|no| client(no).map_err(|error| error.to_string());
        std::thread::scope(|scope| {
            let spawn = |no| scope.spawn(move || client(no));
            let clients: Vec<_> = (0..self.clients).map(spawn).collect();
            start.wait();
            let (started, mut done) = (Instant::now(), 0);
            for client in clients {
                done += client.join().expect("a client does not panic")?;
            }
            Ok(done as f64 / started.elapsed().as_secs_f64())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Notes what it is asked; a statement returns as many rows as its last value says.
    struct Noted<'n>(&'n Mutex<Vec<String>>);

    impl Runner for Noted<'_> {
        fn begin(&mut self) -> Result<()> {
            self.0.lock().unwrap().push("begin".into());
            Ok(())
        }

        fn commit(&mut self) -> Result<()> {
            self.0.lock().unwrap().push("commit".into());
            Ok(())
        }

        fn execute(&mut self, step: usize, values: &[i64]) -> Result<usize> {
            self.0.lock().unwrap().push(format!("{step} {values:?}"));
            Ok(values.last().map_or(0, |&rows| rows as usize))
        }
    }

    fn script(is_transaction: bool) -> Script {
        let step = |values, times| Step {
            sql: String::new(),
            values,
            times,
            rows: 5,
        };
        let constant = Draw::Between(5, 6);
        Script {
            steps: vec![
                step(vec![Draw::Run, constant], 1),
                step(vec![Draw::Run, Draw::Execution, constant], 2),
            ],
            is_transaction,
        }
    }

    #[test]
    fn a_run_draws_each_value() {
        let noted = Mutex::new(Vec::new());
        let run = |is_transaction, no| {
            let script = script(is_transaction);
            script
                .run(&mut Noted(&noted), &mut Rng::new(1), no)
                .unwrap();
        };
        run(true, 7);
        run(false, 8);
        let expected = "begin|0 [7, 5]|1 [7, 0, 5]|1 [7, 1, 5]|commit|\
                        0 [8, 5]|1 [8, 0, 5]|1 [8, 1, 5]";
        assert_eq!(noted.into_inner().unwrap().join("|"), expected);
    }

    #[test]
    fn missing_rows_and_failing_clients_end_a_load() {
        let mut load = Load {
            script: script(true),
            clients: 3,
            seconds: 0.0,
            seed: 1,
            first: 100,
        };
        let noted = Mutex::new(Vec::new());
        assert!(load.rate(|| Ok(Noted(&noted))).unwrap() > 0.0);
        let runs = noted.lock().unwrap().clone();
        let mut runs: Vec<&String> = runs.iter().filter(|run| run.starts_with("0 ")).collect();
        runs.sort();
        // Each client runs once to warm up and once to be counted.
        let expected = [100, 101, 102, 103, 104, 105].map(|no| format!("0 [{no}, 5]"));
        assert_eq!(runs, expected.each_ref());

        load.script.steps[1].rows = 4;
        let failed = load.rate(|| Ok(Noted(&noted))).unwrap_err();
        assert!(failed.to_string().starts_with("5 rows of 4"), "{failed}");
        let failed = load.rate(|| Err::<Noted<'_>, _>("no connection".into()));
        assert_eq!(failed.unwrap_err().to_string(), "no connection");
    }
}
