//! CONTRACT (helper `chunk` replaces the bodies). SQL types ↔ Arrow arrays ↔ `Value`s ↔ words.
use arrow_array::ArrayRef;
use arrow_schema::DataType;
use strandline_base::{Result, SqlType, Value};

/// How tail pages hold a value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    /// one 64-bit word (bool, integers, floats by bits, dates, times, numeric(p ≤ 18))
    Word,
    /// two words (numeric(p > 18), interval, uuid)
    Wide,
    /// bytes (text, varchar, char, bytea, json)
    Bytes,
}

pub fn physical(_t: SqlType) -> Physical {
    todo!()
}
/// Boolean→Boolean, SmallInt→Int16, Integer→Int32, BigInt→Int64, Real→Float32, Double→Float64,
/// Numeric p≤18→Decimal64, else Decimal128, Text/Varchar/Char/Json→Utf8View, Bytea→BinaryView,
/// Date→Date32, Time→Time64(µs), Timestamp→Timestamp(µs,None),
/// TimestampTz→Timestamp(µs,"+00:00"), Interval→IntervalMonthDayNano, Uuid→FixedSizeBinary(16).
pub fn arrow_type(_t: SqlType) -> DataType {
    todo!()
}
/// The value at `row` of an array of `arrow_type(t)`.
pub fn value_at(_t: SqlType, _array: &ArrayRef, _row: usize) -> Value {
    todo!()
}
/// An array of `arrow_type(t)`; a value of another type is an internal error.
pub fn array_of(_t: SqlType, _values: &[Value]) -> Result<ArrayRef> {
    todo!()
}
/// Word of a `Physical::Word` value (i64 sign-extended, floats by bits); None for NULL.
pub fn word_of(_v: &Value) -> Option<u64> {
    todo!()
}
pub fn value_of_word(_t: SqlType, _word: u64) -> Value {
    todo!()
}
/// Little-endian halves (low, high) of a `Physical::Wide` value.
pub fn wide_of(_v: &Value) -> Option<[u64; 2]> {
    todo!()
}
pub fn value_of_wide(_t: SqlType, _words: [u64; 2]) -> Value {
    todo!()
}
pub fn value_of_bytes(_t: SqlType, _bytes: &[u8]) -> Result<Value> {
    todo!()
}
