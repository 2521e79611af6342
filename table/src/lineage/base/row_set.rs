//! Sets of rows of a range: a bit for each row, or the numbers of few rows.

use strandline_base::RANGE_ROWS;
use strandline_base::bytes::{ByteReader, PutBytes};

/// Rows of a range from which on a bit for each row of the range takes less memory than numbers.
const MANY: usize = RANGE_ROWS / 16;

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
    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.words())
    }
    /// The words, 64 rows each, lowest row in the lowest bit.
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

/// A set of rows of a range, which grows.
#[derive(Clone, Debug)]
pub enum RowSet {
    /// fewer than a 16th of [`RANGE_ROWS`], in order
    Few(Vec<u16>),
    /// a bit for each row of a range
    Many(RowBits),
}

impl RowSet {
    /// No row.
    pub fn new() -> Self {
        Self::Few(Vec::new())
    }

    /// Whether the row is there.
    pub fn contains(&self, row: usize) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&(row as u16)).is_ok(),
            Self::Many(many) => many.get(row),
        }
    }

    /// Adds a row.
    pub fn insert(&mut self, row: usize) {
        match self {
            Self::Many(many) => {
                many.set(row);
            }
            Self::Few(few) => {
                let Err(at) = few.binary_search(&(row as u16)) else {
                    return;
                };
                few.insert(at, row as u16);
                if few.len() >= MANY {
                    let mut many = RowBits::new(RANGE_ROWS);
                    for row in few {
                        many.set(usize::from(*row));
                    }
                    *self = Self::Many(many);
                }
            }
        }
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.count(),
        }
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (few, many) = match self {
            Self::Few(few) => (few.as_slice(), None),
            Self::Many(many) => ([].as_slice(), Some(many)),
        };
        let few = few.iter().map(|row| usize::from(*row));
        few.chain(many.into_iter().flat_map(RowBits::iter))
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Few(few) => few.capacity() * size_of::<u16>(),
            Self::Many(many) => many.memory_bytes(),
        }
    }
}

impl Default for RowSet {
    fn default() -> Self {
        Self::new()
    }
}

/// The same rows, in either form.
impl PartialEq for RowSet {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count() && self.iter().eq(other.iter())
    }
}

impl Eq for RowSet {}

/// Writes a set of rows of a range of `rows`: sparse (count, differences) below one row in 16, else
/// a bit for each.
pub(super) fn put_rows(
    out: &mut Vec<u8>,
    rows: usize,
    count: usize,
    set: impl Iterator<Item = usize>,
) {
    let words = rows.div_ceil(64);
    let is_dense = count * 16 >= words * 64;
    out.put_u8(u8::from(is_dense));
    if is_dense {
        let mut bits = RowBits::new(rows);
        set.for_each(|row| {
            bits.set(row);
        });
        bits.0.iter().for_each(|&word| out.put_u64(word));
        return;
    }
    out.put_varint(count as u64);
    let mut before = 0;
    for row in set {
        out.put_varint((row - before) as u64);
        before = row;
    }
}

/// Reads what [`put_rows`] has written, and gives each row, in order. None: the bytes are
/// malformed.
pub(super) fn take_rows(
    reader: &mut ByteReader<'_>,
    rows: usize,
    mut give: impl FnMut(usize),
) -> Option<()> {
    match reader.u8()? {
        0 => {
            let mut row = 0usize;
            for _ in 0..reader.varint()? {
                row = row.checked_add(usize::try_from(reader.varint()?).ok()?)?;
                if row >= rows {
                    return None;
                }
                give(row);
            }
        }
        1 => {
            let mut bits = RowBits::new(rows);
            for word in &mut bits.0 {
                *word = reader.u64()?;
            }
            bits.iter().take_while(|row| *row < rows).for_each(give);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strandline_base::rng::Rng;

    #[test]
    fn a_set_has_what_was_inserted_in_either_form() {
        let rng = &mut Rng::new(3);
        let (mut set, mut model) = (RowSet::new(), BTreeSet::new());
        for count in [0, 1, MANY - 1, MANY, 3 * MANY] {
            while model.len() < count {
                let row = rng.below(RANGE_ROWS as u64) as usize;
                set.insert(row);
                set.insert(row);
                model.insert(row);
            }
            assert_eq!(matches!(set, RowSet::Few(_)), count < MANY);
            assert_eq!(set.count(), count);
            assert!(set.iter().eq(model.iter().copied()));
            assert!((0..RANGE_ROWS).all(|row| set.contains(row) == model.contains(&row)));
            assert!(set.memory_bytes() <= RANGE_ROWS / 8);
            let mut bytes = Vec::new();
            put_rows(&mut bytes, RANGE_ROWS, set.count(), set.iter());
            let mut read = RowSet::new();
            let reader = &mut ByteReader::new(&bytes);
            take_rows(reader, RANGE_ROWS, |row| read.insert(row)).expect("rows");
            assert_eq!((read, reader.remaining()), (set.clone(), 0));
        }
    }
}
