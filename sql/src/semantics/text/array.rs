//! Arrays of one dimension in their text form: `{1,2,NULL}`, `{"a b","c"}`.

use super::trim;
use crate::semantics::cast::{Mode, cast_scalar};
use crate::semantics::error::raise;
use crate::semantics::types::sql_type_of_arrow;
use datafusion::arrow::array::new_empty_array;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::scalar::ScalarValue;
use strandline_base::{Error, SqlState};

fn malformed(text: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("malformed array literal: \"{text}\""),
    )
}

/// The texts of an array's items; None: NULL.
pub fn items(text: &str) -> std::result::Result<Vec<Option<String>>, Error> {
    let inner = trim(text)
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .ok_or_else(|| malformed(text).with_detail("Array value must start with \"{\"."))?;
    let mut items = Vec::new();
    if trim(inner).is_empty() {
        return Ok(items);
    }
    let mut characters = inner.chars().peekable();
    loop {
        let (mut item, mut quoted) = (String::new(), false);
        loop {
            match characters.next() {
                None | Some(',') => break,
                Some('"') => {
                    quoted = true;
                    quoted_part(&mut characters, &mut item).ok_or_else(|| malformed(text))?;
                }
                Some('\\') => item.extend(characters.next()),
                Some('{' | '}') => return Err(malformed(text)),
                Some(c) => item.push(c),
            }
        }
        let shown = if quoted { item.as_str() } else { trim(&item) };
        if shown.is_empty() && !quoted {
            return Err(malformed(text));
        }
        let null = !quoted && shown.eq_ignore_ascii_case("null");
        items.push((!null).then(|| shown.to_string()));
        // A comma at the end announces one more item.
        if characters.peek().is_none() {
            break match inner.ends_with(',') {
                true => Err(malformed(text)),
                false => Ok(items),
            };
        }
    }
}

/// Reads up to the closing quote; None if there is none.
fn quoted_part(
    characters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    item: &mut String,
) -> Option<()> {
    loop {
        match characters.next()? {
            '"' => return Some(()),
            '\\' => item.push(characters.next()?),
            c => item.push(c),
        }
    }
}

/// An array of items of the type `item`.
pub fn list(text: &str, item: &FieldRef) -> Result<ScalarValue> {
    let sql_type = sql_type_of_arrow(item.data_type()).ok_or_else(|| raise(malformed(text)))?;
    let values = items(text)
        .map_err(raise)?
        .into_iter()
        .map(|text| match text {
            None => ScalarValue::try_from(item.data_type()),
            Some(text) => cast_scalar(&ScalarValue::Utf8(Some(text)), sql_type, Mode::Explicit)?
                .cast_to(item.data_type()),
        })
        .collect::<Result<Vec<_>>>()?;
    let values = match values.is_empty() {
        true => new_empty_array(item.data_type()),
        false => ScalarValue::iter_to_array(values)?,
    };
    let list = SingleRowListArrayBuilder::new(values).build_list_scalar();
    list.cast_to(&DataType::List(item.clone()))
}

#[cfg(test)]
mod tests {
    use super::items;

    #[test]
    fn items_are_told_apart() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(items("{}").expect("empty"), Vec::<Option<String>>::new());
        assert_eq!(
            items(" {1, 2 ,NULL} ").expect("three"),
            [some("1"), some("2"), None]
        );
        let quoted = r#"{"a,b","c\"d","",x\,y,"null"}"#;
        let expected = [
            some("a,b"),
            some("c\"d"),
            some(""),
            some("x,y"),
            some("null"),
        ];
        assert_eq!(items(quoted).expect("five"), expected);
        for wrong in ["", "1,2", "{1,2", "{1,,2}", "{1,}", "{\"a}", "{{1},{2}}"] {
            assert!(items(wrong).is_err(), "{wrong}");
        }
    }
}
