//! Two databases that are asked the same: one with the row executor, one without.

use super::draft::{Draft, Statement, Values};
use super::schema::{self, Table, pick};
use super::{changes, queries};
use std::sync::Arc;
use strandline::{
    Connection, Database, Error, Outcome, Prepared, QueryResult, SqlState, TransactionStatus,
};
use strandline_base::ManualClock;
use strandline_base::rng::Rng;

/// Everything that a client sees of a statement.
#[derive(Debug, PartialEq)]
pub struct Seen {
    /// the command tag or the names and types of the columns, or the SQLSTATE
    pub head: String,
    pub rows: Vec<String>,
}

impl Seen {
    fn of_error(error: &Error) -> Self {
        Self {
            head: error.sqlstate().0.to_string(),
            rows: Vec::new(),
        }
    }

    fn of_result(tag: &str, result: Option<&QueryResult>) -> Self {
        let mut head = tag.to_string();
        let Some(result) = result else {
            let rows = Vec::new();
            return Self { head, rows };
        };
        for field in result.schema().fields() {
            head += &format!("{} {}, ", field.name(), field.data_type());
        }
        let rows = super::super::lines(result);
        Self { head, rows }
    }

    fn is_failure(&self) -> bool {
        self.head.len() == 5 && self.rows.is_empty() && !self.head.contains(' ')
    }

    /// Its rows in an order that does not depend on how they were found.
    pub fn sorted(mut self, is_ordered: bool) -> Self {
        if !is_ordered {
            self.rows.sort();
        }
        self
    }
}

/// Runs a text to its end.
pub fn run(connection: &mut Connection, sql: &str, values: &Values, is_bound: bool) -> Seen {
    let outcome = match is_bound {
        true => connection.run(sql, values.scalars.as_slice()),
        false => connection.run(sql, ()),
    };
    match outcome {
        Err(error) => Seen::of_error(&error),
        Ok(Outcome::Done(summary)) => Seen::of_result(summary.command_tag(), summary.result()),
        Ok(Outcome::Rows(stream)) => {
            let schema = stream.schema().clone();
            match stream.collect::<Result<Vec<_>, Error>>() {
                Err(error) => Seen::of_error(&error),
                Ok(batches) => Seen::of_result("", Some(&QueryResult::new(schema, batches))),
            }
        }
    }
}

/// How the values of a statement reach the database.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Prepared,
    Parameters,
    Literals,
}

/// A database, its clock and two sessions.
struct Side {
    database: Database,
    clock: Arc<ManualClock>,
    sessions: [Connection; 2],
}

impl Side {
    fn new(script: &[String], settings: &str, row_executor: bool) -> Self {
        let (database, clock) = super::super::database_with_clock();
        let sessions = [(); 2].map(|()| {
            let mut session = database.connect();
            session.use_row_executor(row_executor);
            session.execute(settings, ()).expect("settings");
            session
        });
        let mut side = Self {
            database,
            clock,
            sessions,
        };
        for sql in script {
            let done = side.sessions[0].execute(sql, ());
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        side
    }
}

/// A statement that was prepared on both sides, to be executed again.
struct Known {
    statement: Statement,
    session: usize,
    prepared: [Prepared; 2],
}

/// What a run has done.
#[derive(Debug, Default)]
pub struct Counts {
    pub succeeded: u64,
    pub failed: u64,
    /// whether the run ended early, since only one side had to fail with 40001
    pub came_apart: bool,
    pub in_row_executor: u64,
}

/// A run with both databases.
pub struct Twins {
    seed: u64,
    step: u64,
    rng: Rng,
    tables: Vec<Table>,
    /// with the row executor, and without
    sides: [Side; 2],
    /// moments between changes, as SQL writes them
    moments: Vec<String>,
    known: Vec<Known>,
    indexes: u64,
    /// whether a session's transaction is serializable
    serializable: [bool; 2],
    counts: Counts,
    /// the statements of the last steps
    log: Vec<String>,
}

impl Twins {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let tables = schema::tables(&mut rng);
        let script = schema::script(&mut rng, &tables);
        let settings = *pick(
            &mut rng,
            &[
                "SET lock_timeout = '5ms'",
                "SET strandline.conflict_policy = 'abort'",
            ],
        );
        let mut sides = [true, false].map(|may| Side::new(&script, settings, may));
        if rng.one_in(2) {
            for side in &mut sides {
                side.database.merge_all().expect("merged");
            }
        }
        Self {
            seed,
            step: 0,
            rng,
            tables,
            sides,
            moments: Vec::new(),
            known: Vec::new(),
            indexes: 100,
            serializable: [false; 2],
            counts: Counts::default(),
            log: Vec::new(),
        }
    }

    /// Runs so many steps, and compares the databases at the end.
    pub fn run(mut self, steps: u64) -> Counts {
        while self.step < steps && !self.counts.came_apart {
            self.step += 1;
            for side in &self.sides {
                side.clock.advance(1_000_000);
            }
            let session = usize::from(self.rng.one_in(3));
            match self.status(session) {
                TransactionStatus::Idle => self.idle(session),
                TransactionStatus::Open => self.open(session),
                TransactionStatus::Failed => self.failed(session),
            }
            if self.step.is_multiple_of(25) {
                self.compare_tables();
            }
        }
        if !self.counts.came_apart {
            for session in 0..2 {
                self.control(session, "ROLLBACK");
            }
            self.compare_tables();
        }
        for side in &self.sides {
            let damage = side.database.check().expect("a check");
            assert!(damage.is_empty(), "{}{damage:?}", self.context());
        }
        let in_row_executor = self.sides.each_ref().map(|side| {
            let counters = side.database.counters();
            let counter = counters
                .iter()
                .find(|(name, _)| *name == "statements_point");
            counter.map_or(0, |(_, count)| *count)
        });
        assert_eq!(in_row_executor[1], 0, "the row executor is off");
        self.counts.in_row_executor = in_row_executor[0];
        self.counts
    }

    fn context(&self) -> String {
        let (seed, step) = (self.seed, self.step);
        let log = self.log.iter().rev().take(12).rev();
        let log: Vec<&str> = log.map(String::as_str).collect();
        format!(
            "APPLICATIONS_SEEDS={seed}, step {step}:\n{}\n",
            log.join("\n")
        )
    }

    fn status(&self, session: usize) -> TransactionStatus {
        let [on, off] = self
            .sides
            .each_ref()
            .map(|side| side.sessions[session].transaction_status());
        assert_eq!(on, off, "{}", self.context());
        on
    }

    /// Does the same on both sides; both must show the same.
    fn both(
        &mut self,
        session: usize,
        what: String,
        is_ordered: bool,
        mut work: impl FnMut(usize, &mut Connection) -> Seen,
    ) -> Seen {
        self.log.push(format!("session {session}: {what}"));
        let mut seen = Vec::new();
        for (no, side) in self.sides.iter_mut().enumerate() {
            seen.push(work(no, &mut side.sessions[session]).sorted(is_ordered));
        }
        let (off, on) = (seen.pop().expect("two"), seen.pop().expect("two"));
        if on != off && self.is_apart(session, &on, &off) {
            self.counts.came_apart = true;
            return on;
        }
        assert!(
            on == off,
            "{}with: {on:#?}\nwithout: {off:#?}",
            self.context()
        );
        match on.is_failure() {
            true => self.counts.failed += 1,
            false => self.counts.succeeded += 1,
        }
        on
    }

    /// Whether a serializable transaction fails on one side only. A scan reads more rows than a
    /// look-up, so more changes of others are in conflict with it.
    fn is_apart(&self, session: usize, on: &Seen, off: &Seen) -> bool {
        let conflict = SqlState::SERIALIZATION_FAILURE.0;
        self.serializable[session] && (on.head == conflict) != (off.head == conflict)
    }

    fn control(&mut self, session: usize, sql: &str) {
        let none = Values::none();
        self.both(session, sql.to_string(), true, |_, connection| {
            run(connection, sql, &none, false)
        });
    }

    fn idle(&mut self, session: usize) {
        let other = self.status(1 - session);
        match self.rng.below(24) {
            0..=5 => {
                let level = *pick(
                    &mut self.rng,
                    &[
                        "READ COMMITTED",
                        "READ COMMITTED",
                        "REPEATABLE READ",
                        "SERIALIZABLE",
                    ],
                );
                self.serializable[session] = level == "SERIALIZABLE";
                self.control(session, &format!("BEGIN ISOLATION LEVEL {level}"));
            }
            6 => {
                let now = "SELECT CAST(now() AS text)";
                let none = Values::none();
                let seen = self.both(session, now.into(), true, |_, connection| {
                    run(connection, now, &none, false)
                });
                self.moments
                    .extend(seen.rows.iter().map(|now| format!("'{now}'")));
            }
            7 => {
                let is_checkpoint = self.rng.one_in(2);
                for side in &self.sides {
                    let database = &side.database;
                    let done = match is_checkpoint {
                        true => database.checkpoint(),
                        false => database.merge_all(),
                    };
                    done.expect("a checkpoint");
                }
                self.log.push(format!("checkpoint: {is_checkpoint}"));
            }
            8 | 9 if other == TransactionStatus::Idle => self.define(session),
            _ => self.statement(session),
        }
    }

    /// Changes a definition between executions of statements that are prepared.
    fn define(&mut self, session: usize) {
        self.indexes += 1;
        let no = self.indexes;
        let table = pick(&mut self.rng, &self.tables);
        let sql = match self.rng.below(6) {
            0 | 1 => schema::index(&mut self.rng, table, no),
            2 => Some(format!("DROP INDEX IF EXISTS i{}", self.rng.below(no))),
            3 => Some(format!(
                "ALTER TABLE {} ADD COLUMN x{no} integer DEFAULT 4",
                table.name
            )),
            4 => Some(format!(
                "ALTER TABLE {} DROP COLUMN IF EXISTS x{}",
                table.name,
                no - 2
            )),
            _ => Some("ANALYZE".to_string()),
        };
        if let Some(sql) = sql {
            self.control(session, &sql);
        }
    }

    fn open(&mut self, session: usize) {
        match self.rng.below(16) {
            0 | 1 => self.control(session, "COMMIT"),
            2 => self.control(session, "ROLLBACK"),
            3 => self.control(session, "SAVEPOINT s"),
            4 => self.control(session, "ROLLBACK TO SAVEPOINT s"),
            5 if self.rng.one_in(2) => self.control(session, "RELEASE SAVEPOINT s"),
            _ => self.statement(session),
        }
    }

    fn failed(&mut self, session: usize) {
        match self.rng.below(5) {
            0 => self.control(session, "ROLLBACK TO SAVEPOINT s"),
            1 => self.control(session, "COMMIT"),
            2 => self.statement(session),
            _ => self.control(session, "ROLLBACK"),
        }
    }

    /// Executes a random statement a few times, or one that was prepared before.
    fn statement(&mut self, session: usize) {
        let of_session = |known: &Known| known.session == session;
        let count = self.known.iter().filter(|known| of_session(known)).count() as u64;
        if count > 0 && self.rng.one_in(4) {
            let chosen = self.rng.below(count) as usize;
            let mut known = self.known.iter().filter(|known| of_session(known));
            let known = known.nth(chosen).expect("one of them");
            let (statement, prepared) = (known.statement.clone(), known.prepared.clone());
            self.execute_prepared(session, &statement, &prepared);
            return;
        }
        let statement = self.draft();
        match *pick(
            &mut self.rng,
            &[Way::Prepared, Way::Prepared, Way::Parameters, Way::Literals],
        ) {
            Way::Prepared => self.prepare(session, statement),
            way => {
                for _ in 0..3 {
                    self.execute(session, &statement, way);
                }
            }
        }
    }

    fn draft(&mut self) -> Statement {
        let past = match self.moments.is_empty() || !self.rng.one_in(8) {
            true => None,
            false => Some(pick(&mut self.rng, &self.moments).as_str()),
        };
        match self.rng.below(10) {
            0..=4 => queries::query(Draft::new(&mut self.rng, &self.tables, past)),
            5 => queries::locking(Draft::new(&mut self.rng, &self.tables, None)),
            _ => changes::change(Draft::new(&mut self.rng, &self.tables, None)),
        }
    }

    fn execute(&mut self, session: usize, statement: &Statement, way: Way) {
        let values = statement.draw(&mut self.rng);
        let (sql, is_bound) = match way {
            Way::Literals => (statement.with_literals(&values), false),
            _ => (statement.sql.clone(), true),
        };
        let what = match is_bound {
            true => format!("{sql} {:?}", values.scalars),
            false => sql.clone(),
        };
        self.both(session, what, statement.is_ordered, |_, connection| {
            run(connection, &sql, &values, is_bound)
        });
    }

    /// Prepares a statement on both sides and executes it twice.
    fn prepare(&mut self, session: usize, statement: Statement) {
        let mut prepared = Vec::new();
        let what = format!("PREPARE {}", statement.sql);
        self.both(session, what, true, |_, connection| {
            match connection.prepare_typed(&statement.sql, &[]) {
                Err(error) => Seen::of_error(&error),
                Ok(one) => {
                    prepared.push(one);
                    Seen::of_result("PREPARE", None)
                }
            }
        });
        let Ok(prepared) = <[Prepared; 2]>::try_from(prepared) else {
            return;
        };
        for _ in 0..2 {
            self.execute_prepared(session, &statement, &prepared);
        }
        if self.known.len() > 40 {
            self.known.remove(0);
        }
        self.known.push(Known {
            statement,
            session,
            prepared,
        });
    }

    fn execute_prepared(
        &mut self,
        session: usize,
        statement: &Statement,
        prepared: &[Prepared; 2],
    ) {
        let values = statement.draw(&mut self.rng);
        let values = match self.rng.one_in(2) {
            true => values.of_a_program(),
            false => values,
        };
        let what = format!("EXECUTE {} {:?}", statement.sql, values.scalars);
        self.both(
            session,
            what,
            statement.is_ordered,
            |no, connection| match connection.run_prepared(&prepared[no], &values.scalars) {
                Err(error) => Seen::of_error(&error),
                Ok(summary) => Seen::of_result(summary.command_tag(), summary.result()),
            },
        );
    }

    /// Compares what is committed, read without the row executor.
    fn compare_tables(&self) {
        for table in &self.tables {
            let key: Vec<&str> = table.key().iter().map(|column| column.name).collect();
            let sql = format!("SELECT * FROM {} ORDER BY {}", table.name, key.join(", "));
            let [on, off] = self.sides.each_ref().map(|side| {
                let mut connection = side.database.connect();
                connection.use_row_executor(false);
                run(&mut connection, &sql, &Values::none(), false)
            });
            assert!(on == off, "{}{on:#?}\n{off:#?}", self.context());
            assert!(!on.is_failure(), "{}{on:?}", self.context());
        }
    }
}
