//! Values from the bytes of a key: the inverse of [`OrderedKeys::encode`].
//!
//! Values come back only from types whose bytes are exact. The bytes of an interval keep its length
//! only, those of a floating-point number one form of zero and NaN, so these types are skipped. All
//! others are exact: `char(n)` arrives with its blanks, and a numeric's
//! scale is its column's.
//!
//! A cut key has no values.

use super::{KeyBytes, NULL_FIRST, NULL_LAST, OrderedKeys, PartOrder, VALUE};
use strandline_base::{SqlType, Value};

impl OrderedKeys {
    /// Whether keys give values of this type back exactly as they were.
    pub fn keeps(sql_type: SqlType) -> bool {
        !matches!(
            sql_type,
            SqlType::Real | SqlType::Double | SqlType::Interval | SqlType::Point | SqlType::Box
        )
    }

    /// Puts values of a key's parts into `out`, each at its part's place; None: the part is not
    /// wanted. `types` are the parts' types; the types of wanted parts are kept. Returns false, and
    /// leaves anything in `out`, if the key is cut or no key of these types.
    pub fn decode(
        &self,
        key: &KeyBytes,
        types: &[SqlType],
        places: &[Option<usize>],
        out: &mut [Value],
    ) -> bool {
        if key.is_cut() {
            return false;
        }
        let mut bytes = key.as_slice();
        let Some(last) = places.iter().rposition(Option::is_some) else {
            return true;
        };
        let parts = self.parts.iter().zip(types).zip(places).take(last + 1);
        let mut found = 0;
        for ((order, sql_type), place) in parts {
            let mut part = Part {
                bytes,
                mask: if order.descending { u8::MAX } else { 0 },
            };
            let Some(value) = part.value(*sql_type, place.is_some()) else {
                return false;
            };
            bytes = part.bytes;
            found += 1;
            if let Some(place) = place {
                match out.get_mut(*place) {
                    Some(out) => *out = value,
                    None => return false,
                }
            }
        }
        found == last + 1
    }
}

impl OrderedKeys {
    /// The integer of a key of one ascending integer part. Of a part of another type it gives None
    /// or a number that means nothing.
    pub(crate) fn integer(&self, key: &KeyBytes) -> Option<i64> {
        let [
            PartOrder {
                descending: false, ..
            },
        ] = &*self.parts
        else {
            return None;
        };
        let (VALUE, rest) = key
            .as_slice()
            .split_first()
            .map(|(marker, rest)| (*marker, rest))?
        else {
            return None;
        };
        let word: [u8; 8] = rest.try_into().ok()?;
        Some(i64::from_be_bytes(word) ^ i64::MIN)
    }
}

/// The bytes of a key from one part on.
struct Part<'a> {
    bytes: &'a [u8],
    /// what the bytes behind the marker were inverted by
    mask: u8,
}

impl Part<'_> {
    /// The part's value, perhaps NULL for one that is not wanted; None: the bytes are none of this
    /// type.
    fn value(&mut self, sql_type: SqlType, is_wanted: bool) -> Option<Value> {
        let (marker, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        match *marker {
            NULL_FIRST | NULL_LAST => return Some(Value::Null),
            VALUE => {}
            _ => return None,
        }
        let word = |part: &mut Self| Some(i64::from_be_bytes(part.take()?) ^ i64::MIN);
        Some(match sql_type {
            SqlType::Boolean => Value::Boolean(self.take::<1>()? == [1]),
            SqlType::SmallInt => Value::SmallInt(word(self)?.try_into().ok()?),
            SqlType::Integer => Value::Integer(word(self)?.try_into().ok()?),
            SqlType::BigInt => Value::BigInt(word(self)?),
            SqlType::Time => Value::Time(word(self)?),
            SqlType::Timestamp => Value::Timestamp(word(self)?),
            SqlType::TimestampTz => Value::TimestampTz(word(self)?),
            SqlType::Date => Value::Date(i32::from_be_bytes(self.take()?) ^ i32::MIN),
            SqlType::Numeric { .. } => {
                Value::Numeric(i128::from_be_bytes(self.take()?) ^ i128::MIN)
            }
            SqlType::Uuid => Value::Uuid(self.take()?),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
                let bytes = self.take_escaped(is_wanted)?;
                Value::Text(String::from_utf8(bytes).ok()?.into())
            }
            SqlType::Bytea => Value::Bytea(self.take_escaped(is_wanted)?.into()),
            SqlType::Real | SqlType::Double if !is_wanted => self.skip::<8>()?,
            SqlType::Interval | SqlType::Point if !is_wanted => self.skip::<16>()?,
            SqlType::Box if !is_wanted => self.skip::<32>()?,
            SqlType::Real | SqlType::Double | SqlType::Interval | SqlType::Point | SqlType::Box => {
                return None;
            }
        })
    }

    fn skip<const N: usize>(&mut self) -> Option<Value> {
        self.take::<N>().map(|_| Value::Null)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(taken.map(|byte| byte ^ self.mask))
    }

    /// The bytes up to the 0 that ends them; nothing if they are not wanted.
    fn take_escaped(&mut self, is_wanted: bool) -> Option<Vec<u8>> {
        let mask = self.mask;
        let mut value = Vec::new();
        loop {
            let at = self.bytes.iter().position(|byte| byte ^ mask < 2)?;
            let (plain, rest) = self.bytes.split_at_checked(at)?;
            if is_wanted {
                value.extend(plain.iter().map(|byte| byte ^ mask));
            }
            let (special, rest) = rest.split_first()?;
            self.bytes = rest;
            if special ^ mask == 0 {
                return Some(value);
            }
            let (escaped, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            if is_wanted {
                value.push((escaped ^ mask).checked_sub(1)?);
            }
        }
    }
}
