//! Arrays in their text form: `{1,2,NULL}`, `{"a b","c"}`, `{{1,2},{3,4}}`.

use super::trim;
use std::iter::Peekable;
use std::str::Chars;
use strandline_base::{Error, SqlState};

/// The most dimensions of an array, as in PostgreSQL.
const MAX_DIMENSIONS: usize = 6;

/// An item of an array's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// NULL
    Null,
    /// The text of a value.
    Text(String),
    /// An array in the array; all arrays of one level have the same shape.
    Array(Vec<Item>),
}

type Read<T> = std::result::Result<T, Error>;

fn malformed(text: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("malformed array literal: \"{text}\""),
    )
}

/// The items of an array.
///
/// # Errors
/// 22P02 for an invalid array, 0A000 for one with lower bounds.
pub fn items(text: &str) -> Read<Vec<Item>> {
    let trimmed = trim(text);
    if trimmed.starts_with('[') {
        return Err(Error::unsupported(format!(
            "array literal \"{text}\" with bounds of its subscripts is not supported"
        )));
    }
    let mut characters = trimmed.chars().peekable();
    if characters.next() != Some('{') {
        return Err(malformed(text).with_detail("Array value must start with \"{\"."));
    }
    let read = array(&mut characters, 1).map_err(|wrong| match wrong {
        Wrong::Form => malformed(text),
        Wrong::Depth => Error::invalid(
            SqlState("54000"),
            format!("number of array dimensions exceeds the maximum allowed ({MAX_DIMENSIONS})"),
        ),
    })?;
    if characters.next().is_some() {
        return Err(malformed(text).with_detail("Junk after closing right brace."));
    }
    if !is_regular(&read) {
        return Err(malformed(text).with_detail(
            "Multidimensional arrays must have sub-arrays with matching dimensions.",
        ));
    }
    match is_empty(&read) {
        true => Ok(Vec::new()),
        false => Ok(read),
    }
}

/// The fault of an array's text.
enum Wrong {
    Form,
    Depth,
}

/// Whether an array has no value at any depth.
fn is_empty(items: &[Item]) -> bool {
    let empty = |item: &Item| matches!(item, Item::Array(inner) if is_empty(inner));
    items.iter().all(empty)
}

/// Whether all arrays of one level have the same shape.
fn is_regular(items: &[Item]) -> bool {
    fn shape(item: &Item) -> Vec<usize> {
        match item {
            Item::Array(inner) => std::iter::once(inner.len())
                .chain(inner.first().map(shape).unwrap_or_default())
                .collect(),
            _ => Vec::new(),
        }
    }
    let first = items.first().map(shape).unwrap_or_default();
    items.iter().all(|item| {
        shape(item) == first && !matches!(item, Item::Array(inner) if !is_regular(inner))
    })
}

/// Reads from after an opening brace up to the closing one.
fn array(
    characters: &mut Peekable<Chars<'_>>,
    depth: usize,
) -> std::result::Result<Vec<Item>, Wrong> {
    if depth > MAX_DIMENSIONS {
        return Err(Wrong::Depth);
    }
    let mut items = Vec::new();
    loop {
        skip_blanks(characters);
        match characters.peek() {
            Some('}') if items.is_empty() => {
                characters.next();
                return Ok(items);
            }
            Some('{') => {
                characters.next();
                items.push(Item::Array(array(characters, depth + 1)?));
                skip_blanks(characters);
            }
            _ => items.push(value(characters)?),
        }
        match characters.next() {
            Some(',') => {}
            Some('}') => return Ok(items),
            _ => return Err(Wrong::Form),
        }
    }
}

fn skip_blanks(characters: &mut Peekable<Chars<'_>>) {
    while characters.next_if(char::is_ascii_whitespace).is_some() {}
}

/// Reads one value, up to the comma or brace after it.
fn value(characters: &mut Peekable<Chars<'_>>) -> std::result::Result<Item, Wrong> {
    let (mut text, mut quoted, mut kept) = (String::new(), false, 0);
    loop {
        match characters.peek() {
            None | Some('{') => return Err(Wrong::Form),
            Some(',' | '}') => break,
            Some('"') if !trim(&text).is_empty() || quoted => return Err(Wrong::Form),
            Some('"') => {
                characters.next();
                quoted = true;
                text.clear();
                quoted_part(characters, &mut text).ok_or(Wrong::Form)?;
                kept = text.len();
            }
            Some('\\') => {
                characters.next();
                text.push(characters.next().ok_or(Wrong::Form)?);
                kept = text.len();
            }
            Some(c) if quoted && !c.is_ascii_whitespace() => return Err(Wrong::Form),
            Some(c) => {
                text.push(*c);
                if !c.is_ascii_whitespace() {
                    kept = text.len();
                }
                characters.next();
            }
        }
    }
    text.truncate(kept);
    if quoted {
        return Ok(Item::Text(text));
    }
    if text.is_empty() {
        return Err(Wrong::Form);
    }
    Ok(match text.eq_ignore_ascii_case("null") {
        true => Item::Null,
        false => Item::Text(text),
    })
}

/// Reads up to the closing quote; None if there is none.
fn quoted_part(characters: &mut Peekable<Chars<'_>>, item: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '"' => return Some(()),
            '\\' => item.push(characters.next()?),
            c => item.push(c),
        }
    }
}

/// Writes one value into an array's text, with quotes if it has a special character or could be
/// read as NULL.
pub fn write_item(out: &mut impl std::fmt::Write, item: &str) -> std::fmt::Result {
    let special = |c: char| c.is_ascii_whitespace() || c == '\u{b}' || "{}\",\\".contains(c);
    if !item.is_empty() && !item.contains(special) && !item.eq_ignore_ascii_case("null") {
        return out.write_str(item);
    }
    let escaped = item.replace('\\', "\\\\").replace('"', "\\\"");
    write!(out, "\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::{Item, items};

    #[test]
    fn items_are_told_apart() {
        let some = |text: &str| Item::Text(text.to_string());
        assert_eq!(items("{}").expect("empty"), []);
        assert_eq!(items(" { } ").expect("empty"), []);
        assert_eq!(items("{{},{}}").expect("empty"), []);
        assert_eq!(
            items(" {1, 2 ,NULL} ").expect("three"),
            [some("1"), some("2"), Item::Null]
        );
        assert_eq!(
            items(r"{\ a b\ ,c d }").expect("two"),
            [some(" a b "), some("c d")]
        );
        let quoted = r#"{"a,b","c\"d", "" ,x\,y,"null"}"#;
        let expected = [
            some("a,b"),
            some("c\"d"),
            some(""),
            some("x,y"),
            some("null"),
        ];
        assert_eq!(items(quoted).expect("five"), expected);
        let nested = items("{{1,2}, {3,NULL}}").expect("two of two");
        let rows = [
            Item::Array(vec![some("1"), some("2")]),
            Item::Array(vec![some("3"), Item::Null]),
        ];
        assert_eq!(nested, rows);
        for wrong in [
            "",
            "1,2",
            "{1,2",
            "{1,,2}",
            "{1,}",
            "{\"a}",
            "{1}2",
            "{{1},{2,3}}",
            "{{1},2}",
            "{\"a\"b}",
            "{a\"b\"}",
            "{1}}",
            "[0:1]={1,2}",
            "{{{{{{{1}}}}}}}",
        ] {
            assert!(items(wrong).is_err(), "{wrong}");
        }
    }
}
