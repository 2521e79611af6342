//! pgbench against both servers, taking turns.

use super::Bench;
use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use crate::served::{Served, done};
use serde_json::json;

/// One configuration of pgbench.
pub struct Run {
    /// `-S` for pgbench's built-in script select-only; otherwise TPC-B
    pub select_only: bool,
    /// `prepared`, `extended` or `simple`
    pub protocol: &'static str,
    pub clients: u32,
    pub synchronous_commit: bool,
}

impl Run {
    fn name(&self) -> String {
        let script = match self.select_only {
            true => "select-only",
            false => "TPC-B-like",
        };
        let clients = match self.clients {
            1 => "1 client".to_string(),
            n => format!("{n} clients"),
        };
        let commit = match (self.select_only, self.synchronous_commit) {
            (true, _) => "",
            (false, true) => ", synchronous_commit on",
            (false, false) => ", synchronous_commit off",
        };
        format!("pgbench {script}, {}, {clients}{commit}", self.protocol)
    }

    /// Runs pgbench; returns transactions per second.
    pub fn rate(&self, served: &Served, seconds: u32) -> Result<f64> {
        let mut command = served.client("pgbench");
        command.args(["-n", "-M", self.protocol]);
        command.args(["-c", &self.clients.to_string()]);
        command.args(["-j", &self.clients.min(2).to_string()]);
        command.args(["-T", &seconds.to_string()]);
        if self.select_only {
            command.arg("-S");
        }
        let commit = if self.synchronous_commit { "on" } else { "off" };
        command.env("PGOPTIONS", format!("-c synchronous_commit={commit}"));
        let said = done(&mut command)?;
        let tps = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|rest| rest.split_whitespace().next());
        let tps = tps.ok_or_else(|| format!("pgbench said no tps: {said}"))?;
        Ok(tps.parse()?)
    }
}

/// Creates and fills pgbench's tables with pgbench itself.
pub fn fill(served: &Served, scale: u32) -> Result<()> {
    let mut command = served.client("pgbench");
    done(command.args(["-i", "-q", "-s", &scale.to_string()]))?;
    Ok(())
}

/// Measures every script, protocol and number of clients.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    bench.fill_pgbench()?;
    let run = |select_only, protocol, clients, synchronous_commit| Run {
        select_only,
        protocol,
        clients,
        synchronous_commit,
    };
    let runs = [
        (run(true, "prepared", 1, true), 1.0),
        (run(true, "prepared", 8, true), 1.0),
        (run(false, "prepared", 1, true), 1.0),
        (run(false, "prepared", 8, true), 1.0),
        (run(false, "prepared", 1, false), 1.5),
        (run(false, "prepared", 8, false), 1.5),
        (run(true, "simple", 1, true), 0.8),
        (run(true, "simple", 8, true), 0.8),
        (run(false, "simple", 8, true), 0.8),
        (run(false, "simple", 8, false), 0.8),
    ];
    let (ours, theirs) = bench.servers()?;
    for (run, goal) in runs {
        let sides: Vec<Side<'_>> = vec![
            Box::new(|_| run.rate(ours, bench.seconds)),
            Box::new(|_| run.rate(theirs, bench.seconds)),
        ];
        let rates = interleave(bench.rounds, sides)?;
        report.add(Figure {
            case: run.name(),
            unit: "tx/s",
            ours: rates[0],
            peer: theirs.name.clone(),
            theirs: Some(rates[1]),
            goal: Some(Goal::AtLeast(goal)),
            config: config([
                ("scale", json!(bench.scale)),
                ("seconds", json!(bench.seconds)),
                ("rounds", json!(bench.rounds)),
            ]),
        })?;
    }
    Ok(())
}
