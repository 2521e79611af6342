//! The rows that have left a key, with the moments of their updates, until a sweep has examined
//! their entries.
//!
//! The newest updates are listed one by one. Older ones are gathered in *epochs*: sets of rows with
//! the moment of the last update among them.
//!
//! Invariants:
//! 1. A row is here from the commit by which it left a key until it is taken.
//! 2. A row is not taken at a moment before its update. In an epoch it may wait longer than it has
//!    to, up to the epoch's last update.
//! 3. A sweep takes rows range by range, so that it holds few of them at a time.
//! 4. Memory: at most [`LISTED`] updates of 16 bytes, and [`EPOCHS`] epochs of at most a bit for
//!    each row of a range and of 2 bytes for each row that is in it. It counts as indexes' memory.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::{CommitTs, RangeNo, RowId};
use strandline_table::lineage::base::row_set::RowSet;

/// Updates that are listed one by one: 1 MiB.
const LISTED: usize = 1 << 16;
/// Epochs of an index.
const EPOCHS: usize = 16;

/// See the module's documentation.
pub(crate) struct LeftRows {
    /// by moment
    listed: VecDeque<(CommitTs, RowId)>,
    epochs: Vec<Epoch>,
    /// bytes of the epochs
    epoch_bytes: usize,
    /// bytes already added to `memory`
    counted: usize,
    /// bytes that indexes use
    memory: Arc<AtomicUsize>,
}

/// Rows that a sweep takes.
pub(crate) struct Taken {
    /// with the moment by which each has left a key; a row may be there more than once
    pub rows: Vec<(CommitTs, RowId)>,
    /// the range from which on rows are left; None: there are none
    pub next: Option<RangeNo>,
}

/// Rows that have left a key at or before a moment.
struct Epoch {
    newest: CommitTs,
    /// how often
    updates: u64,
    rows: BTreeMap<RangeNo, RowSet>,
}

impl LeftRows {
    /// Nothing yet.
    pub fn counted(memory: Arc<AtomicUsize>) -> Self {
        Self {
            listed: VecDeque::new(),
            epochs: Vec::new(),
            epoch_bytes: 0,
            counted: 0,
            memory,
        }
    }

    /// `row` has left a key by a commit at `ts`; zero: by a rollback.
    pub fn note(&mut self, row: RowId, ts: CommitTs) {
        match self.listed.front() {
            Some((first, _)) if ts <= *first => self.listed.push_front((ts, row)),
            _ => {
                // Commits come nearly in order.
                let later = self.listed.iter().rev().take_while(|(at, _)| *at > ts);
                let at = self.listed.len() - later.count();
                self.listed.insert(at, (ts, row));
            }
        }
        self.gather();
    }

    /// The same for many, in any order.
    pub fn note_all(&mut self, rows: impl IntoIterator<Item = (CommitTs, RowId)>) {
        self.listed.extend(rows);
        self.listed.make_contiguous().sort_unstable();
        self.gather();
    }

    /// How many updates there were at or before `ts`.
    pub fn updates_by(&self, ts: CommitTs) -> u64 {
        let past = self.epochs.iter().filter(|epoch| epoch.newest <= ts);
        let past: u64 = past.map(|epoch| epoch.updates).sum();
        past + self.listed.partition_point(|(at, _)| *at <= ts) as u64
    }

    /// All rows.
    pub fn rows(&self) -> HashSet<RowId> {
        let mut rows: HashSet<RowId> = self.listed.iter().map(|(_, row)| *row).collect();
        for epoch in &self.epochs {
            epoch.visit(|row| {
                rows.insert(row);
            });
        }
        rows
    }

    /// Takes rows that have left a key at or before `ts` for the last time, as far as is known:
    /// those of the range `from` and of as many ranges behind it as have up to `at_most` rows
    /// together, but at least one range.
    pub fn take_by(&mut self, ts: CommitTs, from: RangeNo, at_most: usize) -> Taken {
        let next = self.end_of(ts, from, at_most);
        let is_meant = |range: RangeNo| range >= from && next.is_none_or(|next| range < next);
        let end = self.listed.partition_point(|(at, _)| *at <= ts);
        let mut rows = Vec::new();
        let mut at = 0;
        self.listed.retain(|(left, row)| {
            at += 1;
            let is_taken = at <= end && is_meant(row.range());
            rows.extend(is_taken.then_some((*left, *row)));
            !is_taken
        });
        for epoch in self.epochs.iter_mut().filter(|epoch| epoch.newest <= ts) {
            self.epoch_bytes -= epoch.bytes();
            let newest = epoch.newest;
            let taken = epoch.rows.extract_if(from.., |range, _| is_meant(*range));
            let before = rows.len();
            for (range, slots) in taken {
                rows.extend(
                    slots
                        .iter()
                        .map(|slot| (newest, RowId::new(range, slot as u16))),
                );
            }
            let updates = (rows.len() - before) as u64;
            epoch.updates = epoch.updates.saturating_sub(updates).max(1);
            self.epoch_bytes += epoch.bytes();
        }
        let emptied = self.epochs.extract_if(.., |epoch| epoch.rows.is_empty());
        self.epoch_bytes -= emptied.map(|epoch| epoch.bytes()).sum::<usize>();
        if self.listed.capacity() / 4 > self.listed.len() {
            self.listed.shrink_to_fit();
        }
        self.count();
        Taken { rows, next }
    }

    /// Where [`LeftRows::take_by`] ends; None: behind the last range.
    fn end_of(&self, ts: CommitTs, from: RangeNo, at_most: usize) -> Option<RangeNo> {
        let mut of_ranges: BTreeMap<RangeNo, usize> = BTreeMap::new();
        let listed = self.listed.iter().take_while(|(at, _)| *at <= ts);
        for (_, row) in listed.filter(|(_, row)| row.range() >= from) {
            *of_ranges.entry(row.range()).or_default() += 1;
        }
        for epoch in self.epochs.iter().filter(|epoch| epoch.newest <= ts) {
            for (range, slots) in epoch.rows.range(from..) {
                *of_ranges.entry(*range).or_default() += slots.count();
            }
        }
        let mut rows = 0;
        let mut ranges = of_ranges.into_iter();
        let is_first = ranges.next();
        rows += is_first.map_or(0, |(_, first)| first);
        let behind = ranges.find(|(_, more)| {
            rows += more;
            rows > at_most
        });
        behind.map(|(range, _)| range)
    }

    /// Keeps invariant 4.
    fn gather(&mut self) {
        while self.listed.len() > LISTED {
            let oldest: Vec<_> = self.listed.drain(..LISTED / 2).collect();
            self.put_epoch(Epoch::of(&oldest));
            if self.epochs.len() > EPOCHS {
                self.unite_epochs();
            }
        }
        if self.listed.capacity() > 2 * LISTED {
            self.listed.shrink_to(LISTED);
        }
        self.count();
    }

    fn put_epoch(&mut self, epoch: Epoch) {
        self.epoch_bytes += epoch.bytes();
        let at = self
            .epochs
            .partition_point(|known| known.newest <= epoch.newest);
        self.epochs.insert(at, epoch);
    }

    /// Makes one of the two neighbours that have the fewest updates together.
    fn unite_epochs(&mut self) {
        let pairs = self.epochs.windows(2).enumerate();
        let updates = |pair: &[Epoch]| pair.iter().map(|epoch| epoch.updates).sum::<u64>();
        let Some((at, _)) = pairs.min_by_key(|(_, pair)| updates(pair)) else {
            return;
        };
        let older = self.epochs.remove(at);
        let mut united = self.epochs.remove(at);
        self.epoch_bytes -= older.bytes() + united.bytes();
        united.updates += older.updates;
        older.visit(|row| united.add(row));
        self.put_epoch(united);
    }

    fn bytes(&self) -> usize {
        self.epoch_bytes + self.listed.capacity() * size_of::<(CommitTs, RowId)>()
    }

    /// Updates `memory` to the bytes in use.
    fn count(&mut self) {
        let bytes = self.bytes();
        if bytes > self.counted {
            self.memory
                .fetch_add(bytes - self.counted, Ordering::Relaxed);
        } else if bytes < self.counted {
            self.memory
                .fetch_sub(self.counted - bytes, Ordering::Relaxed);
        }
        self.counted = bytes;
    }
}

impl Drop for LeftRows {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Epoch {
    /// Of updates in order, at least one.
    fn of(updates: &[(CommitTs, RowId)]) -> Self {
        let mut epoch = Self {
            newest: updates.last().map_or(CommitTs::ZERO, |(ts, _)| *ts),
            updates: updates.len() as u64,
            rows: BTreeMap::new(),
        };
        updates.iter().for_each(|(_, row)| epoch.add(*row));
        epoch
    }

    fn add(&mut self, row: RowId) {
        let slots = self.rows.entry(row.range());
        slots.or_default().insert(row.slot());
    }

    fn visit(&self, mut visit: impl FnMut(RowId)) {
        for (range, slots) in &self.rows {
            let rows = slots.iter();
            rows.for_each(|slot| visit(RowId::new(*range, slot as u16)));
        }
    }

    fn bytes(&self) -> usize {
        let own = size_of::<Self>() + self.rows.len() * size_of::<(RangeNo, RowSet)>();
        own + self.rows.values().map(RowSet::memory_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::RANGE_ROWS;
    use strandline_base::rng::Rng;

    type Times = std::ops::Range<u64>;

    fn row(number: u64) -> RowId {
        RowId::new(RangeNo((number >> 16) as u32), number as u16)
    }

    /// Updates of random rows, some of them out of order.
    fn random(left: &mut LeftRows, rng: &mut Rng, rows: u64, times: Times) -> Vec<(u64, RowId)> {
        let mut all = Vec::new();
        for ts in times {
            let (ts, row) = (ts - rng.below(3).min(ts - 1), row(rng.below(rows)));
            left.note(row, CommitTs(ts));
            all.push((ts, row));
        }
        all
    }

    #[test]
    fn no_row_is_taken_before_its_last_update() {
        let mut rng = Rng::new(7);
        let mut left = LeftRows::counted(Arc::default());
        let all = random(&mut left, &mut rng, 200_000, 1..1_000_001);
        assert_eq!(left.updates_by(CommitTs::MAX), all.len() as u64);
        let mut taken = HashSet::new();
        for cut in [100_000, 400_000, 700_000, 1_000_000] {
            let mut from = Some(RangeNo(0));
            while let Some(begin) = from {
                let part = left.take_by(CommitTs(cut), begin, 30_000);
                let ranges: HashSet<_> = part.rows.iter().map(|(_, row)| row.range()).collect();
                assert!(part.rows.len() <= 30_000 || ranges.len() == 1, "{ranges:?}");
                assert!(ranges.iter().all(|range| *range >= begin));
                assert!(
                    part.next
                        .is_none_or(|next| ranges.iter().all(|range| *range < next))
                );
                taken.extend(part.rows.into_iter().map(|(_, row)| row));
                from = part.next;
            }
            let waiting = left.rows();
            for (ts, row) in &all {
                assert!(*ts <= cut || waiting.contains(row), "{row:?} at {ts}");
                assert!(taken.contains(row) || waiting.contains(row), "{row:?}");
            }
            // Epochs are fine enough that rows go not much later.
            let late = left.updates_by(CommitTs::MAX) as i64 - (1_000_000 - cut as i64);
            assert!(late < 300_000, "{late} at {cut}");
        }
        assert_eq!(left.updates_by(CommitTs::MAX), 0);
    }

    #[test]
    fn memory_is_bounded_and_counted() {
        let memory: Arc<AtomicUsize> = Arc::default();
        let mut left = LeftRows::counted(memory.clone());
        let mut rng = Rng::new(8);
        let limit = 2 * LISTED * 16 + (EPOCHS + 1) * (4 * RANGE_ROWS / 8 + 1_000);
        for round in 0..20 {
            let times = 1 + round * 100_000..1 + (round + 1) * 100_000;
            random(&mut left, &mut rng, 4 * RANGE_ROWS as u64, times);
            let bytes = memory.load(Ordering::Relaxed);
            assert_eq!(bytes, left.bytes());
            assert!(bytes <= limit, "{bytes}, not {limit}");
        }
        let half = left.take_by(CommitTs(1_000_000), RangeNo(0), usize::MAX);
        assert_eq!(memory.load(Ordering::Relaxed), left.bytes());
        left.note_all(half.rows);
        left.take_by(CommitTs(1_500_000), RangeNo(1), RANGE_ROWS);
        assert_eq!(memory.load(Ordering::Relaxed), left.bytes());
        let epochs: usize = left.epochs.iter().map(Epoch::bytes).sum();
        assert_eq!(left.epoch_bytes, epochs);
        drop(left);
        assert_eq!(memory.load(Ordering::Relaxed), 0);
    }
}
