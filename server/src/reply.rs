//! The server's messages, appended to the output.

use strandline::wire_format::{ColumnType, Format};
use strandline::{Error, Result, SqlState, TransactionStatus};

/// Appends a message of type `kind` whose body `write` appends.
pub(crate) fn message(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    end_message(out, start);
}

/// Fills in the length of the message whose length field is at `start`.
pub(crate) fn end_message(out: &mut [u8], start: usize) {
    // [`require_length`] refuses longer rows; other messages are far shorter.
    let length = i32::try_from(out.len() - start).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// 54000 unless a message can have a body of `bytes`: a longer one would end the client's
/// understanding of all that follows.
pub(crate) fn require_length(bytes: usize) -> Result<()> {
    // The length counts its own four bytes.
    match i32::try_from(bytes.saturating_add(4)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("a row of {bytes} bytes is too long for a message"),
        )
        .with_hint("Rows are limited to 2 GiB; ask for fewer columns or parts of values.")),
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    // A NUL would end the field early; our texts have none.
    out.extend(text.bytes().filter(|b| *b != 0));
    out.push(0);
}

/// ParseComplete, BindComplete, …: messages without a body.
pub(crate) fn empty(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, 4]);
}

/// Authentication: a request code and its data.
pub(crate) fn authentication(out: &mut Vec<u8>, code: i32, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(data);
    });
}

/// ParameterStatus.
pub(crate) fn parameter(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        text(out, name);
        text(out, value);
    });
}

/// BackendKeyData: the numbers that a cancel request must present.
pub(crate) fn key_data(out: &mut Vec<u8>, pid: i32, secret: i32) {
    message(out, b'K', |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(&secret.to_be_bytes());
    });
}

/// NegotiateProtocolVersion: the newest supported minor version, and the unknown options.
pub(crate) fn negotiate_version(out: &mut Vec<u8>, minor: i32, unknown: &[&str]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&minor.to_be_bytes());
        out.extend_from_slice(&(unknown.len() as i32).to_be_bytes());
        for option in unknown {
            text(out, option);
        }
    });
}

/// ReadyForQuery.
pub(crate) fn ready(out: &mut Vec<u8>, status: TransactionStatus) {
    let status = match status {
        TransactionStatus::Idle => b'I',
        TransactionStatus::Open => b'T',
        TransactionStatus::Failed => b'E',
    };
    message(out, b'Z', |out| out.push(status));
}

/// CommandComplete.
pub(crate) fn complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| text(out, tag));
}

/// ParameterDescription.
pub(crate) fn parameters(out: &mut Vec<u8>, types: &[u32]) {
    message(out, b't', |out| {
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        for oid in types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// RowDescription.
pub(crate) fn columns<'a>(
    out: &mut Vec<u8>,
    columns: impl ExactSizeIterator<Item = (&'a str, ColumnType, Format)>,
) {
    message(out, b'T', |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (name, column, format) in columns {
            text(out, name);
            // The table's and the column's number, which are not tracked.
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&column.oid.to_be_bytes());
            out.extend_from_slice(&column.size.to_be_bytes());
            out.extend_from_slice(&column.modifier.to_be_bytes());
            out.extend_from_slice(&format_code(format).to_be_bytes());
        }
    });
}

/// CopyInResponse (`G`) and CopyOutResponse (`H`).
pub(crate) fn copy(out: &mut Vec<u8>, kind: u8, format: Format, columns: usize) {
    let code = format_code(format);
    message(out, kind, |out| {
        out.push(code as u8);
        out.extend_from_slice(&(columns as u16).to_be_bytes());
        for _ in 0..columns {
            out.extend_from_slice(&code.to_be_bytes());
        }
    });
}

fn format_code(format: Format) -> i16 {
    match format {
        Format::Text => 0,
        Format::Binary => 1,
    }
}

/// ErrorResponse (`E`) and NoticeResponse (`N`): fields by their letters.
pub(crate) fn report(out: &mut Vec<u8>, kind: u8, fields: &[(u8, &str)]) {
    message(out, kind, |out| {
        for (letter, value) in fields {
            out.push(*letter);
            text(out, value);
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fits_the_length_field() {
        let most = i32::MAX as usize - 4;
        assert!(require_length(0).is_ok() && require_length(most).is_ok());
        for bytes in [most + 1, usize::MAX] {
            let error = require_length(bytes).unwrap_err();
            assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        }
    }
}
