//! A time of each row of a range: of few different ones a run each, else one by one.
//!
//! A bulk-loaded range has one start time, and a range with few updates is at rest between them, so
//! runs take a small part of the memory that a time of each row takes. A point read of a cold range
//! has to find its metadata in memory: a table much larger than the memory has many ranges.

use std::ops::Index;

/// Bytes of a run: its first row and its time.
const RUN_BYTES: usize = size_of::<u16>() + size_of::<u64>();

/// A time of each row of a range.
#[derive(Clone, Debug)]
pub struct RowTimes {
    rows: usize,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Each(Vec<u64>),
    /// side by side the first row of each run, the first one 0, and the time of its rows
    Runs {
        firsts: Vec<u16>,
        times: Vec<u64>,
    },
}

impl RowTimes {
    /// `rows` rows, at most [`RANGE_ROWS`](strandline_base::RANGE_ROWS), of one time.
    pub fn uniform(rows: usize, time: u64) -> Self {
        let runs = usize::from(rows > 0);
        let form = Form::Runs {
            firsts: vec![0; runs],
            times: vec![time; runs],
        };
        Self { rows, form }
    }

    /// The time of each row, in the form that takes less.
    pub fn of_rows(times: Vec<u64>) -> Self {
        let runs = 1 + times.windows(2).filter(|two| two[0] != two[1]).count();
        let rows = times.len();
        if rows == 0 {
            return Self::uniform(0, 0);
        }
        if !is_shorter(runs, rows) {
            let form = Form::Each(times);
            return Self { rows, form };
        }
        let mut runs = Runs::with_capacity(runs);
        let mut first = 0;
        for run in times.chunk_by(|a, b| a == b) {
            runs.push(first as u16, run[0]);
            first += run.len();
        }
        runs.of_rows(rows)
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The time of a row; None: there is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<u64> {
        (row < self.rows).then(|| self[row])
    }

    /// Sets the time of a row. From then on the times are one by one, until
    /// [`RowTimes::compacted`].
    pub fn set(&mut self, row: usize, time: u64) {
        if let Form::Runs { .. } = self.form {
            self.form = Form::Each(self.each());
        }
        if let Form::Each(times) = &mut self.form {
            times[row] = time;
        }
    }

    /// The same times in the form that takes less.
    pub fn compacted(self) -> Self {
        match self.form {
            Form::Each(times) => Self::of_rows(times),
            Form::Runs { ref times, .. } if is_shorter(times.len(), self.rows) => self,
            Form::Runs { .. } => Self {
                form: Form::Each(self.each()),
                ..self
            },
        }
    }

    fn each(&self) -> Vec<u64> {
        let mut each = Vec::with_capacity(self.rows);
        each.extend(self.iter());
        each
    }

    /// The rows' times in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs().flat_map(|(rows, time)| rows.map(move |_| time))
    }

    /// The rows with a time each, in order; one by one, consecutive rows may have the same time.
    pub fn runs(&self) -> impl Iterator<Item = (std::ops::Range<usize>, u64)> + '_ {
        let (each, firsts, times) = match &self.form {
            Form::Each(times) => (times.as_slice(), [].as_slice(), [].as_slice()),
            Form::Runs { firsts, times } => ([].as_slice(), firsts.as_slice(), times.as_slice()),
        };
        let each = each.iter().enumerate();
        let each = each.map(|(row, time)| (row..row + 1, *time));
        let ends = firsts.iter().skip(1).map(|first| usize::from(*first));
        let ends = ends.chain(std::iter::once(self.rows));
        let starts = firsts.iter().map(|first| usize::from(*first));
        let runs = starts.zip(ends).zip(times);
        each.chain(runs.map(|((start, end), time)| (start..end, *time)))
    }

    /// How many runs there are; None: the times are one by one.
    pub(super) fn run_count(&self) -> Option<usize> {
        match &self.form {
            Form::Each(_) => None,
            Form::Runs { times, .. } => Some(times.len()),
        }
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Each(times) => times.capacity() * size_of::<u64>(),
            Form::Runs { firsts, times } => {
                firsts.capacity() * size_of::<u16>() + times.capacity() * size_of::<u64>()
            }
        }
    }
}

/// Whether so many runs take less than the times of `rows` rows one by one.
fn is_shorter(runs: usize, rows: usize) -> bool {
    rows == 0 || runs * RUN_BYTES < rows * size_of::<u64>()
}

/// The same rows have the same times, in either form.
impl PartialEq for RowTimes {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows && self.iter().eq(other.iter())
    }
}

impl Eq for RowTimes {}

impl Index<usize> for RowTimes {
    type Output = u64;

    /// # Panics
    /// If there is no such row.
    #[inline]
    fn index(&self, row: usize) -> &u64 {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        match &self.form {
            Form::Each(times) => &times[row],
            Form::Runs { firsts, times } => {
                &times[firsts.partition_point(|first| usize::from(*first) <= row) - 1]
            }
        }
    }
}

/// Runs that are being gathered, in the order of their rows.
pub(super) struct Runs {
    firsts: Vec<u16>,
    times: Vec<u64>,
}

impl Runs {
    /// None, with room for `runs`.
    pub fn with_capacity(runs: usize) -> Self {
        Self {
            firsts: Vec::with_capacity(runs),
            times: Vec::with_capacity(runs),
        }
    }

    /// Adds a run that begins with row `first`: of the first run 0, of others behind the one
    /// before.
    pub fn push(&mut self, first: u16, time: u64) {
        self.firsts.push(first);
        self.times.push(time);
    }

    /// The times of `rows` rows, of which the last run has all that are left, at least one.
    pub fn of_rows(self, rows: usize) -> RowTimes {
        let Self { firsts, times } = self;
        let form = Form::Runs { firsts, times };
        RowTimes { rows, form }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::RANGE_ROWS;
    use strandline_base::rng::Rng;

    #[test]
    fn both_forms_give_the_times_of_all_rows() {
        let rng = &mut Rng::new(7);
        for rows in [0, 1, 2, 63, 4097, RANGE_ROWS] {
            for changed in [0, 1, rows / 300, rows / 2, rows] {
                let mut expected = vec![5; rows];
                let mut times = RowTimes::uniform(rows, 5);
                for _ in 0..changed.min(rows) {
                    let row = rng.below(rows as u64) as usize;
                    expected[row] = rng.below(4) << 60;
                    times.set(row, expected[row]);
                }
                let compact = times.clone().compacted();
                assert!(compact.memory_bytes() <= rows * 8);
                for times in [&times, &compact, &RowTimes::of_rows(expected.clone())] {
                    assert_eq!((times.len(), times.is_empty()), (rows, rows == 0));
                    assert!(times.iter().eq(expected.iter().copied()));
                    let by_runs = times
                        .runs()
                        .flat_map(|(rows, time)| rows.map(move |_| time));
                    assert!(by_runs.eq(expected.iter().copied()));
                    for (row, time) in expected.iter().enumerate() {
                        assert_eq!((times[row], times.get(row)), (*time, Some(*time)));
                    }
                    assert_eq!(times.get(rows), None);
                    assert_eq!(times, &compact);
                }
            }
        }
    }

    #[test]
    fn few_changes_take_little_memory() {
        let mut times = RowTimes::uniform(RANGE_ROWS, 1);
        (0..1000).for_each(|n| times.set(n * 65, 2));
        assert_eq!(times.memory_bytes(), RANGE_ROWS * 8);
        let times = times.compacted();
        assert_eq!(times.run_count(), Some(2000));
        assert!(times.memory_bytes() <= 2000 * RUN_BYTES);
        assert_ne!(times, RowTimes::uniform(RANGE_ROWS, 1));
    }
}
