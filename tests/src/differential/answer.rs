//! Answers, and how ours stand to PostgreSQL's.

use super::Unit;
use crate::pg_types::common_name;
use strandline_base::checksum::checksum;

/// What a system says to one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// rows in the order they came in, their values as text
    Rows {
        types: Vec<String>,
        rows: Vec<Vec<Option<String>>>,
    },
    /// rows changed
    Count(u64),
    /// `state` is the SQLSTATE, `panic` if the system panicked
    Error { state: String, message: String },
}

/// The answers to a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub change: Option<Answer>,
    pub query: Answer,
}

/// How our answers stand to PostgreSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// the same, or both an error
    Same,
    /// the same values, integers or bigints where PostgreSQL has integers of another width
    Width,
    /// PostgreSQL has an error, we have an answer
    Accepted,
    /// PostgreSQL has an answer, we have an error
    Refused,
    /// both have an answer
    Differs,
    /// a fault of ours: a panic or an internal error
    Broken,
}

/// Longer answers are stored as a checksum.
const MOST_STORED: usize = 300;

impl Answer {
    /// The answer as it is compared and stored: `!` and the SQLSTATE of an error, `=` and the
    /// number of changed rows, or the types and the rows. Rows without an order are sorted.
    pub fn text(&self, is_ordered: bool) -> String {
        match self {
            Answer::Error { state, .. } => format!("!{state}"),
            Answer::Count(rows) => format!("={rows}"),
            Answer::Rows { types, rows } => {
                let types: Vec<String> = types.iter().map(|name| common_name(name)).collect();
                let mut lines: Vec<String> = rows.iter().map(|row| line(&types, row)).collect();
                if !is_ordered {
                    lines.sort();
                }
                let rows = lines.join(";");
                let types = types.join(",");
                match rows.len() > MOST_STORED {
                    true => {
                        let sum = checksum(&[], rows.as_bytes());
                        format!("{types}: {} rows, checksum {sum:08x}", lines.len())
                    }
                    false => format!("{types}: {} rows: {rows}", lines.len()),
                }
            }
        }
    }

    /// The error, if it is one.
    pub fn error(&self) -> Option<(&str, &str)> {
        match self {
            Answer::Error { state, message } => Some((state, message)),
            _ => None,
        }
    }
}

/// A row: values between bars, NULL as `\N`, numerics without zeros at their end.
fn line(types: &[String], row: &[Option<String>]) -> String {
    let values = row.iter().zip(types).map(|(value, name)| match value {
        None => "\\N".to_string(),
        Some(text) if name == "numeric" && text.contains('.') => {
            let text = text.trim_end_matches('0');
            text.trim_end_matches('.').to_string()
        }
        Some(text) => escaped(text),
    });
    let values: Vec<String> = values.collect();
    values.join("|")
}

impl Outcome {
    /// Both answers as text. After a change that fails there is no query.
    pub fn texts(&self, unit: &Unit) -> (String, String) {
        match &self.change {
            None => (String::new(), self.query.text(unit.is_ordered())),
            Some(change @ Answer::Error { .. }) => (change.text(false), String::new()),
            Some(change) => (change.text(false), self.query.text(unit.is_ordered())),
        }
    }

    /// The error that ends the unit.
    pub fn error(&self) -> Option<(&str, &str)> {
        let change = self.change.as_ref().and_then(Answer::error);
        change.or_else(|| self.query.error())
    }
}

/// How our outcome stands to PostgreSQL's, given as the texts that [`Outcome::texts`] makes.
pub fn standing(ours: &Outcome, wanted: &(String, String), unit: &Unit) -> Standing {
    let wanted_error = wanted.0.starts_with('!') || wanted.1.starts_with('!');
    match ours.error() {
        Some(("panic" | "XX000", _)) => Standing::Broken,
        Some(_) if wanted_error => Standing::Same,
        Some(_) => Standing::Refused,
        None if wanted_error => Standing::Accepted,
        None => {
            let ours = ours.texts(unit);
            if ours == *wanted {
                return Standing::Same;
            }
            match one_width(&ours) == one_width(wanted) {
                true => Standing::Width,
                false => Standing::Differs,
            }
        }
    }
}

/// The texts with one name for the integer types.
fn one_width((change, query): &(String, String)) -> (String, String) {
    let one = |text: &str| match text.split_once(": ") {
        Some((types, rows)) => {
            let types = types
                .replace("smallint", "integer")
                .replace("bigint", "integer");
            format!("{types}: {rows}")
        }
        None => text.to_string(),
    };
    (one(change), one(query))
}

/// `text` without tabs and line breaks.
pub fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    text.replace('\t', "\\t").replace('\r', "\\r")
}

/// What [`escaped`] was given.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => out.push(match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            }),
            c => out.push(c),
        }
    }
    out
}
