//! Which runs of a storage a checkpoint rewrites into one.
//!
//! Runs are listed newest first, and the commits of one lie before those of the next newer one.
//! Neighbours may be united. Versions that no snapshot can read are left out only if the oldest run
//! is among them: the values kept from them become old-value records, which come after all other
//! records of their row.
//!
//! 1. *Expired*: runs with nothing but commits at or before the horizon are reduced to the values
//!    that the horizon sees. A run *settles* if all its ranges have been merged up to its end:
//!    reduction leaves only such values. Runs are reduced when the settled ones hold at least as
//!    many bytes as the others. Runs that do not settle may keep records; they are reduced when the
//!    newer runs hold at least as many bytes as the oldest. So a run is rewritten only when as many
//!    bytes have been added.
//! 2. *Tiers*: runs are in levels by size, each [`FAN_IN`] times the one below, and none in a lower
//!    level than a newer run. [`FAN_IN`] neighbours of one level are united, which lifts them into
//!    the next. So a byte is rewritten once per level, O(log n) times, and a storage has fewer than
//!    [`FAN_IN`] runs per level, however long its history is kept.
//! 3. *History* goes to the capacity tier of a database with two: a union of merged runs (all their
//!    ranges have been merged up to their ends) is written there, and merged neighbours on the fast
//!    tier are rewritten for that alone. Runs on different tiers are united by rule 1 only, so that
//!    history does not come back to the fast tier with every new run. Recovery reads no record of a
//!    merged run, so the fast tier keeps the runs that it does read. Each byte is rewritten once
//!    more, and a storage has twice as many runs at most.
//!
//! The same idea as MaSM's merging of runs \[MaSM §3.2\] and size-tiered LSM trees.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::{CommitTs, RangeNo};
use strandline_storage::file::Tier;
use strandline_table::update_run::Run;

/// So many runs of one level become one.
const FAN_IN: usize = 4;
/// Runs of less than this, times the fan-in, are in the lowest level.
const LEVEL_BYTES: u64 = 4 << 10;

/// The runs to rewrite into one, and its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub group: Range<usize>,
    pub tier: Tier,
}

/// Inputs of the choice, per run.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    max_ts: CommitTs,
    oldest_version: CommitTs,
    /// its ranges have been merged up to `max_ts`
    is_merged: bool,
    /// it is on the fast tier of two
    is_fast: bool,
}

impl Size {
    fn settles(&self) -> bool {
        self.is_merged && self.oldest_version != CommitTs::MAX
    }
}

/// The neighbouring `runs` (newest first) to rewrite into one, if the rules choose any. `horizon`:
/// no snapshot before it will be read. `merged_through`: how far each range has been merged. `all`:
/// reduces every run that can be reduced. `is_fast`: whether a run is on the fast tier of two.
pub fn choose(
    runs: &[Arc<Run>],
    horizon: CommitTs,
    merged_through: &BTreeMap<RangeNo, CommitTs>,
    all: bool,
    is_fast: &dyn Fn(&Run) -> bool,
) -> Option<Choice> {
    let size = |run: &Arc<Run>| {
        let ranges = run.min_row().range()..=run.max_row().range();
        let mut through = merged_through.range(ranges).map(|(_, through)| *through);
        Size {
            bytes: run.bytes(),
            max_ts: run.max_ts(),
            oldest_version: run.oldest_version(),
            is_merged: through.all(|through| through >= run.max_ts()),
            is_fast: is_fast(run),
        }
    };
    let sizes: Vec<Size> = runs.iter().map(size).collect();
    let whole = all && sizes.iter().any(|size| size.oldest_version <= horizon);
    let group = whole.then_some(0..sizes.len());
    let group = group
        .or_else(|| expired(&sizes, horizon))
        .or_else(|| full_level(&sizes))
        .or_else(|| history(&sizes))?;
    let is_history = sizes[group.clone()].iter().all(|size| size.is_merged);
    let tier = match is_history {
        true => Tier::Capacity,
        false => Tier::Fast,
    };
    Some(Choice { group, tier })
}

fn expired(sizes: &[Size], horizon: CommitTs) -> Option<Range<usize>> {
    let is_expired = |size: &&Size| size.max_ts <= horizon;
    let count = sizes.iter().rev().take_while(is_expired).count();
    let first = sizes.len() - count;
    let (oldest, newer) = sizes[first..].split_last()?;
    let bytes = |sizes: &mut dyn Iterator<Item = &Size>| sizes.map(|size| size.bytes).sum::<u64>();
    let newer_bytes = bytes(&mut newer.iter());
    let settling = bytes(&mut sizes[first..].iter().filter(|size| size.settles()));
    let pays = settling > 0 && settling * 2 >= newer_bytes + oldest.bytes;
    let pays = pays || (!newer.is_empty() && newer_bytes >= oldest.bytes);
    pays.then_some(first..sizes.len())
}

fn level(bytes: u64) -> u32 {
    (bytes / LEVEL_BYTES).max(1).ilog(FAN_IN as u64)
}

fn full_level(sizes: &[Size]) -> Option<Range<usize>> {
    let mut least = 0;
    let levels: Vec<(u32, bool)> = sizes
        .iter()
        .map(|size| {
            least = least.max(level(size.bytes));
            (least, size.is_fast)
        })
        .collect();
    let mut first = 0;
    for group in levels.chunk_by(|a, b| a == b) {
        if group.len() >= FAN_IN {
            return Some(first..first + group.len());
        }
        first += group.len();
    }
    None
}

/// The oldest neighbours that are history on the fast tier.
fn history(sizes: &[Size]) -> Option<Range<usize>> {
    let is_due = |size: &Size| size.is_merged && size.is_fast;
    let end = sizes.iter().rposition(is_due)? + 1;
    let newer = sizes[..end].iter().rposition(|size| !is_due(size));
    Some(newer.map_or(0, |at| at + 1)..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    fn run(bytes: u64, ts: u64) -> Size {
        Size {
            bytes,
            max_ts: CommitTs(ts),
            oldest_version: CommitTs(ts),
            is_merged: false,
            is_fast: true,
        }
    }

    /// Adds runs of `sizes` one by one and unites as chosen; the bytes rewritten per byte, and the
    /// most runs there were.
    fn play(sizes: impl Iterator<Item = u64>) -> (f64, usize) {
        let (mut runs, mut total, mut rewritten, mut most) = (Vec::new(), 0, 0, 0);
        for bytes in sizes {
            runs.insert(0, run(bytes, 1));
            total += bytes;
            if let Some(group) = full_level(&runs) {
                let united: u64 = runs[group.clone()].iter().map(|r| r.bytes).sum();
                rewritten += united;
                runs.splice(group, [run(united, 1)]);
            }
            most = most.max(runs.len());
        }
        (rewritten as f64 / total as f64, most)
    }

    #[test]
    fn bytes_are_rewritten_a_logarithmic_number_of_times() {
        let (amplification, runs) = play((0..4096).map(|_| 50_000));
        assert!(amplification <= 7.0, "{amplification} rewrites per byte");
        assert!(runs <= 7 * FAN_IN, "{runs} runs");
        let mut rng = Rng::new(5);
        let (amplification, runs) = play((0..4096).map(|_| 1 << rng.below(24)));
        assert!(amplification <= 10.0, "{amplification} rewrites per byte");
        assert!(runs <= 10 * FAN_IN, "{runs} runs");
    }

    #[test]
    fn merged_neighbours_leave_the_fast_tier() {
        let with = |is_merged, is_fast| Size {
            is_merged,
            is_fast,
            ..run(10, 20)
        };
        let (pending, merged, moved) = (with(false, true), with(true, true), with(true, false));
        assert_eq!(history(&[]), None);
        assert_eq!(history(&[pending, moved, moved]), None);
        assert_eq!(history(&[pending, merged, merged, moved]), Some(1..3));
        assert_eq!(
            history(&[merged, moved, merged]),
            Some(2..3),
            "the oldest first"
        );
        assert_eq!(history(&[merged, merged, pending]), Some(0..2));
    }

    #[test]
    fn levels_are_full_on_one_tier() {
        let on = |is_fast| Size {
            is_fast,
            ..run(50_000, 1)
        };
        let (fast, capacity) = (on(true), on(false));
        assert_eq!(full_level(&[fast, capacity, capacity, capacity]), None);
        let history = [fast, capacity, capacity, capacity, capacity];
        assert_eq!(full_level(&history), Some(1..5));
        assert_eq!(full_level(&[fast, fast, fast, fast, capacity]), Some(0..4));
    }

    #[test]
    fn expired_runs_are_reduced_when_the_newer_outweigh_the_oldest() {
        let horizon = CommitTs(10);
        let runs = [run(1, 30), run(50, 10), run(50, 9), run(99, 5)];
        assert_eq!(expired(&runs, horizon), Some(1..4));
        assert_eq!(expired(&runs, CommitTs(9)), None, "50 bytes against 99");
        assert_eq!(expired(&runs[..3], CommitTs(9)), None, "one alone");
        assert_eq!(expired(&[], horizon), None);
        let is_merged = true;
        let settles = |bytes| Size {
            is_merged,
            ..run(bytes, 5)
        };
        assert_eq!(expired(&[settles(10)], horizon), Some(0..1));
        assert_eq!(expired(&[settles(10), run(10, 4)], horizon), Some(0..2));
        assert_eq!(expired(&[settles(10), run(11, 4)], horizon), None);
        let settled = Size {
            oldest_version: CommitTs::MAX,
            ..settles(10)
        };
        assert_eq!(expired(&[settled], horizon), None, "nothing more to reduce");
    }
}
