//! Failures that only we have and that are known, by class.

use super::Outcome;

/// The list: a line is a name, an SQLSTATE and a part of the error's message.
pub struct Known(Vec<(String, String, String)>);

impl Known {
    /// The list that `text` holds.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entries = lines.filter_map(|line| {
            let mut parts = line.split('\t').map(str::to_string);
            Some((parts.next()?, parts.next()?, parts.next()?))
        });
        Self(entries.collect())
    }

    /// The name of the class that the failure belongs to.
    pub fn name_of(&self, ours: &Outcome) -> Option<&str> {
        let (state, message) = ours.error()?;
        let found = self.0.iter();
        let mut found = found.filter(|(_, s, part)| s == state && message.contains(part.as_str()));
        found.next().map(|(name, _, _)| name.as_str())
    }
}
