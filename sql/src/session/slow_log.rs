//! Logs slow statements to `tracing` when they end: `log_min_duration_statement`.
//!
//! A statement's time runs from the arrival of its text to its last row or its error. Without a
//! threshold the cost is one comparison. The logged text has no passwords.

use super::Session;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use std::sync::Arc;
use std::time::Duration;
use strandline_engine::Db;
use tracing::info;

/// A running statement that may be logged; its time ends when this is dropped.
pub struct WatchedStatement {
    db: Arc<Db>,
    began_us: u64,
    threshold: Duration,
    text: String,
    parameters: String,
}

impl Session {
    /// Starts to time a statement; None without a threshold.
    pub(crate) fn watch(&self, text: &str, parameters: &[ScalarValue]) -> Option<WatchedStatement> {
        let threshold = self.settings.log_min_duration?;
        Some(WatchedStatement {
            db: self.shared.db.clone(),
            began_us: self.shared.db.elapsed_us(),
            threshold,
            text: crate::parse::redacted(text).into_owned(),
            parameters: shown(parameters, self.settings.log_parameter_max_length),
        })
    }
}

impl Session {
    /// [`Session::watch`] for a statement whose text is not at hand.
    pub(crate) fn watch_parsed(
        &self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Option<WatchedStatement> {
        self.settings.log_min_duration?;
        self.watch(&statement.to_string(), parameters)
    }
}

/// `$1 = 'x', $2 = 7`, each value cut to `max_bytes` if that is not negative; empty for 0.
fn shown(parameters: &[ScalarValue], max_bytes: i64) -> String {
    if max_bytes == 0 {
        return String::new();
    }
    let mut out = String::new();
    for (at, value) in parameters.iter().enumerate() {
        let mut value = value.to_string();
        if let Ok(max) = usize::try_from(max_bytes)
            && value.len() > max
        {
            value.truncate(value.floor_char_boundary(max));
            value.push('\u{2026}');
        }
        let comma = if at > 0 { ", " } else { "" };
        out.push_str(&format!("{comma}${} = '{value}'", at + 1));
    }
    out
}

impl WatchedStatement {
    /// Stops the timing, since the statement starts over.
    pub(crate) fn dismiss(mut self) {
        self.threshold = Duration::MAX;
    }
}

impl Drop for WatchedStatement {
    fn drop(&mut self) {
        let micros = self.db.elapsed_us().saturating_sub(self.began_us);
        if Duration::from_micros(micros) < self.threshold {
            return;
        }
        let (statement, parameters) = (self.text.as_str(), self.parameters.as_str());
        let duration_ms = micros as f64 / 1e3;
        info!(target: "strandline::slow", duration_ms, statement, parameters, "slow statement");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_between_characters() {
        let values = [
            ScalarValue::Utf8(Some("gr\u{fc}n".into())),
            ScalarValue::Int64(Some(7)),
        ];
        assert_eq!(shown(&values, -1), "$1 = 'gr\u{fc}n', $2 = '7'");
        assert_eq!(shown(&values, 3), "$1 = 'gr\u{2026}', $2 = '7'");
        assert_eq!(shown(&values, 0), "");
        assert_eq!(shown(&[], -1), "");
    }
}
