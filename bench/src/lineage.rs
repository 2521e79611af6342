//! The suite `lineage`: the evaluation of the L-Store paper on this machine, against its two rivals
//! in the same harness. It also measures subjects that the paper leaves out: other stores, pauses,
//! held snapshots.
//!
//! | group | figures | against |
//! |---|---|---|
//! | contention | Fig. 7: transactions/s by threads and active set | IUH, DBM; storage alone too |
//! | mix | Fig. 9: transactions/s by share of updates | the same |
//! | readers | Fig. 10: short transactions beside long readers | the same |
//! | scans | Table 7 and Fig. 8: scans beside 16 and 4 writers | IUH, DBM; sizes of merges |
//! | layouts | Tables 8 and 9: scans and point reads | a row layout |
//! | pages | IUH with a latch per page of all columns | IUH with the paper's, one per column |
//! | core | transactions/s of one thread beside a scan | a number |
//! | peers | the transaction and point reads | SQLite, RocksDB, redb, fjall, LMDB |
//! | updates | `SUM` of a column that is updated | itself, DuckDB |
//! | latency | p99.9 beside merges and checkpoints | a number |
//! | held | memory and reads beside one held snapshot; idle cursors | itself |
//!
//! The paper's machine had 24 hardware threads. With more threads than processors, a figure comes
//! from an oversubscribed machine and says so. The paper's transaction has 8 reads and 2 updates of
//! 4 of 10 columns at read committed. Beside it, one thread scans 10 % of the table over and over,
//! and one merges.

mod contention;
mod core;
mod engine;
mod held;
mod latency;
mod layouts;
mod mix;
mod ours;
mod pages;
mod paper;
mod peers;
mod readers;
mod rivals;
mod scans;
mod updates;
mod workload;

use crate::foundation;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, take_turns};
use crate::{Group, Result};
use engine::Engine;
use ours::Image;
use rivals::{Dbm, Iuh, Layout, Storage};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use workload::{Load, Measured};

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 11] = [
    ("contention", contention::run),
    ("mix", mix::run),
    ("readers", readers::run),
    ("scans", scans::run),
    ("layouts", layouts::run),
    ("pages", pages::run),
    ("core", core::run),
    ("peers", peers::run),
    ("updates", updates::run),
    ("latency", latency::run),
    ("held", held::run),
];

/// Rounds of every comparison.
const ROUNDS: usize = 3;

/// Sizes, directories and peers of a run.
pub struct Bench {
    /// The state that the suites share; its `seconds` are for the peers.
    shared: foundation::Bench,
    /// Rows of the paper's table; also the active set of low contention.
    rows: u64,
    /// Seconds of one measurement in the harness.
    seconds: f64,
    /// Seconds for which a snapshot is held open.
    hold: f64,
    /// Our loaded table, made on first use.
    image: Option<Image>,
}

impl Bench {
    /// A run that keeps its files in `directory`.
    pub fn new(directory: &Path, quick: bool, seed: u64) -> Self {
        let shared = foundation::Bench::new(directory, quick, seed);
        let (rows, seconds, hold) = if quick {
            (1_000_000, 0.1, 10.0)
        } else {
            (10_000_000, 0.8, 600.0)
        };
        let image = None;
        Self {
            shared,
            rows,
            seconds,
            hold,
            image,
        }
    }

    /// Our freshly loaded table in memory.
    fn image(&mut self) -> Result<&Image> {
        if self.image.is_none() {
            eprintln!("loading {} rows …", self.rows);
            self.image = Some(Image::new(self.rows, self.shared.seed)?);
        }
        Ok(self.image.as_ref().expect("made above"))
    }

    /// Our engines and the rivals with the same rows, all unused. Every point of a figure therefore
    /// starts from the same state.
    fn engines(&mut self) -> Result<Vec<Arc<dyn Engine>>> {
        let (rows, seed) = (self.rows, self.shared.seed);
        Ok(vec![
            Arc::new(self.image()?.open(ours::settings())?),
            Arc::new(<Iuh>::new(rows, seed)),
            Arc::new(Dbm::new(Layout::Columns, rows, seed)),
            Arc::new(Storage::new(rows, seed)?),
        ])
    }

    /// The paper's transactions on the first `active` rows, beside one scan thread and one merge
    /// thread.
    fn load(&self, writers: usize, active: u64) -> Load {
        Load {
            writers,
            reads: 8,
            updates: 2,
            columns: engine::UPDATED,
            active,
            scanners: 1,
            scan_rows: self.rows / 10,
            rows: self.rows,
            pace: None,
            seconds: self.seconds,
            merges: 0,
            seed: self.shared.seed,
        }
    }

    /// The active sets of the paper with their names, limited to the table's size.
    fn active_sets(&self) -> [(&'static str, u64); 3] {
        [("low", self.rows), ("medium", 100_000), ("high", 10_000)]
    }
}

/// Each engine's measurements; the engines take turns.
fn measure(engines: &[Arc<dyn Engine>], load: &Load) -> Result<Vec<Vec<Measured>>> {
    for engine in engines {
        load.warm(&**engine)?;
    }
    let side = |engine: &Arc<dyn Engine>| -> Side<'_, Measured> {
        let (engine, mut load) = (engine.clone(), load.clone());
        Box::new(move |_| {
            load.seed += 1;
            load.measure(&*engine)
        })
    };
    take_turns(ROUNDS, engines.iter().map(side).collect())
}

/// One number per round, for each engine.
fn spreads(measured: &[Vec<Measured>], number: impl Fn(&Measured) -> f64) -> Vec<Spread> {
    let of_engine = |rounds: &Vec<Measured>| Spread::of(rounds.iter().map(&number));
    measured.iter().map(of_engine).collect()
}

/// Processor seconds per second of an engine's first round, by class of thread.
fn cpu(measured: &[Measured]) -> Value {
    measured
        .first()
        .map_or(Value::Null, |first| first.cpu.json())
}

/// Positions in [`Bench::engines`].
const PRODUCT: usize = 0;
const RIVALS: [usize; 2] = [1, 2];
const STORAGE: usize = 3;

/// One result of all engines.
struct Comparison<'c> {
    case: String,
    unit: &'static str,
    load: &'c Load,
    /// The figure whose curves the result is on, and its x.
    plot: (&'static str, f64),
    goal: Option<Goal>,
    /// The paper's best ratios over each rival, if the paper gives them.
    paper: Option<[f64; 2]>,
}

impl Comparison<'_> {
    /// Adds two figures per rival and returns the medians of `number`. One compares the product;
    /// the other compares its storage alone, on the rivals' transactions. Goals apply to the
    /// product.
    fn add(
        &self,
        engines: &[Arc<dyn Engine>],
        measured: &[Vec<Measured>],
        number: fn(&Measured) -> f64,
        report: &mut Report,
    ) -> Result<Vec<f64>> {
        let found = spreads(measured, number);
        for ours in [PRODUCT, STORAGE] {
            for rival in RIVALS {
                report.add(Figure {
                    case: match ours {
                        PRODUCT => self.case.clone(),
                        _ => format!("{}, storage alone", self.case),
                    },
                    unit: self.unit,
                    ours: found[ours],
                    peer: engines[rival].name().to_string(),
                    theirs: Some(found[rival]),
                    goal: self.goal.filter(|_| ours == PRODUCT),
                    config: self.config(engines, measured, (ours, rival), &found),
                })?;
            }
        }
        Ok(found.iter().map(|spread| spread.median).collect())
    }

    fn config(
        &self,
        engines: &[Arc<dyn Engine>],
        measured: &[Vec<Measured>],
        (ours, rival): (usize, usize),
        found: &[Spread],
    ) -> Map<String, Value> {
        let aborted = spreads(measured, Measured::aborted_part);
        let (figure, x) = self.plot;
        let name = |engine: usize| engines[engine].name();
        let points = [ours, rival].map(|engine| (name(engine), json!(found[engine].median)));
        let ratio = found[ours].median / found[rival].median;
        let mut ratios = config([(
            format!("{} over {}", name(ours), name(rival)).as_str(),
            json!(ratio),
        )]);
        let paper = self.paper.map(|ratios| ratios[rival - RIVALS[0]]);
        if let Some(paper) = paper {
            let series = format!("paper, at best over {}", name(rival));
            ratios.insert(series, json!(paper));
        }
        let plots = [
            plot(figure, x, config(points)),
            plot(&format!("{figure}-ratio"), x, ratios),
        ];
        let mut settings = self.load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            (
                "aborted_part",
                json!([aborted[ours].median, aborted[rival].median]),
            ),
            (
                "cpu_per_second",
                json!([cpu(&measured[ours]), cpu(&measured[rival])]),
            ),
            ("theirs", json!(rivals::SETTINGS)),
            ("plots", json!(plots)),
        ]));
        if ours == PRODUCT {
            settings.insert("ours".to_string(), json!(ours::SETTINGS));
        }
        if let Some(paper) = paper {
            settings.insert("paper_ratio_at_best".to_string(), json!(paper));
        }
        settings
    }
}

/// Points at `x` on the curves of a figure, for `plots`.
fn plot(figure: &str, x: f64, points: Map<String, Value>) -> Value {
    json!({ "figure": figure, "x": x, "points": points })
}

/// `holds` or `does not hold`.
fn holds(shape: bool) -> &'static str {
    if shape { "holds" } else { "does not hold" }
}
