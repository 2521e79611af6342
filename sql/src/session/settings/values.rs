//! Values of parameters: parsed, refused and shown as in PostgreSQL.

use crate::parse::names;
use std::time::Duration;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::KeyIndex;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::{BlockCacheAdmission, ConflictPolicy, SsdCacheAdmission, SsdCacheMode};

/// The most milliseconds of a time, as in PostgreSQL.
const MILLISECONDS_MAX: f64 = i32::MAX as f64;

/// 22023: not a value of the parameter.
pub fn invalid(name: &str, value: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
}

/// 0A000: a value of PostgreSQL that is not supported here.
pub fn unsupported(name: &str, value: &str, only: &str) -> Error {
    Error::unsupported(format!("parameter \"{name}\" cannot be set to \"{value}\""))
        .with_hint(format!("The only supported value is {only}."))
}

/// One of a few words.
pub fn word<'w>(name: &str, value: &str, words: &[&'w str]) -> Result<&'w str> {
    let found = words.iter().find(|word| word.eq_ignore_ascii_case(value));
    found.copied().ok_or_else(|| {
        invalid(name, value).with_hint(format!("Available values: {}.", words.join(", ")))
    })
}

/// on or off, in any of PostgreSQL's spellings; a word may be shortened as long as it is unique.
pub fn boolean(name: &str, value: &str) -> Result<bool> {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if value == "1" || value == "on" || begins("true", 1) || begins("yes", 1) {
        Ok(true)
    } else if value == "0" || begins("off", 2) || begins("false", 1) || begins("no", 1) {
        Ok(false)
    } else {
        Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("parameter \"{name}\" requires a Boolean value"),
        ))
    }
}

/// Whether commits wait. PostgreSQL's levels between on and off concern replicas, which do not
/// exist here.
pub fn synchronous(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "local" | "remote_write" | "remote_apply" => Ok(true),
        other => boolean(name, other),
    }
}

/// A whole number within bounds.
pub fn integer(name: &str, value: &str, min: i64, max: i64) -> Result<i64> {
    let number: i64 = value.trim().parse().map_err(|_| invalid(name, value))?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("{number} is outside the valid range for parameter \"{name}\" ({min} .. {max})"),
    ))
}

/// A number and the unit behind it.
fn with_unit(value: &str) -> Option<(f64, &str)> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+'));
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    Some((number.parse().ok()?, unit.trim()))
}

/// A time in milliseconds, such as `500`, `500ms`, `2s`, `5min`; at least −1 if `may_be_off`, else
/// 0.
fn milliseconds(name: &str, value: &str, may_be_off: bool) -> Result<f64> {
    let (number, unit) = with_unit(value).ok_or_else(|| invalid(name, value))?;
    let milliseconds = number
        * match unit {
            "" | "ms" => 1.0,
            "us" => 1e-3,
            "s" => 1e3,
            "min" => 60e3,
            "h" => 3_600e3,
            "d" => 86_400e3,
            _ => {
                return Err(invalid(name, value).with_hint(
                    "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", \
                     and \"d\".",
                ));
            }
        };
    let min = if may_be_off { -1.0 } else { 0.0 };
    if (min..=MILLISECONDS_MAX).contains(&milliseconds) {
        return Ok(milliseconds);
    }
    Err(Error::invalid(
        SqlState::INVALID_PARAMETER_VALUE,
        format!(
            "{milliseconds} ms is outside the valid range for parameter \"{name}\" \
             ({min} ms .. {MILLISECONDS_MAX} ms)"
        ),
    ))
}

fn of_milliseconds(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}

/// A limit; 0 means no limit.
pub fn limit(name: &str, value: &str) -> Result<Option<Duration>> {
    let limit = of_milliseconds(milliseconds(name, value, false)?);
    Ok((!limit.is_zero()).then_some(limit))
}

/// A threshold; 0 is always reached, −1 means no threshold.
pub fn threshold(name: &str, value: &str) -> Result<Option<Duration>> {
    let milliseconds = milliseconds(name, value, true)?;
    Ok((milliseconds >= 0.0).then(|| of_milliseconds(milliseconds)))
}

/// A time in the largest unit that divides it.
pub fn shown_duration(duration: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
    ];
    let milliseconds = duration.as_millis();
    if milliseconds == 0 {
        return "0".to_string();
    }
    let divides = |unit: &&(u128, &str)| milliseconds.is_multiple_of(unit.0);
    match UNITS.iter().find(divides) {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None => format!("{milliseconds}ms"),
    }
}

/// `512MB`, `4GiB`, `1000000`: decimal or binary units, in bytes.
pub fn bytes(name: &str, value: &str) -> Result<u64> {
    let units = "Write for example 512MB, 4GiB or a number of bytes.";
    let refused = || invalid(name, value).with_hint(units);
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    number.checked_mul(factor).ok_or_else(refused)
}

/// PostgreSQL's on and off.
pub fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_string()
}

/// UTC under any of its names, the only time zone of timestamps.
pub fn require_utc(value: &str) -> Result<()> {
    const NAMES: [&str; 7] = ["utc", "gmt", "z", "etc/utc", "etc/gmt", "zulu", "local"];
    let name = value.trim().to_ascii_lowercase();
    let digits = name.trim_start_matches(['+', '-']);
    let is_zero = digits.starts_with('0') && digits.chars().all(|c| c == '0' || c == ':');
    if is_zero || NAMES.contains(&name.as_str()) {
        return Ok(());
    }
    Err(
        Error::unsupported(format!("time zone \"{value}\" is not supported")).with_hint(
            "Timestamps are shown in UTC; AT TIME ZONE '+02:00' shifts them to another offset.",
        ),
    )
}

/// UTF8 under any of its names.
pub fn require_utf8(name: &str, value: &str) -> Result<()> {
    let folded: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    match folded.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => Ok(()),
        "" => Err(invalid(name, value)),
        _ => Err(Error::unsupported(format!(
            "conversion between {value} and UTF8 is not supported"
        ))
        .with_hint("Text is UTF8 in the database and on the wire.")),
    }
}

/// Dates are shown in ISO form and read as month, day, year where they are ambiguous.
pub fn require_iso(name: &str, value: &str) -> Result<()> {
    for word in value.split([',', ' ']).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "iso" | "mdy" | "us" | "noneuro" | "noneuropean" => {}
            "sql" | "postgres" | "german" | "dmy" | "euro" | "european" | "ymd" => {
                return Err(unsupported(name, value, "ISO, MDY"));
            }
            _ => return Err(invalid(name, value)),
        }
    }
    Ok(())
}

/// The first schema of a search path; `"$user"` is no schema here.
pub fn schema_of(value: &str) -> Result<String> {
    let mut schemas = value
        .split(',')
        .map(|s| s.trim().trim_matches('"'))
        .filter(|s| *s != "$user");
    match (schemas.next(), schemas.next()) {
        (Some(schema), None | Some(names::PUBLIC)) if !schema.is_empty() => Ok(schema.to_string()),
        (None, _) | (Some(""), None) => Ok(names::PUBLIC.to_string()),
        _ => Err(
            Error::unsupported("a search_path of several schemas is not supported")
                .with_hint("Set one schema and qualify the names of others."),
        ),
    }
}

pub(super) const INDEX_STORAGES: &[&str] = &["auto", "memory", "pages", "levels"];
/// `auto`, and the words of [`KeyIndex`].
pub(super) const KEY_INDEXES: &[&str] = &["auto", "hash", "ordered", "btree", "fdtree"];
pub(super) const CACHE_MODES: &[&str] = &["pc", "pc2", "lc", "off"];
pub(super) const POLICIES: &[&str] = &["wait", "abort"];

pub(super) fn text(value: &str) -> Result<String> {
    Ok(value.to_string())
}

/// Accepts the only supported value, `shown`; `others` are PostgreSQL's other values.
pub(super) fn only(name: &'static str, value: &str, shown: &str, others: &[&str]) -> Result<()> {
    if value.eq_ignore_ascii_case(shown) {
        return Ok(());
    }
    let known: Vec<&str> = std::iter::once(shown)
        .chain(others.iter().copied())
        .collect();
    word(name, value, &known)?;
    Err(unsupported(name, value, shown))
}

pub(super) fn shortest_floats(name: &'static str, value: &str) -> Result<String> {
    match integer(name, value, -15, 3)? {
        digits @ 1..=3 => Ok(digits.to_string()),
        _ => Err(unsupported(name, value, "1, 2 or 3")),
    }
}

pub(super) fn count(name: &str, value: &str) -> Result<usize> {
    integer(name, value, 1, 1024).map(|n| n as usize)
}

pub(super) fn records(name: &str, value: &str) -> Result<u32> {
    integer(name, value, 1, i64::from(i32::MAX)).map(|n| n as u32)
}

pub(super) fn size(name: &str, value: &str) -> Result<usize> {
    let size = bytes(name, value)?;
    usize::try_from(size).map_err(|_| invalid(name, value))
}

pub(super) fn shown_limit(limit: &Option<Duration>) -> String {
    limit.map_or_else(|| "0".to_string(), shown_duration)
}

pub(super) fn shown_threshold(threshold: &Option<Duration>) -> String {
    threshold.map_or_else(|| "-1".to_string(), shown_duration)
}

pub(super) fn cache_mode(name: &str, value: &str) -> Result<SsdCacheMode> {
    Ok(match word(name, value, CACHE_MODES)? {
        "pc2" => SsdCacheMode::Pc2,
        "lc" => SsdCacheMode::Lc,
        "off" => SsdCacheMode::Off,
        _ => SsdCacheMode::Pc,
    })
}

/// The words of `ssd_cache_admission`.
pub(super) const SSD_CACHE_RULES: &[&str] = &["random", "all", "none"];

pub(super) fn ssd_cache_rule(name: &str, value: &str) -> Result<SsdCacheAdmission> {
    let word = word(name, value, SSD_CACHE_RULES)?;
    let mut rules = SsdCacheAdmission::ALL.into_iter();
    Ok(rules.find(|rule| rule.name() == word).unwrap_or_default())
}

/// The words of `block_cache_admission`.
pub(super) const BLOCK_CACHE_RULES: &[&str] = &["first_read", "second_read"];

pub(super) fn block_cache_rule(name: &str, value: &str) -> Result<BlockCacheAdmission> {
    let word = word(name, value, BLOCK_CACHE_RULES)?;
    let mut rules = BlockCacheAdmission::ALL.into_iter();
    Ok(rules.find(|rule| rule.name() == word).unwrap_or_default())
}

pub(super) fn index_storage(name: &str, value: &str) -> Result<Option<IndexStorage>> {
    let word = word(name, value, INDEX_STORAGES)?;
    let mut all = IndexStorage::ALL.into_iter();
    Ok(all.find(|storage| storage.name() == word))
}

pub(super) fn key_index(name: &str, value: &str) -> Result<Option<KeyIndex>> {
    word(name, value, KEY_INDEXES).map(KeyIndex::of_word)
}

pub(super) fn policy(name: &str, value: &str) -> Result<ConflictPolicy> {
    Ok(match word(name, value, POLICIES)? {
        "abort" => ConflictPolicy::Abort,
        _ => ConflictPolicy::Wait,
    })
}

pub(super) fn policy_name(policy: ConflictPolicy) -> String {
    match policy {
        ConflictPolicy::Wait => "wait",
        ConflictPolicy::Abort => "abort",
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let cases = [
            ("0", None),
            ("250", Some(Duration::from_millis(250))),
            ("2s", Some(Duration::from_secs(2))),
            ("1.5 min", Some(Duration::from_secs(90))),
        ];
        for (text, expected) in cases {
            assert_eq!(limit("x", text).expect(text), expected);
        }
        for text in ["", "s", "-1", "5 fortnights", "1e400", "600d"] {
            assert!(limit("x", text).is_err(), "{text}");
        }
        assert_eq!(threshold("x", "-1").expect("off"), None);
        assert_eq!(threshold("x", "0").expect("all"), Some(Duration::ZERO));
        for (millis, shown) in [(1_500, "1500ms"), (120_000, "2min"), (86_400_000, "1d")] {
            assert_eq!(shown_duration(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn booleans_may_be_shortened() {
        for (text, expected) in [("T", true), ("of", false), ("yes", true), ("n", false)] {
            assert_eq!(boolean("x", text).expect(text), expected, "{text}");
        }
        for text in ["o", "", "maybe"] {
            assert!(boolean("x", text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("x", "512MB").expect("decimal"), 512_000_000);
        assert_eq!(bytes("x", "4GiB").expect("binary"), 4 << 30);
        assert_eq!(bytes("x", "1TB").expect("decimal"), 1_000_000_000_000);
        assert_eq!(bytes("x", "2tib").expect("binary"), 2 << 40);
        for text in ["", "MB", "-1", "1.5GB", "1 PB", "99999999999999999999"] {
            assert!(bytes("x", text).is_err(), "{text}");
        }
    }

    #[test]
    fn search_paths_name_one_schema() {
        assert_eq!(schema_of("\"$user\", public").expect("default"), "public");
        assert_eq!(schema_of("sales").expect("one"), "sales");
        assert_eq!(schema_of("sales, public").expect("with public"), "sales");
        assert!(schema_of("sales, hr").is_err());
    }

    #[test]
    fn one_zone_one_encoding_one_style() {
        for zone in ["utc", "GMT", "+00:00", "0", "Etc/UTC"] {
            require_utc(zone).expect(zone);
        }
        for zone in ["+02:00", "Europe/Berlin", "Mars/Olympus", ""] {
            assert!(require_utc(zone).is_err(), "{zone}");
        }
        for encoding in ["UTF8", "utf-8", "'UTF8'", "unicode"] {
            require_utf8("x", encoding).expect(encoding);
        }
        assert!(require_utf8("x", "LATIN1").is_err());
        for style in ["ISO", "iso, mdy", "MDY"] {
            require_iso("x", style).expect(style);
        }
        for style in ["German", "ISO, DMY", "fancy"] {
            assert!(require_iso("x", style).is_err(), "{style}");
        }
    }
}
