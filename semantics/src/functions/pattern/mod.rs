//! Patterns of `to_char`, `to_date` and `to_timestamp` for dates, times and intervals.
//!
//! A pattern is a sequence of [`Field`]s and literal text. Supported are the fields of [`TABLE`],
//! the prefixes `FM` and `TM` (no padding; names are English) and `FX` (without effect), the
//! suffixes `TH`, `th` and `SP` (without effect), and text in double quotes.

mod read;
mod write;

pub use write::{Shown, ordinal_suffix};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
/// Months in Roman numerals.
const ROMAN_MONTHS: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];

/// The spelling of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Upper,
    Title,
    Lower,
}

impl Case {
    fn of(self, name: &str) -> String {
        match self {
            Case::Upper => name.to_uppercase(),
            Case::Title => name.to_string(),
            Case::Lower => name.to_lowercase(),
        }
    }
}

/// A field of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    /// The last digits of the year, or all with 4.
    Year(usize),
    YearWithComma,
    /// The last digits of the year of the ISO week, or all with 4.
    IsoYear(usize),
    MonthNumber,
    MonthName,
    MonthShort,
    MonthRoman,
    DayOfMonth,
    DayOfYear,
    IsoDayOfYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayName,
    DayShort,
    Hour12,
    Hour24,
    Minute,
    Second,
    SecondOfDay,
    /// The first digits of the fraction of a second.
    Fraction(usize),
    Millisecond,
    Microsecond,
    /// whether it has dots
    HalfDay(bool),
    /// whether it has dots
    Era(bool),
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Quarter,
    Century,
    Julian,
    ZoneName,
    ZoneHours,
    ZoneMinutes,
    ZoneOffset,
    /// `FX`
    Exact,
}

impl Field {
    fn is_name(self) -> bool {
        matches!(
            self,
            Field::MonthName | Field::MonthShort | Field::DayName | Field::DayShort
        )
    }

    /// Whether the field is written in digits, so that a number before it has a fixed width.
    fn is_digits(self) -> bool {
        !matches!(
            self,
            Field::MonthName
                | Field::MonthShort
                | Field::MonthRoman
                | Field::DayName
                | Field::DayShort
                | Field::HalfDay(_)
                | Field::Era(_)
                | Field::ZoneName
                | Field::ZoneHours
                | Field::ZoneOffset
                | Field::Exact
        )
    }
}

/// Spellings, longer ones before their prefixes. Each may be in small letters, too.
const TABLE: [(&str, Field); 58] = [
    ("Month", Field::MonthName),
    ("Mon", Field::MonthShort),
    ("Day", Field::DayName),
    ("Dy", Field::DayShort),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("I", Field::IsoYear(1)),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MM", Field::MonthNumber),
    ("MI", Field::Minute),
    ("MS", Field::Millisecond),
    ("DAY", Field::DayName),
    ("DY", Field::DayShort),
    ("DDD", Field::DayOfYear),
    ("DD", Field::DayOfMonth),
    ("D", Field::DayOfWeek),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("FX", Field::Exact),
    ("US", Field::Microsecond),
    ("A.M.", Field::HalfDay(true)),
    ("P.M.", Field::HalfDay(true)),
    ("AM", Field::HalfDay(false)),
    ("PM", Field::HalfDay(false)),
    ("A.D.", Field::Era(true)),
    ("B.C.", Field::Era(true)),
    ("AD", Field::Era(false)),
    ("BC", Field::Era(false)),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("Q", Field::Quarter),
    ("CC", Field::Century),
    ("J", Field::Julian),
    ("RM", Field::MonthRoman),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("TZ", Field::ZoneName),
    ("OF", Field::ZoneOffset),
];

/// A part of a pattern.
#[derive(Debug, PartialEq)]
enum Part {
    Field {
        field: Field,
        case: Case,
        unpadded: bool,
        ordinal: Option<Case>,
    },
    Text(char),
}

/// A parsed pattern.
#[derive(Debug)]
pub struct Pattern(Vec<Part>);

impl Pattern {
    /// Parses a pattern; other characters are text.
    pub fn parse(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern;
        let mut unpadded = false;
        while let Some(first) = rest.chars().next() {
            if let Some(tail) = either(rest, "FM").or_else(|| either(rest, "TM")) {
                unpadded = true;
                rest = tail;
            } else if let Some((field, case, tail)) = field_at(rest) {
                rest = tail;
                let mut ordinal = None;
                for (suffix, suffix_case) in [("TH", Case::Upper), ("th", Case::Lower)] {
                    if let Some(tail) = rest.strip_prefix(suffix) {
                        (ordinal, rest) = (Some(suffix_case), tail);
                    }
                }
                rest = rest.strip_prefix("SP").unwrap_or(rest);
                parts.push(Part::Field {
                    field,
                    case,
                    unpadded,
                    ordinal,
                });
                unpadded = false;
            } else if let Some(quoted) = rest.strip_prefix('"') {
                rest = quoted_text(quoted, |c| parts.push(Part::Text(c)));
            } else {
                let quote = rest.strip_prefix('\\').filter(|r| r.starts_with('"'));
                let shown = if quote.is_some() { '"' } else { first };
                parts.push(Part::Text(shown));
                rest = &quote.unwrap_or(rest)[shown.len_utf8()..];
            }
        }
        Self(parts)
    }

    /// Whether the pattern is empty; `to_char` of a moment is then NULL.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The text after a word in upper or lower case.
fn either<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let found = text.get(..word.len())?;
    let matches = found == word || found == word.to_ascii_lowercase();
    matches.then(|| &text[word.len()..])
}

/// The field at the start of a text, the spelling of its name, and the rest.
fn field_at(text: &str) -> Option<(Field, Case, &str)> {
    TABLE.iter().find_map(|(spelling, field)| {
        let rest = either(text, spelling)?;
        let mut letters = text.chars();
        let (first, second) = (letters.next()?, letters.next());
        let case = match (first.is_lowercase(), second.is_some_and(char::is_lowercase)) {
            (true, _) => Case::Lower,
            (false, true) if field.is_name() => Case::Title,
            _ => Case::Upper,
        };
        Some((*field, case, rest))
    })
}

/// Passes the characters up to the closing quote, or to the end, to `put`; returns the rest.
pub fn quoted_text(quoted: &str, mut put: impl FnMut(char)) -> &str {
    let mut characters = quoted.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => characters.next().into_iter().for_each(&mut put),
            c => put(c),
        }
    }
    characters.as_str()
}
