//! Per-row start times, last-updated times, updated-column bits and deletions of a based range:
//! the metadata columns that a merge fills in \[L-Store §2.2, §4.1.1\].
//!
//! A bulk-loaded range that was never changed has no row metadata (see `base`). Row metadata is one
//! blob per range, decoded into a frame of the pool and byte-exact in `docs/format.md`.

use crate::lineage::horizon::Horizon;
use std::collections::BTreeMap;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{ColumnId, CommitTs, Error, Result, checksum};

/// The start time of a slot that never held a committed row.
pub const NEVER: u64 = u64::MAX;

/// A bitmap over the rows of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBits(Vec<u64>);

impl RowBits {
    /// `rows` zero bits.
    pub fn new(rows: usize) -> Self {
        Self(vec![0; rows.div_ceil(64)])
    }
    /// `rows` one bits.
    pub fn all(rows: usize) -> Self {
        let mut bits = Self(vec![u64::MAX; rows.div_ceil(64)]);
        if let (Some(last), used @ 1..) = (bits.0.last_mut(), rows % 64) {
            *last = (1 << used) - 1;
        }
        bits
    }
    /// The first `rows` bits, each the opposite of here.
    pub fn inverted(&self, rows: usize) -> Self {
        let mut bits = Self::all(rows);
        for (word, here) in bits.0.iter_mut().zip(&self.0) {
            *word &= !here;
        }
        bits
    }
    /// The bits of `rows`, which begin at a multiple of 64.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        debug_assert!(rows.start.is_multiple_of(64));
        let mut bits = Self(self.0[rows.start / 64..rows.end.div_ceil(64)].to_vec());
        if let (Some(last), used @ 1..) = (bits.0.last_mut(), rows.end % 64) {
            *last &= (1 << used) - 1;
        }
        bits
    }
    /// Clears bit `row`.
    pub fn clear(&mut self, row: usize) {
        self.0[row / 64] &= !(1 << (row % 64));
    }
    /// Whether bit `row` is set.
    pub fn get(&self, row: usize) -> bool {
        self.0
            .get(row / 64)
            .is_some_and(|w| w >> (row % 64) & 1 == 1)
    }
    /// Sets bit `row`; returns whether it was set before.
    pub fn set(&mut self, row: usize) -> bool {
        let word = &mut self.0[row / 64];
        let before = *word >> (row % 64) & 1 == 1;
        *word |= 1 << (row % 64);
        before
    }
    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// The set bits in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &w)| {
            let mut w = w;
            std::iter::from_fn(move || {
                let bit = w.trailing_zeros() as usize;
                w &= w.wrapping_sub(1);
                (bit < 64).then_some(i * 64 + bit)
            })
        })
    }
    /// The words, 64 rows each, lowest row in the lowest bit.
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

/// The row metadata of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMeta {
    /// commit timestamp of each row's insertion; [`NEVER`] for slots without a row
    pub starts: Vec<u64>,
    /// commit timestamp of each row's newest merged update or deletion; 0 = none; empty = all none
    pub last_updated: Vec<u64>,
    /// rows deleted (at their last-updated time), and slots without a row
    pub deleted: RowBits,
    /// per column the rows in which it was updated since their insertion
    pub updated: BTreeMap<ColumnId, RowBits>,
}

impl RowMeta {
    /// Metadata of `rows` rows that all start at `start`.
    pub fn uniform(rows: usize, start: u64) -> Self {
        Self {
            starts: vec![start; rows],
            last_updated: Vec::new(),
            deleted: RowBits::new(rows),
            updated: BTreeMap::new(),
        }
    }
    /// The row's last-updated time, 0 if it was never updated.
    pub fn last_updated(&self, row: usize) -> u64 {
        self.last_updated.get(row).copied().unwrap_or(0)
    }
    /// Raises the row's last-updated time.
    pub fn touch(&mut self, row: usize, ts: u64) {
        if self.last_updated.is_empty() {
            self.last_updated = vec![0; self.starts.len()];
        }
        let at = &mut self.last_updated[row];
        *at = (*at).max(ts);
    }
    /// Whether a deleted row may still be asked for.
    pub fn is_seen(&self, row: usize, horizon: &Horizon) -> bool {
        let (start, end) = (self.starts[row], self.last_updated(row));
        start != NEVER && horizon.sees(CommitTs(start), CommitTs(end))
    }
    /// Whether `column` of `row` was updated since the row's insertion.
    pub fn was_updated(&self, row: usize, column: ColumnId) -> bool {
        self.updated.get(&column).is_some_and(|bits| bits.get(row))
    }
    /// Notes that `column` of `row` was updated.
    pub fn set_updated(&mut self, row: usize, column: ColumnId) {
        let rows = self.starts.len();
        self.updated
            .entry(column)
            .or_insert_with(|| RowBits::new(rows))
            .set(row);
    }
    /// The newest start time of any row.
    pub fn start_max(&self) -> u64 {
        self.starts
            .iter()
            .copied()
            .filter(|&s| s != NEVER)
            .max()
            .unwrap_or(0)
    }
    /// The newest last-updated time of any row.
    pub fn last_updated_max(&self) -> u64 {
        self.last_updated.iter().copied().max().unwrap_or(0)
    }
    /// The start word common to all rows, if the metadata says nothing else.
    pub fn uniform_start(&self) -> Option<u64> {
        let first = *self.starts.first()?;
        let plain = self.last_updated_max() == 0
            && self.deleted.count() == 0
            && self.updated.is_empty()
            && self.starts.iter().all(|&s| s == first);
        plain.then_some(first)
    }
    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        (self.starts.len() + self.last_updated.len()) * 8
            + (self.updated.len() + 1) * self.starts.len() / 8
    }

    /// The encoded form, its checksum over `identity` included.
    pub fn encode(&self, identity: u64) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(self.starts.len() as u64);
        let mut previous = 0u64;
        for &start in &self.starts {
            // NEVER wraps to a short delta on either side
            out.put_varint(strandline_base::bytes::zigzag(
                start.wrapping_sub(previous) as i64
            ));
            previous = start;
        }
        let touched: Vec<usize> = (0..self.last_updated.len())
            .filter(|&r| self.last_updated[r] != 0)
            .collect();
        out.put_varint(touched.len() as u64);
        let (mut row_before, mut ts_before) = (0, 0u64);
        for row in touched {
            let ts = self.last_updated[row];
            out.put_varint((row - row_before) as u64);
            out.put_varint(strandline_base::bytes::zigzag(
                ts.wrapping_sub(ts_before) as i64
            ));
            (row_before, ts_before) = (row, ts);
        }
        put_bits(&mut out, &self.deleted);
        out.put_varint(self.updated.len() as u64);
        for (column, bits) in &self.updated {
            out.put_varint(u64::from(column.0));
            put_bits(&mut out, bits);
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
        let rows = usize::try_from(r.varint()?).ok()?;
        if rows > strandline_base::RANGE_ROWS {
            return None;
        }
        let mut starts = Vec::with_capacity(rows);
        let mut previous = 0u64;
        for _ in 0..rows {
            let delta = strandline_base::bytes::unzigzag(r.varint()?) as u64;
            previous = previous.wrapping_add(delta);
            starts.push(previous);
        }
        let touched = r.varint()?;
        let mut last_updated = if touched > 0 {
            vec![0; rows]
        } else {
            Vec::new()
        };
        let (mut row, mut ts) = (0usize, 0u64);
        for _ in 0..touched {
            row = row.checked_add(usize::try_from(r.varint()?).ok()?)?;
            ts = ts.wrapping_add(strandline_base::bytes::unzigzag(r.varint()?) as u64);
            *last_updated.get_mut(row)? = ts;
        }
        let deleted = take_bits(r, rows)?;
        let mut updated = BTreeMap::new();
        for _ in 0..r.varint()? {
            let column = ColumnId(u32::try_from(r.varint()?).ok()?);
            updated.insert(column, take_bits(r, rows)?);
        }
        (r.remaining() == 0).then_some(Self {
            starts,
            last_updated,
            deleted,
            updated,
        })
    }
}

/// Sparse (count, deltas) below one row in 16, else the raw words.
fn put_bits(out: &mut Vec<u8>, bits: &RowBits) {
    let count = bits.count();
    let sparse = count * 16 < bits.0.len() * 64;
    out.put_u8(u8::from(!sparse));
    if sparse {
        out.put_varint(count as u64);
        let mut before = 0;
        for row in bits.iter() {
            out.put_varint((row - before) as u64);
            before = row;
        }
    } else {
        bits.0.iter().for_each(|&w| out.put_u64(w));
    }
}

fn take_bits(r: &mut ByteReader<'_>, rows: usize) -> Option<RowBits> {
    let mut bits = RowBits::new(rows);
    match r.u8()? {
        0 => {
            let mut row = 0usize;
            for _ in 0..r.varint()? {
                row = row.checked_add(usize::try_from(r.varint()?).ok()?)?;
                if row >= rows {
                    return None;
                }
                bits.set(row);
            }
        }
        1 => {
            for word in &mut bits.0 {
                *word = r.u64()?;
            }
        }
        _ => return None,
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    fn random(rng: &mut Rng, rows: usize) -> RowMeta {
        let mut meta = RowMeta::uniform(rows, 1_700_000_000_000_000);
        for row in 0..rows {
            if rng.one_in(5) {
                meta.starts[row] = rng.below(1 << 50);
            }
            if rng.one_in(9) {
                meta.starts[row] = NEVER;
                meta.deleted.set(row);
            } else if rng.one_in(3) {
                meta.touch(row, 1_700_000_000_000_000 + rng.below(1 << 30));
                meta.set_updated(row, ColumnId(rng.below(70) as u32));
            }
        }
        meta
    }

    #[test]
    fn round_trips_and_refuses_damage() {
        let mut rng = Rng::new(3);
        for rows in [0, 1, 63, 64, 65, 5000] {
            let meta = random(&mut rng, rows);
            let bytes = meta.encode(9);
            assert_eq!(RowMeta::decode(&bytes, 9, "x").expect("decodes"), meta);
            assert!(RowMeta::decode(&bytes, 8, "x").is_err(), "wrong identity");
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
