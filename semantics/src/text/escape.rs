//! Escape characters of LIKE patterns.

/// A pattern with escape character `escape` (None: without one), rewritten to use the backslash.
pub fn with_backslashes(pattern: &str, escape: Option<char>) -> String {
    let mut translated = String::new();
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            c if Some(c) == escape => {
                translated.push('\\');
                translated.extend(characters.next());
            }
            '\\' => translated.push_str("\\\\"),
            other => translated.push(other),
        }
    }
    translated
}
