//! Separates code from comments and literals, byte by byte.
//!
//! Tidy needs only this part of the Rust grammar: nested block comments, plain, byte, C and raw
//! strings, and the difference between a character literal and a lifetime.

/// The class of one byte of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Any other byte, white space included.
    Code,
    /// A comment with its markers, doc comments included.
    Comment,
    /// A string or character literal with its quotes.
    Literal,
}

/// The class of every byte of `text`. An unterminated comment or literal runs to the end.
pub fn classify(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = Vec::with_capacity(bytes.len());
    while classes.len() < bytes.len() {
        let at = classes.len();
        let (class, length) = token(text, at);
        classes.resize(at + length, class);
    }
    classes
}

/// Class and length in bytes of the token at `at`. Code comes one character at a time, identifiers
/// whole.
fn token(text: &str, at: usize) -> (Class, usize) {
    let rest = &text[at..];
    if rest.starts_with("//") {
        return (Class::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Class::Comment, block_comment(rest));
    }
    if rest.starts_with('"') {
        return (Class::Literal, quoted(rest, '"'));
    }
    if rest.starts_with('\'') {
        let length = character(rest);
        return if length > 0 {
            (Class::Literal, length)
        } else {
            (Class::Code, 1)
        };
    }
    let first = rest.chars().next().expect("at is inside the text");
    if first == '_' || first.is_alphanumeric() {
        let end = rest
            .find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(rest.len());
        return prefixed(rest, end).unwrap_or((Class::Code, end));
    }
    (Class::Code, first.len_utf8())
}

/// Length of the block comment that `rest` starts with.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut i) = (0, 0);
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

/// Length of the literal that `rest` starts with and that ends at the next unescaped `quote`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return i + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Length of the character literal that `rest` starts with; 0 if the quote begins a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest[1..].chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted(rest, '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// The literal that `rest` starts with, if its first `end` bytes are a literal's prefix.
fn prefixed(rest: &str, end: usize) -> Option<(Class, usize)> {
    let prefix = &rest[..end];
    let after = &rest[end..];
    match prefix {
        "b" | "c" if after.starts_with('"') => Some((Class::Literal, end + quoted(after, '"'))),
        "b" if after.starts_with('\'') => Some((Class::Literal, end + quoted(after, '\''))),
        "r" | "br" | "cr" => {
            let hashes = after.bytes().take_while(|&b| b == b'#').count();
            if !after[hashes..].starts_with('"') {
                return None;
            }
            let terminator = format!("\"{}", "#".repeat(hashes));
            let body = hashes + 1;
            let length = after[body..]
                .find(&terminator)
                .map_or(after.len(), |i| body + i + terminator.len());
            Some((Class::Literal, end + length))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per character: `c`ode, `#` comment, `"` literal.
    fn map(text: &str) -> String {
        let classes = classify(text);
        text.char_indices()
            .map(|(i, _)| match classes[i] {
                Class::Code => 'c',
                Class::Comment => '#',
                Class::Literal => '"',
            })
            .collect()
    }

    #[test]
    fn comments() {
        assert_eq!(map("a // b\nc"), "cc####cc");
        assert_eq!(map("a/* /* */ */b"), "c###########c");
        assert_eq!(map("/* open"), "#######");
    }

    #[test]
    fn strings_hide_comment_markers_and_quotes() {
        assert_eq!(map(r#"a"//"b"#), r#"c""""c"#);
        assert_eq!(map(r#"a"\""b"#), r#"c""""c"#);
        assert_eq!(map("r#\"a\"b\"#c"), "\"\"\"\"\"\"\"\"c");
        assert_eq!(map("br\"\\\"c"), "\"\"\"\"\"c");
        assert_eq!(map("b\"a\"c\"b\""), "\"\"\"\"\"\"\"\"");
    }

    #[test]
    fn characters_are_not_lifetimes() {
        assert_eq!(map("'\"'a"), "\"\"\"c");
        assert_eq!(map("'\\''a"), "\"\"\"\"c");
        assert_eq!(map("&'a str"), "ccccccc");
        assert_eq!(map("'é'b"), "\"\"\"c");
        assert_eq!(map("b'\\''c"), "\"\"\"\"\"c");
    }

    #[test]
    fn raw_identifiers_and_names_ending_in_r_are_code() {
        assert_eq!(map("r#fn"), "cccc");
        assert_eq!(map("for\"a\""), "ccc\"\"\"");
    }
}
