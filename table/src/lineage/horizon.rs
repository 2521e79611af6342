//! The moments that may still be read, which decide the versions that must be kept \[L-Store §4.1.1
//! step 5, §4.3\].
//!
//! A version is visible from its commit to the commit of the next version. It is kept if a readable
//! moment lies in between: any moment from `kept_from` on (the history policy's), the moment of a
//! registered snapshot before, or a moment of an interval of time that is being read. So one old
//! snapshot keeps one version of a row, and a reader of an interval keeps the versions of the
//! interval, however often the row is updated after it.

use strandline_base::CommitTs;

/// The moments that may still be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Horizon {
    kept_from: CommitTs,
    /// ascending, all before `kept_from`
    snapshots: Vec<CommitTs>,
    /// first and last moment, all first ones before `kept_from`
    intervals: Vec<(CommitTs, CommitTs)>,
}

impl Horizon {
    /// Every moment from `kept_from` on, `snapshots` (ascending) and `intervals` (bounds
    /// inclusive). A later snapshot before `kept_from` that is not among them is refused.
    pub fn new(
        kept_from: CommitTs,
        mut snapshots: Vec<CommitTs>,
        mut intervals: Vec<(CommitTs, CommitTs)>,
    ) -> Self {
        snapshots.truncate(snapshots.partition_point(|ts| *ts < kept_from));
        intervals.retain(|(first, _)| *first < kept_from);
        Self {
            kept_from,
            snapshots,
            intervals,
        }
    }
    /// From it on every moment may be asked for.
    pub fn kept_from(&self) -> CommitTs {
        self.kept_from
    }
    /// The oldest of the moments.
    pub fn oldest(&self) -> CommitTs {
        let intervals = self.intervals.iter().map(|interval| interval.0);
        let snapshot = self.snapshots.first().copied();
        intervals.chain(snapshot).min().unwrap_or(self.kept_from)
    }
    /// Whether one of the moments sees a version committed at `begin` and superseded at `end`.
    pub fn sees(&self, begin: CommitTs, end: CommitTs) -> bool {
        let first = self.snapshots.partition_point(|ts| *ts < begin);
        end > self.kept_from.max(begin)
            || self.snapshots.get(first).is_some_and(|ts| *ts < end)
            || self
                .intervals
                .iter()
                .any(|(first, last)| begin.max(*first) <= *last && begin.max(*first) < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_seen_from_its_commit_to_the_next() {
        let ts = |all: &[u64]| all.iter().map(|ts| CommitTs(*ts)).collect::<Vec<_>>();
        let horizon = Horizon::new(CommitTs(100), ts(&[10, 20, 100, 120]), Vec::new());
        assert_eq!(horizon.oldest(), CommitTs(10));
        let sees = |begin, end| horizon.sees(CommitTs(begin), CommitTs(end));
        assert!(sees(10, 11) && sees(5, 11) && sees(15, 25) && sees(99, 101) && sees(150, 160));
        assert!(!sees(5, 10) && !sees(11, 20) && !sees(21, 100) && !sees(30, 30));
        let none = Horizon::new(CommitTs(7), Vec::new(), Vec::new());
        assert_eq!(none.oldest(), CommitTs(7));
        assert!(none.sees(CommitTs(3), CommitTs(8)) && !none.sees(CommitTs(3), CommitTs(7)));
    }
    #[test]
    fn an_interval_sees_what_is_valid_within_it() {
        let ts = CommitTs;
        let horizon = Horizon::new(
            ts(100),
            vec![ts(50)],
            vec![(ts(20), ts(30)), (ts(100), ts(200))],
        );
        assert_eq!(horizon.oldest(), ts(20));
        let sees = |begin, end| horizon.sees(ts(begin), ts(end));
        assert!(sees(1, 21) && sees(20, 21) && sees(25, 26) && sees(30, 31) && sees(30, 90));
        assert!(!sees(1, 20) && !sees(31, 50) && !sees(25, 25) && !sees(60, 100));
        assert!(sees(31, 51) && sees(60, 101));
        // One moment, and none.
        let horizon = Horizon::new(ts(9), Vec::new(), vec![(ts(4), ts(4)), (ts(6), ts(5))]);
        assert!(horizon.sees(ts(3), ts(5)) && !horizon.sees(ts(3), ts(4)));
        assert!(!horizon.sees(ts(5), ts(7)));
    }
}
