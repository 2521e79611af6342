//! Errors and notices as messages: severity, SQLSTATE, text, detail, hint, position.

use crate::reply;
use strandline::{Error, SqlState};

/// What an error does to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// the statement failed
    Error,
    /// the connection ends
    Fatal,
}

/// 08P01.
pub(crate) fn protocol_violation(message: impl Into<String>) -> Error {
    Error::invalid(SqlState("08P01"), message)
}

/// Appends an ErrorResponse. `sql` is the text whose line and column the error may name.
pub(crate) fn error(out: &mut Vec<u8>, severity: Severity, error: &Error, sql: Option<&str>) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let (message, position) = match sql {
        Some(sql) => located(error.message(), sql),
        None => (error.message(), None),
    };
    let position = position.map(|p| p.to_string());
    let mut fields = vec![
        (b'S', severity),
        (b'V', severity),
        (b'C', error.sqlstate().0),
        (b'M', message),
    ];
    fields.extend(error.detail().map(|d| (b'D', d)));
    fields.extend(error.hint().map(|h| (b'H', h)));
    fields.extend(position.as_deref().map(|p| (b'P', p)));
    reply::report(out, b'E', &fields);
}

/// Appends a NoticeResponse, unless the client wants to hear of nothing below `least`
/// (`client_min_messages`).
pub(crate) fn notice(out: &mut Vec<u8>, notice: &Error, least: &str) {
    let state = notice.sqlstate().0;
    let severity = match &state[..2] {
        // Warnings, and transaction states that are not as the statement expects them.
        "01" | "25" => "WARNING",
        _ => "NOTICE",
    };
    let is_wanted = match least.to_ascii_lowercase().as_str() {
        "error" => false,
        "warning" => severity == "WARNING",
        _ => true,
    };
    if !is_wanted {
        return;
    }
    let mut fields = vec![
        (b'S', severity),
        (b'V', severity),
        (b'C', state),
        (b'M', notice.message()),
    ];
    fields.extend(notice.detail().map(|d| (b'D', d)));
    fields.extend(notice.hint().map(|h| (b'H', h)));
    reply::report(out, b'N', &fields);
}

/// The message without the parser's ` at Line: 1, Column: 8`, and that place as a position in the
/// query, in characters from 1.
fn located<'a>(message: &'a str, sql: &str) -> (&'a str, Option<usize>) {
    let split = || {
        let (start, place) = message.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        let lines = sql.split_inclusive('\n').take(line.checked_sub(1)?);
        let above: usize = lines.map(|l| l.chars().count()).sum();
        Some((start, above + column))
    };
    split().map_or((message, None), |(start, position)| (start, Some(position)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_positions() {
        let message = "syntax error: Expected: x, found: y at Line: 2, Column: 3";
        let (text, position) = located(message, "é;\nab y");
        assert_eq!(text, "syntax error: Expected: x, found: y");
        assert_eq!(position, Some(3 + 3));
        assert_eq!(located("plain", ""), ("plain", None));
        assert_eq!(located("a at Line: x, Column: 1", "").1, None);
    }
}
