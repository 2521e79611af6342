//! Strandline in a process of its own, behind the protocol of the peers: the control group of such
//! a process counts all of its memory, and none of the benchmark's.

use crate::Result;
use crate::foundation::point::Run;
use crate::ours::Ours;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use strandline::{Database, Settings};

/// A request: one line of JSON.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    /// Names the engine and its version.
    Version,
    /// Runs point transactions. The database stays open for the next run.
    Run {
        path: PathBuf,
        rows: u64,
        threads: u64,
        seconds: f64,
        seed: u64,
        durable: bool,
        memory_bytes: usize,
    },
}

/// Answers requests until there are no more, then closes the database.
///
/// # Errors
/// Those of input, output and closing; those of a request are its answer.
pub fn serve(requests: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut open = None;
    for line in requests.lines() {
        let answer = match answer(&line?, &mut open) {
            Ok(answer) => answer,
            Err(error) => json!({ "error": error.to_string() }),
        };
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(open.map_or(Ok(()), |ours| ours.database().close())?)
}

fn answer(line: &str, open: &mut Option<Ours>) -> Result<Value> {
    let request: Request = serde_json::from_str(line)?;
    match request {
        Request::Version => {
            let version = concat!("strandline ", env!("CARGO_PKG_VERSION"));
            Ok(json!({ "version": version, "settings": "" }))
        }
        Request::Run {
            path,
            rows,
            threads,
            seconds,
            seed,
            durable,
            memory_bytes,
        } => {
            if open.is_none() {
                let settings = Settings {
                    memory_bytes,
                    ..Settings::default()
                };
                let builder = Database::builder(&path).settings(settings);
                *open = Some(Ours::build(builder)?);
            }
            let ours = open.as_ref().ok_or("the database is open")?;
            let run = Run {
                rows,
                seconds,
                seed,
            };
            let rate = run.transactions(ours, threads, durable)?;
            Ok(json!({ "done": rate * seconds, "seconds": seconds }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, fill};
    use super::*;

    #[test]
    fn transactions_run_behind_the_protocol_of_the_peers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let plan = Plan {
            rows: 1_000,
            memory_bytes: 32 << 20,
            seconds: 0.05,
            seed: 1,
        };
        fill(&path, &plan).unwrap();
        let run = json!({
            "op": "run", "path": path, "rows": plan.rows, "threads": 2, "seconds": plan.seconds,
            "seed": plan.seed, "durable": true, "memory_bytes": plan.memory_bytes,
        });
        let requests = format!("{}\n{run}\n{run}\nnonsense\n", json!({ "op": "version" }));
        let mut answers = Vec::new();
        serve(requests.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let answers: Vec<Value> = answers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(answers.len(), 4);
        assert!(
            answers[0]["version"]
                .as_str()
                .unwrap()
                .starts_with("strandline")
        );
        for answer in &answers[1..3] {
            assert!(answer["done"].as_f64().unwrap() > 0.0, "{answer}");
        }
        assert!(answers[3]["error"].is_string());
    }
}
