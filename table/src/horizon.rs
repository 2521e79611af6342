//! Which moments may still be asked for, and so which versions must stay \[L-Store §4.1.1 step 5,
//! §4.3\].
//!
//! A version is visible from its commit to the next one's. It is kept if a moment lies between that
//! may still be asked for: any moment from `kept_from` on (the history policy's), or that of a
//! registered snapshot before. So one old snapshot keeps one version of a row, however often the
//! row is updated after it. Who reads an interval of time holds `kept_from` back instead.

use strandline_base::CommitTs;

/// The moments that may still be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Horizon {
    kept_from: CommitTs,
    /// ascending, all before `kept_from`
    snapshots: Vec<CommitTs>,
}

impl Horizon {
    /// Every moment from `kept_from` on, and `snapshots` (ascending). Whoever takes a snapshot
    /// before `kept_from` that is not among them is refused.
    pub fn new(kept_from: CommitTs, mut snapshots: Vec<CommitTs>) -> Self {
        snapshots.truncate(snapshots.partition_point(|ts| *ts < kept_from));
        Self {
            kept_from,
            snapshots,
        }
    }
    /// The oldest of the moments.
    pub fn oldest(&self) -> CommitTs {
        self.snapshots.first().copied().unwrap_or(self.kept_from)
    }
    /// Whether one of the moments sees a version committed at `begin` and superseded at `end`.
    pub fn sees(&self, begin: CommitTs, end: CommitTs) -> bool {
        let first = self.snapshots.partition_point(|ts| *ts < begin);
        end > self.kept_from.max(begin) || self.snapshots.get(first).is_some_and(|ts| *ts < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_seen_from_its_commit_to_the_next() {
        let ts = |all: &[u64]| all.iter().map(|ts| CommitTs(*ts)).collect::<Vec<_>>();
        let horizon = Horizon::new(CommitTs(100), ts(&[10, 20, 100, 120]));
        assert_eq!(horizon.oldest(), CommitTs(10));
        let sees = |begin, end| horizon.sees(CommitTs(begin), CommitTs(end));
        assert!(sees(10, 11) && sees(5, 11) && sees(15, 25) && sees(99, 101) && sees(150, 160));
        assert!(!sees(5, 10) && !sees(11, 20) && !sees(21, 100) && !sees(30, 30));
        let none = Horizon::new(CommitTs(7), Vec::new());
        assert_eq!(none.oldest(), CommitTs(7));
        assert!(none.sees(CommitTs(3), CommitTs(8)) && !none.sees(CommitTs(3), CommitTs(7)));
    }
}
