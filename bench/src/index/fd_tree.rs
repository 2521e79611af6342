//! The group `fdtree`: the figures of [FD+ §5] for FD+FC (`fc`, our side) beside the ways of
//! merging that the paper compares it with: everybody waits (`xm`), the old levels stay to the
//! end (`ds`), each head has half of the memory (`fc_no_sharing`), one key is moved at a time
//! (`fc_tuple`).
//!
//! Of each point: the worst modification, requests per second, the most space, and bytes written
//! for a modification. The goals are the worst modification at most 0.1x of `xm` and `ds`,
//! throughput at least theirs, space at most 1.1x of `xm`, which has no second copy.

pub mod experiment;

use super::Bench;
use crate::Result;
use crate::plots::point;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::Spread;
use experiment::{Keys, MODES, Outcome, Run, run as measure};
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;

/// The paper's preload, head and cache are divided by this: 1 M entries.
const SCALE: f64 = 10.0;
/// The most entries of Fig. 7, which `--full` has with the paper's head and cache.
const FULL_ENTRIES: u64 = 90_000_000;

/// A point of a figure: all modes do the same requests.
struct Point {
    figure: &'static str,
    run: Run,
    modes: usize,
    /// what the paper says of it
    paper: &'static str,
}

const FIG_6: &str = "10 M entries, W_l from 0 to 1: worst insert of FD+FC about 1 s, of FD+XM and \
                     FD+DS 33 to 38 s; throughput of FD+FC 1.15x FD+DS up to W_l 0.2, else 1.08x; \
                     1.27x FD+XM at 0.6, 1.2x at 0.8; FD+DS takes twice the space";
const FIG_7: &str = "W_l 0.8: at 90 M entries the worst insert of FD+DS takes 659 s, of FD+FC less \
                     than 1 s";
const FIG_8: &str = "TPC-C orders, 91.3 % modifications: throughput of FD+FC 1.14x FD+DS at 100 \
                     warehouses";
const FIG_9: &str = "worst insert without shared memory 32 to 38 s, with it about 1 s; by tuple \
                     the mean insert takes 12x at W_l 0.9";

/// Modifications of a run are this part of the tree's entries. In a tree of 1 M random entries a
/// compaction then comes to the bottom level; a quick run has fewer.
const MODIFIED_PART: u64 = 5;

/// A run with so many modifications, or as many lookups if there are none.
fn with_modifications(run: Run, modifications: u64) -> Run {
    let share = match run.lookups {
        100 => 100,
        lookups => 100 - lookups,
    };
    Run {
        requests: modifications * 100 / share,
        ..run
    }
}

fn points(bench: &Bench) -> Vec<Point> {
    let all = Run::scaled(SCALE);
    let modified = match bench.is_quick {
        true => all.entries / MODIFIED_PART / 4,
        false => all.entries / MODIFIED_PART,
    };
    let point = |figure, modes, paper, run| Point {
        figure,
        run: with_modifications(run, modified),
        modes,
        paper,
    };
    let mut points = Vec::new();
    let shares: [(Keys, &[u64]); 2] = match bench.is_quick {
        true => [(Keys::Random, &[20, 80]), (Keys::Ascending, &[20, 80])],
        false => [
            (Keys::Random, &[0, 20, 60, 80, 100]),
            (Keys::Ascending, &[0, 80]),
        ],
    };
    for (keys, shares) in shares {
        for &lookups in shares {
            let run = Run {
                keys,
                lookups,
                ..all
            };
            points.push(point("Fig. 6", 3, FIG_6, run));
        }
    }
    if !bench.is_quick {
        let run = Run {
            entries: FULL_ENTRIES / SCALE as u64,
            ..all
        };
        points.push(point("Fig. 7", 3, FIG_7, run));
    }
    if bench.is_full {
        // Modifications alone: lookups would only take their time.
        let run = Run {
            entries: FULL_ENTRIES,
            lookups: 0,
            ..Run::scaled(1.0)
        };
        points.push(Point {
            figure: "Fig. 7, whole",
            run: with_modifications(run, FULL_ENTRIES / MODIFIED_PART),
            modes: 3,
            paper: FIG_7,
        });
    }
    let orders = Run {
        keys: Keys::Ascending,
        lookups: 9,
        ..all
    };
    points.push(point("Fig. 8", 3, FIG_8, orders));
    let few_lookups = Run { lookups: 20, ..all };
    points.push(point("Fig. 9", MODES.len(), FIG_9, few_lookups));
    points
}

/// How a goal was met at all points.
struct Verdict {
    goal: &'static str,
    met: usize,
    points: usize,
    ratios: Vec<f64>,
}

impl Verdict {
    fn of(goal: &'static str) -> Self {
        Self {
            goal,
            met: 0,
            points: 0,
            ratios: Vec::new(),
        }
    }

    fn add(&mut self, figure: &Figure) {
        let (Some(meets), Some(ratio)) = (figure.meets(), figure.ratio()) else {
            return;
        };
        self.met += usize::from(meets);
        self.points += 1;
        self.ratios.push(ratio);
    }

    fn text(&self) -> String {
        let Self {
            goal, met, points, ..
        } = self;
        match self.ratios.is_empty() {
            true => format!("{goal}: not measured"),
            false => {
                let spread = Spread::of(self.ratios.iter().copied());
                let (least, most) = (spread.least, spread.most);
                format!("{goal}: at {met} of {points} points, {least:.2} to {most:.2}")
            }
        }
    }
}

/// Figures of every point, then what they show together.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut verdicts = [
        Verdict::of("worst modification of fc at most 0.1x of xm and ds"),
        Verdict::of("throughput of fc at least that of xm and ds"),
        Verdict::of("space of fc at most 1.1x of xm"),
    ];
    for point in points(bench) {
        let mut outcomes = Vec::new();
        for (name, mode) in MODES.into_iter().take(point.modes) {
            outcomes.push((name, measure(Run { mode, ..point.run })?));
        }
        let [(_, ours), rivals @ ..] = outcomes.as_slice() else {
            continue;
        };
        for (name, theirs) in rivals {
            point.compare(ours, (name, theirs), report, &mut verdicts)?;
        }
    }
    for verdict in verdicts {
        report.verdict("fdtree", &verdict.text())?;
    }
    Ok(())
}

impl Point {
    fn compare(
        &self,
        ours: &Outcome,
        (name, theirs): (&str, &Outcome),
        report: &mut Report,
        [worst, throughput, space]: &mut [Verdict; 3],
    ) -> Result<()> {
        let is_rival = ["xm", "ds"].contains(&name);
        let goal = |goal| is_rival.then_some(goal);
        let mut add = |what, unit, goal, of: fn(&Outcome) -> f64| {
            let figure = Figure {
                case: self.case(what),
                unit,
                ours: of(ours).into(),
                peer: format!("strandline, {name}"),
                theirs: Some(of(theirs).into()),
                goal,
                config: config([
                    ("run", self.config()),
                    ("ours", of_run(ours)),
                    ("theirs", of_run(theirs)),
                    ("plots", self.plots(what, of(ours), (name, of(theirs)))),
                ]),
            };
            report.add(figure.clone())?;
            Result::Ok(figure)
        };
        let figure = add(
            "requests",
            "1/s",
            goal(Goal::AtLeast(1.0)),
            Outcome::per_second,
        )?;
        throughput.add(&figure);
        let space_goal = (name == "xm").then_some(Goal::AtMost(1.1));
        let figure = add("most space", "bytes", space_goal, |of| {
            of.space_bytes().1 as f64
        })?;
        space.add(&figure);
        if ours.modifications.count() > 0 {
            let worst_goal = goal(Goal::AtMost(0.1));
            let figure = add("worst modification", "ms", worst_goal, |of| {
                of.modifications.worst_ms()
            })?;
            worst.add(&figure);
            add(
                "written for a modification",
                "bytes",
                None,
                Outcome::written_bytes,
            )?;
        }
        Ok(())
    }

    /// The points of this figure in the plots that have it.
    fn plots(&self, what: &str, ours: f64, (name, theirs): (&str, f64)) -> Value {
        let x = match self.figure {
            "Fig. 6" => self.run.lookups as f64,
            "Fig. 7" | "Fig. 7, whole" => self.run.entries as f64,
            _ => return json!([]),
        };
        let keys = self.keys();
        let figure = match (self.figure, what) {
            ("Fig. 6", "requests") => format!("fdtree-fig6-requests-{keys}"),
            ("Fig. 6", "worst modification") => format!("fdtree-fig6-worst-{keys}"),
            (_, "worst modification") => "fdtree-fig7-worst".into(),
            _ => return json!([]),
        };
        json!([point(&figure, x, &[("fc", ours), (name, theirs)])])
    }

    fn case(&self, what: &str) -> String {
        let Run {
            entries, lookups, ..
        } = self.run;
        let keys = self.keys();
        let millions = entries as f64 / 1e6;
        let figure = self.figure;
        format!("{figure}: {what}, {lookups} % lookups, {keys} keys, {millions} M entries")
    }

    fn keys(&self) -> &'static str {
        match self.run.keys {
            Keys::Random => "random",
            Keys::Ascending => "ascending",
        }
    }

    fn config(&self) -> Value {
        json!({
            "entries": self.run.entries,
            "paper_divided_by": self.run.scale().round(),
            "head_bytes": self.run.head_bytes,
            "cache_bytes": self.run.cache_bytes,
            "requests": self.run.requests,
            "deletes_of_100_modifications": self.run.deletes,
            "keys": self.keys(),
            "threads": "6 look up, 2 modify, 1 compacts",
            "device": experiment::device(),
            "paper": self.paper,
        })
    }
}

/// Figures of one side that are not compared.
fn of_run(outcome: &Outcome) -> Value {
    let counts = &outcome.counts;
    json!({
        "seconds": outcome.seconds,
        "modification_mean_us": outcome.modifications.mean_us(),
        "modification_p999_ms": outcome.modifications.p999_ms(),
        "lookup_mean_us": outcome.lookups.mean_us(),
        "lookup_p999_ms": outcome.lookups.p999_ms(),
        "lookup_worst_ms": outcome.lookups.worst_ms(),
        "blocks_read": counts.reads.load(Relaxed),
        "blocks_written": counts.blocks_written.load(Relaxed),
        "syncs": counts.syncs.load(Relaxed),
        "images": counts.images.load(Relaxed),
        "image_bytes": counts.image_bytes.load(Relaxed),
        "space_before_bytes": outcome.space_bytes().0,
    })
}
