//! A script of prepared statements, run over and over by several clients.
//!
//! The benchmarks and the peer SQLite both compile this file, so that each side of a comparison
//! runs the same statements with values drawn in the same way. Only the [`Runner`] differs.

use crate::Result;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// The part of a load's seconds and runs that its clients work before they are counted.
const WARM_PART: f64 = 0.25;

/// How the value of a parameter is drawn.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// The number of the run of the script, unique among all clients.
    Run,
    /// The number of the run times the first number, plus the second.
    RunTimes(i64, i64),
    /// The number of the statement's execution within the run, from 0.
    Execution,
    /// A random number from the first on, below the second.
    Between(i64, i64),
    /// The parameter before this one plus the number.
    After(i64),
    /// A text, then a random number from the first on, below the second, then a text.
    Text(String, i64, i64, String),
    /// The text and the number of the run.
    RunText(String),
    /// The text.
    Word(String),
    /// A random amount of hundredths from the first on, below the second.
    Cents(i64, i64),
    /// A random moment: seconds since the start of the year 2026.
    Moment(i64, i64),
    /// So many different random numbers from the first on, below the second, in ascending order.
    Ints(i64, i64, i64),
}

/// The value of a parameter.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Datum {
    Int(i64),
    Text(String),
    /// hundredths of a decimal number
    Cents(i64),
    /// seconds since the start of the year 2026, less than 28 days
    Moment(i64),
    Ints(Vec<i64>),
}

impl Datum {
    /// The number of an [`Int`](Self::Int).
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

impl Draw {
    fn datum(&self, rng: &mut Rng, run: i64, execution: i64, before: Option<&Datum>) -> Datum {
        let mut between = |from: i64, to: i64| from + rng.below((to - from) as u64) as i64;
        match self {
            Self::Run => Datum::Int(run),
            Self::RunTimes(times, plus) => Datum::Int(run * times + plus),
            Self::Execution => Datum::Int(execution),
            Self::Between(from, to) => Datum::Int(between(*from, *to)),
            Self::After(plus) => Datum::Int(before.and_then(Datum::int).unwrap_or(0) + plus),
            Self::Text(start, from, to, end) => {
                Datum::Text(format!("{start}{}{end}", between(*from, *to)))
            }
            Self::RunText(start) => Datum::Text(format!("{start}{run}")),
            Self::Word(word) => Datum::Text(word.clone()),
            Self::Cents(from, to) => Datum::Cents(between(*from, *to)),
            Self::Moment(from, to) => Datum::Moment(between(*from, *to)),
            Self::Ints(count, from, to) => {
                let part = (to - from) / count;
                let of_part = |no| from + no * part;
                let numbers = (0..*count).map(|no| between(of_part(no), of_part(no + 1)));
                Datum::Ints(numbers.collect())
            }
        }
    }
}

impl Step {
    /// Draws the values of one execution.
    pub fn draw(&self, rng: &mut Rng, run: i64, execution: i64, values: &mut Vec<Datum>) {
        values.clear();
        for draw in &self.values {
            let datum = draw.datum(rng, run, execution, values.last());
            values.push(datum);
        }
    }
}

/// A statement of a script.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// `$1` and so on are the parameters, in the order of their first appearance.
    pub sql: String,
    pub values: Vec<Draw>,
    /// executions in a row
    pub times: i64,
    /// rows that each execution returns; None: it depends on the values
    pub rows: Option<usize>,
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
    /// the most runs, those that warm up included; None: only the seconds end the load
    pub most: Option<i64>,
}

/// One client's connection, with the steps prepared.
pub trait Runner {
    /// Begins a transaction that writes.
    fn begin(&mut self) -> Result<()>;
    /// Commits it.
    fn commit(&mut self) -> Result<()>;
    /// Executes the step with this number: the rows that it returned.
    fn execute(&mut self, step: usize, values: &[Datum]) -> Result<usize>;
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
                step.draw(rng, run, execution, &mut values);
                let rows = runner.execute(no, &values)?;
                if let Some(expected) = step.rows.filter(|&expected| expected != rows) {
                    let sql = &step.sql;
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
    /// The number that ends the runs, so many after the first, if there are the most.
    fn end(&self, runs: i64) -> i64 {
        self.most.map_or(i64::MAX, |_| self.first + runs)
    }

    /// Runs of the script per second of all clients; each has the connection that `connect` makes.
    pub fn rate<R: Runner>(&self, connect: impl Fn() -> Result<R> + Sync) -> Result<f64> {
        let start = Barrier::new(self.clients as usize + 1);
        let next = AtomicI64::new(self.first);
        let client = |client: u64| -> Result<u64> {
            let mut rng = Rng::new(self.seed ^ (client << 32));
            let connected = connect();
            let mut work = |runner: &mut R, seconds: f64, end: i64| -> Result<u64> {
                let deadline = Instant::now() + Duration::from_secs_f64(seconds);
                let mut done = 0;
                while done == 0 || (Instant::now() < deadline && next.load(Ordering::Relaxed) < end)
                {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    self.script.run(runner, &mut rng, run)?;
                    done += 1;
                }
                Ok(done)
            };
            let warmed = connected.and_then(|mut runner| {
                let warm_end = self.end((self.most.unwrap_or(0) as f64 * WARM_PART) as i64);
                work(&mut runner, self.seconds * WARM_PART, warm_end)?;
                Ok(runner)
            });
            start.wait(); // also after an error: the others wait for this client
            work(&mut warmed?, self.seconds, self.end(self.most.unwrap_or(0)))
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

        fn execute(&mut self, step: usize, values: &[Datum]) -> Result<usize> {
            let values: Vec<i64> = values.iter().filter_map(Datum::int).collect();
            self.0.lock().unwrap().push(format!("{step} {values:?}"));
            Ok(values.last().map_or(0, |&rows| rows as usize))
        }
    }

    fn script(is_transaction: bool) -> Script {
        let step = |values, times| Step {
            sql: String::new(),
            values,
            times,
            rows: Some(5),
        };
        let constant = || Draw::Between(5, 6);
        Script {
            steps: vec![
                step(vec![Draw::Run, constant()], 1),
                step(vec![Draw::Run, Draw::Execution, constant()], 2),
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
    fn each_value_is_drawn_from_its_range() {
        let step = Step {
            sql: String::new(),
            values: vec![
                Draw::Between(3, 5),
                Draw::After(10),
                Draw::RunTimes(5, 2),
                Draw::Text("k ".into(), 7, 8, "%".into()),
                Draw::RunText("run ".into()),
                Draw::Word("w".into()),
                Draw::Cents(1, 3),
                Draw::Moment(86_399, 86_400),
                Draw::Ints(3, 0, 30),
            ],
            times: 1,
            rows: None,
        };
        let (mut rng, mut values) = (Rng::new(1), Vec::new());
        for run in 0..50 {
            step.draw(&mut rng, run, 0, &mut values);
            let [Datum::Int(first), Datum::Int(after), .., Datum::Ints(ints)] = &values[..] else {
                panic!("{values:?}");
            };
            assert!((3..5).contains(first) && *after == first + 10, "{values:?}");
            assert!(
                ints.iter().zip(0..).all(|(int, part)| int / 10 == part),
                "{values:?}"
            );
            let expected = [
                Datum::Int(run * 5 + 2),
                Datum::Text("k 7%".into()),
                Datum::Text(format!("run {run}")),
                Datum::Text("w".into()),
            ];
            assert_eq!(values[2..6], expected);
            assert!(matches!(values[6], Datum::Cents(1 | 2)), "{values:?}");
            assert_eq!(values[7], Datum::Moment(86_399));
        }
    }

    #[test]
    fn a_load_ends_after_the_most_runs() {
        let noted = Mutex::new(Vec::new());
        let load = Load {
            script: script(false),
            clients: 1,
            seconds: 1e9,
            seed: 1,
            first: 100,
            most: Some(8),
        };
        assert!(load.rate(|| Ok(Noted(&noted))).unwrap() > 0.0);
        let runs = noted.into_inner().unwrap();
        assert_eq!(runs.iter().filter(|run| run.starts_with("0 ")).count(), 8);
        assert!(runs.last().unwrap().starts_with("1 [107, 1"), "{runs:?}");
    }

    #[test]
    fn missing_rows_and_failing_clients_end_a_load() {
        let mut load = Load {
            script: script(true),
            clients: 3,
            seconds: 0.0,
            seed: 1,
            first: 100,
            most: None,
        };
        let noted = Mutex::new(Vec::new());
        assert!(load.rate(|| Ok(Noted(&noted))).unwrap() > 0.0);
        let runs = noted.lock().unwrap().clone();
        let mut runs: Vec<&String> = runs.iter().filter(|run| run.starts_with("0 ")).collect();
        runs.sort();
        // Each client runs once to warm up and once to be counted.
        let expected = [100, 101, 102, 103, 104, 105].map(|no| format!("0 [{no}, 5]"));
        assert_eq!(runs, expected.each_ref());

        load.script.steps[1].rows = Some(4);
        let failed = load.rate(|| Ok(Noted(&noted))).unwrap_err();
        assert!(failed.to_string().starts_with("5 rows of 4"), "{failed}");
        let failed = load.rate(|| Err::<Noted<'_>, _>("no connection".into()));
        assert_eq!(failed.unwrap_err().to_string(), "no connection");
    }
}
