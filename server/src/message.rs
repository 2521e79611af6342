//! The bodies of the client's messages. Every field is checked: a body that is too short or too
//! long, or text that is not UTF-8, is a protocol violation, never a panic.

use crate::report::protocol_violation;
use strandline::{Error, Result, SqlState};

/// Reads the fields of a body one after the other.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(too_short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(too_short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A 16-bit number.
    pub fn int16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// A count of fields that follow.
    pub fn count(&mut self) -> Result<usize> {
        Ok(usize::from(u16::from_be_bytes(self.array()?)))
    }

    /// A 32-bit number.
    pub fn int32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// A text ended by NUL.
    pub fn text(&mut self) -> Result<&'a str> {
        let end = self.0.iter().position(|b| *b == 0);
        let end = end.ok_or_else(|| protocol_violation("invalid string in message"))?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| not_utf8())
    }

    /// A length and that many bytes; -1 is NULL.
    pub fn value(&mut self) -> Result<Option<&'a [u8]>> {
        match self.int32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| too_short())?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Checks that no bytes are left.
    pub fn end(&self) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(protocol_violation("invalid message format")),
        }
    }
}

fn too_short() -> Error {
    protocol_violation("insufficient data left in message")
}

fn not_utf8() -> Error {
    Error::invalid(
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        "invalid byte sequence for encoding \"UTF8\"",
    )
}

/// A statement to prepare.
pub(crate) struct Parse<'a> {
    pub name: &'a str,
    pub sql: &'a str,
    /// the parameters' types by number; 0: not declared
    pub types: Vec<u32>,
}

impl<'a> Parse<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let mut fields = Fields::new(body);
        let (name, sql) = (fields.text()?, fields.text()?);
        let count = fields.count()?;
        let types = (0..count).map(|_| Ok(fields.int32()? as u32));
        let types = types.collect::<Result<_>>()?;
        fields.end()?;
        Ok(Self { name, sql, types })
    }
}

/// Values for a statement's parameters.
pub(crate) struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    /// the format codes of the values: one each, one for all, or none for text
    pub formats: Vec<i16>,
    pub values: Vec<Option<&'a [u8]>>,
    /// the format codes of the result's columns
    pub result_formats: Vec<i16>,
}

impl<'a> Bind<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let mut fields = Fields::new(body);
        let (portal, statement) = (fields.text()?, fields.text()?);
        let formats = codes(&mut fields)?;
        let count = fields.count()?;
        let values = (0..count).map(|_| fields.value());
        let values = values.collect::<Result<_>>()?;
        let result_formats = codes(&mut fields)?;
        fields.end()?;
        Ok(Self {
            portal,
            statement,
            formats,
            values,
            result_formats,
        })
    }
}

fn codes(fields: &mut Fields<'_>) -> Result<Vec<i16>> {
    let count = fields.count()?;
    (0..count).map(|_| fields.int16()).collect()
}

/// The object of Describe and Close.
pub(crate) enum Target<'a> {
    Statement(&'a str),
    Portal(&'a str),
}

impl<'a> Target<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let mut fields = Fields::new(body);
        let kind = fields.byte()?;
        let name = fields.text()?;
        fields.end()?;
        match kind {
            b'S' => Ok(Self::Statement(name)),
            b'P' => Ok(Self::Portal(name)),
            other => Err(protocol_violation(format!(
                "invalid message subtype {other}"
            ))),
        }
    }
}
