//! Collects decoded text and bytea for one Arrow view array: all bytes in one buffer, and the end
//! of each row.

use super::undecodable;
use crate::types::arrow_type;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{ArrayRef, BinaryViewArray, GenericByteArray, StringViewArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use std::sync::Arc;
use strandline_base::value_words::bytes_of;
use strandline_base::{Result, SqlType, Value};

/// Room up to which the first rows alone decide, however long they are.
const EXPECTED_BYTES: usize = 8 << 20;

/// Decoded strings of consecutive blocks.
pub(super) struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u64>,
    /// how many there will be
    rows: usize,
}

impl Strings {
    /// Room for `rows` rows.
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(rows),
            rows,
        }
    }

    /// Makes room for `more` bytes, of the rows announced last. The rows to come are taken to be
    /// as long as those so far: the bytes of a column of even lengths are allocated once, and at
    /// most a 17th of the memory is unused. A growing vector would copy them and leave up to half
    /// unused.
    fn reserve(&mut self, more: usize) {
        let end = self.bytes.len() + more;
        if end <= self.bytes.capacity() {
            return;
        }
        let rows = self.ends.len().max(1);
        let to_come = end.saturating_mul(self.rows.saturating_sub(rows)) / rows;
        let wanted = end.saturating_add(to_come).saturating_add(to_come / 16);
        let wanted = wanted
            .min(EXPECTED_BYTES.max(end.saturating_mul(2)))
            .max(end);
        self.bytes.reserve_exact(wanted - self.bytes.len());
    }

    /// Appends rows of these lengths, whose bytes are appended next, and returns their sum.
    pub fn append_lengths(&mut self, lengths: impl Iterator<Item = u32>) -> usize {
        let start = self.ends.last().copied().unwrap_or(0);
        let mut end = start;
        self.ends.extend(lengths.map(|len| {
            end += u64::from(len);
            end
        }));
        (end - start) as usize
    }

    /// Appends bytes of the rows announced last.
    pub fn append_bytes(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Lets `write` fill in the `total` bytes of the rows announced last. The slice has `slack`
    /// more bytes, which may be overwritten.
    pub fn append_with<R>(
        &mut self,
        total: usize,
        slack: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let start = self.bytes.len();
        self.reserve(total + slack);
        self.bytes.resize(start + total + slack, 0);
        let result = write(&mut self.bytes[start..]);
        self.bytes.truncate(start + total);
        result
    }

    /// Appends `rows` times `value`.
    ///
    /// # Errors
    /// A value that is not text or bytea is a corruption error.
    pub fn append_constant(&mut self, rows: usize, value: &Value) -> Result<()> {
        let Some(bytes) = bytes_of(value) else {
            return Err(undecodable(format!(
                "constant {value:?} where text was expected"
            )));
        };
        self.append_lengths(std::iter::repeat_n(bytes.len() as u32, rows));
        self.reserve(rows * bytes.len());
        (0..rows).for_each(|_| self.bytes.extend_from_slice(bytes));
        Ok(())
    }

    /// Appends `rows` empty strings, for NULLs.
    pub fn append_empty(&mut self, rows: usize) {
        let end = self.ends.last().copied().unwrap_or(0);
        self.ends.extend(std::iter::repeat_n(end, rows));
    }

    /// The view array over all rows.
    ///
    /// # Errors
    /// Text that is not UTF-8 is a corruption error.
    pub fn finish(self, t: SqlType, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let small = i32::try_from(self.bytes.len()).is_ok();
        Ok(match (arrow_type(t), small) {
            (DataType::Utf8View, true) => {
                Arc::new(StringViewArray::from(&self.array::<Utf8Type>(nulls)?))
            }
            (DataType::Utf8View, false) => {
                Arc::new(StringViewArray::from(&self.array::<LargeUtf8Type>(nulls)?))
            }
            (_, true) => Arc::new(BinaryViewArray::from(&self.array::<BinaryType>(nulls)?)),
            (_, false) => Arc::new(BinaryViewArray::from(
                &self.array::<LargeBinaryType>(nulls)?,
            )),
        })
    }

    fn array<B: ByteArrayType>(self, nulls: Option<NullBuffer>) -> Result<GenericByteArray<B>> {
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(B::Offset::usize_as(0));
        offsets.extend(
            self.ends
                .iter()
                .map(|&end| B::Offset::usize_as(end as usize)),
        );
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        GenericByteArray::try_new(offsets, Buffer::from_vec(self.bytes), nulls)
            .map_err(|e| undecodable(e.to_string()))
    }
}
