//! Array parameters: their text, from text or binary form.

use super::read::read_parameter;
use super::{Format, Scalar};
use crate::error::convert;
use crate::text::{array, utf8, write_value};
use strandline_base::{Error, Result, SqlState, SqlType};

/// The most dimensions of an array.
const MAX_DIMENSIONS: usize = 6;

/// The text of an array of values of type `item`.
///
/// # Errors
/// 22P03 for bytes that are not an array, 42804 for items of another type, 0A000 for lower bounds
/// other than 1, and the errors of [`read_parameter`].
pub fn read_array_parameter(item: SqlType, format: Format, bytes: &[u8]) -> Result<Scalar> {
    let text = match format {
        Format::Text => utf8(bytes)?.to_string(),
        Format::Binary => from_binary(item, bytes)?,
    };
    Ok(Scalar::Utf8(Some(text)))
}

fn invalid() -> Error {
    Error::invalid(
        SqlState("22P03"),
        "incorrect binary data format of an array",
    )
}

/// The unread bytes of an array.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(invalid)?;
        self.0 = rest;
        Ok(taken)
    }
    fn int32(&mut self) -> Result<i32> {
        let bytes = self.take(4)?.try_into().map_err(|_| invalid())?;
        Ok(i32::from_be_bytes(bytes))
    }
}

fn from_binary(item: SqlType, bytes: &[u8]) -> Result<String> {
    let mut bytes = Bytes(bytes);
    let dimensions = usize::try_from(bytes.int32()?).map_err(|_| invalid())?;
    let _has_nulls = bytes.int32()?;
    let sent = bytes.int32()? as u32;
    let same = |t: SqlType| {
        let sent = super::sql_type_of_oid(sent);
        sent.is_none_or(|sent| std::mem::discriminant(&sent) == std::mem::discriminant(&t))
    };
    if !same(item) {
        return Err(Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            "wrong element type",
        ));
    }
    if dimensions > MAX_DIMENSIONS {
        return Err(invalid());
    }
    let mut lengths = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        lengths.push(usize::try_from(bytes.int32()?).map_err(|_| invalid())?);
        if bytes.int32()? != 1 {
            let message = "an array whose subscripts do not begin at 1 is not supported";
            return Err(Error::unsupported(message));
        }
    }
    let mut text = String::new();
    if lengths.is_empty() || lengths.contains(&0) {
        text.push_str("{}");
    } else {
        write(&mut bytes, item, &lengths, &mut text)?;
    }
    match bytes.0 {
        [] => Ok(text),
        _ => Err(invalid()),
    }
}

/// Writes one level of an array; `lengths` has the number of items per level.
fn write(bytes: &mut Bytes<'_>, item: SqlType, lengths: &[usize], text: &mut String) -> Result<()> {
    let Some((length, inner)) = lengths.split_first() else {
        return Err(invalid());
    };
    text.push('{');
    for place in 0..*length {
        if place > 0 {
            text.push(',');
        }
        if !inner.is_empty() {
            write(bytes, item, inner, text)?;
            continue;
        }
        match usize::try_from(bytes.int32()?) {
            Err(_) => text.push_str("NULL"),
            Ok(size) => {
                let value = read_parameter(Some(item), Format::Binary, bytes.take(size)?)?;
                let value = value.to_array().map_err(convert)?;
                let value = write_value(&value, 0).map_err(convert)?;
                array::write_item(text, &value.unwrap_or_default())
                    .map_err(|_| Error::internal("an array could not be written as text"))?;
            }
        }
    }
    text.push('}');
    Ok(())
}
