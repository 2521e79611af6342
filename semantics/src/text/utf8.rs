//! Bytes from clients and files as text.

use strandline_base::{Error, Result, SqlState};

/// The message for invalid UTF-8 in `bytes`, with up to four bytes from the invalid one at `at`.
pub fn invalid_sequence(bytes: &[u8], at: usize) -> String {
    let shown = bytes.iter().skip(at).take(4);
    let shown: Vec<String> = shown.map(|b| format!("0x{b:02x}")).collect();
    format!(
        "invalid byte sequence for encoding \"UTF8\": {}",
        shown.join(" ")
    )
}

/// UTF-8 without NUL.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let bad = |at| {
        Error::invalid(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            invalid_sequence(bytes, at),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|e| bad(e.valid_up_to()))?;
    match memchr::memchr(0, bytes) {
        None => Ok(text),
        Some(at) => Err(bad(at)),
    }
}
