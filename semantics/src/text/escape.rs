//! Escape characters of LIKE patterns.

/// A pattern whose escape character is `escape` (None: it has none) with the backslash instead.
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
