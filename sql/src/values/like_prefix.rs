//! The texts that a pattern of LIKE may match, by what it begins with.

/// The bounds of the texts that match: the least one, inclusive, and the end, exclusive, if there
/// is one. None: the pattern begins with a wildcard, and any text may match.
pub fn bounds(pattern: &str) -> Option<(String, Option<String>)> {
    let end = pattern.find(['%', '_', '\\']).unwrap_or(pattern.len());
    let prefix = &pattern[..end];
    let last = prefix.chars().last()?;
    let above = char::from_u32(u32::from(last) + 1).map(|next| {
        let mut above = prefix[..prefix.len() - last.len_utf8()].to_string();
        above.push(next);
        above
    });
    Some((prefix.to_string(), above))
}

#[cfg(test)]
mod tests {
    use super::bounds;

    #[test]
    fn bounds_end_at_the_first_wildcard() {
        let of = |pattern: &str| bounds(pattern).map(|(from, end)| (from, end.unwrap_or_default()));
        let both = |from: &str, end: &str| Some((from.to_string(), end.to_string()));
        assert_eq!(of("ab%"), both("ab", "ac"));
        assert_eq!(of("a_c"), both("a", "b"));
        assert_eq!(of("a\\%"), both("a", "b"));
        assert_eq!(of("whole"), both("whole", "wholf"));
        assert_eq!(
            (of("%a"), of("_"), of("\\_"), of("")),
            (None, None, None, None)
        );
        assert_eq!(of("é%"), both("é", "ê"));
        // No character follows the last one, or the last before the surrogates.
        assert_eq!(of("a\u{10FFFF}%"), both("a\u{10FFFF}", ""));
        assert_eq!(of("a\u{D7FF}%"), both("a\u{D7FF}", ""));
    }
}
