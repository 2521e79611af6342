//! Per-row start times, last-updated times, updated-column bits and deletions of a based range:
//! the metadata columns that a merge fills in \[L-Store §2.2, §4.1.1\].
//!
//! A bulk-loaded range that was never changed has no row metadata (see `base`). Row metadata is one
//! blob per range, decoded into a frame of the pool and byte-exact in `docs/format.md`.

use super::row_set::{RowBits, RowSet, put_rows, take_rows};
use super::row_times::{RowTimes, Runs};
use crate::lineage::horizon::Horizon;
use std::collections::BTreeMap;
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{ColumnId, CommitTs, Error, RANGE_ROWS, Result, checksum};

/// The start time of a slot that never held a committed row.
pub const NEVER: u64 = u64::MAX;

/// What the encoded form begins with if runs of start times follow the number of rows. Otherwise it
/// begins with that number.
const RUNS: u64 = 2 * RANGE_ROWS as u64;

/// The row metadata of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMeta {
    /// commit timestamp of each row's insertion; [`NEVER`] for slots without a row
    pub starts: RowTimes,
    /// commit timestamp of each row's newest merged update or deletion; 0 = none
    pub last_updated: RowTimes,
    /// rows deleted (at their last-updated time), and slots without a row
    pub deleted: RowBits,
    /// per column the rows in which it was updated since their insertion
    pub updated: BTreeMap<ColumnId, RowSet>,
}

impl RowMeta {
    /// Metadata of `rows` rows that all start at `start`.
    pub fn uniform(rows: usize, start: u64) -> Self {
        Self {
            starts: RowTimes::uniform(rows, start),
            last_updated: RowTimes::uniform(rows, 0),
            deleted: RowBits::new(rows),
            updated: BTreeMap::new(),
        }
    }
    /// Raises the row's last-updated time.
    pub fn touch(&mut self, row: usize, ts: u64) {
        let before = self.last_updated[row];
        if ts > before {
            self.last_updated.set(row, ts);
        }
    }
    /// The same in the least memory, after changes.
    pub fn compacted(self) -> Self {
        Self {
            starts: self.starts.compacted(),
            last_updated: self.last_updated.compacted(),
            ..self
        }
    }
    /// Whether a deleted row may still be asked for.
    pub fn is_seen(&self, row: usize, horizon: &Horizon) -> bool {
        let (start, end) = (self.starts[row], self.last_updated[row]);
        start != NEVER && horizon.sees(CommitTs(start), CommitTs(end))
    }
    /// Whether `column` of `row` was updated since the row's insertion.
    pub fn was_updated(&self, row: usize, column: ColumnId) -> bool {
        self.updated
            .get(&column)
            .is_some_and(|rows| rows.contains(row))
    }
    /// Notes that `column` of `row` was updated.
    pub fn set_updated(&mut self, row: usize, column: ColumnId) {
        self.updated.entry(column).or_default().insert(row);
    }
    /// The newest start time of any row.
    pub fn start_max(&self) -> u64 {
        let starts = self.starts.runs().map(|(_, start)| start);
        starts.filter(|&start| start != NEVER).max().unwrap_or(0)
    }
    /// The newest last-updated time of any row.
    pub fn last_updated_max(&self) -> u64 {
        let times = self.last_updated.runs().map(|(_, time)| time);
        times.max().unwrap_or(0)
    }
    /// The start word common to all rows, if the metadata says nothing else.
    pub fn uniform_start(&self) -> Option<u64> {
        let first = self.starts.get(0)?;
        let plain = self.last_updated_max() == 0
            && self.deleted.count() == 0
            && self.updated.is_empty()
            && self.starts.runs().all(|(_, start)| start == first);
        plain.then_some(first)
    }
    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let updated = self.updated.values().map(RowSet::memory_bytes);
        let times = self.starts.memory_bytes() + self.last_updated.memory_bytes();
        times + self.deleted.memory_bytes() + updated.sum::<usize>()
    }

    /// The encoded form, its checksum over `identity` included.
    pub fn encode(&self, identity: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let rows = self.starts.len();
        let runs = self.starts.run_count();
        if runs.is_some() {
            out.put_varint(RUNS);
        }
        out.put_varint(rows as u64);
        if let Some(runs) = runs {
            out.put_varint(runs as u64);
        }
        let (mut first_before, mut before) = (0, 0u64);
        for (run, start) in self.starts.runs() {
            if runs.is_some() {
                out.put_varint((run.start - first_before) as u64);
            }
            // NEVER wraps to a short delta on either side
            out.put_varint(zigzag(start.wrapping_sub(before) as i64));
            (first_before, before) = (run.start, start);
        }
        let touched = || self.last_updated.runs().filter(|(_, time)| *time != 0);
        let count = touched().map(|(rows, _)| rows.len()).sum::<usize>();
        out.put_varint(count as u64);
        let (mut row_before, mut ts_before) = (0, 0u64);
        for (row, ts) in touched().flat_map(|(rows, ts)| rows.map(move |row| (row, ts))) {
            out.put_varint((row - row_before) as u64);
            out.put_varint(zigzag(ts.wrapping_sub(ts_before) as i64));
            (row_before, ts_before) = (row, ts);
        }
        put_rows(&mut out, rows, self.deleted.count(), self.deleted.iter());
        out.put_varint(self.updated.len() as u64);
        for (column, updated) in &self.updated {
            out.put_varint(u64::from(column.0));
            put_rows(&mut out, rows, updated.count(), updated.iter());
        }
        let sum = checksum(&[identity], &out);
        out.put_u32(sum);
        out
    }

    /// Decodes and checks; `place` names file and offset for errors.
    pub fn decode(bytes: &[u8], identity: u64, place: &str) -> Result<Self> {
        let damaged = || Error::corrupt(place, "row metadata is malformed");
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        let (expected, got) = (u32::from_le_bytes(*sum), checksum(&[identity], body));
        if expected != got {
            return Err(Error::checksum_mismatch(place, expected, got));
        }
        Self::decode_body(&mut ByteReader::new(body)).ok_or_else(damaged)
    }

    fn decode_body(r: &mut ByteReader<'_>) -> Option<Self> {
        let first = r.varint()?;
        let rows = if first == RUNS { r.varint()? } else { first };
        let rows = usize::try_from(rows).ok().filter(|n| *n <= RANGE_ROWS)?;
        let starts = match first == RUNS {
            true => take_runs(r, rows)?,
            false => take_each(r, rows)?,
        };
        let last_updated = take_touched(r, rows)?;
        let mut deleted = RowBits::new(rows);
        take_rows(r, rows, |row| {
            deleted.set(row);
        })?;
        let mut updated = BTreeMap::new();
        for _ in 0..r.varint()? {
            let column = ColumnId(u32::try_from(r.varint()?).ok()?);
            let mut set = RowSet::new();
            take_rows(r, rows, |row| set.insert(row))?;
            updated.insert(column, set);
        }
        (r.remaining() == 0).then_some(Self {
            starts,
            last_updated,
            deleted,
            updated,
        })
    }
}

/// The start time of each row.
fn take_each(r: &mut ByteReader<'_>, rows: usize) -> Option<RowTimes> {
    let mut starts = Vec::with_capacity(rows);
    let mut before = 0u64;
    for _ in 0..rows {
        before = before.wrapping_add(unzigzag(r.varint()?) as u64);
        starts.push(before);
    }
    Some(RowTimes::of_rows(starts))
}

/// The runs of start times.
fn take_runs(r: &mut ByteReader<'_>, rows: usize) -> Option<RowTimes> {
    let runs = usize::try_from(r.varint()?).ok();
    let runs = runs.filter(|n| *n <= rows && (*n > 0) == (rows > 0))?;
    let mut starts = Runs::with_capacity(runs);
    let (mut first, mut start) = (0usize, 0u64);
    for at in 0..runs {
        let step = usize::try_from(r.varint()?).ok()?;
        first = first.checked_add(step).filter(|first| *first < rows)?;
        if (step == 0) != (at == 0) {
            return None;
        }
        start = start.wrapping_add(unzigzag(r.varint()?) as u64);
        starts.push(first as u16, start);
    }
    Some(starts.of_rows(rows).compacted())
}

/// The last-updated times of the rows that have one, which ascend.
fn take_touched(r: &mut ByteReader<'_>, rows: usize) -> Option<RowTimes> {
    let touched = usize::try_from(r.varint()?).ok().filter(|n| *n <= rows)?;
    let mut times = Runs::with_capacity((2 * touched + 1).min(rows));
    let (mut row, mut ts, mut end) = (0usize, 0u64, 0usize);
    for at in 0..touched {
        let step = usize::try_from(r.varint()?).ok()?;
        row = row.checked_add(step).filter(|row| *row < rows)?;
        if step == 0 && at > 0 {
            return None;
        }
        ts = ts.wrapping_add(unzigzag(r.varint()?) as u64);
        if row > end {
            times.push(end as u16, 0);
        }
        times.push(row as u16, ts);
        end = row + 1;
    }
    if end < rows {
        times.push(end as u16, 0);
    }
    Some(times.of_rows(rows).compacted())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    /// About one row in `one_in` differs.
    fn random(rng: &mut Rng, rows: usize, one_in: u64) -> RowMeta {
        let mut meta = RowMeta::uniform(rows, 1_700_000_000_000_000);
        for row in 0..rows {
            if rng.one_in(one_in) {
                meta.starts.set(row, rng.below(1 << 50));
            }
            if rng.one_in(one_in + 4) {
                meta.starts.set(row, NEVER);
                meta.deleted.set(row);
            } else if rng.one_in(one_in.div_ceil(2)) {
                meta.touch(row, 1_700_000_000_000_000 + rng.below(1 << 30));
                meta.set_updated(row, ColumnId(rng.below(70) as u32));
            }
        }
        meta
    }

    /// Few rows that differ make runs, many do not.
    fn has_runs(meta: &RowMeta) -> bool {
        meta.starts.run_count().is_some()
    }

    #[test]
    fn round_trips_and_refuses_damage() {
        let mut rng = Rng::new(3);
        let cases = [0, 1, 63, 64, 65, 5000].map(|rows| [(rows, 1), (rows, 400)]);
        for (rows, one_in) in cases.concat() {
            let meta = random(&mut rng, rows, one_in).compacted();
            assert!(rows < 100 || has_runs(&meta) == (one_in == 400), "{rows}");
            let bytes = meta.encode(9);
            assert_eq!(RowMeta::decode(&bytes, 9, "x").expect("decodes"), meta);
            assert!(RowMeta::decode(&bytes, 8, "x").is_err(), "wrong identity");
            // One by one, as version 1 of chunk files has all start times.
            let mut one_by_one = meta.clone();
            if let Some(start) = meta.starts.get(0) {
                one_by_one.starts.set(0, start);
                assert!(!has_runs(&one_by_one));
            }
            let read = RowMeta::decode(&one_by_one.encode(9), 9, "x").expect("decodes");
            assert_eq!((&read, has_runs(&read)), (&meta, has_runs(&meta)));
            for _ in 0..200 {
                let mut bad = bytes.clone();
                let at = rng.below(bad.len() as u64) as usize;
                bad[at] ^= 1 << rng.below(8);
                assert!(RowMeta::decode(&bad, 9, "x").is_err());
                // Even with a matching checksum nothing panics.
                let n = bad.len() - 4;
                let sum = checksum(&[9], &bad[..n]);
                bad[n..].copy_from_slice(&sum.to_le_bytes());
                let _ = RowMeta::decode(&bad, 9, "x");
            }
        }
    }
}
