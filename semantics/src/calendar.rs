//! Dates and timestamps of SQL: their range, days and times of day, and months added. The calendar
//! itself is [`strandline_base::calendar`].

use datafusion::error::DataFusionError;
use strandline_base::SqlState;
pub use strandline_base::calendar::{
    Civil, DAY, HOUR, MINUTE, SECOND, civil_from_days, days_from_civil, days_in_month, is_leap,
    split_micros,
};

use super::error::invalid;

/// The first day of timestamps and dates: 4713-11-24 BC, Julian day 0.
pub const FIRST_DAY: i64 = -2_440_588;
/// The last day of timestamps and dates: 294247-01-09. Microseconds since 1970 fit 64 bits up to
/// then, so every date is a timestamp. (PostgreSQL's timestamps end in 294276, its dates in
/// 5874897.)
pub const LAST_DAY: i64 = 106_751_990;
/// A day within the range of dates.
pub fn checked_day(days: i64) -> Option<i32> {
    (FIRST_DAY..=LAST_DAY)
        .contains(&days)
        .then_some(days as i32)
}

/// `days` moved by whole months; the day is cut to the length of the new month.
pub fn add_months(days: i64, months: i32) -> i64 {
    if months == 0 {
        return days;
    }
    let date = civil_from_days(days);
    let total = date.year * 12 + i64::from(date.month) - 1 + i64::from(months);
    let (year, month) = (total.div_euclid(12), (total.rem_euclid(12) + 1) as u8);
    days_from_civil(Civil {
        year,
        month,
        day: date.day.min(days_in_month(year, month)),
    })
}

/// 22008
pub fn timestamp_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

/// 22008
pub fn date_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range")
}

/// 22008
pub fn interval_out_of_range() -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        let day = |year, month, day| days_from_civil(Civil { year, month, day });
        assert_eq!(day(1970, 1, 1), 0);
        assert_eq!(day(2000, 3, 1), 11_017);
        assert_eq!(day(1600, 2, 29), day(1600, 3, 1) - 1);
        assert_eq!(day(-4713, 11, 24), FIRST_DAY);
        assert_eq!(day(294_247, 1, 9), LAST_DAY);
        assert!(
            (LAST_DAY + 1).checked_mul(DAY).is_some() && (LAST_DAY + 2).checked_mul(DAY).is_none()
        );
    }

    #[test]
    fn months_are_cut_to_their_length() {
        let day = |year, month, day| days_from_civil(Civil { year, month, day });
        assert_eq!(add_months(day(2024, 1, 31), 1), day(2024, 2, 29));
        assert_eq!(add_months(day(2023, 1, 31), 1), day(2023, 2, 28));
        assert_eq!(add_months(day(2024, 1, 15), -13), day(2022, 12, 15));
    }
}
