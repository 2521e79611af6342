//! Rows of the point table: 10 bigints, of which the first is the key. Stores of keys and values
//! have 8 bytes of key, big-endian where bytes are compared, and all columns in 80 bytes of value.

use strandline_base::rng::Rng;

pub const COLUMNS: usize = 10;
/// Columns that a read takes and an update sets, from the second on.
pub const TOUCHED: usize = 4;
pub const VALUE_BYTES: usize = 8 * COLUMNS;

/// A row as a value.
pub type Bytes = [u8; VALUE_BYTES];

/// The rows to begin with, by key.
pub struct Rows {
    rng: Rng,
    next: u64,
    rows: u64,
}

impl Rows {
    /// `rows` rows, all determined by `seed`; our table has the same.
    pub fn new(rows: u64, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            next: 0,
            rows,
        }
    }
}

impl Iterator for Rows {
    type Item = (u64, [i64; COLUMNS]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = (self.next < self.rows).then_some(self.next)?;
        self.next += 1;
        let mut row = [key as i64; COLUMNS];
        row[1..].fill_with(|| self.rng.below(1 << 30) as i64);
        Some((key, row))
    }
}

/// All columns as a value.
pub fn encode(row: &[i64; COLUMNS]) -> Bytes {
    let mut bytes = [0; VALUE_BYTES];
    for (place, value) in bytes.chunks_exact_mut(8).zip(row) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// What a read takes of a value.
pub fn touched(bytes: &[u8]) -> [i64; TOUCHED] {
    let mut columns = bytes[8..].chunks_exact(8);
    std::array::from_fn(|_| {
        let bytes = columns.next().and_then(|bytes| bytes.try_into().ok());
        i64::from_le_bytes(bytes.expect("a value has all columns"))
    })
}

/// A value with its touched columns changed.
pub fn updated(bytes: &[u8], values: &[i64; TOUCHED]) -> Bytes {
    let mut new: Bytes = bytes.try_into().expect("a value has all columns");
    for (place, value) in new[8..].chunks_exact_mut(8).zip(values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_changes_the_touched_columns_only() {
        let (_, row) = Rows::new(3, 1).last().unwrap();
        assert_eq!(row[0], 2);
        let old = encode(&row);
        assert_eq!(touched(&old), row[1..5]);
        let new = updated(&old, &[1, 2, 3, 4]);
        assert_eq!(touched(&new), [1, 2, 3, 4]);
        assert_eq!((&new[..8], &new[40..]), (&old[..8], &old[40..]));
    }
}
