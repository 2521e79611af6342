//! Errors and notices as messages: severity, SQLSTATE, text, detail, hint, position, and the table,
//! column or constraint concerned.

use crate::reply;
use strandline::{Error, SqlState};

/// The effect of an error on the session.
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

/// Appends an ErrorResponse.
pub(crate) fn error(out: &mut Vec<u8>, severity: Severity, error: &Error) {
    let severity = match severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let position = error.position().map(|p| p.to_string());
    let mut fields = vec![
        (b'S', severity),
        (b'V', severity),
        (b'C', error.sqlstate().0),
        (b'M', error.message()),
    ];
    fields.extend(error.detail().map(|d| (b'D', d)));
    fields.extend(error.hint().map(|h| (b'H', h)));
    fields.extend(position.as_deref().map(|p| (b'P', p)));
    if let Some(subject) = error.subject() {
        fields.push((b's', &subject.schema));
        fields.push((b't', &subject.table));
        fields.extend(subject.column.as_deref().map(|c| (b'c', c)));
        fields.extend(subject.constraint.as_deref().map(|n| (b'n', n)));
    }
    reply::report(out, b'E', &fields);
}

/// Appends a NoticeResponse, unless its severity is below `least` (`client_min_messages`).
pub(crate) fn notice(out: &mut Vec<u8>, notice: &Error, least: &str) {
    let state = notice.sqlstate().0;
    let severity = match &state[..2] {
        // Warnings, and unexpected transaction states.
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
