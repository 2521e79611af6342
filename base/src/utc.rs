//! Points in time as text for messages.

/// `us` microseconds since the Unix epoch as `2026-11-20 06:51:43.000000+00`.
pub fn format_utc(us: u64) -> String {
    let (seconds, micros) = (us / 1_000_000, us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{micros:06}+00",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The proleptic Gregorian date of a day since 1970-01-01: years are counted from March, so that
/// the leap day ends a year and months have the regular pattern 31 30 31 30 31.
fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    let day = days_since_epoch + 719_468; // since 0000-03-01
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (
        era * 400 + year + u64::from(month <= 2),
        month,
        day_of_month,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00.000000+00");
        assert_eq!(
            format_utc(951_782_400_000_001),
            "2000-02-29 00:00:00.000001+00"
        );
        assert_eq!(
            format_utc(951_868_799_999_999),
            "2000-02-29 23:59:59.999999+00"
        );
        assert_eq!(
            format_utc(4_107_542_400_000_000),
            "2100-03-01 00:00:00.000000+00"
        );
        assert_eq!(
            format_utc(1_795_157_503_000_000),
            "2026-11-20 06:51:43.000000+00"
        );
    }

    #[test]
    fn days_follow_each_other() {
        let mut previous = civil_date(0);
        for days in 1..200_000 {
            let date = civil_date(days);
            let (y, m, d) = previous;
            let next_day = date == (y, m, d + 1) && d < 31;
            let next_month = date == (y, m + 1, 1) && d >= 28;
            let next_year = date == (y + 1, 1, 1) && (m, d) == (12, 31);
            assert!(
                next_day || next_month || next_year,
                "{previous:?} then {date:?}"
            );
            previous = date;
        }
    }
}
