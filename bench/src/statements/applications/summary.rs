//! What the statements of one way show together: the geometric mean of their ratios, and the worst.

use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Spread, median};
use serde_json::json;

/// The ratios of one way (ours / theirs), by statement and round.
#[derive(Default)]
pub struct Ratios {
    statements: Vec<(String, Vec<f64>)>,
    /// statements that have no ratio, since one side failed or the sides differ
    missing: Vec<String>,
}

/// The goals of one way.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// for each statement
    pub each: f64,
    /// for the geometric mean
    pub mean: f64,
}

impl Ratios {
    /// Adds a statement's times by round; the sides took turns.
    pub fn add(&mut self, name: &str, ours: &[f64], theirs: &[f64]) {
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs);
        self.statements.push((name.to_string(), ratios.collect()));
    }

    /// Adds a statement that was not measured.
    pub fn miss(&mut self, name: &str) {
        self.missing.push(name.to_string());
    }

    /// The geometric mean of all statements in each round.
    fn means(&self) -> Vec<f64> {
        let rounds = self.statements.iter().map(|(_, rounds)| rounds.len()).min();
        let of_round = |round: usize| {
            let logs = self.statements.iter().map(|(_, rounds)| rounds[round].ln());
            (logs.sum::<f64>() / self.statements.len() as f64).exp()
        };
        (0..rounds.unwrap_or(0)).map(of_round).collect()
    }

    /// Reports the mean as a figure, the worst ratio and what is missing as a verdict.
    pub fn report(&self, report: &mut Report, way: &str, peer: &str, goals: Goals) -> Result<()> {
        if self.statements.is_empty() {
            return report.verdict(way, "no statement was measured");
        }
        let medians: Vec<(&str, f64)> = self
            .statements
            .iter()
            .map(|(name, rounds)| (name.as_str(), median(rounds.clone())))
            .collect();
        let worst = medians.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (worst, ratio) = *worst.ok_or("no statement was measured")?;
        let above = medians
            .iter()
            .filter(|(_, ratio)| *ratio > goals.each)
            .count();
        let count = self.statements.len();
        report.add(Figure {
            case: format!("geometric mean of {count} statements, {way}"),
            unit: "of its time",
            ours: Spread::of(self.means()),
            peer: peer.to_string(),
            theirs: Some(Spread::from(1.0)),
            goal: Some(Goal::AtMost(goals.mean)),
            config: config([
                ("statements", json!(count)),
                ("worst", json!(worst)),
                ("worst_ratio", json!(ratio)),
                ("above_goal", json!(above)),
                ("not_measured", json!(self.missing)),
            ]),
        })?;
        let missing = match self.missing.len() {
            0 => String::new(),
            missing => format!("; {missing} not measured: {}", self.missing.join(", ")),
        };
        let verdict = format!(
            "worst {ratio:.2} ({worst}); {above} of {count} above {}{missing}",
            goals.each
        );
        report.verdict(way, &verdict)
    }
}

/// Fails if something was not measured.
pub fn complete<'r>(all: impl Iterator<Item = &'r Ratios>) -> Result<()> {
    let missing = all.flat_map(|ratios| &ratios.missing);
    let mut missing: Vec<&str> = missing.map(String::as_str).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("not measured: {}", missing.join(", ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_geometric_and_by_round() {
        let mut ratios = Ratios::default();
        ratios.add("a", &[1.0, 4.0], &[2.0, 1.0]);
        ratios.add("b", &[8.0, 4.0], &[1.0, 1.0]);
        let means = ratios.means();
        assert!((means[0] - 2.0).abs() < 1e-9, "{means:?}");
        assert!((means[1] - 4.0).abs() < 1e-9, "{means:?}");
        assert_eq!(Ratios::default().means(), Vec::<f64>::new());
    }
}
