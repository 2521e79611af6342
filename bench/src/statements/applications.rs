//! The group `applications`: statements as applications send them, by psycopg and pgbench, prepared
//! and with their values in the text, beside PostgreSQL, and in process beside SQLite.
//!
//! Commits wait for no disk (`synchronous_commit = off`, SQLite's `synchronous` OFF). Before
//! anything is timed, every statement is executed some times on both sides, and its rows, names of
//! columns and command tags are compared. Statements that differ or are refused are named and not
//! measured, and the group fails at its end.

mod case;
mod contended;
mod embedded;
mod reads;
mod servers;
mod summary;
mod tables;
mod tpcc;
mod writes;

use super::Bench;
use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, take_turns};
use case::{Dialect, Statement};
use serde_json::json;
use servers::{Pgbench, Servers, Way};
use std::cell::RefCell;
use std::time::Duration;
use summary::{Goals, Ratios};
use tables::Sizes;

/// Executions whose answers are compared, by each protocol.
const COMPARED: i64 = 3;
/// Executions that warm up a side and tell how many fit into a round.
const WARM: i64 = 30;
/// The least and the most executions of a round.
const ROUND_RUNS: (i64, i64) = (20, 2_000);
/// Numbers of runs that each way of a statement has for itself.
const WAY_RUNS: i64 = 20_000;
/// The ways of a statement.
const WAYS: [Way; 3] = [
    Way::PsycopgPrepared,
    Way::PsycopgSimple,
    Way::PgbenchPrepared,
];
/// pgbench's scale: 100,000 accounts per unit.
const PGBENCH_SCALE: u32 = 2;
const GOALS: Goals = Goals {
    each: 1.2,
    mean: 0.8,
};

/// Sizes and times of a run.
pub struct Figures {
    sizes: Sizes,
    seed: u64,
    rounds: usize,
    /// the duration of one round of one side
    round: Duration,
    /// runs of each client of a contended script
    contended_runs: i64,
}

impl Figures {
    fn new(quick: bool, seed: u64) -> Self {
        Self {
            sizes: match cfg!(debug_assertions) {
                true => Sizes::TRIAL,
                false => Sizes::FULL,
            },
            seed,
            rounds: if quick { 3 } else { 5 },
            round: Duration::from_millis(if quick { 30 } else { 150 }),
            contended_runs: if quick { 250 } else { 2_000 },
        }
    }

    /// Adds the times by round of one case, ours and the peer's.
    fn add(
        &self,
        report: &mut Report,
        case: &str,
        peer: &str,
        goals: Goals,
        times: &[Vec<f64>],
    ) -> Result<()> {
        let spread = |side: usize| Spread::of(times[side].iter().copied());
        report.add(Figure {
            case: case.to_string(),
            unit: "µs",
            ours: spread(0),
            peer: peer.to_string(),
            theirs: Some(spread(1)),
            goal: Some(Goal::AtMost(goals.each)),
            config: config([
                ("largest_table", json!(10 * self.sizes.orders())),
                ("synchronous_commit", json!(false)),
                ("clients", json!(1)),
                ("rounds", json!(self.rounds)),
            ]),
        })
    }
}

/// All statements. Those that only read come first: they see the tables as they were filled.
fn statements(sizes: Sizes) -> Vec<Statement> {
    let parts: [fn(Sizes) -> Vec<Statement>; 15] = [
        reads::of_keys,
        reads::of_ranges,
        reads::of_pages,
        reads::of_several_tables,
        reads::of_python,
        reads::of_other_orms,
        tpcc::order_status,
        writes::locks,
        writes::changes,
        writes::removals,
        writes::inserts,
        writes::with_changes,
        tpcc::new_order,
        tpcc::new_order_lines,
        tpcc::payment,
    ];
    parts.into_iter().flat_map(|part| part(sizes)).collect()
}

/// By psycopg and pgbench, beside PostgreSQL.
pub fn served(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let figures = Figures::new(bench.quick, bench.seed);
    let mut servers = Servers::start(&bench.directory, "applications")?;
    servers.load(figures.sizes)?;
    let all = statements(figures.sizes);
    let mut same = Vec::new();
    let mut missing = Vec::new();
    for statement in &all {
        match compare(&figures, &mut servers, statement) {
            Ok(()) => same.push(statement),
            Err(error) => {
                missing.push(statement.name);
                report.verdict(statement.name, &format!("not measured: {error}"))?;
            }
        }
    }
    let servers = RefCell::new(servers);
    let mut ratios = WAYS.map(|_| Ratios::default());
    for statement in &missing {
        ratios.iter_mut().for_each(|ratios| ratios.miss(statement));
    }
    for statement in same {
        by_each_way(&figures, &servers, statement, report, &mut ratios)?;
    }
    let peer = servers.borrow().peer().to_string();
    for (way, ratios) in WAYS.iter().zip(&ratios) {
        ratios.report(report, way.name(), &peer, GOALS)?;
    }
    let built_in = built_in(&figures, &servers, report)?;
    summary::complete(ratios.iter().chain(&built_in))
}

/// Measures a statement each way that it can go.
fn by_each_way(
    figures: &Figures,
    servers: &RefCell<Servers>,
    statement: &Statement,
    report: &mut Report,
    ratios: &mut [Ratios],
) -> Result<()> {
    let script = servers::pgbench_script(statement);
    for ((way, ratios), no) in WAYS.into_iter().zip(ratios).zip(1..) {
        if way == Way::PgbenchPrepared && script.is_none() {
            continue;
        }
        let measured = Measured {
            figures,
            servers,
            statement: Some(statement),
            script: Pgbench::Script(script.as_deref().unwrap_or_default()),
            way,
        };
        let case = format!("{}, {}", statement.name, way.name());
        // Each way has run numbers of its own.
        measured.add(report, &case, no * WAY_RUNS, ratios)?;
    }
    Ok(())
}

/// Fails unless a statement does the same on both servers, by both protocols.
fn compare(figures: &Figures, servers: &mut Servers, statement: &Statement) -> Result<()> {
    let mut first = 0;
    for way in [Way::PsycopgPrepared, Way::PsycopgSimple] {
        refill(servers, 0, statement, (first, COMPARED))?;
        refill(servers, 1, statement, (first, COMPARED))?;
        let values = servers::values(statement, figures.seed, first, COMPARED);
        servers.compare(statement, way, &values)?;
        first += COMPARED;
    }
    Ok(())
}

/// Makes the rows that so many runs use up.
fn refill(
    servers: &mut Servers,
    server: usize,
    statement: &Statement,
    (first, runs): (i64, i64),
) -> Result<()> {
    if let Some(refill) = statement.refill {
        servers.run(server, &Dialect::Server.refill(refill, first, runs))?;
    }
    Ok(())
}

/// pgbench's built-in scripts, whole transactions.
fn built_in(
    figures: &Figures,
    servers: &RefCell<Servers>,
    report: &mut Report,
) -> Result<Vec<Ratios>> {
    servers.borrow().load_pgbench(PGBENCH_SCALE)?;
    let mut all = Vec::new();
    for way in [Way::PgbenchPrepared, Way::PgbenchSimple] {
        let mut ratios = Ratios::default();
        for script in ["select-only", "simple-update", "tpcb-like"] {
            let measured = Measured {
                figures,
                servers,
                statement: None,
                script: Pgbench::BuiltIn(script),
                way,
            };
            let case = format!("pgbench's {script}, {}", way.name());
            measured.add(report, &case, 0, &mut ratios)?;
        }
        let peer = servers.borrow().peer().to_string();
        let name = format!("pgbench's scripts, {}", way.name());
        ratios.report(report, &name, &peer, GOALS)?;
        all.push(ratios);
    }
    Ok(all)
}

/// A statement or script that goes one way to both servers.
struct Measured<'a> {
    figures: &'a Figures,
    servers: &'a RefCell<Servers>,
    /// None: a built-in script
    statement: Option<&'a Statement>,
    script: Pgbench<'a>,
    way: Way,
}

impl Measured<'_> {
    /// Adds the figure. A failure is named and counts as missing.
    fn add(&self, report: &mut Report, case: &str, first: i64, ratios: &mut Ratios) -> Result<()> {
        match self.rounds(first) {
            Ok(times) => {
                ratios.add(case, &times[0], &times[1]);
                let servers = self.servers.borrow();
                let by = servers.psycopg();
                let peer = match self.way {
                    Way::PsycopgPrepared | Way::PsycopgSimple => {
                        format!("{}, {by}", servers.peer())
                    }
                    Way::PgbenchPrepared | Way::PgbenchSimple => servers.peer().to_string(),
                };
                self.figures.add(report, case, &peer, GOALS, &times)
            }
            Err(error) => {
                ratios.miss(case);
                report.verdict(case, &format!("not measured: {error}"))
            }
        }
    }

    /// Microseconds by round, ours and PostgreSQL's, in turns. The run numbers begin at `first`.
    fn rounds(&self, first: i64) -> Result<Vec<Vec<f64>>> {
        let us = self.figures.round.as_secs_f64() * 1e6;
        let mut runs = [0; 2];
        for (server, runs) in runs.iter_mut().enumerate() {
            let warm = self.time(server, first, WARM)?;
            *runs = ((us / warm) as i64).clamp(ROUND_RUNS.0, ROUND_RUNS.1);
        }
        let side = |server: usize| -> Side<'_> {
            let runs = runs[server];
            Box::new(move |round| {
                let first = first + WARM + round as i64 * ROUND_RUNS.1;
                self.time(server, first, runs)
            })
        };
        take_turns(self.figures.rounds, vec![side(0), side(1)])
    }

    /// Mean microseconds of so many executions on one server.
    fn time(&self, server: usize, first: i64, runs: i64) -> Result<f64> {
        let mut servers = self.servers.borrow_mut();
        if let Some(statement) = self.statement {
            refill(&mut servers, server, statement, (first, runs))?;
        }
        match (self.way, self.statement) {
            (Way::PsycopgPrepared | Way::PsycopgSimple, Some(statement)) => {
                let values = servers::values(statement, self.figures.seed, first, runs);
                servers.psycopg_us(server, statement, self.way, &values)
            }
            _ => servers.pgbench_us(server, &self.script, self.way, (first, runs)),
        }
    }
}

/// In process, beside SQLite.
pub fn in_process(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let figures = Figures::new(bench.quick, bench.seed);
    embedded::run(&figures, &bench.directory, report)
}

/// Eight clients on ten rows, beside PostgreSQL.
pub fn contended(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let figures = Figures::new(bench.quick, bench.seed);
    let mut servers = Servers::start(&bench.directory, "contended")?;
    contended::run(&figures, &mut servers, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_statements_each_with_a_name_and_ascending_parameters() {
        let statements = statements(Sizes::FULL);
        assert!(statements.len() >= 60, "{}", statements.len());
        let mut names: Vec<&str> = statements.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), statements.len());
        for statement in &statements {
            // SQLite numbers parameters in the order of their first appearance.
            for sql in statement.sqlite.iter().chain([&statement.step.sql]) {
                let mut highest = 0;
                for part in sql.split('$').skip(1) {
                    let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
                    if let Ok(no) = digits.parse::<usize>() {
                        assert!(no <= highest + 1, "{sql}");
                        highest = highest.max(no);
                    }
                }
                assert_eq!(highest, statement.step.values.len(), "{sql}");
            }
        }
    }
}
