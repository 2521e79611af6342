//! Results: one [`Figure`] per case, as a table for people and JSON lines for machines.

use crate::Result;
use crate::rounds::Spread;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;

/// The goal for a ratio (ours / theirs).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// For rates: as large as possible.
    AtLeast(f64),
    /// For times and sizes: as small as possible.
    AtMost(f64),
}

impl Goal {
    fn meets(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(goal) => ratio >= goal,
            Self::AtMost(goal) => ratio <= goal,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(goal) => format!(">= {goal}"),
            Self::AtMost(goal) => format!("<= {goal}"),
        }
    }
}

/// One result: our median and a peer's.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The case's name.
    pub case: String,
    /// The unit of `ours` and `theirs`.
    pub unit: &'static str,
    /// The figures of our rounds.
    pub ours: Spread,
    /// The peer with its version; `strandline` where we compare with ourselves.
    pub peer: String,
    /// The figures of the peer's rounds; None if it could not be measured.
    pub theirs: Option<Spread>,
    /// None: reported without a goal.
    pub goal: Option<Goal>,
    /// Sizes, settings and rounds.
    pub config: Map<String, Value>,
}

/// The fields that all lines of a suite share.
pub struct Stamp {
    /// The suite's name.
    pub suite: &'static str,
    /// Machine, version and mode, merged into every line's config.
    pub config: Map<String, Value>,
    /// The seed of all data and keys.
    pub seed: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    case: &'a str,
    unit: &'a str,
    ours: f64,
    ours_range: Option<[f64; 2]>,
    peer: &'a str,
    theirs: Option<f64>,
    theirs_range: Option<[f64; 2]>,
    ratio: Option<f64>,
    goal: Option<String>,
    meets: Option<bool>,
    config: Map<String, Value>,
    seed: u64,
}

impl Figure {
    /// Our median / theirs.
    pub fn ratio(&self) -> Option<f64> {
        self.theirs
            .map(|theirs| theirs.median)
            .filter(|&theirs| theirs > 0.0)
            .map(|theirs| self.ours.median / theirs)
    }

    /// Whether the goal is met; None without a goal or a peer's figure.
    pub fn meets(&self) -> Option<bool> {
        Some(self.goal?.meets(self.ratio()?))
    }

    /// The JSON line.
    pub fn json(&self, stamp: &Stamp) -> String {
        let mut config = stamp.config.clone();
        config.extend(self.config.clone());
        let line = Line {
            suite: stamp.suite,
            case: &self.case,
            unit: self.unit,
            ours: rounded(self.ours.median),
            ours_range: self.ours.range().map(|ends| ends.map(rounded)),
            peer: &self.peer,
            theirs: self.theirs.map(|theirs| rounded(theirs.median)),
            theirs_range: self
                .theirs
                .and_then(|theirs| Some(theirs.range()?.map(rounded))),
            ratio: self.ratio().map(rounded),
            goal: self.goal.map(Goal::text),
            meets: self.meets(),
            config,
            seed: stamp.seed,
        };
        serde_json::to_string(&line).expect("numbers and strings serialise")
    }
}

/// The output of a suite's results: JSON lines as they arrive, a table at the end.
pub struct Report {
    stamp: Stamp,
    file: Option<File>,
    figures: Vec<Figure>,
    verdicts: Vec<String>,
}

impl Report {
    /// An empty report whose lines also go to `file`.
    pub fn new(stamp: Stamp, file: Option<File>) -> Self {
        let (figures, verdicts) = (Vec::new(), Vec::new());
        Self {
            stamp,
            file,
            figures,
            verdicts,
        }
    }

    /// Adds a result.
    pub fn add(&mut self, figure: Figure) -> Result<()> {
        self.line(&figure.json(&self.stamp))?;
        self.figures.push(figure);
        Ok(())
    }

    /// Adds a line that states what several results show together.
    pub fn verdict(&mut self, case: &str, verdict: &str) -> Result<()> {
        let line = json!({ "suite": self.stamp.suite, "case": case, "verdict": verdict });
        self.line(&line.to_string())?;
        self.verdicts.push(format!("{case}: {verdict}"));
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<()> {
        println!("{line}");
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}")?;
        }
        Ok(())
    }

    /// The table, the verdicts and the number of goals met.
    pub fn summary(&self) -> String {
        let meets = self.figures.iter().filter_map(Figure::meets);
        let (met, goals) = meets.fold((0, 0), |(met, goals), m| (met + usize::from(m), goals + 1));
        let mut lines = vec![table(&self.figures)];
        lines.extend(self.verdicts.iter().cloned());
        lines.push(format!("{met} of {goals} goals met"));
        lines.join("\n")
    }
}

fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "case", "unit", "ours", "range", "peer", "theirs", "range", "ratio", "goal", "meets",
    ]);
    for figure in figures {
        let number = |n: Option<f64>| {
            Cell::new(n.map_or("-".to_string(), display)).set_alignment(CellAlignment::Right)
        };
        let range = |spread: Option<Spread>| {
            let ends = spread.and_then(|spread| spread.range());
            let text = ends.map(|[least, most]| format!("{} - {}", display(least), display(most)));
            Cell::new(text.unwrap_or_default()).set_alignment(CellAlignment::Right)
        };
        table.add_row([
            Cell::new(&figure.case),
            Cell::new(figure.unit),
            number(Some(figure.ours.median)),
            range(Some(figure.ours)),
            Cell::new(&figure.peer),
            number(figure.theirs.map(|theirs| theirs.median)),
            range(figure.theirs),
            number(figure.ratio()),
            Cell::new(figure.goal.map(Goal::text).unwrap_or_default()),
            Cell::new(match figure.meets() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "",
            }),
        ]);
    }
    table.to_string()
}

/// Keys and values of a figure's config.
pub fn config<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}

/// Rounds to four significant digits, the precision of a benchmark.
fn rounded(n: f64) -> f64 {
    if n == 0.0 || !n.is_finite() {
        return n;
    }
    let scale = 10_f64.powi(3 - n.abs().log10().floor() as i32);
    (n * scale).round() / scale
}

fn display(n: f64) -> String {
    let n = rounded(n);
    if n.abs() < 10_000.0 {
        return n.to_string();
    }
    let digits = format!("{n:.0}");
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(ours: f64, theirs: Option<f64>, goal: Option<Goal>) -> Figure {
        let config = config([("rows", json!(10))]);
        Figure {
            case: "c".into(),
            unit: "s",
            ours: ours.into(),
            peer: "p 1".into(),
            theirs: theirs.map(Spread::from),
            goal,
            config,
        }
    }

    #[test]
    fn goals() {
        assert_eq!(
            figure(1.0, Some(2.0), Some(Goal::AtLeast(0.5))).meets(),
            Some(true)
        );
        assert_eq!(
            figure(0.9, Some(2.0), Some(Goal::AtLeast(0.5))).meets(),
            Some(false)
        );
        assert_eq!(
            figure(2.4, Some(2.0), Some(Goal::AtMost(1.2))).meets(),
            Some(true)
        );
        assert_eq!(
            figure(2.5, Some(2.0), Some(Goal::AtMost(1.2))).meets(),
            Some(false)
        );
        assert_eq!(figure(2.5, None, Some(Goal::AtMost(1.2))).meets(), None);
        assert_eq!(figure(2.5, Some(1.0), None).meets(), None);
    }

    #[test]
    fn a_line_has_every_key_and_the_common_config() {
        let stamp = Stamp {
            suite: "s",
            config: config([("machine", json!("m"))]),
            seed: 7,
        };
        let mut figure = figure(1.23456, None, Some(Goal::AtLeast(0.5)));
        figure.theirs = Some(Spread::of([2.0, 1.0, 3.0]));
        let line = figure.json(&stamp);
        let value: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "suite": "s", "case": "c", "unit": "s", "ours": 1.235, "ours_range": null,
            "peer": "p 1", "theirs": 2.0, "theirs_range": [1.0, 3.0], "ratio": 0.6173, "goal": ">= 0.5", "meets": true,
            "config": {"machine": "m", "rows": 10}, "seed": 7,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(display(0.000_123_456), "0.0001235");
        assert_eq!(display(1.0), "1");
        assert_eq!(display(1_234_567.0), "1 235 000");
        assert_eq!(display(0.0), "0");
    }
}
