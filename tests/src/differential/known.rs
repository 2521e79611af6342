//! Failures that only we have and that are known, by class.

use super::{Outcome, Unit};

/// The list: a line is a name, an SQLSTATE, a part of the error's message and, where other
/// statements have this message for other reasons, words of which the statement has one, with `|`
/// between them.
pub struct Known(Vec<Class>);

struct Class {
    name: String,
    state: String,
    message: String,
    words: Vec<String>,
}

impl Known {
    /// The list that `text` holds.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entries = lines.filter_map(|line| {
            let mut parts = line.split('\t').map(str::to_string);
            Some(Class {
                name: parts.next()?,
                state: parts.next()?,
                message: parts.next()?,
                words: match parts.next() {
                    Some(words) => words.split('|').map(str::to_string).collect(),
                    None => Vec::new(),
                },
            })
        });
        Self(entries.collect())
    }

    /// The name of the class that the failure of `unit` belongs to.
    pub fn name_of(&self, ours: &Outcome, unit: &Unit) -> Option<&str> {
        let (state, message) = ours.error()?;
        let sql = [unit.change.as_deref().unwrap_or_default(), &unit.query];
        let has = |word: &String| sql.iter().any(|sql| sql.contains(word.as_str()));
        let found = self.0.iter().find(|class| {
            class.state == state
                && message.contains(&class.message)
                && (class.words.is_empty() || class.words.iter().any(has))
        });
        found.map(|class| class.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answer;
    use super::*;

    #[test]
    fn a_class_needs_one_of_its_words() {
        let known = Known::parse("# x\na\t42703\tnot exist\nb\t42702\tambiguous\tX (|LATERAL");
        let failure = |state: &str, message: &str| Outcome {
            change: None,
            query: Answer::Error {
                state: state.to_string(),
                message: message.to_string(),
            },
        };
        let name = |query: &str, state, message| {
            let unit = Unit::of_query(query);
            let name = known.name_of(&failure(state, message), &unit);
            name.map(str::to_string)
        };
        let ambiguous = "column reference \"a\" is ambiguous";
        let lateral = "SELECT a FROM t, LATERAL (SELECT 1)";
        assert_eq!(
            name("SELECT 1", "42703", "x does not exist").as_deref(),
            Some("a")
        );
        assert_eq!(name(lateral, "42702", ambiguous).as_deref(), Some("b"));
        assert_eq!(name("SELECT a FROM t", "42702", ambiguous), None);
        assert_eq!(name(lateral, "42703", ambiguous), None);
    }
}
