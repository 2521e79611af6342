//! Points in time as text for messages.

use crate::calendar::{Civil, civil_from_days};

/// `us` microseconds since the Unix epoch as `2026-11-20 06:51:43.5+00`: as a `timestamptz` is
/// printed in UTC, without zeros at the fraction's end.
pub fn format_utc(us: u64) -> String {
    let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let Civil { year, month, day } = civil_from_days(days as i64);
    let fraction = match micros {
        0 => String::new(),
        _ => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    };
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}{fraction}+00",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00+00");
        assert_eq!(
            format_utc(951_782_400_000_001),
            "2000-02-29 00:00:00.000001+00"
        );
        assert_eq!(
            format_utc(951_868_799_999_999),
            "2000-02-29 23:59:59.999999+00"
        );
        assert_eq!(format_utc(4_107_542_400_000_000), "2100-03-01 00:00:00+00");
        assert_eq!(
            format_utc(1_795_157_503_120_000),
            "2026-11-20 06:51:43.12+00"
        );
    }
}
