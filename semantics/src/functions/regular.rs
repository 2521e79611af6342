//! Functions of regular expressions with PostgreSQL's flags and escapes. The library has no back
//! references and no look-around (2201B). Of several matching alternatives it takes the first;
//! PostgreSQL takes the longest.

use super::lists::list_of;
use super::overload::Parameter::{Bigint, Text};
use super::overload::{Call, Function, Overload, Returns};
use crate::error::invalid;
use datafusion::arrow::array::{ArrayRef, BooleanBuilder, ListBuilder, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Result, ScalarValue};
use regex::{Captures, Regex, RegexBuilder};
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// invalid_regular_expression
const BAD_PATTERN: SqlState = SqlState("2201B");

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let texts = |parameters, body| Overload::new(parameters, Returns::Computed(texts), body);
    let of_text = |parameters, body| Overload::new(parameters, SqlType::Text, body);
    vec![
        Function::new(
            "regexp_like",
            vec![
                Overload::new(&[Text, Text], SqlType::Boolean, |c| like(c, None)),
                Overload::new(&[Text, Text, Text], SqlType::Boolean, |c| like(c, Some(2))),
            ],
        ),
        Function::new(
            "regexp_match",
            vec![
                texts(&[Text, Text], |c| first_match(c, None)),
                texts(&[Text, Text, Text], |c| first_match(c, Some(2))),
            ],
        ),
        Function::new(
            "regexp_split_to_array",
            vec![
                texts(&[Text, Text], |c| split(c, None)),
                texts(&[Text, Text, Text], |c| split(c, Some(2))),
            ],
        ),
        Function::new(
            "regexp_replace",
            vec![
                of_text(&[Text, Text, Text], |c| replace(c, None, None)),
                of_text(&[Text, Text, Text, Text], |c| replace(c, None, Some(3))),
                of_text(&[Text, Text, Text, Bigint], |c| replace(c, Some(3), None)),
                of_text(&[Text, Text, Text, Bigint, Bigint], |c| {
                    replace(c, Some(3), None)
                }),
                of_text(&[Text, Text, Text, Bigint, Bigint, Text], |c| {
                    replace(c, Some(3), Some(5))
                }),
            ],
        ),
        Function::new("substring_match", vec![of_text(&[Text, Text], first_part)]),
    ]
    .into_iter()
    .chain(of_places())
    .collect()
}

/// Functions about a match's number and position.
fn of_places() -> [Function; 3] {
    let (text, integer) = (SqlType::Text, SqlType::Integer);
    let of_text = |parameters, body| Overload::new(parameters, text, body);
    let of_integer = |parameters, body| Overload::new(parameters, integer, body);
    [
        Function::new(
            "regexp_count",
            vec![
                of_integer(&[Text, Text], |c| count(c, None)),
                of_integer(&[Text, Text, Bigint], |c| count(c, None)),
                of_integer(&[Text, Text, Bigint, Text], |c| count(c, Some(3))),
            ],
        ),
        Function::new(
            "regexp_instr",
            vec![
                of_integer(&[Text, Text], |c| place(c, None)),
                of_integer(&[Text, Text, Bigint], |c| place(c, None)),
                of_integer(&[Text, Text, Bigint, Bigint], |c| place(c, None)),
                of_integer(&[Text, Text, Bigint, Bigint, Bigint], |c| place(c, None)),
                of_integer(&[Text, Text, Bigint, Bigint, Bigint, Text], |c| {
                    place(c, Some(5))
                }),
                of_integer(&[Text, Text, Bigint, Bigint, Bigint, Text, Bigint], |c| {
                    place(c, Some(5))
                }),
            ],
        ),
        Function::new(
            "regexp_substr",
            vec![
                of_text(&[Text, Text], |c| part(c, None)),
                of_text(&[Text, Text, Bigint], |c| part(c, None)),
                of_text(&[Text, Text, Bigint, Bigint], |c| part(c, None)),
                of_text(&[Text, Text, Bigint, Bigint, Text], |c| part(c, Some(4))),
                of_text(&[Text, Text, Bigint, Bigint, Text, Bigint], |c| {
                    part(c, Some(4))
                }),
            ],
        ),
    ]
}

/// A text as a pattern for the operators `~` and `~*`.
pub fn pattern() -> Function {
    Function::new(
        "regular_pattern",
        vec![Overload::new(&[Text], SqlType::Text, |c| {
            c.map_text(|row| Ok(Some(format!("(?s){}", translated(c.text(0).value(row))))))
        })],
    )
}

fn texts(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(list_of(DataType::Utf8View))
}

fn fault(message: String) -> datafusion::error::DataFusionError {
    invalid(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A pattern with its flags.
struct Compiled {
    regex: Regex,
    global: bool,
}

/// The patterns of a call, row by row; equal neighbours share one compiled pattern.
struct Patterns {
    flags: Option<usize>,
    last: Option<(String, String, Arc<Compiled>)>,
}

impl Patterns {
    fn new(flags: Option<usize>) -> Self {
        Self { flags, last: None }
    }

    /// The pattern of a row, the second argument.
    fn of(&mut self, call: &Call, row: usize) -> Result<Arc<Compiled>> {
        let pattern = call.text(1).value(row);
        let flags = self.flags.map_or("", |at| call.text(at).value(row));
        if let Some((last, last_flags, compiled)) = &self.last
            && last == pattern
            && last_flags == flags
        {
            return Ok(Arc::clone(compiled));
        }
        let compiled = Arc::new(compile(pattern, flags)?);
        self.last = Some((pattern.into(), flags.into(), Arc::clone(&compiled)));
        Ok(compiled)
    }
}

fn compile(pattern: &str, flags: &str) -> Result<Compiled> {
    let mut global = false;
    let (mut ignore_case, mut lines, mut newline, mut spaced) = (false, false, true, false);
    let mut literal = false;
    for flag in flags.chars() {
        match flag {
            'g' => global = true,
            'i' => ignore_case = true,
            'c' => ignore_case = false,
            'n' | 'm' => (lines, newline) = (true, false),
            'p' => (lines, newline) = (false, false),
            'w' => (lines, newline) = (true, true),
            's' => (lines, newline) = (false, true),
            'x' => spaced = true,
            't' => spaced = false,
            'q' => literal = true,
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(fault(message));
            }
        }
    }
    let translated = match (literal, pattern.strip_prefix("***=")) {
        (true, _) => regex::escape(pattern),
        (false, Some(text)) => regex::escape(text),
        (false, None) => translated(pattern),
    };
    let regex = RegexBuilder::new(&translated)
        .case_insensitive(ignore_case)
        .multi_line(lines)
        .dot_matches_new_line(newline)
        .ignore_whitespace(spaced)
        .build()
        .map_err(|e| {
            let reason = e.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            invalid(
                BAD_PATTERN,
                format!("invalid regular expression: \"{pattern}\": {reason}"),
            )
        })?;
    Ok(Compiled { regex, global })
}

/// A pattern in the library's syntax; PostgreSQL spells some escapes differently.
pub fn translated(pattern: &str) -> String {
    let pattern = pattern.strip_prefix("***:").unwrap_or(pattern);
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('y') => out.push_str(r"\b"),
            Some('Y') => out.push_str(r"\B"),
            Some('m') => out.push_str(r"\b{start}"),
            Some('M') => out.push_str(r"\b{end}"),
            Some('Z') => out.push_str(r"\z"),
            Some('B') => out.push_str(r"\\"),
            Some('e') => out.push_str(r"\x1B"),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// The byte offset of a character number from 1; the text's end for greater numbers.
fn offset(call: &Call, argument: usize, row: usize) -> Result<usize> {
    if argument >= call.arrays.len() {
        return Ok(0);
    }
    let start = call.bigint(argument).value(row);
    let skipped = usize::try_from(start).ok().and_then(|n| n.checked_sub(1));
    let skipped =
        skipped.ok_or_else(|| fault(format!("invalid value for parameter \"start\": {start}")))?;
    let text = call.text(0).value(row);
    Ok(text
        .char_indices()
        .nth(skipped)
        .map_or(text.len(), |(at, _)| at))
}

/// A number argument of at least `least`, which is also its default.
fn number(call: &Call, argument: usize, row: usize, name: &str, least: i64) -> Result<i64> {
    if argument >= call.arrays.len() {
        return Ok(least);
    }
    let value = call.bigint(argument).value(row);
    match value >= least {
        true => Ok(value),
        false => Err(fault(format!(
            "invalid value for parameter \"{name}\": {value}"
        ))),
    }
}

fn not_global(compiled: &Compiled, name: &str) -> Result<()> {
    match compiled.global {
        true => Err(fault(format!(
            "{name}() does not support the \"global\" option"
        ))),
        false => Ok(()),
    }
}

fn like(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(flags);
    let mut builder = BooleanBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.any_null(row) {
            builder.append_null();
            continue;
        }
        let compiled = patterns.of(call, row)?;
        not_global(&compiled, "regexp_like")?;
        builder.append_value(compiled.regex.is_match(call.text(0).value(row)));
    }
    Ok(Arc::new(builder.finish()))
}

fn first_match(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(flags);
    let mut builder = ListBuilder::new(StringViewBuilder::new());
    for row in 0..call.rows {
        let mut found = false;
        if !call.any_null(row) {
            let compiled = patterns.of(call, row)?;
            if compiled.global {
                return Err(fault(
                    "regexp_match() does not support the \"global\" option".into(),
                ));
            }
            if let Some(groups) = compiled.regex.captures(call.text(0).value(row)) {
                found = true;
                let first = usize::from(groups.len() > 1);
                for group in groups.iter().skip(first) {
                    builder.values().append_option(group.map(|g| g.as_str()));
                }
            }
        }
        builder.append(found);
    }
    Ok(Arc::new(builder.finish()))
}

/// The first match of the pattern's first group, or of the whole pattern.
fn first_part(call: &Call) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(None);
    call.map_text(|row| {
        let compiled = patterns.of(call, row)?;
        let found = compiled.regex.captures(call.text(0).value(row));
        let part = found.as_ref().and_then(|groups| match groups.len() {
            1 => groups.get(0),
            _ => groups.get(1),
        });
        Ok(part.map(|part| part.as_str().to_string()))
    })
}

fn split(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(flags);
    let mut builder = ListBuilder::new(StringViewBuilder::new());
    for row in 0..call.rows {
        if call.any_null(row) {
            builder.append(false);
            continue;
        }
        let compiled = patterns.of(call, row)?;
        not_global(&compiled, "regexp_split_to_array")?;
        let text = call.text(0).value(row);
        let mut from = 0;
        for found in compiled.regex.find_iter(text) {
            // An empty match does not separate at an end or directly after a separator.
            let empty = found.start() == found.end();
            if empty && (found.start() == from || found.end() == text.len()) {
                continue;
            }
            builder.values().append_value(&text[from..found.start()]);
            from = found.end();
        }
        builder.values().append_value(&text[from..]);
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

/// Appends the replacement of a match: `\1` is a group, `\&` the whole match.
fn push_replacement(out: &mut String, replacement: &str, groups: &Captures) {
    let mut characters = replacement.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some('&') => out.push_str(&groups[0]),
            Some(digit @ '1'..='9') => {
                let group = groups.get(digit as usize - '0' as usize);
                out.push_str(group.map_or("", |g| g.as_str()));
            }
            Some('\\') | None => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
        }
    }
}

fn replace(call: &Call, start: Option<usize>, flags: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(flags);
    call.map_text(|row| {
        let compiled = patterns.of(call, row)?;
        let text = call.text(0).value(row);
        let mut from = start.map_or(Ok(0), |at| offset(call, at, row))?;
        // The number of the match to replace; 0: all matches.
        let wanted = match start {
            Some(at) if at + 1 < call.arrays.len() => number(call, at + 1, row, "n", 0)?,
            _ if compiled.global => 0,
            _ => 1,
        };
        let mut out = text[..from].to_string();
        for (n, groups) in (1..).zip(captures_from(&compiled.regex, text, from)) {
            let found = groups.get_match();
            if wanted == 0 || wanted == n {
                out.push_str(&text[from..found.start()]);
                push_replacement(&mut out, call.text(2).value(row), &groups);
                from = found.end();
            }
            if wanted == n {
                break;
            }
        }
        out.push_str(&text[from..]);
        Ok(Some(out))
    })
}

/// The matches from a position on; the pattern sees the text before it.
fn captures_from<'t>(
    regex: &Regex,
    text: &'t str,
    from: usize,
) -> impl Iterator<Item = Captures<'t>> {
    let mut at = Some(from);
    let regex = regex.clone();
    std::iter::from_fn(move || {
        let groups = regex.captures_at(text, at?)?;
        let found = groups.get_match();
        at = match found.end() > found.start() {
            true => Some(found.end()),
            false => text[found.end()..]
                .chars()
                .next()
                .map(|c| found.end() + c.len_utf8()),
        };
        Some(groups)
    })
}

fn count(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let patterns = std::cell::RefCell::new(Patterns::new(flags));
    call.map::<Int32Type>(|row| {
        let compiled = patterns.borrow_mut().of(call, row)?;
        not_global(&compiled, "regexp_count")?;
        let from = offset(call, 2, row)?;
        let found = captures_from(&compiled.regex, call.text(0).value(row), from);
        Ok(Some(found.count() as i32))
    })
}

/// The groups of the match selected by `start` and `n`, the third and fourth argument.
fn nth<'a>(call: &'a Call, compiled: &Compiled, row: usize) -> Result<Option<Captures<'a>>> {
    let from = offset(call, 2, row)?;
    let n = number(call, 3, row, "n", 1)?;
    let skipped = usize::try_from(n - 1).unwrap_or(usize::MAX);
    Ok(captures_from(&compiled.regex, call.text(0).value(row), from).nth(skipped))
}

fn place(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let patterns = std::cell::RefCell::new(Patterns::new(flags));
    call.map::<Int32Type>(|row| {
        let compiled = patterns.borrow_mut().of(call, row)?;
        not_global(&compiled, "regexp_instr")?;
        let end = number(call, 4, row, "endoption", 0)?;
        if end > 1 {
            return Err(fault(format!(
                "invalid value for parameter \"endoption\": {end}"
            )));
        }
        let group = number(call, 6, row, "subexpr", 0)?;
        let groups = nth(call, &compiled, row)?;
        let group = usize::try_from(group).unwrap_or(usize::MAX);
        let found = groups.as_ref().and_then(|groups| groups.get(group));
        Ok(Some(found.map_or(0, |found| {
            let at = if end == 1 { found.end() } else { found.start() };
            call.text(0).value(row)[..at].chars().count() as i32 + 1
        })))
    })
}

fn part(call: &Call, flags: Option<usize>) -> Result<ArrayRef> {
    let mut patterns = Patterns::new(flags);
    call.map_text(|row| {
        let compiled = patterns.of(call, row)?;
        not_global(&compiled, "regexp_substr")?;
        let group = number(call, 5, row, "subexpr", 0)?;
        let group = usize::try_from(group).unwrap_or(usize::MAX);
        let groups = nth(call, &compiled, row)?;
        let found = groups.as_ref().and_then(|groups| groups.get(group));
        Ok(found.map(|found| found.as_str().to_string()))
    })
}
