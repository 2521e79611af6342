//! Bytes from clients and files as text.

use strandline_base::{Error, Result, SqlState};

/// UTF-8 without NUL.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let bad = |at: usize| {
        let shown: Vec<String> = bytes
            .iter()
            .skip(at)
            .take(4)
            .map(|b| format!("0x{b:02x}"))
            .collect();
        Error::invalid(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!(
                "invalid byte sequence for encoding \"UTF8\": {}",
                shown.join(" ")
            ),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|e| bad(e.valid_up_to()))?;
    match memchr::memchr(0, bytes) {
        None => Ok(text),
        Some(at) => Err(bad(at)),
    }
}
